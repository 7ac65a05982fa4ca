"""A window of the raw topic as a sample: whether a record is in it depends on that record and on public instants alone."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.planning import window_sample
from susurrus.agents.planning.sample import read_topic
from susurrus.agents.planning.window_sample import read_window, window_named
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.topics import ledger
from tests.agents.planning.test_sample import DAY, START, settings_with
from tests.broker import Broker, wait_for
from tests.pipeline import archive_topic, produce

HOUR = 3_600_000
NOW = START + 3 * DAY + HOUR // 2
LIVE: dict[str, Any] = {"clock": {"kind": "producer"}, "window": {"length": "1d", "trigger_every": "1h"}}


@pytest.mark.parametrize(
    ("text", "days", "sections"),
    [
        ("last", 2, {}),
        ("last", 1, {"window": {"length": "1d", "trigger_every": "1h", "allowed_lateness": "1h"}}),  # not over yet
        ("current", 3, {}),
        ("first", 1, {"start": {"from": "earliest", "first_window": "1995-08-02T00:00:00Z"}}),
        ("1995-08-03T17:00:00Z", 2, {}),
        ("last", 0, {"clock": {"kind": "replay", "until": "1995-08-02T00:00:00Z"}, "start": {
            "from": "earliest", "first_window": "1995-08-01T00:00:00Z"}}),
    ],
)  # fmt: skip
def test_windows_have_names(text: str, days: int, sections: dict[str, Any]) -> None:
    settings = settings_with(**{**LIVE, **sections})
    assert window_named(settings, text, NOW, None) == START + days * DAY


@pytest.mark.parametrize(
    ("text", "says"), [("first", "start.first_window is not set"), ("noon", "no instant"), ("2026-01-01", "offset")]
)
def test_other_names_are_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--window {text}: .*{says}"):
        window_named(settings_with(**LIVE), text, NOW, None)


def record(host: str, hour: float, event: float | None = None) -> tuple[int, bytes, int]:
    """hour, event: of the stamp and of the event time, in hours from START."""
    time = (START + round((hour if event is None else event) * HOUR)) / 1000
    value = json.dumps({"host": host, "url": "/", "time": time, "bytes": 10}).encode()
    return 0, value, START + round(hour * HOUR)


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> str:
    name = archive_topic(kafka, 2)
    records = [
        record("before", -1),
        record("early event", -0.5, 0.5),  # stamped before the window
        record("a", 1),
        record("forged", 1_000, 2),  # stamped far ahead, among the others
        record("b", 3),
        record("old", -2),  # out of order
        record("c", 23.5),
        record("late event", 23.9, 25),  # of the next window
        record("b", 5, 4),
        record("after", 24.5),
        record("d", 24.5, 23),  # late
    ]
    produce(kafka, name, records)
    return name


def hosts(sample: Any) -> int:
    return int(sample.users)


@pytest.mark.parametrize(
    ("clock", "lateness", "users"),
    [("producer", "0s", 3), ("producer", "1h", 4)],
    ids=["no lateness", "lateness"],
)
def test_a_record_alone_decides_whether_it_is_in_the_window(
    kafka: Broker, topic: str, clock: str, lateness: str, users: int
) -> None:
    settings = settings_with(
        kafka={"bootstrap_servers": kafka.bootstrap_servers},
        input={"topic": topic},
        clock={"kind": clock, "max_future": "365d"},
        window={"length": "1d", "trigger_every": "1h", "allowed_lateness": lateness},
    )
    clients = clients_of(settings, quiet=True)
    try:
        sample = read_window(settings, WindowStart(START), clients)
        # a, b and c, though a record between them is stamped weeks ahead; d where late records count.
        assert hosts(sample) == users
        assert len(sample) == users + 1
        with pytest.raises(SusurrusError, match=r"window 1995-09-10T00:00:00Z: has no records"):
            read_window(settings, WindowStart(START + 40 * DAY), clients)
    finally:
        clients.close()


def stamp_by(kafka: Broker, topic: str, kind: str) -> None:
    """Set the topic's message.timestamp.type, and wait until a record has it."""
    entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    kafka.admin().incremental_alter_configs([resource])[resource].result(30)

    def stamped() -> bool:
        produce(kafka, topic, [(0, b"a probe", None)])
        return (kafka.read_all(topic)[-1].timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME) is (kind == "LogAppendTime")

    wait_for(stamped, f"the topic is stamped by {kind}")


def test_a_record_of_the_other_stamp_type_is_bad_input_and_ends_the_sample_for_nobody(kafka: Broker) -> None:
    """Clock broker: while the topic was set otherwise for a moment, one producer has chosen a stamp behind the window."""
    start = int(time.time() * 1000) - HOUR // 2
    settings = settings_with(
        kafka={"bootstrap_servers": kafka.bootstrap_servers},
        input={"topic": f"raw-{kafka.new_prefix()}", "time": "kafka"},
        clock={"kind": "broker"},
        window={"length": "2h", "trigger_every": "1h", "origin": start},
    )
    topic = kafka.create_topic(
        settings.input.topic, 1, {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": str(DAY)}
    )

    def write(host: str, stamp: int | None = None) -> None:
        value = json.dumps({"host": host, "url": "/", "bytes": 10}).encode()
        produce(kafka, topic, [(0, value, stamp)])

    write("before")
    stamp_by(kafka, topic, "CreateTime")
    write("forged", start + 20 * HOUR)
    write("meanwhile", start + HOUR)
    stamp_by(kafka, topic, "LogAppendTime")
    write("after")
    write("later")
    clients = clients_of(settings, quiet=True)
    try:
        sample = read_window(settings, WindowStart(start), clients)
        assert (len(sample), hosts(sample)) == (3, 3)  # before, after and later
        assert sample.dropped["WRONG_STAMP"] == 1  # meanwhile; the other is not in the window
        everything = read_topic(settings, 1_000, clients=clients)
        assert (len(everything), everything.dropped["WRONG_STAMP"]) == (3, 2)
    finally:
        clients.close()


def test_too_many_records_are_refused_before_they_are_read(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_sample, "MOST_RECORDS", 3)
    settings = settings_with(kafka={"bootstrap_servers": kafka.bootstrap_servers}, input={"topic": topic}, **LIVE)
    clients = clients_of(settings, quiet=True)
    try:
        with pytest.raises(
            ConfigurationError, match="at most 3 are; give a file with all records of some of the users"
        ):
            read_window(settings, WindowStart(START), clients)
    finally:
        clients.close()


def test_the_first_window_of_a_pipeline_that_has_begun_is_in_its_ledger(kafka: Broker) -> None:
    settings = settings_with(
        pipeline={"prefix": kafka.new_prefix()}, kafka={"bootstrap_servers": kafka.bootstrap_servers}, **LIVE
    )
    clients = clients_of(settings, quiet=True)
    try:
        with pytest.raises(ConfigurationError, match="the pipeline has not begun"):
            window_named(settings, "first", NOW, clients)
        kafka.create_topic(settings.topic("ledger"))
        producer = kafka.producer()
        start = ledger.Start(first_window=START + DAY, origin="latest", topic_ids={}, sources=(), offsets={})
        key, value = ledger.encode(start)
        producer.produce(settings.topic("ledger"), value, key, partition=0)
        producer.flush(30)
        assert window_named(settings, "first", NOW, clients) == START + DAY
    finally:
        clients.close()
