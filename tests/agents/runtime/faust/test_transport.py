"""The batch transport without brokers: positions, back-pressure, message numbers, rewinds."""

import ast
import asyncio
import contextlib
import gc
import inspect
import itertools
import math
import struct
import textwrap
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, OffsetResetStrategy, PartitionRecords
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    RecordTooLargeError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust import fetching, transport
from susurrus.agents.runtime.faust.fetching import POLL_SECONDS, FetchWaits, UnderWay, take_whole_batches
from susurrus.agents.runtime.faust.record_batches import Fetched, KeptRecords, RecordBatch
from susurrus.agents.runtime.faust.transport import BatchConsumer, BatchConsumerThread

TPS = [TP("raw", 0), TP("raw", 1), TP("by-user", 0)]


class Fetches:
    """Stands in for the consumer's thread: what it was asked for, and batches that continue from where they ended."""

    def __init__(self) -> None:
        self.asked: list[set[TP]] = []
        self.nothing: set[TP] = set()
        self._next: dict[TP, int] = dict.fromkeys(TPS, 0)

    async def getmany(self, consumer: Any, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Batch]:
        assert active_partitions is not None
        self.asked.append(set(active_partitions))
        found = {}
        for tp in active_partitions - self.nothing:
            start = self._next[tp]
            self._next[tp] = start + 10
            found[tp] = Batch(start, start + 10, [object()], 1)
        return found


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    fetches = Fetches()

    async def getmany(self: Any, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Batch]:
        return await fetches.getmany(self, active_partitions, timeout)

    monkeypatch.setattr(driver.Consumer, "_getmany", getmany)
    return fetches


def consumer_of(reading: set[TP]) -> BatchConsumer:
    consumer = BatchConsumer.__new__(BatchConsumer)
    consumer.transport = SimpleNamespace(
        wanted_at=lambda tp: 0.0 if tp in reading else math.inf, is_raw=lambda topic: topic == "raw"
    )
    consumer._message_numbers = itertools.count(1 << 62)
    consumer._under_way, consumer._next_round, consumer._backlog_seen = UnderWay(), 0.0, 0.0
    consumer._had_room = 0.0
    consumer._thread = SimpleNamespace(waits=FetchWaits())
    return consumer


def get(consumer: BatchConsumer, active: set[TP] | None) -> dict[TP, Batch]:
    """One round; the batches it delivered."""
    messages = asyncio.run(consumer._getmany(active, 0.0))
    assert all(len(of_one) == 1 for of_one in messages.values())
    return {tp: of_one[0].value for tp, of_one in messages.items()}


def test_a_partition_with_two_unfinished_batches_is_not_asked_for(fetches: Fetches) -> None:
    consumer = consumer_of(set(TPS))
    first, second = get(consumer, set(TPS)), get(consumer, set(TPS))
    assert fetches.asked == [set(TPS), set(TPS)]
    assert get(consumer, set(TPS)) == {}
    assert len(fetches.asked) == 2, "an empty set would mean all partitions to aiokafka"
    first[TPS[1]].finish()
    third = get(consumer, set(TPS))
    assert fetches.asked[2:] == [{TPS[1]}]
    assert third[TPS[1]].start == second[TPS[1]].end


def test_a_round_is_short_after_a_few_records_of_topics_of_our_own(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw records trickle in, and many small batches of them would cost more than they are worth."""
    monkeypatch.setattr(transport, "_ROUND_SECONDS", 1_000.0)
    monkeypatch.setattr(transport, "_SHORT_ROUND_SECONDS", 0.0)

    def waits_after(*tps: TP) -> bool:
        consumer = consumer_of(set(TPS))
        get(consumer, set(tps))
        return consumer._next_round > time.monotonic()

    assert not waits_after(TP("by-user", 0))
    assert waits_after(*TPS)
    monkeypatch.setattr(transport, "_FEW_OFFSETS", 0)
    assert waits_after(TP("by-user", 0))


def test_no_round_is_short_while_raw_records_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog would come in small batches, and each costs the same whatever is in it."""
    monkeypatch.setattr(transport, "_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(transport, "_SHORT_ROUND_SECONDS", 1_000.0)  # so that it shows
    ours, brings = TP("by-user", 0), {}

    async def getmany(self: Any, active_partitions: set[TP], timeout: float) -> Mapping[TP, Batch]:
        return brings

    monkeypatch.setattr(driver.Consumer, "_getmany", getmany)
    for at_end in (False, True):
        consumer = consumer_of({ours, TPS[0]})
        brings = {TPS[0]: Batch(Offset(0), Offset(9), [], 1, at_end)}
        get(consumer, {ours, TPS[0]})
        brings = {ours: Batch(Offset(0), Offset(1), [], 1)}
        get(consumer, {ours, TPS[0]})
        assert (consumer._next_round > time.monotonic()) == at_end


def test_a_batch_that_cannot_be_parsed_is_left_to_its_task(fetches: Fetches) -> None:
    """An error here would end the worker."""

    class Unreadable:
        start = 0

        def records(self) -> list[Any]:
            raise AssertionError("nobody has asked for records")

    ours = TP("by-user", 0)
    found = Batch(Offset(0), Offset(1), Unreadable(), 1)  # type: ignore[arg-type]

    async def getmany(consumer: Any, active: set[TP], timeout: float) -> Mapping[TP, Batch]:
        return {ours: found}

    fetches.getmany = getmany  # type: ignore[method-assign]
    assert get(consumer_of({ours}), {ours}) == {ours: found}


def test_a_batch_that_faust_dropped_frees_its_place(fetches: Fetches) -> None:
    consumer = consumer_of(set(TPS))
    held = [get(consumer, {TPS[0]}), get(consumer, {TPS[0]})]
    assert get(consumer, {TPS[0]}) == {}
    held.pop()
    gc.collect()
    assert list(get(consumer, {TPS[0]})) == [TPS[0]]


def test_a_batch_that_faust_dropped_frees_its_place_in_the_end_whoever_refers_to_it(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame in some traceback does, and the collector is set to look rarely."""
    consumer = consumer_of(set(TPS))
    held = [get(consumer, {TPS[0]}), get(consumer, {TPS[0]})]
    monkeypatch.setattr(fetching, "_LOST_SECONDS", 0.0)
    assert list(get(consumer, {TPS[0]})) == [TPS[0]]
    for found in held:
        found[TPS[0]].offered = True  # what a task holds is finished by the task, however long it takes
    assert get(consumer, {TPS[0]}) == {}


def test_a_blocked_partition_starves_no_other(fetches: Fetches) -> None:
    consumer = consumer_of(set(TPS))
    held = [get(consumer, {TPS[0]}), get(consumer, {TPS[0]})]
    for _ in range(5):
        found = get(consumer, set(TPS))
        assert set(found) == set(TPS[1:])
        for batch in found.values():
            batch.finish()
    assert len(held) == 2


def test_only_partitions_whose_task_reads_are_asked_for(fetches: Fetches) -> None:
    consumer = consumer_of({TPS[2]})
    assert set(get(consumer, set(TPS))) == {TPS[2]}
    assert get(consumer, {TPS[0]}) == {}
    assert get(consumer, None) == {}
    assert fetches.asked == [{TPS[2]}]


def test_a_partition_whose_task_rests_is_asked_for_as_soon_as_it_wants_more() -> None:
    """Also while a fetch waits for other partitions."""
    consumer = consumer_of(set())
    rests, asked = dict.fromkeys(TPS, 0.0) | {TPS[1]: time.monotonic() + 1_000}, []
    consumer.transport.wanted_at = rests.__getitem__

    async def getmany(self: Any, active_partitions: set[TP], timeout: float) -> Mapping[TP, Batch]:
        asked.append((active_partitions, timeout))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Consumer, "_getmany", getmany)
        asyncio.run(consumer._getmany(set(TPS), 0.05))
        rests[TPS[1]] = time.monotonic() + 0.04
        asyncio.run(consumer._getmany(set(TPS), 0.05))
        rests[TPS[1]] = time.monotonic()
        asyncio.run(consumer._getmany(set(TPS), 0.05))
    assert [partitions for partitions, _ in asked] == [set(TPS) - {TPS[1]}, set(TPS) - {TPS[1]}, set(TPS)]
    full, until_it_is_due, again = (timeout for _, timeout in asked)
    assert full == again == 0.05
    assert until_it_is_due <= 0.04


def test_a_round_may_be_longer_where_every_task_has_said_when_it_wants_more(fetches: Fetches) -> None:
    """Others may want more at any moment, such as those that start."""
    consumer, timeouts = consumer_of(set(TPS)), []

    async def getmany(self: Any, active_partitions: set[TP], timeout: float) -> Mapping[TP, Batch]:
        timeouts.append(timeout)
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Consumer, "_getmany", getmany)
        asyncio.run(consumer._getmany(set(TPS), 1.0))
        consumer.transport.wanted_at = lambda place: math.inf if TP(*place) == TPS[0] else 0.0
        asyncio.run(consumer._getmany(set(TPS), 1.0))
    assert timeouts == [transport._SETTLED_SECONDS, POLL_SECONDS]


def test_a_round_ends_soon_where_a_partition_has_no_room() -> None:
    """Its task makes room while the round waits for others: a boundary's ticks waited for 0.08 s, though they had been fetched."""
    consumer, timeouts = consumer_of(set(TPS)), []

    async def getmany(self: Any, active_partitions: set[TP], timeout: float) -> Mapping[TP, Batch]:
        timeouts.append((len(active_partitions), timeout))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Consumer, "_getmany", getmany)
        batches = [Batch(Offset(at), Offset(at + 1), [], 1) for at in range(2)]
        for batch in batches:
            consumer._under_way.add(TPS[0], batch)
            asyncio.run(consumer._getmany(set(TPS), POLL_SECONDS))
        consumer._backlog_seen = time.monotonic()  # then what counts is how much is done at once
        asyncio.run(consumer._getmany(set(TPS), POLL_SECONDS))
        consumer._backlog_seen = 0.0
        consumer._had_room = time.monotonic() - 1.0  # as where a broker does not answer its task
        asyncio.run(consumer._getmany(set(TPS), POLL_SECONDS))
        batches[0].finish()
        asyncio.run(consumer._getmany(set(TPS), POLL_SECONDS))
    assert timeouts == [(3, POLL_SECONDS), (2, 0.01), (2, POLL_SECONDS), (2, POLL_SECONDS), (3, POLL_SECONDS)]


def test_message_numbers_only_rise_and_are_far_above_any_offset(fetches: Fetches) -> None:
    """Faust drops a message whose offset is not above the last one it saw, as after a rewind."""
    consumer = consumer_of(set(TPS))
    numbers = []
    for _ in range(3):
        for message in itertools.chain.from_iterable(asyncio.run(consumer._getmany({TPS[0]}, 0.0)).values()):
            numbers.append(message.offset)
            message.value.finish()
        fetches._next[TPS[0]] = 0  # rewound
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 1 << 61


def test_a_finished_batch_holds_no_records() -> None:
    batch = Batch(0, 10, [object()], 1)
    batch.finish()
    assert batch.finished
    assert batch.records == []


# ---- the consumer's thread ----------------------------------------------------------------------------------------------


class Aiokafka:
    """One partition of an assigned consumer: a position, and records that a fetch brings."""

    def __init__(self, tp: TopicPartition, position: int) -> None:
        self.tp = tp
        self.state = SimpleNamespace(position=position, has_valid_position=True, _position_fut=object(), lso=10**6)
        self.assignment = SimpleNamespace(active=True, tps={tp}, state_value=lambda tp: self.state)
        self._subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=self.assignment))
        self._coordinator = SimpleNamespace(generation=7)
        self._closed = False
        self._fetcher = self
        self._records: dict[Any, Any] = {tp: object()}
        self.fails: Exception | None = None
        self.steps_over = False
        self._subscriptions = SimpleNamespace(fetch_context=contextlib.nullcontext, reassignment_in_progress=False)
        self.brings: tuple[list[Any], int] = ([], position)
        self.revoked_meanwhile = self.reset_meanwhile = False
        self.sought_meanwhile: int | None = None
        self.thread: Any = None
        self.asked = 0
        self.reported: list[tuple[TP, str]] = []
        self.aside: dict[TP, tuple[str, float]] = {}
        self.paused: set[TopicPartition] = set()
        self._prefetch_backoff = 0.1
        self._fetch_max_wait_ms = 20
        self._in_flight: set[int] = set()

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= set(partitions)

    async def fetched_records(self, partitions: set[Any], **_: Any) -> dict[Any, list[list[Any]]]:
        assert partitions == {self.tp}
        assert self.tp not in self.paused
        self.asked += 1
        if self.fails is not None:
            self.state.position += self.steps_over
            raise self.fails
        records, self.state.position = self.brings
        if self.sought_meanwhile is not None:
            self.thread.sought[TP(self.tp.topic, self.tp.partition)] = (self.sought_meanwhile,)
        if self.reset_meanwhile:
            self.state._position_fut = object()
        if self.revoked_meanwhile:
            self.assignment.active = False
        return {self.tp: [[record] for record in records]} if records else {}

    def _create_fetch_waiter(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_future()


def fetch(consumer: Aiokafka, active: set[TP], timeout: float = 0.01) -> dict[TP, Batch]:
    thread = BatchConsumerThread.__new__(BatchConsumerThread)
    transport = SimpleNamespace(
        on_trouble=lambda tp, reason: consumer.reported.append((tp, reason)), is_raw=lambda topic: topic == "raw"
    )
    thread.consumer, thread.sought = SimpleNamespace(flow_active=True, transport=transport), {}
    thread._aside, thread.waits = consumer.aside, FetchWaits()
    consumer.thread = thread
    return dict(asyncio.run(thread._fetch_records(consumer, active, timeout=timeout)))


RAW = TopicPartition("raw", 0)


def read(offset: int) -> SimpleNamespace:
    """A record, as far as the transport looks at it."""
    return SimpleNamespace(offset=offset)


def test_a_batch_says_from_where_to_where_it_was_fetched_and_in_which_generation() -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.brings = ([read(101), read(104)], 107)  # the rest are holes
    batch = fetch(consumer, {TPS[0]})[TPS[0]]
    assert (batch.start, batch.end, batch.records, batch.generation) == (100, 107, [read(101), read(104)], 7)


def test_a_fetch_of_nothing_but_holes_is_a_batch_for_the_clock_must_see_the_position_move() -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.brings = ([], 103)
    batch = fetch(consumer, {TPS[0]})[TPS[0]]
    assert (batch.start, batch.end, batch.records) == (100, 103, [])


def test_fetches_wait_no_longer_than_until_the_next_partition_is_wanted(fetches: Fetches) -> None:
    consumer = consumer_of(set())
    at = dict(zip(TPS, (0.0, time.monotonic() + 0.06, math.inf), strict=True))
    consumer.transport.wanted_at = lambda place: at[TP(*place)]
    fetcher: Any = SimpleNamespace(_fetch_max_wait_ms=100, _in_flight=set())

    unfinished = []

    def wait() -> int:
        unfinished.append(get(consumer, set(TPS)))
        consumer._thread.waits.govern(fetcher)
        return fetcher._fetch_max_wait_ms  # type: ignore[no-any-return]

    assert wait() <= 60
    at[TPS[1]] = math.inf
    assert wait() == 100
    at[TPS[0]] = math.inf
    assert wait() == 100, "also where none is wanted: aiokafka goes on by itself"
    at[TPS[0]] = at[TPS[2]] = 0.0
    assert wait() == fetching._FULL_WAIT_MS, "the task of the first may make room for it at any moment"
    assert fetches.asked[-1] == {TPS[2]}


def test_a_fetch_that_moved_nothing_is_no_batch() -> None:
    assert fetch(Aiokafka(RAW, 100), {TPS[0]}) == {}


def test_raw_records_that_trickle_in_are_fetched_when_they_are_asked_for_and_a_backlog_is_read_ahead() -> None:
    """Otherwise a source that rests gets, first of all, the little that came just after its last batch."""
    consumer = Aiokafka(RAW, 100)
    for end, stable in ((101, 101), (102, 102), (103, 104), (105, 105)):
        consumer.brings, consumer.state.lso = ([read(end - 1)], end), stable
        assert fetch(consumer, {TPS[0]})[TPS[0]].at_end == (end == stable)
        assert consumer.paused == ({RAW} if end == stable else set())
    ours = Aiokafka(TopicPartition("by-user", 0), 100)
    ours.brings, ours.state.lso = ([read(100)], 101), 101
    assert fetch(ours, {TP("by-user", 0)})[TP("by-user", 0)].at_end
    assert ours.paused == set()


def test_a_partition_without_a_position_is_not_fetched() -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.state.has_valid_position = False
    assert fetch(consumer, {TPS[0]}) == {}
    assert fetch(Aiokafka(RAW, 100), {TPS[1]}) == {}
    consumer = Aiokafka(RAW, 100)
    consumer.assignment.active = False
    assert fetch(consumer, {TPS[0]}) == {}
    assert consumer.asked == 0


def test_what_was_fetched_while_the_partition_was_taken_away_is_not_delivered() -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.brings, consumer.revoked_meanwhile = ([read(100)], 101), True
    assert fetch(consumer, {TPS[0]}) == {}


@pytest.mark.parametrize("records", [[], [read(500)]])
def test_a_reset_of_the_position_during_a_fetch_is_no_hole_but_a_gap(records: list[SimpleNamespace]) -> None:
    """Retention ate 100 to 499: aiokafka goes to the earliest record by itself."""
    consumer = Aiokafka(RAW, 100)
    consumer.brings, consumer.reset_meanwhile = (records, 500 + len(records)), True
    assert fetch(consumer, {TPS[0]}) == {}
    consumer.brings, consumer.reset_meanwhile = ([read(501)], 502), False
    assert fetch(consumer, {TPS[0]})[TPS[0]].start >= 500


def test_a_partition_that_cannot_be_read_is_put_aside_for_a_while_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.brings, consumer.fails = ([read(100)], 101), CorruptRecordException()
    assert fetch(consumer, {TPS[0]}) == {}
    [(place, reason)] = consumer.reported
    assert place == TPS[0]
    assert reason.text.startswith(
        "topic=raw partition=0 cannot be read (CorruptRecordException): a record batch is damaged"
    )
    assert fetch(consumer, {TPS[0]}) == {}
    assert consumer.asked == len(consumer.reported) == 1
    consumer.aside = {tp: (what, 0.0) for tp, (what, _) in consumer.aside.items()}  # a while later
    assert fetch(consumer, {TPS[0]}) == {}
    assert consumer.asked == len(consumer.reported) == 2
    consumer.aside, consumer.fails = {tp: (what, 0.0) for tp, (what, _) in consumer.aside.items()}, None
    consumer.brings, brings = ([], 100), consumer.brings
    assert fetch(consumer, {TPS[0]}) == {}
    assert consumer.aside, "what brings nothing, such as the rest of a dead fetch, proves nothing"
    consumer.brings = brings
    assert fetch(consumer, {TPS[0]})[TPS[0]].records == [read(100)]
    assert consumer.aside == {}


def test_a_position_that_moved_without_a_record_is_no_hole_where_reading_failed() -> None:
    """aiokafka steps over a record that it cannot take."""
    consumer = Aiokafka(RAW, 100)
    consumer.fails = RecordTooLargeError()
    consumer.steps_over = True
    assert fetch(consumer, {TPS[0]}) == {}
    assert consumer.state.position == 101


def test_nothing_is_taken_while_the_group_reassigns() -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.brings = ([read(100)], 101)
    consumer._subscriptions.reassignment_in_progress = True
    assert fetch(consumer, {TPS[0]}) == {}
    assert consumer.asked == 0


@pytest.mark.parametrize("error", [ConsumerStoppedError, GroupAuthorizationFailedError])
def test_what_concerns_the_whole_consumer_is_no_trouble_of_a_partition(error: type[Exception]) -> None:
    consumer = Aiokafka(RAW, 100)
    consumer.fails = error("g")
    with pytest.raises(error):
        fetch(consumer, {TPS[0]})
    assert consumer.reported == []


@pytest.mark.parametrize("sought", [40, 100, 160])
def test_a_batch_of_after_a_seek_starts_there(sought: int) -> None:
    """A task that starts sends the consumer to its position while a round waits; what comes then may be all there is."""
    consumer = Aiokafka(RAW, 100)
    consumer.brings, consumer.sought_meanwhile = (
        ([read(sought - 3), read(sought), read(sought + 5)], sought + 6),
        sought,
    )
    batch = fetch(consumer, {TPS[0]})[TPS[0]]
    assert (batch.start, batch.end, batch.records) == (sought, sought + 6, [read(sought), read(sought + 5)])


def test_a_seek_alone_is_no_hole() -> None:
    """Passed for records, it would be one: the task may return to where it was before."""
    consumer = Aiokafka(RAW, 100)
    consumer.brings, consumer.sought_meanwhile = ([], 160), 160
    assert fetch(consumer, {TPS[0]}) == {}


def test_aiokafka_still_marks_a_reset_as_the_transport_expects() -> None:
    async def lives() -> list[object]:
        state = TopicPartitionState(None)
        state.seek(100)
        found = [state._position_fut]
        state.consumed_to(101)
        state.seek(50)
        found.append(state._position_fut)
        state.await_reset(OffsetResetStrategy.EARLIEST)
        state.reset_to(500)
        return [*found, state._position_fut]

    first, after_seek, after_reset = asyncio.run(lives())
    assert first is after_seek
    assert after_seek is not after_reset


# ---- record batches as a whole -------------------------------------------------------------------------------------------


def record_batch(
    first: int, number: int, *, producer: int = -1, gzip: bool = False, marker: bytes | None = None
) -> bytes:
    """As a broker stores it; with a marker (0: abort, 1: commit) the control batch that ends a transaction."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=1 if gzip else 0,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        batch_size=1 << 20,
    )
    for n in range(number):
        key, value = (b"k", f"record {first + n}".encode()) if marker is None else (marker, b"")
        builder.append(n, timestamp=1_000 + first + n, key=key, value=value, headers=[])
    data = bytearray(builder.build())
    data[:8] = struct.pack(">q", first)
    if marker is not None:
        data[22] |= 0x20  # the attribute that says so
    return bytes(data)


ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
LOG = [
    record_batch(0, 4),
    record_batch(4, 3, producer=7),  # aborted
    record_batch(7, 2, producer=8),  # of a transaction that is committed
    record_batch(9, 1, producer=7, marker=ABORT),
    record_batch(10, 5, gzip=True),
    record_batch(15, 1, producer=8, marker=COMMIT),
    record_batch(18, 2, producer=7),  # the same producer's next transaction, behind a hole
    record_batch(20, 1, producer=7, marker=COMMIT),
]


@pytest.mark.parametrize("first", range(21))
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("kind", [MemoryRecords, KeptRecords])
def test_whole_batches_bring_what_aiokafka_would_have_brought_record_by_record(
    first: int, isolation: int, kind: type[Any]
) -> None:
    """From wherever a fetch starts, also from inside a batch, as compressed ones are sent whole."""
    ends = [4, 7, 9, 10, 15, 16, 20, 21]
    log = b"".join(batch for batch, end in zip(LOG, ends, strict=True) if end > first)
    aborted = [(7, 4)] if first < 7 else []

    def fetched() -> PartitionRecords:
        return PartitionRecords(RAW, kind(log), list(aborted), first, None, None, False, isolation)

    one_by_one, whole = fetched(), fetched()
    wanted = [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in one_by_one]
    take_whole_batches(whole)
    take_whole_batches(whole)  # asked again before anything was taken
    batches = list(whole)
    assert all(isinstance(batch, RecordBatch) == (kind is KeptRecords) for batch in batches)
    found = Fetched(batches, first).records()
    assert [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in found] == wanted
    assert whole.next_fetch_offset == one_by_one.next_fetch_offset == 21
    offsets = {offset for offset, *_ in wanted}
    assert offsets == set(range(first, 21)) - {9, 15, 16, 17, 20} - (
        {4, 5, 6} if isolation == READ_COMMITTED else set()
    )


def test_the_fetcher_makes_batches_that_keep_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every stage would go on by parsed records, only slower."""
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    fetching.keep_bytes()
    assert fetcher.MemoryRecords is KeptRecords
    makes = [
        node
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(fetcher.Fetcher))))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MemoryRecords"
    ]
    assert len(makes) == 1


@pytest.mark.parametrize("kind", [MemoryRecords, KeptRecords])
def test_a_damaged_batch_is_no_shorter_fetch(kind: type[Any]) -> None:
    damaged = bytearray(LOG[0])
    damaged[-1] ^= 1
    fetched = PartitionRecords(RAW, kind(bytes(damaged)), [], 0, None, None, True, READ_COMMITTED)
    take_whole_batches(fetched)
    with pytest.raises(CorruptRecordException):
        list(fetched)
    assert fetched.next_fetch_offset == 0
