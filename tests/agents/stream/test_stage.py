"""The stream stage on a real broker: what is published is the mechanism's own result, whatever happens to the workers."""

import json
import time
from typing import Any

import numpy as np
import pytest

from susurrus.agents.stream.mechanism import grid_of, mechanism_of
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.table import stream_address
from susurrus.topics import ledger, private_stream
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.private_stream import StreamRow
from tests.broker import Broker
from tests.mechanisms.stream.one_stream import whole
from tests.pipeline import CRASH_POINTS, CRASHING, EPOCH, SECRET, Pipeline, archive_topic
from tests.stream_pipeline import TOPS, stream_pipeline
from tests.waiting import PATIENCE

PARTITIONS = 2
STREAMS = ("a", "b", "c")
PAK: dict[str, Any] = {
    "method": "pak",
    "stream": "meter",
    "value": "reading.watts",
    "bound": 100.0,
    "grid": 0.5,
    "epsilon": 8.0,
    "delta": 1e-5,
    "holdout": 2000,
    "horizon": 4000,
    "tail_start": 0.05,
}


def readings(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {stream: np.round(rng.gamma(2.0, 8.0, count), 2) for stream in STREAMS}


def event(stream: str, value: object, at: int) -> bytes:
    # Long records make many fetches.
    return json.dumps({"meter": stream, "reading": {"watts": value}, "t": at, "note": "." * 200}).encode()


def produce(kafka: Broker, raw: str, values: dict[str, np.ndarray], first: int = 0) -> None:
    """``first``: the number of values that each stream has already."""
    producer = kafka.producer(linger_ms=5)
    for at, row in enumerate(zip(*values.values(), strict=True), start=first):
        for number, (stream, value) in enumerate(zip(values, row, strict=True)):
            payload = event(stream, float(value), at)
            producer.produce(raw, payload, partition=number % PARTITIONS, timestamp=1_000_000 + at)
    producer.flush(60)


def rows(kafka: Broker, pipeline: Pipeline) -> dict[str, list[tuple[StreamRow, int]]]:
    found: dict[str, list[tuple[StreamRow, int]]] = {}
    for message in kafka.read_all(pipeline.settings.topic("private-stream")):
        row = private_stream.decode_row(message.value())
        found.setdefault(row.stream, []).append((row, message.timestamp()[1]))
    return found


def wait(
    kafka: Broker, pipeline: Pipeline, count: int, seconds: float = PATIENCE
) -> dict[str, list[tuple[StreamRow, int]]]:
    deadline = time.monotonic() + seconds
    while True:
        found = rows(kafka, pipeline)
        if sum(map(len, found.values())) >= count:
            return found
        if time.monotonic() > deadline:
            tails = "\n".join(worker.tail() for worker in pipeline.workers[-2:])
            raise TimeoutError(f"{sum(map(len, found.values()))} of {count} rows\n{tails}")
        time.sleep(0.3)


def expected(pipeline: Pipeline, number: int, stream: str, values: np.ndarray) -> tuple[int, Any]:
    """theta and releases of one stream by the mechanism alone."""
    settings = pipeline.settings
    assert settings.stream is not None
    mechanism = mechanism_of(settings.stream)
    source = NoiseSource(
        bytes.fromhex(SECRET), epoch=bytes.fromhex(EPOCH), config=settings.config_digest(), pipeline="meters"
    )
    noise, address = source.window(0), stream_address(number % PARTITIONS, json.dumps(stream).encode())
    steps = np.rint(values / grid_of(settings.stream)).astype(np.int64)
    if not isinstance(mechanism, Pak):
        alone, released = whole(mechanism, steps, noise, address)
        return alone.theta, released
    state = mechanism.start()
    rest = mechanism.collect(state, steps)
    mechanism.open(state, noise, address)
    return state.theta, mechanism.advance(state, rest, noise, address)


@pytest.fixture(scope="module")
def values() -> dict[str, np.ndarray]:
    return readings(300 + 1400)


@pytest.fixture(scope="module")
def raw(kafka: Broker, values: dict[str, np.ndarray]) -> str:
    topic = archive_topic(kafka, PARTITIONS)
    produce(kafka, topic, values)
    return topic


def test_tops_publishes_what_the_mechanism_releases(kafka, raw, values, tmp_path) -> None:
    with stream_pipeline(kafka, tmp_path, raw, TOPS) as pipeline:
        pipeline.start()
        found = wait(kafka, pipeline, 3 * 350)
        for number, stream in enumerate(STREAMS):
            theta, released = expected(pipeline, number, stream, values[stream])
            got = found[stream]
            assert [row.last for row, _ in got] == released.last.tolist()
            assert [row.first for row, _ in got] == (released.last - 3).tolist()
            np.testing.assert_allclose([row.value.estimate for row, _ in got], released.value * 0.5)
            np.testing.assert_allclose([row.sum.estimate for row, _ in got], released.sum * 0.5)
            np.testing.assert_allclose([row.sum.std_error for row, _ in got], released.sum_error * 0.5)
            filtered = [row.filtered_sum.estimate if row.filtered_sum else np.nan for row, _ in got]
            np.testing.assert_allclose(filtered, released.filtered_sum * 0.5)
            assert {row.theta for row, _ in got} == {theta * 0.5}
            assert [row.layout for row, _ in got] == released.layout.tolist()
            assert [stamp for _, stamp in got] == [1_000_000 + row.last for row, _ in got]
        records = [ledger.decode(m.key(), m.value()) for m in kafka.read_all(pipeline.settings.topic("ledger"))]
        promises = [record for record in records if isinstance(record, ledger.EventLevel)]
        assert sorted(record.partition for record in promises) == [0, 1]
        assert {(record.epsilon, record.delta, record.unit) for record in promises} == {(1.0, 0.0, "event")}
        assert not kafka.read_all(pipeline.settings.topics.charges)  # never mixed with user level


@CRASH_POINTS
def test_workers_killed_between_every_two_steps_change_no_byte(kafka, values, tmp_path, points) -> None:
    raw = archive_topic(kafka, PARTITIONS)
    # Every worker has values of its own to publish, so it reaches a commit however much the last one has read.
    parts = [np.arange(600), *np.array_split(np.arange(600, 1700), len(points) - 1)]

    def public(pipeline: Pipeline) -> list[tuple[int, bytes, bytes, int]]:
        messages = kafka.read_all(pipeline.settings.topic("private-stream"))
        return sorted((m.partition(), m.key(), m.value(), m.timestamp()[1]) for m in messages)

    with (
        stream_pipeline(kafka, tmp_path, raw, TOPS) as calm,
        stream_pipeline(kafka, tmp_path, raw, TOPS, CRASHING) as wild,
    ):
        for point, part in zip(points, parts, strict=True):
            produce(kafka, raw, {stream: values[stream][part] for stream in STREAMS}, first=int(part[0]))
            wild.crash(f"stream:{point}:1")
        calm.start()
        wait(kafka, calm, 3 * 350)
        wild.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(wild.directory / "empty"))
        wait(kafka, wild, 3 * 350)
        assert public(wild) == public(calm)


def test_bad_values_go_to_the_dead_letter_topic_and_wild_ones_are_clamped(kafka, tmp_path) -> None:
    topic = archive_topic(kafka, PARTITIONS)
    bad = [b"no json", event("a", "many", 0), event("a", None, 0), b"", json.dumps({"meter": "a"}).encode()]
    producer = kafka.producer()
    for at in range(400):
        producer.produce(topic, event("a", 1e9 if at % 2 else -5.0, at), partition=0)
        if at < len(bad):
            producer.produce(topic, bad[at], partition=0)
    producer.flush(30)
    with stream_pipeline(kafka, tmp_path, topic, TOPS) as pipeline:
        pipeline.start()
        found = wait(kafka, pipeline, 25)
        assert [row.last for row, _ in found["a"]] == list(range(303, 400, 4))
        letters = [decode_headers(m.headers()) for m in kafka.read_all(pipeline.settings.topic("dead-letter"))]
        assert sorted(letter.offset for letter in letters) == [1, 3, 5, 7, 9]
        assert {letter.stage for letter in letters} == {"stream"}
        values = np.where(np.arange(400) % 2, 100.0, 0.0)
        _, released = expected(pipeline, 0, "a", values)
        np.testing.assert_allclose([row.value.estimate for row, _ in found["a"]], released.value * 0.5)


def test_pak_publishes_a_running_sum_after_every_value(kafka, tmp_path) -> None:
    topic = archive_topic(kafka, PARTITIONS)
    values = readings(2600)
    produce(kafka, topic, values)
    with stream_pipeline(kafka, tmp_path, topic, PAK) as pipeline:
        pipeline.start()
        found = wait(kafka, pipeline, 3 * 601)
        for number, stream in enumerate(STREAMS):
            theta, released = expected(pipeline, number, stream, values[stream])
            got = [row for row, _ in found[stream]]
            assert (got[0].first, got[0].last) == (0, 1999)
            assert [(row.first, row.last) for row in got[1:]] == [(i, i) for i in range(2000, 2600)]
            np.testing.assert_allclose([row.sum.estimate for row in got[1:]], released.sum * 0.5)
            np.testing.assert_allclose([row.value.estimate for row in got[1:]], released.value * 0.5)
            assert {row.theta for row in got} == {theta * 0.5}
            assert all(row.filtered_sum is None for row in got)
