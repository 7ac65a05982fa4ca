"""The batch transport: hands Faust whole fetches. It sits between the brokers and every agent.

Faust hands each record to a stream on its own and tracks offsets by acknowledgement. Both cost more than our whole pipeline.
This subclass of its aiokafka consumer delivers what one fetch brought of a partition as ONE message whose value is a Batch.

- A batch carries the fetch positions [start, end), read in the consumer's own thread. Control records and aborted transactions
  leave holes in the offsets, so only the positions can show that nothing is missing. A fetch that brought only holes becomes a
  batch without records, because the clocks must see the new position.
- Faust does not track offsets, acknowledgements and lag: acks are off. Messages are numbered by a counter far above any real
  offset, so Faust's check for old messages never drops a batch after a rewind.
- Back-pressure is per partition: only partitions whose task has room, and does not rest, are asked for. If there are none, the
  consumer sleeps, because aiokafka reads an empty set as "all". Batches under way are counted as long as they are alive. A batch
  that Faust drops in a rebalance is not counted any more, and the task sees the gap.
"""

import asyncio
import itertools
import logging
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Set
from types import SimpleNamespace
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.consumer import fetcher as aiokafka_fetcher
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import ConsumerStoppedError, GroupAuthorizationFailedError, IllegalStateError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from susurrus.agents.finding import Finding, waits
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.membership import CountingAssignor, StaticConsumer
from susurrus.agents.runtime.faust.record_batches import Fetched, KeptRecords, RecordBatch, batch_at

log = logging.getLogger(__name__)

_IDLE_SLEEP_SECONDS = 0.02
_POLL_SECONDS = 0.1
_ROUND_SECONDS = 0.02
"""A batch costs Faust a millisecond, so what arrives within one round is delivered together."""
_SHORT_ROUND_SECONDS = 0.004
_FEW_OFFSETS = 32
"""A round is short after one that brought no more than so many offsets of any partition, and none of the raw topic. Records of
other topics come by whole commits. So a longer round would gather little, and stages that take turns wait for each of them."""
_BACKLOG_SECONDS = 0.5
"""But none is short for so long after a batch of raw records that others were waiting behind: then what counts is how much is done
at once."""
_UNREAD_SECONDS = 0.03
"""aiokafka sends a broker no fetch before all records of its last one are read, or this time is over: a bit more than a round. With
its own 0.1 s, a partition whose task has no room would hold back the others for so long."""
_ASIDE_SECONDS = 5.0
_BATCHES_UNDER_WAY = 2
_LOST_SECONDS = 30.0
"""A batch that no agent has received for so long was dropped in a rebalance, even if something still refers to it."""


class BatchConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that owns the aiokafka consumer."""

    consumer: "BatchConsumer"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sought: dict[TP, tuple[int]] = {}
        """The offset of the last seek of each partition, in a new object for every seek."""
        self._aside: dict[TP, tuple[str, float]] = {}
        """Partitions that cannot be read: why, and when they are tried again."""

    def _waits(self, tp: AioTopicPartition, now: float) -> bool:
        """Whether a partition has been put aside and is not yet tried again."""
        return self._aside.get(TP(tp.topic, tp.partition), ("", 0.0))[1] > now

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        conf = self.app.conf
        keep_bytes()
        # Faust's own assignor is pinned out: sticky assignment needs its tables, and hangs with standby replicas.
        self._assignor = RoundRobinPartitionAssignor
        options: dict[str, Any] = {
            "max_partition_fetch_bytes": conf.consumer_max_fetch_size,
            "fetch_max_bytes": max(50 << 20, conf.consumer_max_fetch_size),
            "fetch_max_wait_ms": 30,
            "request_timeout_ms": int(conf.broker_request_timeout * 1000),
            "session_timeout_ms": int(conf.broker_session_timeout * 1000),
            "rebalance_timeout_ms": int(conf.broker_rebalance_timeout * 1000),
            "heartbeat_interval_ms": int(conf.broker_heartbeat_interval * 1000),
            "max_poll_interval_ms": int((conf.broker_max_poll_interval or 0) * 1000),
            "metadata_max_age_ms": conf.consumer_metadata_max_age_ms,
            **transport.client_options,
        }
        options |= {
            "group_id": conf.id,
            "enable_auto_commit": False,
            # Tasks seek to the position their changelog holds; a reset is seen as a gap and refused there.
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
        }
        if transport.instance is None:
            return AIOKafkaConsumer(partition_assignment_strategy=[RoundRobinPartitionAssignor], **options)
        return StaticConsumer(
            group_instance_id=transport.instance,
            partition_assignment_strategy=[CountingAssignor],
            on_fenced=transport.on_fenced,
            leaves=transport.leaves,
            **options,
        )

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: Set[TP],
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Mapping[TP, Batch]:
        subscription = consumer._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or not assignment.active:
            await asyncio.sleep(_IDLE_SLEEP_SECONDS)
            return {}
        generation = consumer._coordinator.generation

        def position(partition: TP) -> int | None:
            if partition not in assignment.tps or not assignment.active:
                return None
            state = assignment.state_value(partition)
            return state.position if state is not None and state.has_valid_position else None

        def life(partition: TP) -> object:
            """A new object after every reset of the position, as when retention has deleted unread records."""
            state = assignment.state_value(partition) if partition in assignment.tps else None
            return None if state is None else state._position_fut

        wanted = {AioTopicPartition(tp.topic, tp.partition) for tp in active_partitions}
        now = time.monotonic()
        starts = {tp: start for tp in wanted if (start := position(tp)) is not None and not self._waits(tp, now)}
        if not starts:
            await asyncio.sleep(_IDLE_SLEEP_SECONDS)
            return {}
        consumer._fetcher._prefetch_backoff = _UNREAD_SECONDS
        consumer.resume(*starts)
        lives = {tp: life(tp) for tp in starts}
        sought = {tp: self.sought.get(TP(tp.topic, tp.partition)) for tp in starts}
        fetched = await self._fetched(consumer._fetcher, starts, position, timeout or 0.0)
        batches: dict[TP, Batch] = {}
        for tp, start in starts.items():
            end, place = position(tp), TP(tp.topic, tp.partition)
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
                if at_end and self.consumer.transport.is_raw(tp.topic):
                    # Otherwise aiokafka would fetch the little that comes at once, and hold it back until it is asked for.
                    consumer.pause(tp)
        return batches

    async def _fetched(
        self,
        fetcher: Any,
        starts: Mapping[AioTopicPartition, int],
        position: Callable[[AioTopicPartition], int | None],
        timeout: float,
    ) -> Mapping[AioTopicPartition, list[Any]]:
        """The record batches that have arrived, or the next to arrive; empty at the time-out, or if only holes were passed."""
        deadline = time.monotonic() + timeout
        while True:
            if not self.consumer.flow_active:
                return {}
            if fetcher._closed:
                raise ConsumerStoppedError
            for tp in starts:
                result = fetcher._records.get(tp)
                if isinstance(result, FetchResult) and result._partition_records is not None:
                    take_whole_batches(result._partition_records)
            if fetcher._subscriptions.reassignment_in_progress:
                return {}
            fetched: dict[AioTopicPartition, list[Any]] = {}
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
                            self._put_aside(TP(tp.topic, tp.partition), error)
                        else:
                            fetched.update(brought)
                            if brought:
                                self._aside.pop(TP(tp.topic, tp.partition), None)
            left = deadline - time.monotonic()
            if fetched or failed or left <= 0 or any(position(tp) != start for tp, start in starts.items()):
                return fetched
            waiter = fetcher._create_fetch_waiter()
            done, _ = await asyncio.wait([waiter], timeout=left)
            if done:
                waiter.result()  # raises what the fetcher met, such as a missing permission
            else:
                waiter.cancel()

    def _put_aside(self, place: TP, error: Exception) -> None:
        """A damaged record batch, a permission taken away: this partition waits, the others go on."""
        what = type(error).__name__
        if self._aside.get(place, ("",))[0] != what:
            log.error("%s-%d cannot be read (%s); it is tried again", place.topic, place.partition, what)
        self._aside[place] = (what, time.monotonic() + _ASIDE_SECONDS)
        more, action = _REMEDIES.get(what, ("", "look at the brokers' logs"))
        self.consumer.transport.on_trouble(
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


class BatchConsumer(driver.Consumer):
    """Delivers batches, and asks only for partitions that have room."""

    _thread: BatchConsumerThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._message_numbers = itertools.count(1 << 62)
        self._under_way: dict[TP, weakref.WeakSet[Batch]] = {}
        self._next_round = self._backlog_seen = 0.0

    def _new_consumer_thread(self) -> BatchConsumerThread:
        return BatchConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def _has_room(self, tp: TP) -> bool:
        lost = time.monotonic() - _LOST_SECONDS
        under_way = [b for b in self._under_way.get(tp, ()) if not b.finished and (b.offered or b.born > lost)]
        return len(under_way) < _BATCHES_UNDER_WAY

    async def _getmany(self, active_partitions: Set[TP] | None, timeout: float) -> Mapping[TP, list[Any]]:
        await asyncio.sleep(self._next_round - time.monotonic())
        began = time.monotonic()
        wanted_at: Callable[[TP], float] = self.transport.wanted_at
        waits = {tp: wanted_at(tp) - began for tp in active_partitions or () if self._has_room(tp)}
        wanted = {tp for tp, seconds in waits.items() if seconds <= 0}
        next_wanted = min((seconds for seconds in waits.values() if seconds > 0), default=math.inf)
        if not wanted:
            await asyncio.sleep(min(_IDLE_SLEEP_SECONDS, next_wanted))
            return {}
        # A fetch that waits for some partitions does not notice that others are wanted again.
        timeout = min(timeout, _POLL_SECONDS, next_wanted)
        batches = await super()._getmany(active_partitions=wanted, timeout=timeout)
        raw: Callable[[str], bool] = self.transport.is_raw
        # By offsets: counting records would parse them, and what cannot be parsed is the task's to refuse.
        offsets = {tp: batch.end - batch.start for tp, batch in batches.items()}
        if any(raw(tp.topic) and not batch.at_end for tp, batch in batches.items()):
            self._backlog_seen = began
        short = began > self._backlog_seen + _BACKLOG_SECONDS and all(
            not raw(tp.topic) and offsets[tp] <= _FEW_OFFSETS for tp in batches
        )
        self._next_round = began + (_SHORT_ROUND_SECONDS if short else _ROUND_SECONDS)
        messages = {}
        for tp, batch in batches.items():
            self._under_way.setdefault(tp, weakref.WeakSet()).add(batch)
            messages[tp] = [
                SimpleNamespace(
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=next(self._message_numbers),
                    timestamp=None,
                    timestamp_type=0,
                    headers=(),
                    key=None,
                    value=batch,
                    checksum=None,
                    serialized_key_size=0,
                    serialized_value_size=0,
                )
            ]
        return messages

    async def rewind(self, tp: TP, offset: int) -> None:
        """Continue reading a partition at an offset. Runs in the consumer's thread, so no fetch is half done."""
        consumer = self._thread._ensure_consumer()

        async def seek() -> None:
            consumer.seek(AioTopicPartition(tp.topic, tp.partition), offset)
            self._thread.sought[tp] = (offset,)

        await self._thread.call_thread(seek)

    def highwater(self, tp: TP) -> int:
        """Switches Faust's lag metric off, which would lock the consumer for every batch."""
        return 0

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Switches Faust's livelock warnings off, which take back-pressure for a hang. The task watchdog replaces them."""


class BatchTransport(driver.Transport):
    """Faust transport with batches.

    is_raw: whether others write a topic. wanted_at: monotonic time from which on a partition's task wants to be fed. on_trouble:
    called from the consumer's thread, every few seconds, with the partition that cannot be read and why. instance: the name of a
    static member of the group, or None. on_fenced: called from the consumer's thread if another worker has taken that name.
    leaves: whether a static member that ends leaves the group.
    """

    Consumer = BatchConsumer

    def __init__(
        self,
        *args: Any,
        client_options: Mapping[str, Any],
        is_raw: Callable[[str], bool],
        wanted_at: Callable[[TP], float],
        on_trouble: Callable[[TP, Finding], None],
        instance: str | None,
        on_fenced: Callable[[], None],
        leaves: Callable[[], bool],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.client_options = dict(client_options)
        self.is_raw = is_raw
        self.wanted_at = wanted_at
        self.on_trouble = on_trouble
        self.instance = instance
        self.on_fenced = on_fenced
        self.leaves = leaves
