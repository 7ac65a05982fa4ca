"""The consumer of another cluster without brokers: what it reads, from where, for whom, and what it says when it cannot.

tests/chaos/test_two_clusters.py has two real clusters.
"""

import asyncio
import math
from collections.abc import Mapping, Set
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from susurrus.agents.finding import Finding
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.faust import elsewhere as module
from susurrus.agents.runtime.faust.elsewhere import Elsewhere

STANDING = "p.sources"


def source(number: int) -> InputPartition:
    return InputPartition(STANDING, number)


def raw(number: int) -> InputPartition:
    return InputPartition("raw", number + 10)


class Group:
    """Tasks of some sources, and one of another stage."""

    def __init__(self, *numbers: int) -> None:
        self.generation = 3
        self.reads: dict[InputPartition, float] = {}
        self.troubles: list[tuple[InputPartition, Finding]] = []
        self.offered: list[tuple[InputPartition, Batch]] = []
        self.has(*numbers)

    def has(self, *numbers: int) -> None:
        places = {source(number): raw(number) for number in numbers}
        places[InputPartition("p.by-user", 0)] = InputPartition("p.by-user", 0)
        self.tasks: Mapping[InputPartition, Any] = {
            place: SimpleNamespace(context=SimpleNamespace(place=of)) for place, of in places.items()
        }

    def wanted_at(self, place: InputPartition) -> float:
        return self.reads.get(place, 0.0)

    def on_trouble(self, place: InputPartition, reason: Finding) -> None:
        self.troubles.append((place, reason))

    def offer(self, place: InputPartition, batch: Batch) -> None:
        batch.offered = True
        self.offered.append((place, batch))


class Consumer:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def assign(self, places: list[TopicPartition]) -> None:
        self.told.append({InputPartition(*place) for place in places})

    def unsubscribe(self) -> None:
        self.told.append(set())

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.told.append((InputPartition(*place), offset))

    def since(self) -> list[Any]:
        told, self.told = self.told, []
        return told


class Reads(Elsewhere):
    """Each fetch brings ten offsets of what is wanted."""

    def __init__(self, group: Group) -> None:
        super().__init__(group, topic=STANDING, options={}, servers="far:9092", fetch_bytes=1)  # type: ignore[arg-type]
        self.wanted: list[set[InputPartition]] = []

    async def fetch(
        self, consumer: Any, places: Set[InputPartition], *, timeout: float, generation: int
    ) -> dict[InputPartition, Batch]:
        self.wanted.append(set(places))
        assert timeout <= module.POLL_SECONDS
        starts = {place: self._next[place] for place in places}
        return {place: Batch(Offset(at), Offset(at + 10), [], generation) for place, at in starts.items()}


def round_of(reads: Reads, consumer: Consumer) -> list[Any]:
    """What the consumer was told in one round, without the order of partitions."""
    asyncio.run(reads._round(consumer))  # type: ignore[arg-type]
    told = consumer.since()
    return [told[0], *sorted(told[1:])] if told and isinstance(told[0], set) else told


def test_a_partition_is_read_from_where_its_task_asks_and_its_batches_go_there() -> None:
    group, consumer = Group(0, 1), Consumer()
    reads = Reads(group)
    assert round_of(reads, consumer) == []
    assert reads.wanted == [], "no task has asked yet"
    reads.continue_at(raw(1), 40)
    assert round_of(reads, consumer) == [{raw(1)}, (raw(1), 40)]
    reads.continue_at(raw(0), 7)
    # aiokafka has forgotten where it was, so that is said again.
    assert round_of(reads, consumer) == [{raw(0), raw(1)}, (raw(0), 7), (raw(1), 50)]
    assert [(place, batch.start, batch.end, batch.generation) for place, batch in sorted(group.offered, key=str)] == [
        (source(0), 7, 17, 3),
        (source(1), 40, 50, 3),
        (source(1), 50, 60, 3),
    ]
    group.generation = 4
    reads.continue_at(raw(0), 9)
    assert round_of(reads, consumer) == [(raw(0), 9)]
    assert (group.offered[-1][0], group.offered[-1][1].start, group.offered[-1][1].generation) == (source(0), 9, 4)


def test_a_task_that_has_gone_is_not_read_for_and_one_that_comes_asks_first() -> None:
    group, consumer = Group(0, 1), Consumer()
    reads = Reads(group)
    for number in (0, 1):
        reads.continue_at(raw(number), 0)
    round_of(reads, consumer)
    group.has(1)
    assert round_of(reads, consumer) == [{raw(1)}, (raw(1), 10)]
    group.has()
    assert round_of(reads, consumer) == [set()]
    group.has(0)
    assert round_of(reads, consumer) == []
    reads.continue_at(raw(0), 10)
    assert round_of(reads, consumer) == [{raw(0)}, (raw(0), 10)]


def test_who_rests_or_has_two_batches_is_not_fetched_for() -> None:
    group, consumer = Group(0, 1), Consumer()
    reads = Reads(group)
    for number in (0, 1):
        reads.continue_at(raw(number), 0)
    group.reads[source(1)] = math.inf
    for _ in range(3):
        round_of(reads, consumer)
    assert reads.wanted == [{raw(0)}] * 2, "no empty set, which aiokafka reads as all"
    group.offered[0][1].finish()
    group.reads[source(1)] = 0.0
    round_of(reads, consumer)
    assert reads.wanted[2:] == [{raw(0), raw(1)}]


def test_brokers_that_cannot_be_read_are_said_once_and_to_every_task_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    group = Group(0, 1)
    reads = Reads(group)
    reads._reads = {raw(0)}
    answers = [KafkaConnectionError(), TimeoutError(), None, None]

    class Asked:
        async def end_offsets(self, places: list[TopicPartition]) -> None:
            assert places == [TopicPartition(*raw(0))]
            if not answers:
                raise asyncio.CancelledError
            if (answer := answers.pop(0)) is not None:
                raise answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PULSE_SECONDS", 0.001)
        patch.setattr(asyncio, "wait_for", lambda asked, seconds: asked)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(reads._pulse(Asked()))  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records] == [
        "input.kafka: the brokers at far:9092 cannot all be read (KafkaConnectionError); this goes on trying",
        "input.kafka: the brokers at far:9092 answer again",
    ]
    assert [place for place, _ in group.troubles] == [source(0), source(1)] * 2
    assert all(reason.waits and reason.action for _, reason in group.troubles)


def test_a_partition_that_cannot_be_read_is_said_to_its_task() -> None:
    group = Group(0, 1)
    reads = Reads(group)
    reads._put_aside(raw(1), ValueError())
    [(place, reason)] = group.troubles
    assert place == source(1)
    assert reason.text == "topic=raw partition=11 cannot be read (ValueError)"
