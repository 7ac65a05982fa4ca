"""Samples of a raw topic on a real broker: partitions fill at different rates, and every sample is one stretch of time."""

import json
from typing import Any

import pytest
from confluent_kafka import KafkaException

from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.planning.raw_topic import Slice, newest, oldest, records_of, stamped
from susurrus.agents.planning.sample import read_slice, read_topic
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from tests.agents.planning.test_sample import START, settings_with
from tests.broker import Broker
from tests.pipeline import archive_topic, produce

RECORDS = 1_000


def partition_of(number: int) -> int:
    return 0 if number % 10 < 7 else 1 if number < 900 else 2


def stamp_of(number: int) -> int:
    """Pairs of records share a stamp."""
    return START + number // 2 * 1000


@pytest.fixture(scope="module")
def settings(kafka: Broker) -> Any:
    topic = archive_topic(kafka, 4)  # one partition stays empty
    records = [
        (
            partition_of(n),
            json.dumps({"host": f"h{n}", "url": f"/{n % 3}", "bytes": n}).encode() if n % 100 else b"{",
            stamp_of(n),
        )
        for n in range(RECORDS)
    ]
    assert produce(kafka, topic, records) == RECORDS
    return settings_with(
        kafka={"bootstrap_servers": kafka.bootstrap_servers},
        input={"topic": topic, "time": "kafka"},
        clock={"kind": "producer"},
    )


def numbers(sample: Any) -> list[int]:
    """Which records a sample has."""
    return sorted((sample.values[:, 0] * 10).tolist())


def expected(numbers: Any) -> list[int]:
    return sorted(min(round(n / 10) * 10, 1000) for n in numbers if n % 100)


@pytest.mark.parametrize("count", [1, 7, 400, 999, 1_000, 5_000])
def test_the_newest_and_the_oldest_records_are_those_by_stamp(settings: Any, count: int) -> None:
    taken = min(count, RECORDS)
    clients = clients_of(settings, quiet=True)
    try:
        for choose, wanted in ((newest, range(RECORDS - taken, RECORDS)), (oldest, range(taken))):
            chosen = choose(clients, [settings.input.topic], count)
            assert chosen.records == taken
            records = [record for batch in records_of(clients, chosen, 100) for record in batch]
            assert len(records) == taken
            # Of two records with the stamp at the edge, it may be either.
            found = sorted(record.timestamp()[1] for record in records)
            assert found == [stamp_of(n) for n in wanted]
    finally:
        clients.close()


def test_a_sample_is_decoded_like_the_pipelines_records(settings: Any) -> None:
    seen: list[tuple[int, int | None]] = []
    sample = read_topic(settings, 200, progress=lambda done, total: seen.append((done, total)))
    assert numbers(sample) == expected(range(800, RECORDS))
    assert (sample.read, dict(sample.dropped), sample.timed) == (200, {"NOT_JSON": 2}, True)
    assert sample.time.max() == stamp_of(RECORDS - 1)
    assert seen[-1] == (200, 200)
    first = read_topic(settings, 200, from_start=True)
    assert numbers(first) == expected(range(200))


def test_a_stretch_of_time_can_be_read(settings: Any) -> None:
    def choose(clients: Any, topics: Any) -> Slice:
        return stamped(clients, topics, stamp_of(100), stamp_of(300))

    assert numbers(read_slice(settings, choose)) == expected(range(100, 300))
    with pytest.raises(SusurrusError, match="has no records"):
        read_slice(settings, lambda clients, topics: stamped(clients, topics, stamp_of(5_000), stamp_of(6_000)))


def test_a_topic_that_does_not_exist_and_a_dead_broker_are_said(settings: Any) -> None:
    absent = settings_with(kafka=settings.kafka.model_dump(), input={"topic": "absent"})
    with pytest.raises(ConfigurationError, match="topic=absent does not exist"):
        read_topic(absent, 10)
    with pytest.raises(ConfigurationError, match="records=0"):
        read_topic(settings, 0)


def test_a_partition_whose_records_are_gone_raises(settings: Any) -> None:
    clients = clients_of(settings, quiet=True)
    try:
        places = [(settings.input.topic, partition) for partition in range(4)]
        with pytest.raises(KafkaException):
            list(records_of(clients, Slice(places=places, start=[9_000, 0, 0, 0], end=[9_001, 0, 0, 0]), 10))
    finally:
        clients.close()
