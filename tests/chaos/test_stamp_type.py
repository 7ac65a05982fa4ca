"""The raw topic's message.timestamp.type changes while a pipeline reads it, and changes back."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline

pytestmark = pytest.mark.chaos

LENGTH = 10_000
PATIENCE = 120.0


def test_records_of_the_other_type_are_dead_letters_and_what_comes_after_them_is_published(
    kafka: Broker, tmp_path: Path
) -> None:
    """Clock producer: five users before, five while the broker stamps, five after; then the worker restarts, and five more."""
    topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"message.timestamp.type": "CreateTime"})
    live = {
        "start": {"from": "earliest", "first_window": format_time(int(time.time() * 1000) // LENGTH * LENGTH)},
        "clock": {"kind": "producer", "until": None, "idle_grace": "2s"},
        "window": {"length": f"{LENGTH}ms", "trigger_every": f"{LENGTH}ms"},
        "privacy": {"epsilon": 100.0, "delta": 1e-3, "strategy": "toeplitz"},
        "topics": {"by_user_partitions": 1, "bounded_partitions": 1},
    }

    def stamp_by(kind: str) -> None:
        entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        kafka.admin().incremental_alter_configs([resource])[resource].result(30)
        wanted = kind == "LogAppendTime"

        def stamped() -> bool:
            write("probe", 1)
            return (kafka.read_all(topic)[-1].timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME) is wanted

        wait_for(stamped, f"the topic is stamped by {kind}", seconds=PATIENCE)

    def write(page: str, users: int = 5) -> None:
        producer = kafka.producer()
        for user in range(users):
            producer.produce(topic, json.dumps({"host": f"{page}-{user}", "url": page}).encode(), partition=0)
        assert producer.flush(30) == 0

    with Pipeline(kafka, tmp_path, topic, live) as pipeline:

        def published(page: str) -> bool:
            rows = kafka.read_all(pipeline.settings.topic("histogram"))
            return any(json.loads(m.value())["key"] == page for m in rows)

        worker = pipeline.start()
        write("before")
        wait_for(lambda: published("before"), "the rows of the time before", seconds=PATIENCE)
        stamp_by("LogAppendTime")
        write("meanwhile")
        stamp_by("CreateTime")
        write("after")
        wait_for(lambda: published("after"), "the rows of the time after", seconds=PATIENCE)
        assert worker.stop() == 0, worker.tail()
        pipeline.start()
        write("restarted")
        wait_for(lambda: published("restarted"), "the rows after a restart", seconds=PATIENCE)
        assert not published("meanwhile")

        other = [m.offset() for m in kafka.read_all(topic) if m.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME]
        letters = [decode_headers(m.headers()) for m in kafka.read_all(pipeline.settings.topic("dead-letter"))]
        assert [letter.offset for letter in letters] == other
        assert {letter.reason for letter in letters} == {Reason.WRONG_STAMP}
        assert len(other) >= 6
        assert "is not stamped as clock.kind=producer expects" in worker.log.read_text()
