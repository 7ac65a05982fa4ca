"""Fetches record batches by aiokafka and makes a `Batch` of what one fetch brought of a partition.

Both consumers do so: the one of the group, inside Faust (transport.py), and the one of the raw topics' own cluster (elsewhere.py).
A partition that cannot be read is put aside for a while; the others go on.
"""

import asyncio
import logging
import math
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher as aiokafka_fetcher
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import ConsumerStoppedError, GroupAuthorizationFailedError, IllegalStateError

from susurrus.agents.finding import Finding, waits
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.faust.record_batches import Fetched, KeptRecords, RecordBatch, batch_at

log = logging.getLogger(__name__)

IDLE_SLEEP_SECONDS = 0.02
POLL_SECONDS = 0.1
_UNREAD_SECONDS = 0.03
"""aiokafka sends a broker no fetch before all records of its last one are read, or this time is over: a bit more than a round. With
its own 0.1 s, a partition whose task has no room would hold back the others for so long."""
_WAIT_MS = 200
"""How long a broker may hold a fetch that brings nothing. It has one of a consumer at a time. That does not name the partitions
that rest, and would hold them back. So it ends when the next of them is wanted."""
_FULL_WAIT_MS = 30
"""The same while partitions have no room: their tasks make it at any moment."""
_SHORT_WAIT_MS = 5
"""No fetch is shorter."""
_ASIDE_SECONDS = 5.0
_BATCHES_UNDER_WAY = 2
_LOST_SECONDS = 30.0
"""A batch that no agent has received for so long was dropped in a rebalance, even if something still refers to it."""


class Due(NamedTuple):
    """Which partitions are to be fetched.

    wanted: those that have room and want a batch now. next_wanted: after how many seconds the next of the others does. full:
    whether others do already but have no room. settled: whether it is known of each when it does.
    """

    wanted: set[InputPartition]
    next_wanted: float
    full: bool
    settled: bool


class UnderWay:
    """The batches of each partition that nobody has finished yet. They are counted as long as they are alive."""

    def __init__(self) -> None:
        self._batches: dict[InputPartition, weakref.WeakSet[Batch]] = {}

    def add(self, place: InputPartition, batch: Batch) -> None:
        """Count a batch."""
        self._batches.setdefault(place, weakref.WeakSet()).add(batch)

    def has_room(self, place: InputPartition) -> bool:
        """Whether a partition may have one more."""
        lost = time.monotonic() - _LOST_SECONDS
        under_way = [b for b in self._batches.get(place, ()) if not b.finished and (b.offered or b.born > lost)]
        return len(under_way) < _BATCHES_UNDER_WAY

    def due(self, places: Iterable[InputPartition], wanted_at: Callable[[InputPartition], float], now: float) -> Due:
        """Of these partitions. wanted_at: monotonic time from which on one wants a batch, as ``now``; infinite while unknown."""
        waits_for = {place: wanted_at(place) - now for place in places}
        want_now = {place for place, seconds in waits_for.items() if seconds <= 0}
        wanted = {place for place in want_now if self.has_room(place)}
        next_wanted = min((seconds for seconds in waits_for.values() if seconds > 0), default=math.inf)
        return Due(wanted, next_wanted, wanted != want_now, math.inf not in waits_for.values())


def consumer_options(fetch_bytes: int, **given: Any) -> dict[str, Any]:
    """aiokafka's options of a consumer whose positions are in changelogs. given: others, which may replace the sizes and waits."""
    sizes = {
        "max_partition_fetch_bytes": fetch_bytes,
        "fetch_max_bytes": max(50 << 20, fetch_bytes),
        "fetch_max_wait_ms": _WAIT_MS,
    }
    return {
        **sizes,
        **given,
        "enable_auto_commit": False,
        # Tasks seek to the position their changelog holds; a reset is seen as a gap and refused there.
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
    }


class FetchWaits:
    """How long a broker may hold the next fetches of an aiokafka consumer, which do not name the partitions that rest."""

    def __init__(self) -> None:
        self._longest: int | None = None
        """As the consumer's options say, in ms; None before the first fetch."""
        self._others_at = -math.inf
        self._full = False

    def others(self, seconds: float, *, full: bool = False) -> None:
        """The partitions that are not named are wanted in so many seconds; or, if full, as soon as one of them has room."""
        self._others_at, self._full = time.monotonic() + seconds, full

    def govern(self, fetcher: Any) -> None:
        """Tell aiokafka's fetcher, for the fetches from now on, how long they wait: for records, and for readers."""
        if self._longest is None:
            self._longest = fetcher._fetch_max_wait_ms
        if not isinstance(fetcher._in_flight, _NodesAsked):
            fetcher._in_flight = _NodesAsked(fetcher, self.milliseconds)
        fetcher._fetch_max_wait_ms = self.milliseconds()
        fetcher._prefetch_backoff = _UNREAD_SECONDS

    def milliseconds(self) -> int:
        """How long a fetch may wait that begins now."""
        assert self._longest is not None
        left = _FULL_WAIT_MS if self._full else 1000 * (self._others_at - time.monotonic())
        return min(self._longest, math.ceil(max(_SHORT_WAIT_MS, min(left, self._longest))))


class BatchFetcher(ABC):
    """What fetches. Used by the thread that owns the aiokafka consumer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sought: dict[InputPartition, tuple[int]] = {}
        """The offset of the last seek of each partition, in a new object for every seek."""
        self.waits = FetchWaits()
        """Who calls `fetch` tells it before what others need."""
        self._aside: dict[InputPartition, tuple[str, float]] = {}
        """Partitions that cannot be read: why, and when they are tried again."""

    @property
    @abstractmethod
    def flow_active(self) -> bool:
        """Whether records are wanted at all."""

    @abstractmethod
    def is_raw(self, topic: str) -> bool:
        """Whether others write a topic."""

    @abstractmethod
    def on_trouble(self, place: InputPartition, reason: Finding) -> None:
        """Called every few seconds for a partition that cannot be read."""

    def seek(self, consumer: AIOKafkaConsumer, place: InputPartition, offset: int) -> None:
        """Continue reading a partition at an offset."""
        consumer.seek(TopicPartition(*place), offset)
        self.sought[place] = (offset,)

    def _waits(self, tp: TopicPartition, now: float) -> bool:
        """Whether a partition has been put aside and is not yet tried again."""
        return self._aside.get(InputPartition(tp.topic, tp.partition), ("", 0.0))[1] > now

    async def fetch(
        self, consumer: AIOKafkaConsumer, places: Set[InputPartition], *, timeout: float, generation: int
    ) -> dict[InputPartition, Batch]:
        """What has arrived of these partitions, or is the next to arrive; empty at the time-out. generation: of the group."""
        subscription = consumer._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or not assignment.active:
            await asyncio.sleep(min(timeout, POLL_SECONDS))
            return {}

        def position(partition: TopicPartition) -> int | None:
            if partition not in assignment.tps or not assignment.active:
                return None
            state = assignment.state_value(partition)
            return state.position if state is not None and state.has_valid_position else None

        def life(partition: TopicPartition) -> object:
            """A new object after every reset of the position, as when retention has deleted unread records."""
            state = assignment.state_value(partition) if partition in assignment.tps else None
            return None if state is None else state._position_fut

        wanted = {TopicPartition(tp.topic, tp.partition) for tp in places}
        now = time.monotonic()
        starts = {tp: start for tp in wanted if (start := position(tp)) is not None and not self._waits(tp, now)}
        if not starts:
            await asyncio.sleep(min(timeout, POLL_SECONDS))
            return {}
        self.waits.govern(consumer._fetcher)
        consumer.resume(*starts)
        lives = {tp: life(tp) for tp in starts}
        sought = {tp: self.sought.get(InputPartition(tp.topic, tp.partition)) for tp in starts}
        fetched = await self._fetched(consumer._fetcher, starts, position, timeout)
        batches: dict[InputPartition, Batch] = {}
        for tp, start in starts.items():
            end, place = position(tp), InputPartition(tp.topic, tp.partition)
            if self._waits(tp, now):
                continue  # its position may have advanced without a record
            last = self.sought.get(place)
            if last is not None and last is not sought[tp]:
                # A seek came while this waited. The records were fetched after it, because a fetch with records ends the wait.
                [start] = last
            # After a reset, start and end belong to different lives. The next batch shows the gap to the task.
            if end is not None and end > start and life(tp) is lives[tp]:
                records = Fetched(fetched.get(tp, []), start)
                stable = assignment.state_value(tp).lso
                at_end = stable is not None and end >= stable
                batches[place] = Batch(Offset(start), Offset(end), records, generation, at_end)
                if at_end and self.is_raw(tp.topic):
                    # Otherwise aiokafka would fetch the little that comes at once, and hold it back until it is asked for.
                    consumer.pause(tp)
        return batches

    async def _fetched(
        self,
        fetcher: Any,
        starts: Mapping[TopicPartition, int],
        position: Callable[[TopicPartition], int | None],
        timeout: float,
    ) -> Mapping[TopicPartition, list[Any]]:
        """The record batches that have arrived, or the next to arrive; empty at the time-out, or if only holes were passed."""
        deadline = time.monotonic() + timeout
        while True:
            if not self.flow_active or fetcher._subscriptions.reassignment_in_progress:
                # Where a broker is slow to answer, the workers of many groups would otherwise take its processors.
                await asyncio.sleep(deadline - time.monotonic())
                return {}
            if fetcher._closed:
                raise ConsumerStoppedError
            for tp in starts:
                result = fetcher._records.get(tp)
                if isinstance(result, FetchResult) and result._partition_records is not None:
                    take_whole_batches(result._partition_records)
            fetched: dict[TopicPartition, list[Any]] = {}
            failed = False
            with fetcher._subscriptions.fetch_context():
                # One by one: a partition that cannot be read must not keep others from being read, nor end the worker.
                for tp in starts:
                    if tp in fetcher._records:
                        try:
                            brought = await fetcher.fetched_records({tp}, timeout=0)
                        except _NOT_OF_A_PARTITION:
                            raise
                        except Exception as error:
                            failed = True
                            self._put_aside(InputPartition(tp.topic, tp.partition), error)
                        else:
                            fetched.update(brought)
                            if brought:
                                self._aside.pop(InputPartition(tp.topic, tp.partition), None)
            left = deadline - time.monotonic()
            if fetched or failed or left <= 0 or any(position(tp) != start for tp, start in starts.items()):
                return fetched
            waiter = fetcher._create_fetch_waiter()
            done, _ = await asyncio.wait([waiter], timeout=left)
            if done:
                waiter.result()  # raises what the fetcher met, such as a missing permission
            else:
                waiter.cancel()

    def _put_aside(self, place: InputPartition, error: Exception) -> None:
        """A damaged record batch, a permission taken away: this partition waits, the others go on."""
        what = type(error).__name__
        if self._aside.get(place, ("",))[0] != what:
            log.error("%s-%d cannot be read (%s); it is tried again", place.topic, place.partition, what)
        self._aside[place] = (what, time.monotonic() + _ASIDE_SECONDS)
        more, action = _REMEDIES.get(what, ("", "look at the brokers' logs"))
        self.on_trouble(
            place,
            waits("input", f"topic={place.topic} partition={place.partition} cannot be read ({what}){more}", action),
        )


_NOT_OF_A_PARTITION = (ConsumerStoppedError, GroupAuthorizationFailedError, IllegalStateError)
_REMEDIES = {
    "CorruptRecordException": (
        ": a record batch is damaged",
        "look at the disk of the partition's leader, and let a sound replica lead",
    ),
    "TopicAuthorizationFailedError": ("", "give the workers the right to read it back"),
}


class _NodesAsked(set[Any]):
    """The brokers that a fetch of aiokafka's is under way to. It is told when one has ended.

    What is resumed, or read, in the moment in which a fetch ends wakes aiokafka while it still has the broker in this set. It then
    asks for nothing, and would sleep for 0.2 s: seen with aiokafka 0.14, at one boundary of eight.

    wait: how long the next one, which aiokafka sends at once, may wait, in ms.
    """

    def __init__(self, fetcher: Any, wait: Callable[[], int]) -> None:
        super().__init__(fetcher._in_flight)
        self._fetcher, self._wait = fetcher, wait

    def discard(self, node: Any) -> None:
        """A fetch has ended."""
        super().discard(node)
        self._fetcher._fetch_max_wait_ms = self._wait()
        self._fetcher._notify(self._fetcher._wait_consume_future)


def keep_bytes() -> None:
    """Let aiokafka's fetcher make its record batches with their bytes: it knows their class by this name of its module."""
    aiokafka_fetcher.MemoryRecords = KeptRecords


class _Whole(list[Any]):
    """All records of one record batch. To aiokafka it is one record with the offset of the last."""

    @property
    def offset(self) -> int:
        """aiokafka compares it with its position, and continues behind it."""
        offset: int = self[-1].offset
        return offset


class _WholeBatch:
    """A record batch of aiokafka that iterates as one record: ``kept`` where there is one. All else is the batch's own."""

    def __init__(self, batch: Any, kept: RecordBatch | None) -> None:
        self._batch, self._kept = batch, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[RecordBatch | _Whole]:
        if self._kept is not None:
            yield self._kept
        elif records := _Whole(self._batch):
            yield records

    def __next__(self) -> Any:
        """The single record of a control batch."""
        return next(self._batch)


class _WholeBatches:
    """The record batches of a fetch, each as a whole and unparsed where the fetch has kept its bytes."""

    def __init__(self, batches: Any) -> None:
        self._batches, self._at = batches, 0
        self._data = batches.data if isinstance(batches, KeptRecords) and isinstance(batches.data, bytes) else None

    def has_next(self) -> bool:
        """Whether there is another batch."""
        more: bool = self._batches.has_next()
        return more

    def next_batch(self) -> _WholeBatch:
        """The next record batch."""
        batch, kept = self._batches.next_batch(), None
        if self._data is not None:
            kept, self._at = batch_at(self._data, self._at)
        return _WholeBatch(batch, kept)


def take_whole_batches(fetched: PartitionRecords) -> None:
    """Let aiokafka pass on what it has fetched of a partition by whole record batches; it decides which are to be read.

    Its Python code for each record costs more than parsing, and wraps the record in a second object. A stage needs only what the
    parsed record has: offset, time stamp and its type, key and value.
    """
    if not isinstance(fetched._records, _WholeBatches):
        fetched._records = _WholeBatches(fetched._records)
        fetched._consumer_record = lambda tp, batch: batch
