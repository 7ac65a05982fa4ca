"""On a real broker: state that was lost is built again, and publishes nothing twice and nothing from other values."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from susurrus.agents.kafka.clients_of import clients_of
from susurrus.topics import ledger
from tests.broker import Broker, wait_for
from tests.chaos.test_refusals import wait_until_refused
from tests.pipeline import Pipeline, archive_topic
from tests.stream_pipeline import TOPS, stream_pipeline

PARTITIONS = 2
METERS = ("a", "b")
Readings = Sequence[tuple[str, float]]


def readings(number: int, first: int = 0) -> list[tuple[str, float]]:
    return [(METERS[at % 2], float(at * 7 % 90)) for at in range(first, first + number)]


def produce(kafka: Broker, raw: str, values: Readings, first: int = 0) -> None:
    """Each meter on a partition of its own, in small batches."""
    producer = kafka.producer(linger_ms=5)
    for at, (meter, watts) in enumerate(values, first):
        event = {"meter": meter, "reading": {"watts": watts}, "note": "." * 200}
        producer.produce(raw, json.dumps(event).encode(), partition=METERS.index(meter), timestamp=1_000_000 + at)
    producer.flush(60)


def rows(pipeline: Pipeline) -> int:
    return len(pipeline.broker.read_all(pipeline.settings.topic("private-stream")))


def records(pipeline: Pipeline) -> dict[bytes, ledger.LedgerRecord]:
    """What the ledger holds."""
    found: dict[bytes, Any] = {m.key(): m.value() for m in pipeline.broker.read_all(pipeline.settings.topic("ledger"))}
    decoded = {key: ledger.decode(key, value) for key, value in found.items()}
    return {key: record for key, record in decoded.items() if record is not None}


def published(pipeline: Pipeline) -> dict[int, ledger.PublishedPosition]:
    return {r.partition: r for r in records(pipeline).values() if isinstance(r, ledger.PublishedPosition)}


def recreated(kafka: Broker, topic: str) -> None:
    """Another topic of the same name, empty."""
    kafka.delete_topic(topic)
    wait_for(lambda: topic not in kafka.admin().list_topics(timeout=10).topics, "the topic is gone")
    kafka.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})


def lose_state(pipeline: Pipeline) -> None:
    """The changelog is empty, and the operator has withdrawn the marks that would tell."""
    recreated(pipeline.broker, pipeline.settings.topic("stream-changelog"))
    producer = pipeline.broker.producer()
    for partition in range(PARTITIONS):
        producer.produce(pipeline.settings.topic("ledger"), None, f"started/stream/{partition}".encode(), partition=0)
    producer.flush(30)


@pytest.fixture
def life(kafka: Broker, tmp_path: Path) -> Iterator[Pipeline]:
    """A stream that has published 100 rows of each of its partitions."""
    raw = archive_topic(kafka, PARTITIONS)
    produce(kafka, raw, readings(1_400))
    with stream_pipeline(kafka, tmp_path, raw, TOPS) as pipeline:
        worker = pipeline.start()
        wait_for(lambda: rows(pipeline) >= 200, "the rows are published")
        assert worker.stop() == 0, worker.tail()
        assert {partition: record.position for partition, record in published(pipeline).items()} == {0: 700, 1: 700}
        yield pipeline


def rebuilt(pipeline: Pipeline, number: int) -> Any:
    return pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(pipeline.directory / f"life-{number}"))


def test_lost_state_is_refused_and_rebuilt_on_purpose_publishes_nothing_twice(life: Pipeline, tmp_path: Path) -> None:
    kafka, raw, before, links = life.broker, life.settings.input.topic, life.public(["private-stream"]), published(life)
    recreated(kafka, life.settings.topic("stream-changelog"))
    worker = rebuilt(life, 1)
    for row in wait_until_refused(life, ("stream", 0), ("stream", 1)):
        assert "has committed before, but its changelog is empty" in str(row.finding)
    assert worker.stop() == 0, worker.tail()
    assert life.public(["private-stream"]) == before
    lose_state(life)
    life.crash("stream:after-commit:1")
    worker = rebuilt(life, 2)
    produce(kafka, raw, readings(400, 1_400), 1_400)
    wait_for(lambda: rows(life) >= 300, "the rows behind are published")
    assert worker.stop() == 0, worker.tail()
    after = life.public(["private-stream"])["private-stream"]
    for partition, found in before["private-stream"].items():
        assert after[partition][: len(found)] == found
    with stream_pipeline(kafka, tmp_path, raw, TOPS) as undisturbed:
        undisturbed.start()
        wait_for(lambda: rows(undisturbed) >= 300, "the rows are published")
        assert undisturbed.public(["private-stream"])["private-stream"] == after
        wait_for(
            lambda: (
                [published(undisturbed)[n].digest for n in range(PARTITIONS)]
                == [published(life)[n].digest for n in range(PARTITIONS)]
            ),
            "the chains are the same",
        )
    assert all(published(life)[n].position == 900 > links[n].position for n in range(PARTITIONS))


def test_a_raw_log_with_another_value_is_refused(life: Pipeline) -> None:
    """Recreated under the same name, and the operator has written its id into the ledger. One value of one partition is another."""
    kafka, raw, before = life.broker, life.settings.input.topic, life.public(["private-stream"])
    recreated(kafka, raw)
    other = readings(1_600)
    other[400] = (other[400][0], other[400][1] + 1)
    produce(kafka, raw, other)
    lose_state(life)
    start = records(life)[b"start"]
    assert isinstance(start, ledger.Start)
    moved = msgspec.structs.replace(start, topic_ids={raw: clients_of(life.settings, quiet=True).topic_id(raw)})
    producer, (key, value) = kafka.producer(), ledger.encode(moved)
    producer.produce(life.settings.topic("ledger"), value, key, partition=0)
    producer.flush(30)
    rebuilt(life, 1)
    [row] = wait_until_refused(life, ("stream", 0))
    assert "stage=stream partition=0 position=700" in str(row.finding)
    assert "was published from different values, and the same noise must never cover two inputs" in str(row.finding)
    assert (
        "restore the raw topic and the internal topics as they were at the last commit, or give the pipeline"
        in row.finding.action
    )
    # The other partition has the same values, and goes on.
    wait_for(lambda: rows(life) >= 225, "the other partition goes on")
    after = life.public(["private-stream"])["private-stream"]
    assert after[0] == before["private-stream"][0]
    assert after[1][:100] == before["private-stream"][1]
    assert len(after[1]) == 125


def test_a_ledger_that_lacks_the_last_public_row_is_refused(life: Pipeline) -> None:
    """As of an older copy: what it says of partition 0 is from before the last rows."""
    before, record = life.public(["private-stream"]), published(life)[0]
    older = msgspec.structs.replace(record, row="00" * 16)
    producer, (key, value) = life.broker.producer(), ledger.encode(older)
    producer.produce(life.settings.topic("ledger"), value, key, partition=0)
    producer.flush(30)
    life.start()
    [row] = wait_until_refused(life, ("stream", 0))
    assert "does not know, so internal topics are an older copy" in str(row.finding)
    assert row.finding.action.startswith("restore them as they were at the last commit")
    assert life.public(["private-stream"]) == before
