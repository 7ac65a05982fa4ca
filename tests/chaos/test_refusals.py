"""What a partition must not go on with: it refuses with the way out, the others run on, and a repair withdraws it."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from susurrus.agents.operations.status import PartitionStatus, collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.topics import tick
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.chaos.conftest import published_in_peace
from tests.pipeline import EPOCH, SECRET, Pipeline, Worker, archive_topic, produce
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chaos

WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
HOUR = 3_600_000
SMALL: dict[str, Any] = {
    "clock": {"until": format_time(WINDOW + HOUR)},
    "window": {"length": "1h", "trigger_every": "15m"},
    "bounds": {"max_records_per_user": 4},
    "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
}


def visits(partition: int, number: int, *, first: int = 0, span: int = HOUR) -> Iterator[tuple[int, bytes, int]]:
    """Records of one raw partition, spread over the window: many users, few pages."""
    for n in range(number):
        event = {"host": f"user {partition} {first + n}", "url": f"/page {n % 3}"}
        yield partition, json.dumps(event).encode(), WINDOW + n * span // number


def raw_topic(kafka: Broker, *, number: int = 400) -> str:
    topic = archive_topic(kafka, 2)
    for partition in range(2):
        produce(kafka, topic, visits(partition, number))
    return topic


def refused(pipeline: Pipeline) -> dict[tuple[str, int], PartitionStatus]:
    return {
        (row.stage, row.partition): row
        for row in collect(pipeline_of(pipeline.settings)).partitions
        if row.state == "refused"
    }


def wait_until_refused(pipeline: Pipeline, *places: tuple[str, int]) -> list[PartitionStatus]:
    """The rows of the places, once all of them refuse."""
    try:
        wait_for(lambda: set(places) <= set(refused(pipeline)), f"{places} refuse")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {refused(pipeline)}\n{pipeline.workers[-1].tail()}") from error
    found = refused(pipeline)
    return [found[place] for place in places]


def row_of(pipeline: Pipeline, stage: str, partition: int) -> PartitionStatus:
    return next(
        r for r in collect(pipeline_of(pipeline.settings)).partitions if (r.stage, r.partition) == (stage, partition)
    )


def running(pipeline: Pipeline) -> int:
    return sum(row.state == "running" for row in collect(pipeline_of(pipeline.settings)).partitions)


def one_line(text: str) -> str:
    """What a panel says, without its frame."""
    return " ".join(text.replace("│", " ").split())


def last_words(worker: Worker) -> str:
    """What a worker says that ends with the exit code of a refusal."""
    assert worker.process.wait(PATIENCE) == 2
    return one_line(worker.tail())


def command_line(pipeline: Pipeline) -> tuple[int, str]:
    """`susurrus status`: exit code and text, on one line."""
    done = subprocess.run(
        [sys.executable, "-m", "susurrus.agents.cli", "status", "--config", str(pipeline.config)],
        capture_output=True,
        text=True,
        env={"SUSURRUS_SECRET": SECRET, "COLUMNS": "200", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    return done.returncode, one_line(done.stdout)


def delete_records(kafka: Broker, topic: str, partition: int, before: int = -1) -> None:
    """As retention does; -1 is everything."""
    [future] = kafka.admin().delete_records([TopicPartition(topic, partition, before)]).values()
    future.result(30)


def test_retention_that_ate_unread_records_stops_that_partition_alone(kafka: Broker, tmp_path: Path) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        assert worker.stop() == 0, worker.tail()
        produce(kafka, raw, visits(0, 50, first=1000, span=0))
        delete_records(kafka, raw, 0, 420)
        pipeline.start()
        [row] = wait_until_refused(pipeline, ("route", 0))
        assert f"topic={raw} partition=0 starts at offset=420, but position=400 is still to be read" in str(row.finding)
        assert "run `susurrus ledger new-epoch`" in row.finding.action
        wait_for(lambda: running(pipeline) == 5, "the others run on")
        assert set(refused(pipeline)) == {("route", 0)}
        code, text = command_line(pipeline)
        assert code == 1
        assert "route 0: refused" in text
        assert "retention ate unread records" in text
        assert "What to do: raise its retention, and run `susurrus ledger new-epoch`" in text


def test_retention_that_ate_the_beginning_is_refused_too_and_nothing_is_published_without_it(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        pipeline.crash("route:before-begin:1")  # there is a ledger, but nothing is read
        delete_records(kafka, raw, 0, 1)
        pipeline.start()
        [row] = wait_until_refused(pipeline, ("route", 0))
        assert f"topic={raw} partition=0 starts at offset=1, but position=0 is still to be read" in str(row.finding)
        wait_for(lambda: row_of(pipeline, "route", 1).position == 400, "the other is read")
        assert kafka.read_all(pipeline.settings.topic("progress")) == []


def test_a_raw_topic_that_is_recreated_is_refused_while_running_and_after_a_restart(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        kafka.delete_topic(raw)
        # A broker with auto.create.topics.enable may have been asked for it already, with one partition.
        with contextlib.suppress(KafkaException):
            kafka.create_topic(raw, 1, {"retention.ms": "-1"})
        produce(kafka, raw, visits(0, 500, first=2000))  # more than was there: positions alone would look right
        [row] = wait_until_refused(pipeline, ("route", 0))
        assert f"topic={raw} was recreated" in str(row.finding)
        assert row_of(pipeline, "bound", 0).state == "running"
        worker.stop()
        pipeline.start()
        wait_for(lambda: row_of(pipeline, "bound", 0).state == "running", "the new worker runs")
        [row] = wait_until_refused(pipeline, ("route", 0))
        assert f"topic={raw} was recreated" in str(row.finding)


def test_a_worker_with_a_changed_configuration_does_not_start_and_the_old_one_goes_on(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = raw_topic(kafka)
    wanted = published_in_peace(kafka, tmp_path, raw, SMALL)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        pipeline.crash("release:after-commit:2")
        pipeline.data["bounds"] = {"max_records_per_user": 5}
        pipeline.write_config()
        said = last_words(pipeline.start())
        assert "configuration changed under the same epoch (fields: bounds)" in said
        assert "change them back, or give the pipeline a new [pipeline] name" in said
        code, text = command_line(pipeline)
        assert code == 1
        assert "The pipeline runs with other values of bounds" in text
        pipeline.data["bounds"] = SMALL["bounds"]
        pipeline.write_config()
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == wanted
        wait_for(lambda: running(pipeline) == 6, "all partitions run")
        code, text = command_line(pipeline)
        assert code == 0, text


@pytest.mark.parametrize("differs", ["configuration", "secret"])
def test_a_worker_that_differs_takes_no_partition_from_those_that_run(
    kafka: Broker, tmp_path: Path, differs: str
) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        wait_for(lambda: running(pipeline) == 6, "all partitions run")
        generations = worker.log.read_text().count("of the group: ")
        if differs == "configuration":
            pipeline.data["privacy"] = {**pipeline.data["privacy"], "epsilon": 7.0}
            pipeline.write_config()
            other, said = pipeline.start(), "configuration changed under the same epoch (fields: privacy"
        else:
            other, said = pipeline.start(SUSURRUS_SECRET="5b" * 32), "the secret differs from the one"
        assert said in last_words(other)
        time.sleep(3)
        assert worker.log.read_text().count("of the group: ") == generations
        assert not refused(pipeline)


@pytest.mark.parametrize("loss", ["emptied", "recreated"])
def test_a_lost_changelog_of_a_partition_that_has_committed_is_no_beginning(
    kafka: Broker, tmp_path: Path, loss: str
) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        worker.stop()
        before = pipeline.public()
        topic = pipeline.settings.topic("release-changelog")
        if loss == "emptied":
            delete_records(kafka, topic, 1)
        else:
            kafka.delete_topic(topic)
            kafka.create_topic(topic, 2, {"retention.ms": "-1"})
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        [row] = wait_until_refused(pipeline, ("release", 1))
        assert "stage=release partition=1 has committed before, but its changelog is empty" in str(row.finding)
        assert row.finding.action.startswith(
            "restore the changelog topic as it was at the last commit, or run `susurrus ledger"
        )
        wait_for(lambda: row_of(pipeline, "bound", 1).state == "running", "the others run on")
        assert pipeline.public() == before


def test_internal_records_deleted_before_they_were_read_are_refused(kafka: Broker, tmp_path: Path) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        pipeline.crash("bound:before-begin:1")
        topic = pipeline.settings.topic("by-user")
        wait_for(lambda: len(kafka.read_all(topic)) > 2, "route has committed")
        delete_records(kafka, topic, 0)
        pipeline.start()
        [row] = wait_until_refused(pipeline, ("bound", 0))
        assert f"topic={topic} partition=0 starts at offset=" in str(row.finding)
        assert "position=0 is still to be read" in str(row.finding)
        wait_for(lambda: row_of(pipeline, "bound", 1).position > 0, "the other partition runs on")
        assert kafka.read_all(pipeline.settings.topic("histogram")) == []


def test_a_foreign_record_in_an_internal_topic_stops_its_partition_and_says_so(kafka: Broker, tmp_path: Path) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        topic = pipeline.settings.topic("by-user")
        produce(kafka, topic, [(1, b"who wrote this?", None)])
        pipeline.start()
        [row] = wait_until_refused(pipeline, ("bound", 1))
        assert f"topic={topic} partition=1" in str(row.finding)
        assert "who wrote this" not in str(row.finding)
        assert "find out who else writes to it" in row.finding.action


@pytest.mark.parametrize(("topic", "stage"), [("by-user", "bound"), ("bounded", "release")])
def test_a_tick_that_closes_more_records_than_came_stops_its_partition_and_says_so(
    kafka: Broker, tmp_path: Path, topic: str, stage: str
) -> None:
    """As after an election that lost what had been acknowledged; a real one is not to be had on demand."""
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        worker.stop()
        full = pipeline.settings.topic(topic)
        last = [m for m in kafka.read_all(full) if m.partition() == 1 and kind_of(m.value()) is Kind.TICK][-1]
        said = tick.decode(last.value())
        produce(kafka, full, [(1, tick.encode(replace(said, records=said.records + 3)), None)])
        pipeline.start()
        [row] = wait_until_refused(pipeline, (stage, 1))
        assert f"topic={full} partition=1 offset=" in str(row.finding)
        assert f"source={said.source} says records={said.records + 3}, and records={said.records} came" in str(
            row.finding
        )
        assert "Kafka has lost what it had acknowledged" in str(row.finding)
        assert "susurrus ledger new-epoch" in row.finding.action


@pytest.mark.parametrize(
    ("kind", "stamped", "fits"), [("producer", "LogAppendTime", "broker"), ("broker", "CreateTime", "producer")]
)
def test_a_worker_does_not_begin_on_a_raw_topic_stamped_otherwise_than_the_clock_says(
    kafka: Broker, tmp_path: Path, kind: str, stamped: str, fits: str
) -> None:
    """It ends before there is an epoch, so nothing is charged. Once the topic or the clock is changed, it begins."""
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 2, {"message.timestamp.type": stamped})
    produce(kafka, raw, [(1, b'{"host": "me", "url": "/"}', None)])
    live = {
        "start": {"first_window": format_time(int(time.time() * 1000) // HOUR * HOUR)},
        "clock": {"kind": kind, "until": None},
    }
    with Pipeline(kafka, tmp_path, raw, {**SMALL, **live}) as pipeline:
        said = last_words(pipeline.start())
        assert f'topic={raw} has message.timestamp.type={stamped}, but clock.kind="{kind}" needs ' in said
        assert "no epoch has begun and nothing is charged" in said
        assert f'set clock.kind = "{fits}" in the file' in said
        for topic in ("ledger", "by-user", "progress"):
            assert kafka.read_all(pipeline.settings.topic(topic)) == []
        assert kafka.read_all(pipeline.settings.topics.charges) == []
    live["clock"]["kind"] = fits
    with Pipeline(kafka, tmp_path, raw, {**SMALL, **live}) as pipeline:
        pipeline.start()
        wait_for(lambda: running(pipeline) == 6, "all tasks run", seconds=PATIENCE)


def test_pipelines_on_one_raw_topic_share_a_budget_and_the_one_that_exceeds_it_publishes_nothing(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = raw_topic(kafka)
    budget = {"budget": {"epsilon": 6.5, "delta": 1e-8}}  # one window of epsilon = 6 fits, two do not
    prefix = kafka.new_prefix()
    first = {**SMALL, **budget, "pipeline": {"name": "first", "prefix": prefix}}
    second = {**SMALL, **budget, "pipeline": {"name": "second", "prefix": prefix}}
    with Pipeline(kafka, tmp_path, raw, first) as pipeline, Pipeline(kafka, tmp_path, raw, second) as other:
        worker = pipeline.start()
        pipeline.wait()
        assert worker.stop() == 0
        published = pipeline.public()
        assert sum(map(len, published["histogram"].values())) > 0
        other.start()
        for row in wait_until_refused(other, ("release", 0), ("release", 1)):
            assert "budget: epsilon=6.5, delta=1e-08 would be exceeded" in str(row.finding)
            assert "nothing of it was published" in str(row.finding)
            assert row.finding.action == "raise [budget] in the open, or stop the pipeline"
        wait_for(lambda: row_of(other, "bound", 0).state == "running", "the other stages run")
        assert other.public() == {"histogram": {}, "latest": {}, "progress": {}}
        # The first has what it paid for, also after a restart.
        pipeline.start()
        wait_for(lambda: row_of(pipeline, "release", 0).state == "running", "the first runs on")
        time.sleep(2)
        assert not refused(pipeline)
        assert pipeline.public() == published


def test_an_archive_out_of_order_is_refused_with_its_place_and_the_sorted_partition_is_read(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = archive_topic(kafka, 2)
    produce(kafka, raw, visits(0, 100))
    produce(kafka, raw, [*visits(1, 30, span=HOUR // 2), (1, b'{"host": "late", "url": "/"}', WINDOW + 1)])
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        pipeline.start()
        [row] = wait_until_refused(pipeline, ("route", 1))
        assert f"topic={raw} partition=1 offset=30 is older than a record before it" in str(row.finding)
        wait_for(lambda: row_of(pipeline, "route", 0).position == 100, "the other is read")
        # Nothing is released without it.
        assert kafka.read_all(pipeline.settings.topic("progress")) == []


def test_no_refusal_and_no_status_names_a_user_or_a_key(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    produce(
        kafka,
        raw,
        [(1, b'{"host": "alice", "url": "/secret"}', WINDOW + 10_000), (1, b'{"host": "bob", "url": "/x"}', WINDOW)],
    )
    with Pipeline(kafka, tmp_path, raw, SMALL) as pipeline:
        worker = pipeline.start()
        wait_until_refused(pipeline, ("route", 1))
        time.sleep(3)
        worker.stop()
        ledger = b"".join(
            (m.key() or b"") + (m.value() or b"") for m in kafka.read_all(pipeline.settings.topic("ledger"))
        )
        log = worker.log.read_bytes()
        for word in (b"alice", b"bob", b"/secret"):
            assert word not in ledger
            assert word not in log
        assert EPOCH.encode() in ledger
