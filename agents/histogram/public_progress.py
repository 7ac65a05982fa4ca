"""The triggers that the public can see, compared with the state that a worker finds.

    release ──progress──▶ public readers, and back: before a release partition goes on, and before an epoch begins

Internal topics that were put back from an older copy look whole. Only what has been published since then shows it. A trigger that
the state does not know of would be published again, with the same noise and perhaps over other data.
"""

import threading
from collections.abc import Iterator, Sequence

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.facts import NewestRelease, WindowMemory
from susurrus.mechanisms.calendar import Calendar, Interval, Trigger
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import progress as codec
from susurrus.topics.wire.packing import MalformedRecord


def read_progress(clients: Clients, topic: str, start: int = 0) -> Iterator[tuple[int, codec.Progress]]:
    """(offset, record) from an offset to the end of the log, as the topic's leader knows it.

    Raises Refusal for what release did not write, KafkaException where the end is not reached.
    """
    for _, value, offset in clients.read(topic, start, group="progress"):
        if value is None:
            continue
        try:
            yield offset, codec.decode(value)
        except MalformedRecord as error:
            raise Refusal(
                f"topic={topic} offset={offset}: {error}",
                "find out who else writes to it",
            ) from error


class PublicProgress:
    """The newest trigger of every epoch and partition. Thread-safe; shared by the tasks of a worker, read once and then on."""

    def __init__(self, clients: Clients, topic: str, calendar: Calendar) -> None:
        self.topic = topic
        self._clients = clients
        self._calendar = calendar
        self._lock = threading.Lock()
        self._next = 0
        self._newest: dict[tuple[str, int], tuple[Interval, codec.Progress]] = {}

    def refresh(self) -> None:
        """Read what is new. Raises as `read_progress` does."""
        with self._lock:
            if self._clients.watermarks(self.topic, 0)[1] < self._next:
                self._next, self._newest = 0, {}  # another topic of the same name
            for offset, said in read_progress(self._clients, self.topic, self._next):
                self._next = offset + 1
                if said.skips:
                    continue  # nothing of it is published
                place, interval = (said.epoch, said.partition), self.interval_of(said)
                if place not in self._newest or self._newest[place][0] < interval:
                    self._newest[place] = interval, said

    def interval_of(self, said: codec.Progress) -> Interval:
        """The interval with which a trigger was published."""
        return self._calendar.interval_of(self._calendar.window_at(said.window), Trigger(said.trigger))

    def newest(self) -> codec.Progress | None:
        """The newest record of the newest epoch; None where nothing was ever published, or all of it has expired."""
        with self._lock:
            found = [(said.epoch_number, interval, said) for interval, said in self._newest.values()]
        return max(found, key=lambda row: row[:2])[2] if found else None

    def release(self, epoch: str) -> NewestRelease | None:
        """The newest release of an epoch that all partitions have completed; None before there is one.

        Its rows are those of each partition's newest release: the topic may have forgotten what came before.
        """
        with self._lock:
            found = [entry for (of, _), entry in self._newest.items() if of == epoch]
        if not found or len(found) < found[0][1].of_partitions:
            return None
        interval, said = min(found, key=lambda entry: entry[0])
        announced = [each for _, each in found]
        return NewestRelease(
            interval=interval,
            trigger=said.trigger,
            of_triggers=said.of_triggers,
            rows=sum(each.rows for each in announced),
            memory=memory_of([each for each in announced if each.window == said.window]),
        )

    def last(self, partition: int, epoch: str) -> codec.Progress | None:
        """The newest record of a partition in an epoch, as far as it was read."""
        with self._lock:
            found = self._newest.get((epoch, partition))
        return None if found is None else found[1]

    def ahead(self, partition: int, *, epoch: str, number: int, closed: Interval) -> codec.Progress | None:
        """A public record that contradicts a release partition in this epoch which has closed intervals up to ``closed``.

        It is of a later interval of that partition, or of an epoch that the ledger does not know yet. Older epochs do not count.
        """
        with self._lock:
            for interval, said in self._newest.values():
                if said.epoch == epoch:
                    if said.partition == partition and interval > closed:
                        return said
                elif said.epoch_number >= number:
                    return said
        return None


def memory_of(announced: Sequence[codec.Progress]) -> WindowMemory | None:
    """What a window has from those before it. announced: of this window, one of each partition that is in it; at least one."""
    first = announced[0]
    if first.remembered is None and first.persistence is None:
        return None
    numbers = [said.remembered for said in announced if said.remembered is not None]
    whole = len(numbers) == first.of_partitions
    return WindowMemory(window=first.window, remembered=sum(numbers) if whole else None, persistence=first.persistence)
