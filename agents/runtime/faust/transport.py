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
from collections.abc import Callable, Mapping, Set
from types import SimpleNamespace
from typing import Any

from aiokafka import AIOKafkaConsumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.faust.assignor import KeepingAssignor
from susurrus.agents.runtime.faust.fetching import (
    IDLE_SLEEP_SECONDS,
    POLL_SECONDS,
    BatchFetcher,
    UnderWay,
    consumer_options,
    keep_bytes,
)
from susurrus.agents.runtime.faust.membership import StaticConsumer

log = logging.getLogger(__name__)

_ROUND_SECONDS = 0.02
"""A batch costs Faust a millisecond, so what arrives within one round is delivered together."""
_SHORT_ROUND_SECONDS = 0.004
_FEW_OFFSETS = 32
"""A round is short after one that brought no more than so many offsets of any partition, and none of the raw topic. Records of
other topics come by whole commits. So a longer round would gather little, and stages that take turns wait for each of them."""
_ROOM_SECONDS = 0.01
"""A round that waits for some partitions ends so soon where others have no room, which their tasks make meanwhile."""
_HELD_UP_SECONDS = 0.25
"""But one that has had no room for so long waits for a slow broker. Rounds would take the processors from that."""
_SETTLED_SECONDS = 0.3
"""A round may be so long where the task of every partition is at work, and has said when it wants more."""
_BACKLOG_SECONDS = 0.5
"""But none is short, or ends sooner, for so long after a batch of raw records that others were waiting behind: then what counts is
how much is done at once."""


class BatchConsumerThread(BatchFetcher, driver.AIOKafkaConsumerThread):
    """The thread that owns the aiokafka consumer."""

    consumer: "BatchConsumer"

    @property
    def flow_active(self) -> bool:
        """Whether Faust lets the consumer read."""
        return bool(self.consumer.flow_active)

    def is_raw(self, topic: str) -> bool:
        """Asks the transport."""
        return bool(self.consumer.transport.is_raw(topic))

    def on_trouble(self, place: InputPartition, reason: Finding) -> None:
        """Tells the transport."""
        self.consumer.transport.on_trouble(place, reason)

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        conf = self.app.conf
        keep_bytes()
        # Faust's own assignor is pinned out: sticky assignment needs its tables, and hangs with standby replicas.
        self._assignor = KeepingAssignor(lambda: consumer._coordinator.generation)
        given: dict[str, Any] = {
            "request_timeout_ms": int(conf.broker_request_timeout * 1000),
            "session_timeout_ms": int(conf.broker_session_timeout * 1000),
            "rebalance_timeout_ms": int(conf.broker_rebalance_timeout * 1000),
            "heartbeat_interval_ms": int(conf.broker_heartbeat_interval * 1000),
            "max_poll_interval_ms": int((conf.broker_max_poll_interval or 0) * 1000),
            "metadata_max_age_ms": conf.consumer_metadata_max_age_ms,
            **transport.client_options,
        }
        options = consumer_options(conf.consumer_max_fetch_size, **given | {"group_id": conf.id})
        options["partition_assignment_strategy"] = [self._assignor]
        consumer = (
            AIOKafkaConsumer(**options)
            if transport.instance is None
            else StaticConsumer(
                group_instance_id=transport.instance,
                on_fenced=transport.on_fenced,
                leaves=transport.leaves,
                **options,
            )
        )
        return consumer

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: Set[TP],
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Mapping[TP, Batch]:
        places = {InputPartition(*tp) for tp in active_partitions}
        generation = consumer._coordinator.generation
        found = await self.fetch(consumer, places, timeout=timeout or 0.0, generation=generation)
        return {TP(*place): batch for place, batch in found.items()}


class BatchConsumer(driver.Consumer):
    """Delivers batches, and asks only for partitions that have room."""

    _thread: BatchConsumerThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._message_numbers = itertools.count(1 << 62)
        self._under_way = UnderWay()
        self._next_round = self._backlog_seen = 0.0
        self._had_room = 0.0
        """Monotonic time of the last round in which every partition that wanted a batch had room for it."""

    def _new_consumer_thread(self) -> BatchConsumerThread:
        return BatchConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(self, active_partitions: Set[TP] | None, timeout: float) -> Mapping[TP, list[Any]]:
        await asyncio.sleep(self._next_round - time.monotonic())
        began = time.monotonic()
        places = (InputPartition(*tp) for tp in active_partitions or ())
        wanted, next_wanted, full, settled = self._under_way.due(places, self.transport.wanted_at, began)
        backlog = began <= self._backlog_seen + _BACKLOG_SECONDS
        self._had_room = self._had_room if full else began
        soon = full and not backlog and began <= self._had_room + _HELD_UP_SECONDS
        room = _ROOM_SECONDS if soon else POLL_SECONDS if full else math.inf
        self._thread.waits.others(min(next_wanted, room), full=full and backlog)
        if not wanted:
            await asyncio.sleep(min(IDLE_SLEEP_SECONDS if soon or backlog else POLL_SECONDS, next_wanted))
            return {}
        # A fetch that waits for some partitions does not notice that others are wanted again.
        timeout = min(timeout, room, _SETTLED_SECONDS if settled else POLL_SECONDS, next_wanted)
        batches = await super()._getmany(active_partitions={TP(*place) for place in wanted}, timeout=timeout)
        raw: Callable[[str], bool] = self.transport.is_raw
        # By offsets: counting records would parse them, and what cannot be parsed is the task's to refuse.
        offsets = {tp: batch.end - batch.start for tp, batch in batches.items()}
        if any(raw(tp.topic) and not batch.at_end for tp, batch in batches.items()):
            self._backlog_seen, backlog = began, True
        short = not backlog and all(not raw(tp.topic) and offsets[tp] <= _FEW_OFFSETS for tp in batches)
        self._next_round = began + (_SHORT_ROUND_SECONDS if short else _ROUND_SECONDS)
        messages = {}
        for tp, batch in batches.items():
            self._under_way.add(InputPartition(*tp), batch)
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
            self._thread.seek(consumer, InputPartition(*tp), offset)

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
