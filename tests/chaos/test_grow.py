"""A raw topic that gets another partition while data flows: taken up at the next trigger, and nothing is lost."""

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.ticks import Sources
from susurrus.topics import by_user, ledger, tick
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]

EVERY = 2_000
LENGTH = 600_000


def grown_to(pipeline: Pipeline) -> list[ledger.SourcesRecord]:
    records = [ledger.decode(m.key(), m.value()) for m in pipeline.broker.read_all(pipeline.settings.topic("ledger"))]
    return [record for record in records if isinstance(record, ledger.SourcesRecord)]


def released(pipeline: Pipeline) -> int:
    """The interval up to which every partition has released."""
    reached: dict[int, int] = {}
    for (window, partition), trigger in pipeline.progress().items():
        reached[partition] = max(reached.get(partition, 0), int(window) // EVERY + trigger)
    return min(reached.values())


def test_a_new_raw_partition_is_taken_up_at_the_next_trigger_while_data_flows(kafka: Broker, tmp_path: Path) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 2, {"message.timestamp.type": "LogAppendTime"})
    first_window = int(time.time() * 1000) // LENGTH * LENGTH
    live: dict[str, Any] = {
        "start": {"from": "earliest", "first_window": format_time(first_window)},
        "clock": {"kind": "broker", "until": None, "grace": "2s", "idle_grace": "3s"},
        "window": {"length": f"{LENGTH}ms", "trigger_every": f"{EVERY}ms"},
        "bounds": {"max_records_per_user": 4},
        "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
    }
    partitions, produced = 2, Counter[int]()
    stop = threading.Event()

    def feed() -> None:
        number = 0
        while not stop.is_set():
            producer, there = kafka.producer(linger_ms=5), partitions  # a new one knows the partitions there are now
            for _ in range(20):
                for partition in range(there):
                    for user in range(5):
                        event = {"host": f"{partition} {number} {user}", "url": f"/{user}"}
                        producer.produce(raw, json.dumps(event).encode(), partition=partition)
                        produced[partition] += 1
                number += 1
                producer.flush(10)
                stop.wait(0.1)

    feeder = threading.Thread(target=feed)
    with Pipeline(kafka, tmp_path, raw, live) as pipeline:
        worker = pipeline.start()
        feeder.start()
        try:
            wait_for(lambda: pipeline.progress(), "the first triggers with two partitions")
            kafka.admin().create_partitions([NewPartitions(raw, 3)])[raw].result(30)
            grown = create_topics(pipeline.settings, kafka.admin())  # what `susurrus topics create` does
            for topic in ("route-changelog", "dead-letter"):
                assert f"grown    {pipeline.settings.topic(topic)} to 3 partitions" in grown
            wait_for(
                lambda: len(kafka.admin().list_topics(raw, timeout=30).topics[raw].partitions) == 3, "the partition"
            )
            partitions = 3
            wait_for(lambda: produced[2] > 0, "records in the new partition")
            wait_for(lambda: grown_to(pipeline), "source 0 announces it")
            [announced] = grown_to(pipeline)
            assert announced.number == 3

            def third() -> Any:
                rows = [
                    row
                    for row in collect(pipeline_of(pipeline.settings)).partitions
                    if (row.stage, row.partition) == ("route", 2)
                ]
                return (
                    rows
                    and rows[0].position > 0
                    and rows[0].interval is not None
                    and rows[0].interval > announced.from_interval
                )

            wait_for(third, "the new partition is routed")
            stop.set()
            feeder.join()
            at = released(pipeline)
            wait_for(lambda: released(pipeline) > at + 2, "triggers go on")
            wait_for(
                lambda: (totals := pipeline.counters()).get("taken", 0) == sum(produced.values()) == totals["routed"],
                f"every record is counted: {sum(produced.values())}",
            )
        finally:
            stop.set()
            feeder.join()
        assert worker.process.poll() is None
        totals = pipeline.counters()
        assert totals["in"] == totals["kept"] == sum(produced.values())
        assert totals["late"] == totals["dead_letter"] == totals["capped"] == 0

        # The numbers of sources travel in source 0's ticks; the new source's blocks and ticks begin where it joins.
        sources: list[int] = []
        for message in kafka.read_all(pipeline.settings.topic("by-user")):
            if message.partition() != 0:
                continue
            if kind_of(message.value()) is Kind.TICK:
                found = tick.decode(message.value())
                if found.source == 2:
                    assert found.interval >= announced.from_interval
                if found.source == 0:
                    sources.append(Sources(found.sources).number(found.interval))
                    assert sources[-1] == (3 if found.interval >= announced.from_interval else 2)
            else:
                block = by_user.decode(message.value())
                assert block.source != 2 or int(block.interval.min()) >= announced.from_interval
        assert sources[-1] == 3
