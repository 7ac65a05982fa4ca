"""What a worker's stop and start do to the partitions of others. With names (worker.instance) a restart moves none, and two workers
of one name do not fight for ever. Without names only those move that must."""

import re
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from susurrus.agents.runtime.ending import DISK_UNUSABLE, MISCONFIGURED
from tests.broker import Broker, wait_for
from tests.chaos.test_refusals import SMALL, raw_topic
from tests.pipeline import Pipeline, Public, Worker
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chaos

LONG: dict[str, Any] = {"worker": {"session_timeout": "2m"}}
"""Longer than any of these tests needs for a restart."""
SHORT: dict[str, Any] = {"worker": {"session_timeout": "6s"}}
TASKS = 3 + 4 + 4
ASSIGNED = re.compile(r"generation (\d+) of the group: \d+ given up, now (.*)")


def start(pipeline: Pipeline, instance: str) -> Worker:
    return pipeline.start(SUSURRUS__WORKER__INSTANCE=instance)


def assignments(worker: Worker) -> list[tuple[int, frozenset[str]]]:
    """What the group gave a worker, one after the other: generation and names of the partitions."""
    found = ASSIGNED.findall(worker.log.read_text(errors="replace"))
    return [(int(generation), frozenset(names.split(", ")) - {"none"}) for generation, names in found]


def held(worker: Worker) -> frozenset[str]:
    """The names of the partitions that the group gave a worker last."""
    return assignments(worker)[-1][1]


def starts(worker: Worker, name: str) -> int:
    """How often a worker opened a partition's producer and store, and recovered its state."""
    return worker.log.read_text(errors="replace").count(f" {name} runs from offset ")


def share_work(*workers: Worker, tasks: int = TASKS) -> bool:
    """Whether they are all of one generation, and have all partitions between them."""
    last = [assignments(worker)[-1:] for worker in workers]
    if not all(last):
        return False
    generations, names = zip(*(given for [given] in last), strict=True)
    return len(set(generations)) == 1 and all(names) and sum(map(len, names)) == tasks


def two_workers(pipeline: Pipeline) -> list[Worker]:
    """The first of them leads the group."""
    first = start(pipeline, "first")
    wait_for(lambda: share_work(first), "the first joins")
    second = start(pipeline, "second")
    wait_for(lambda: share_work(first, second), "they share the work")
    return [first, second]


@pytest.mark.parametrize(
    ("victim", "how"),
    [
        ("first", "SIGKILL"),
        pytest.param("second", "SIGTERM", marks=pytest.mark.thorough),
        pytest.param("first", "SIGTERM", marks=pytest.mark.campaign),
        pytest.param("second", "SIGKILL", marks=pytest.mark.campaign),
    ],
)
def test_a_restart_moves_no_partition_and_changes_no_byte(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path, victim: str, how: str
) -> None:
    with Pipeline(kafka, tmp_path, loaded_raw, LONG) as pipeline:
        workers = two_workers(pipeline)
        gone, stays = workers if victim == "first" else reversed(workers)
        had, before = assignments(gone)[-1], assignments(stays)
        if how == "SIGTERM":
            assert gone.stop() == 0, gone.tail()
        else:
            gone.kill()
        again = start(pipeline, victim)
        wait_for(lambda: assignments(again), "it joins again")
        pipeline.wait()
        assert pipeline.public() == loaded_undisturbed
        assert assignments(again) == [had]
        assert assignments(stays) == before


@pytest.mark.parametrize("how", ["SIGTERM", pytest.param("SIGKILL", marks=pytest.mark.campaign)])
def test_a_partition_that_stays_with_its_worker_goes_on_without_recovery_while_others_move(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path, how: str
) -> None:
    """It keeps its task, so its producer and its store: a task that opened them again would log that it runs once more."""
    with Pipeline(kafka, tmp_path, loaded_raw) as pipeline:
        workers: list[Worker] = []
        for _ in range(3):
            workers.append(pipeline.start())
            wait_for(lambda: share_work(*workers), "it joins")
        *stay, leaves = workers
        before = [held(worker) for worker in stay]
        if how == "SIGTERM":
            assert leaves.stop() == 0, leaves.tail()
        else:
            leaves.kill()
        wait_for(lambda: share_work(*stay), "the others have its partitions")
        assert all(had < held(worker) for had, worker in zip(before, stay, strict=True))
        comes = pipeline.start()
        wait_for(lambda: share_work(*stay, comes), "another one joins")
        pipeline.wait()
        assert pipeline.public() == loaded_undisturbed
        for had, worker in zip(before, stay, strict=True):
            kept = had & held(worker)
            assert kept
            assert {name: starts(worker, name) for name in kept} == dict.fromkeys(kept, 1)


@pytest.mark.parametrize("how", ["SIGTERM", pytest.param("SIGKILL", marks=pytest.mark.campaign)])
def test_partitions_move_when_the_session_is_over(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path, how: str
) -> None:
    with Pipeline(kafka, tmp_path, raw, SHORT) as pipeline:
        gone, stays = two_workers(pipeline)
        if how == "SIGTERM":
            assert gone.stop() == 0, gone.tail()
        else:
            gone.kill()
        wait_for(lambda: share_work(stays), "the other has all partitions")
        pipeline.wait()
        assert pipeline.public() == undisturbed


def test_the_first_of_two_workers_with_one_name_ends_and_says_why(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, loaded_raw, SHORT) as pipeline:
        first = start(pipeline, "same")
        wait_for(lambda: share_work(first), "the first joins")
        second = start(pipeline, "same")
        assert first.process.wait(PATIENCE) == MISCONFIGURED, first.tail()
        group = pipeline.settings.application
        assert (
            f"the worker ends, exit code 2, worker.instance=same group={group}: another worker has joined with the same "
            "instance and has the partitions of this one; give each worker of the pipeline an instance of its own"
        ) in first.log.read_text()
        pipeline.wait()
        assert second.process.poll() is None, second.tail()
        assert pipeline.public() == loaded_undisturbed
        assert [generation for generation, _ in assignments(second)] == [
            generation for generation, _ in assignments(first)
        ]


@pytest.mark.campaign
def test_a_frozen_worker_that_wakes_up_joins_again_and_ends_if_its_name_has_been_taken(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, loaded_raw, SHORT) as pipeline:
        frozen, other = two_workers(pipeline)
        frozen.signal(signal.SIGSTOP)
        wait_for(lambda: share_work(other), "its session is over")
        frozen.signal(signal.SIGCONT)
        wait_for(lambda: share_work(frozen, other), "it joins again")
        frozen.signal(signal.SIGSTOP)
        replaced = start(pipeline, "first")
        wait_for(lambda: share_work(replaced, other), "another takes its place")
        frozen.signal(signal.SIGCONT)
        assert frozen.process.wait(PATIENCE) == MISCONFIGURED, frozen.tail()
        pipeline.wait()
        assert [replaced.process.poll(), other.process.poll()] == [None, None]
        assert pipeline.public() == loaded_undisturbed


def test_a_worker_whose_disk_cannot_be_used_is_not_waited_for(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, raw, LONG) as pipeline:
        healthy = start(pipeline, "healthy")
        wait_for(lambda: share_work(healthy), "it joins")
        frozen = {"SUSURRUS_CRASH_AT": "worker:before-group:1:SIGSTOP", "SUSURRUS__WORKER__INSTANCE": "sick"}
        sick = pipeline.start(**frozen)
        sick.wait_until_frozen()
        resource.prlimit(sick.process.pid, resource.RLIMIT_FSIZE, (1, 1))
        sick.signal(signal.SIGCONT)
        assert sick.process.wait(PATIENCE) == DISK_UNUSABLE, sick.tail()
        wait_for(lambda: len(assignments(healthy)) == 3, "the group assigns anew")
        assert share_work(healthy)
        pipeline.wait()
        assert pipeline.public() == undisturbed


def test_partitions_that_are_added_while_the_leader_is_down_are_assigned(kafka: Broker, tmp_path: Path) -> None:
    """The broker gives the leader its old assignment back and does not tell it that it leads.

    The epoch has begun, so the new partition is no part of the archive: the group assigns it, and it gets no task.
    """
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL | LONG) as pipeline:
        alone = start(pipeline, "alone")
        wait_for(lambda: share_work(alone, tasks=2 + 2 + 2), "it joins")
        wait_for(lambda: "began epoch" in alone.log.read_text(errors="replace"), "the archive is settled")
        alone.kill()
        kafka.admin().create_partitions([NewPartitions(raw, 3)])[raw].result(30)
        wait_for(lambda: len(kafka.admin().list_topics(raw, timeout=30).topics[raw].partitions) == 3, "the partition")
        again = start(pipeline, "alone")
        wait_for(lambda: share_work(again, tasks=3 + 2 + 2), "the new partition is assigned")
        first = assignments(again)[0][1]
        assert first == held(alone)
        assert held(again) == first | {f"{raw}-2 (no source)"}
