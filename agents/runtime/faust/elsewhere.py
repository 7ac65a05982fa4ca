"""The consumer of the raw topics where they are on another cluster (`[input.kafka]`): it stands beside the one of the group.

A consumer group lives on one cluster. So the group shares out the partitions of a topic of ours, `sources`, which is always empty:
its partition n stands for source n. Whoever has it reads the source's raw partition here. Partitions are assigned by hand, without
a group, and read from the position in the changelog. Nothing is written to the other cluster.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from susurrus.agents.finding import Finding, waits
from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.faust.fetching import (
    IDLE_SLEEP_SECONDS,
    POLL_SECONDS,
    BatchFetcher,
    UnderWay,
    consumer_options,
    keep_bytes,
)
from susurrus.agents.runtime.task import PartitionTask

log = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.02
"""What arrives within one round is delivered together: each batch costs a transaction."""
_PULSE_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 3.0
"""After a failure, a new consumer is made so much later."""


class Tasks(Protocol):
    """What it needs of the group (group.py). A place is a partition of the topic `sources`."""

    generation: int

    @property
    def tasks(self) -> Mapping[InputPartition, PartitionTask]:
        """The tasks at this moment."""

    def wanted_at(self, place: InputPartition) -> float:
        """Monotonic time from which on the partition's task wants batches."""

    def on_trouble(self, place: InputPartition, reason: Finding) -> None:
        """Tell the task why its partition cannot be read."""

    def offer(self, place: InputPartition, batch: Batch) -> None:
        """Hand a batch to the task."""


class Elsewhere(BatchFetcher, threading.Thread):
    """Reads raw partitions of another cluster for the tasks that the group has given to this worker.

    options: of aiokafka. topic: the full name of `sources`. servers: of the other cluster, for messages.
    """

    def __init__(self, group: Tasks, *, topic: str, options: Mapping[str, Any], servers: str, fetch_bytes: int) -> None:
        super().__init__(name="input.kafka", daemon=True)
        self.topic = topic
        self._group = group
        self._servers = servers
        self._options = consumer_options(fetch_bytes, **{"metadata_max_age_ms": 30_000, **options, "group_id": None})
        self._lock = threading.Lock()
        self._asked: dict[InputPartition, int] = {}
        """Seeks that have not been done yet."""
        self._next: dict[InputPartition, int] = {}
        """Where each raw partition is read on; used by the thread only, as all that follows."""
        self._reads: set[InputPartition] = set()
        self._under_way = UnderWay()
        self._failed = ""
        """Why brokers cannot be read, by the last answer."""
        self._ending = threading.Event()

    # ---- called by other threads -------------------------------------------------------------------------------------

    def continue_at(self, place: InputPartition, offset: int) -> None:
        """Continue reading a raw partition at an offset. A task calls it before its first batch, and where one is missing."""
        with self._lock:
            self._asked[place] = offset

    def end(self) -> None:
        """Stop reading, and close the consumer."""
        self._ending.set()

    # ---- what `BatchFetcher` asks ------------------------------------------------------------------------------------

    @property
    def flow_active(self) -> bool:
        """Whether it goes on."""
        return not self._ending.is_set()

    def is_raw(self, topic: str) -> bool:
        """All topics that it reads are."""
        return True

    def on_trouble(self, place: InputPartition, reason: Finding) -> None:
        """Tells the task of that raw partition."""
        if (of := self._places().get(place)) is not None:
            self._group.on_trouble(of, reason)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until the end, with a new consumer after a failure."""
        keep_bytes()
        asyncio.run(self._run())

    async def _run(self) -> None:
        while not self._ending.is_set():
            consumer = AIOKafkaConsumer(**self._options)
            self._reads = set()
            try:
                await consumer.start()
                self._fails("")
                pulse = asyncio.create_task(self._pulse(consumer))
                try:
                    while not self._ending.is_set():
                        await self._round(consumer)
                finally:
                    pulse.cancel()
            except Exception as error:
                self._fails(type(error).__name__)
            finally:
                await consumer.stop()
            await asyncio.sleep(0.0 if self._ending.is_set() else _AGAIN_SECONDS)

    async def _pulse(self, consumer: AIOKafkaConsumer) -> None:
        """Ask the leaders now and then: aiokafka waits for brokers that are away, and says nothing."""
        while True:
            await asyncio.sleep(_PULSE_SECONDS)
            places = [TopicPartition(*place) for place in self._reads]
            try:
                if places:
                    await asyncio.wait_for(consumer.end_offsets(places), _PULSE_SECONDS)
            except (KafkaError, TimeoutError) as error:
                self._fails(type(error).__name__)
            else:
                self._fails("")

    async def _round(self, consumer: AIOKafkaConsumer) -> None:
        began = time.monotonic()
        places = self._places()
        self._take_up(consumer, places)
        due = self._under_way.due(self._reads, lambda place: self._group.wanted_at(places[place]), began)
        self.waits.others(due.next_wanted, full=due.full)
        if not due.wanted:
            await asyncio.sleep(min(IDLE_SLEEP_SECONDS if due.full else POLL_SECONDS, due.next_wanted))
            return
        generation = self._group.generation
        timeout = min(POLL_SECONDS, due.next_wanted)
        for place, batch in (await self.fetch(consumer, due.wanted, timeout=timeout, generation=generation)).items():
            self._next[place] = batch.end
            self._under_way.add(place, batch)
            self._group.offer(places[place], batch)
        await asyncio.sleep(began + _ROUND_SECONDS - time.monotonic())

    def _take_up(self, consumer: AIOKafkaConsumer, places: Mapping[InputPartition, InputPartition]) -> None:
        """Read what the tasks of this moment read, each from where it asked to. A task that has not asked yet is not read."""
        with self._lock:
            asked, self._asked = self._asked, {}
        self._next = {place: offset for place, offset in {**self._next, **asked}.items() if place in places}
        if self._reads == self._next.keys():
            for place, offset in asked.items():
                if place in self._reads:
                    self.seek(consumer, place, offset)
            return
        self._reads = set(self._next)
        if not self._reads:
            consumer.unsubscribe()
            return
        # aiokafka forgets all positions, and what it has fetched.
        consumer.assign([TopicPartition(*place) for place in self._reads])
        for place, offset in self._next.items():
            self.seek(consumer, place, offset)

    def _places(self) -> dict[InputPartition, InputPartition]:
        """Raw partition -> the partition of `sources` that stands for it, of all tasks of this moment."""
        tasks = self._group.tasks
        return {task.context.place: place for place, task in tasks.items() if place.topic == self.topic}

    def _fails(self, what: str) -> None:
        """Say in the log and to the tasks that the brokers cannot be read, or, with the empty text, that they can again."""
        if what and not self._failed:
            log.error(
                "input.kafka: the brokers at %s cannot all be read (%s); this goes on trying", self._servers, what
            )
        elif self._failed and not what:
            log.info("input.kafka: the brokers at %s answer again", self._servers)
        self._failed = what
        if what:
            text = f'input.kafka.bootstrap_servers="{self._servers}": these brokers cannot all be read ({what})'
            for place in self._places().values():
                self._group.on_trouble(place, waits("input", text, "see to these brokers and the network"))
