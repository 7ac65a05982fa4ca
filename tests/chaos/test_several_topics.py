"""One pipeline over several raw topics of different formats: the same users, caps over all, and the same bytes after kills."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import EnumValueDescriptorProto

from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.add_input import add_input
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.topics import bounded, by_user, charges, ledger
from susurrus.topics.sources import Run
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.pipeline import CRASHING, THREE_POINTS, Pipeline, archive_topic, merged, produce

pytestmark = pytest.mark.chaos

START = 807_235_200_000  # 1995-08-01T00:00:00Z
HOUR = 3_600_000
USERS, EACH, CAP = 40, 6, 8


def as_json(user: int, key: int) -> bytes:
    return json.dumps({"name": f"u{user}", "number": key}).encode()


def as_protobuf(user: int, key: int) -> bytes:
    """As Confluent's serializer frames it: a zero, the schema's id, and the place of the message in its file: one number, 7."""
    return (
        b"\0"
        + (7).to_bytes(4, "big")
        + b"\x02\x0e"
        + EnumValueDescriptorProto(name=f"u{user}", number=key).SerializeToString()
    )


def two_topics(broker: Broker) -> tuple[str, str]:
    """An archive of two topics. Every user has EACH records of other keys in either, spread over the partitions."""
    first, second = archive_topic(broker, 2), archive_topic(broker, 3)
    for topic, write, partitions, base in ((first, as_json, 2, 100), (second, as_protobuf, 3, 200)):
        records = [
            (number % partitions, write(user, base + number), START + number * HOUR)
            for number in range(EACH)
            for user in range(1, USERS + 1)
        ]
        produce(broker, topic, records)
    return first, second


def over(first: str, second: str, **sections: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "input": {
            "topic": None,
            "topics": [first, second],
            "user": "name",
            "key": ["number"],
            "formats": {
                second: {"format": "protobuf", "message": "google.protobuf.descriptor_pb2:EnumValueDescriptorProto"}
            },
        },
        "bounds": {"max_records_per_user": CAP},
        "window": {"trigger_every": "1d"},
    }
    return merged(own, sections)


def kept(pipeline: Pipeline) -> Counter[int]:
    """Records within the caps, by key."""
    found = Counter[int]()
    for message in pipeline.broker.read_all(pipeline.settings.topic("bounded")):
        if kind_of(message.value()) is not Kind.TICK:
            block = bounded.decode(message.value())
            for key, count in zip(block.keys, block.sums[:, 0].tolist(), strict=True):
                found[json.loads(key)[0] if key.startswith(b"[") else json.loads(key)] += count
    return found


def test_users_and_their_caps_are_those_of_all_topics_whoever_is_killed(kafka: Broker, tmp_path: Path) -> None:
    first, second = two_topics(kafka)
    with Pipeline(kafka, tmp_path, "", over(first, second)) as pipeline:
        pipeline.start()
        pipeline.wait(seconds=100)
        undisturbed = pipeline.public()
        totals = pipeline.counters()
        assert totals["in"] == 2 * USERS * EACH
        assert totals["dead_letter"] == 0
        # With caps for each topic, all records of every user would be kept.
        assert totals["kept"] == USERS * CAP
        # A user's records of all topics have one order, in which the topic is of no account.
        by_topic = Counter(key // 100 for key in kept(pipeline).elements())
        assert by_topic.total() == USERS * CAP
        assert 0.3 < by_topic[1] / (USERS * CAP) < 0.7
        start = next(
            record
            for message in kafka.read_all(pipeline.settings.topic("ledger"))
            if isinstance(record := ledger.decode(message.key(), message.value()), ledger.Start)
        )
        assert start.sources == (Run(first, 0, 2), Run(second, 0, 3))
        assert set(start.topic_ids) == {first, second}
        charged = [charges.decode(m.value()) for m in kafka.read_all(pipeline.settings.topics.charges)]
        assert sorted(charge.raw_topic for charge in charged) == sorted((first, second))
        rows = collect(pipeline_of(pipeline.settings))
        assert [row.partition for row in rows.partitions if row.stage == "route"] == [0, 1, 2, 3, 4]
        assert (rows.charged, rows.charged_all) == (1, 1)
    with Pipeline(kafka, tmp_path, "", over(first, second, **CRASHING)) as killed:
        killed.crash_everywhere("route", 1, THREE_POINTS)
        killed.start()
        killed.wait()
        assert killed.public() == undisturbed


def test_a_pattern_reads_the_topics_that_exist_when_the_pipeline_begins_and_no_later_one(
    kafka: Broker, tmp_path: Path
) -> None:
    name = f"raw-{kafka.new_prefix()}"
    kept_for_ever = {"retention.ms": "-1"}
    first, second = (kafka.create_topic(f"{name}-{end}", 1, kept_for_ever) for end in "ab")
    for topic in (first, second):
        produce(kafka, topic, [(0, as_json(user, 1), START + user) for user in range(10)])
    own = over(first, second, input={"topics": None, "topic_pattern": f"{name}-.*", "formats": None})
    with Pipeline(kafka, tmp_path, "", own) as pipeline:
        pipeline.start()
        pipeline.wait(seconds=100)
        later = kafka.create_topic(f"{name}-0", 1, kept_for_ever)
        produce(kafka, later, [(0, as_json(1, 1), START)])
        assert [
            row.partition for row in collect(pipeline_of(pipeline.settings)).partitions if row.stage == "route"
        ] == [0, 1]
        pipeline.start()  # another worker, which could see it
        assert pipeline.counters()["in"] == 20


EVERY, LENGTH = 2_000, 600_000


def live(first: str) -> dict[str, Any]:
    """A pipeline with triggers every two seconds, which begins with one topic of a list."""
    start = int(time.time() * 1000) // LENGTH * LENGTH
    return {
        "input": {"topic": None, "topics": [first], "user": "name", "key": ["number"]},
        "start": {"from": "earliest", "first_window": format_time(start)},
        "clock": {"kind": "broker", "until": None, "grace": "1s", "idle_grace": "2s"},
        "window": {"length": f"{LENGTH}ms", "trigger_every": f"{EVERY}ms"},
        "bounds": {"max_records_per_user": 4},
        "topics": {"by_user_partitions": 1, "bounded_partitions": 1},
    }


def announcements(pipeline: Pipeline) -> list[ledger.SourcesRecord]:
    records = [ledger.decode(m.key(), m.value()) for m in pipeline.broker.read_all(pipeline.settings.topic("ledger"))]
    return [record for record in records if isinstance(record, ledger.SourcesRecord)]


def blocks(pipeline: Pipeline, source: int) -> list[by_user.ByUserBlock]:
    values = [message.value() for message in pipeline.broker.read_all(pipeline.settings.topic("by-user"))]
    found = [by_user.decode(value) for value in values if kind_of(value) is not Kind.TICK]
    return [block for block in found if block.source == source]


def test_a_topic_is_added_while_a_worker_runs_and_counts_from_a_public_instant(kafka: Broker, tmp_path: Path) -> None:
    stamped = {"message.timestamp.type": "LogAppendTime"}
    first, second = (kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, stamped) for _ in range(2))
    history = produce(kafka, second, [(0, as_json(user, 7), None) for user in range(30)])
    with Pipeline(kafka, tmp_path, "", live(first)) as pipeline:
        worker = pipeline.start()
        read = produce(kafka, first, [(0, as_json(user, 1), None) for user in range(20)])
        wait_for(pipeline.progress, "the first trigger")
        clients = clients_of(pipeline.settings, quiet=True)
        try:
            said = add_input(pipeline_of(pipeline.settings), clients, second)
            assert said[-1].startswith(f"asked    {second}")
            assert any(line.startswith("grown") and "route-changelog" in line for line in said)
        finally:
            clients.close()
        wait_for(lambda: announcements(pipeline), "source 0 announces the topic")
        [announced] = announcements(pipeline)
        assert announced.sources == (Run(first, 0, 1), Run(second, 0, 1))
        assert announced.offsets == {1: history}
        read += produce(kafka, second, [(0, as_json(user, 2), None) for user in range(25)])
        pipeline.wait_for_total(read, "taken")
        # The list may say so from now on. A worker that has another topic in it is refused.
        pipeline.data["input"]["topics"] = [first, second]
        pipeline.write_config()
        assert worker.stop() == 0, worker.tail()
        pipeline.start()
        read += produce(kafka, second, [(0, as_json(user, 3), None) for user in range(5)])
        pipeline.wait_for_total(read, "taken")
        totals = pipeline.counters()
        assert (totals["in"], totals["interval_moved"], totals["late"]) == (read, 0, 0)
        assert min(int(block.offset.min()) for block in blocks(pipeline, 1)) == history
        assert min(int(block.interval.min()) for block in blocks(pipeline, 1)) >= announced.from_interval
        charged = [charges.decode(m.value()) for m in kafka.read_all(pipeline.settings.topics.charges)]
        windows = {charge.window for charge in charged}
        # The topic may join in the window after the first.
        joined = min(charge.window for charge in charged if charge.raw_topic == second)
        expected = {(first, w) for w in windows} | {(second, w) for w in windows if w >= joined}
        assert {(c.raw_topic, c.window) for c in charged} == expected
        assert collect(pipeline_of(pipeline.settings)).charged == len(windows)
