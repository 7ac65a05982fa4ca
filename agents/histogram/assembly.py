"""Put releases together from the rows and announcements that a reader gets, in whatever order partitions are read.

    histogram ──decode_rows──▶ Assembly.add ──┐
    progress  ──decode──▶ Assembly.announce ──┴▶ Assembly.complete ──▶ whole releases, oldest first

A release is whole when every partition has announced it and the announced number of rows is there. Both are needed: a
transaction's commit reaches its partitions one after the other.

Within an epoch, a partition publishes its releases in the order of their times, each in one transaction. Three rules follow:

- Progress is compacted: of a window, each partition's newest announcement may be the only one left. Where a partition has
  announced a later release and not this one, the announcement was compacted away. Then nobody knows how many rows there were, and
  the release is passed over. Progress is therefore read to its end before the rows; such rows are dropped at once.
- A release that lacks rows of a partition which has gone on is *lost*: retention has deleted them. It is passed over, too.
- A release is held back while an older one is announced everywhere, incomplete and not lost.

A new epoch publishes with other noise. It replaces older ones window by window: once it has announced a release of a window
everywhere, what older epochs have of this window is passed over.

Only what is not complete yet is kept. Times are in ms.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from susurrus.topics.histogram import ColumnRows, TriggerHeader
from susurrus.topics.progress import Progress

Wanted = Callable[[int, int, int], bool]
"""Whether a release is wanted, by its window's start (ms), its trigger and the window's number of triggers."""


class ReleasedPart(Protocol):
    """Rows of one release and partition that were read together, as columns. keys: canonical JSON."""

    @property
    def release(self) -> TriggerHeader: ...

    @property
    def keys(self) -> list[bytes]: ...

    @property
    def columns(self) -> list[ColumnRows]: ...


class Name(NamedTuple):
    """What tells a release from all others."""

    epoch: str
    window: int
    trigger: int


class Place(NamedTuple):
    """Where a release stands in what a partition publishes."""

    epoch_number: int
    time: int


class AnnouncedRelease(NamedTuple):
    """A release that every partition has announced. They compare by their times, oldest first."""

    time: int
    window: int
    epoch_number: int
    name: Name


@dataclass(slots=True, eq=False)
class OpenRelease:
    """A release that is not complete. announced, parts, counts: by partition, rows that there must be, that there are, how many.
    said: the announcements themselves.

    The other numbers are 0 until it is announced somewhere.
    """

    name: Name
    epoch_number: int = 0
    of_partitions: int = 0
    of_triggers: int = 0
    announced: dict[int, int] = field(default_factory=dict)
    said: dict[int, Progress] = field(default_factory=dict)
    parts: dict[int, list[ReleasedPart]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def everywhere(self) -> bool:
        """Whether every partition has announced it."""
        return 0 < self.of_partitions <= len(self.announced)

    @property
    def lacking(self) -> list[int]:
        """The partitions that have not as many rows as they announced."""
        return [partition for partition, rows in self.announced.items() if self.counts.get(partition, 0) != rows]


class Assembly:
    """The releases of one pipeline. wanted: others are neither kept nor returned."""

    def __init__(self, trigger_every: int, wanted: Wanted | None = None) -> None:
        self._every = trigger_every
        self._wanted = wanted
        self._open: dict[Name, OpenRelease] = {}
        self._queue: list[AnnouncedRelease] = []
        """A heap of what is announced everywhere."""
        self._aimed: set[Name] = set()
        """What `aim` found in the queue, as far as it is still there."""
        self._incomplete: set[Name] = set()
        """What is not announced everywhere."""
        self._unknown: set[Name] = set()
        """What has rows, of an epoch that has announced nothing."""
        self._epoch_numbers: dict[str, int] = {}
        self._newest_epoch: dict[int, int] = {}
        """For each window the newest epoch that has announced a release of it in every partition."""
        self._announced: dict[int, Place] = {}
        """For each partition the last release that it has announced."""
        self._published: dict[int, Place] = {}
        """For each partition the release of the last rows that were read, once its epoch is known."""
        self.rows = 0
        """How many rows are kept."""

    def announce(self, said: Progress) -> None:
        """Take an announcement. They come in the order of their topic. A window that is skipped has no release."""
        if said.skips:
            return
        name = Name(said.epoch, said.window, said.trigger)
        place = Place(said.epoch_number, self._time(name))
        if said.epoch not in self._epoch_numbers:
            self._epoch_numbers[said.epoch] = said.epoch_number
            self._unknown = {other for other in self._unknown if other.epoch != said.epoch}
        self._announced[said.partition] = max(place, self._announced.get(said.partition, place))
        release = self._of(name)
        release.epoch_number, release.of_triggers = said.epoch_number, said.of_triggers
        release.of_partitions = said.of_partitions
        release.announced[said.partition], release.said[said.partition] = said.rows, said
        if release.everywhere and name in self._incomplete:
            self._incomplete.discard(name)
            heapq.heappush(self._queue, AnnouncedRelease(place.time, name.window, place.epoch_number, name))
            self._newest_epoch[name.window] = max(said.epoch_number, self._newest_epoch.get(name.window, 0))

    def add(self, partition: int, rows: ReleasedPart) -> None:
        """Take rows of one release and partition. Those of a partition come in the order of its log."""
        head = rows.release
        name = Name(head.epoch, head.window_start, head.trigger)
        number = self._epoch_numbers.get(name.epoch)
        if number is not None:
            place = self._published[partition] = Place(number, self._time(name))
            for older in [other for other in self._unknown if partition in self._open[other].parts]:
                self._forget(older)  # of an epoch before this one, whose announcements are gone
            if self._is_past(name, place, partition):
                self._forget_rows(name)
                return
        if self._wants(name, head.of_triggers):
            release = self._of(name)
            if number is None:
                self._unknown.add(name)
            release.parts[partition].append(rows)
            release.counts[partition] += len(rows.keys)
            self.rows += len(rows.keys)

    def complete(self, ended: Callable[[int], bool]) -> Iterator[OpenRelease]:
        """Whole releases, oldest first. What can never become whole is passed over.

        ended: whether all that a partition holds by now, rows of open transactions excepted, has been read.
        """
        while self._queue:
            time, window, number, name = self._queue[0]
            release = self._open[name]
            passed = number < self._newest_epoch[window] or not self._wants(name, release.of_triggers)
            if not passed and (lacking := release.lacking):
                if not any(self._lost(release, partition, ended) for partition in lacking):
                    return
                passed = True
            heapq.heappop(self._queue)
            self._aimed.discard(name)
            del self._open[name]
            self.rows -= sum(release.counts.values())
            if passed:
                continue
            place = Place(number, time)
            for older in [other for other in self._incomplete if self._is_before(other, place)]:
                self._forget(older)
            yield release

    @property
    def awaited(self) -> list[int] | None:
        """The partitions that lack rows of the oldest release; None where no release is announced everywhere."""
        return self._open[self._queue[0].name].lacking if self._queue else None

    @property
    def announced(self) -> list[AnnouncedRelease]:
        """What is announced everywhere, and neither returned nor passed over yet; in no order."""
        return list(self._queue)

    def aim(self) -> None:
        """Aim at the wanted ones among what `announced` has now."""
        names = [each.name for each in self._queue]
        self._aimed = {name for name in names if self._wants(name, self._open[name].of_triggers)}

    @property
    def reached(self) -> bool:
        """Whether all that `aim` found has been returned or passed over."""
        return not self._aimed

    def skip_announced(self) -> None:
        """Pass over what is announced everywhere by now."""
        for *_, name in self._queue:
            self._forget(name)  # rows of them that still come are forgotten with the next release
        self._queue.clear()
        self._aimed.clear()

    def _wants(self, name: Name, of_triggers: int) -> bool:
        return self._wanted is None or self._wanted(name.window, name.trigger, of_triggers)

    def _time(self, name: Name) -> int:
        return name.window + name.trigger * self._every

    def _of(self, name: Name) -> OpenRelease:
        if name not in self._open:
            self._open[name] = OpenRelease(name)
            self._incomplete.add(name)
        return self._open[name]

    def _forget(self, name: Name) -> None:
        self._forget_rows(name)
        self._open.pop(name, None)
        self._incomplete.discard(name)
        self._unknown.discard(name)

    def _forget_rows(self, name: Name) -> None:
        if (release := self._open.get(name)) is not None:
            self.rows -= sum(release.counts.values())
            release.parts, release.counts = defaultdict(list), defaultdict(int)

    def _is_before(self, name: Name, place: Place) -> bool:
        """Whether a release is older than another one. Where its epoch is not known, it may be of a new one."""
        number = self._epoch_numbers.get(name.epoch)
        return number is not None and number <= place.epoch_number and self._time(name) < place.time

    def _is_past(self, name: Name, place: Place, partition: int) -> bool:
        """Whether rows that have just been read are of a release that is over, or that nobody can prove to be complete."""
        release = self._open.get(name)
        if release is None or not release.announced:
            return place < self._announced.get(partition, place)
        missing = set(range(release.of_partitions)) - release.announced.keys()
        return any(place < self._announced.get(other, place) for other in missing)

    def _lost(self, release: OpenRelease, partition: int, ended: Callable[[int], bool]) -> bool:
        """Whether the rows that a partition lacks will never come, or it has too many."""
        if release.counts.get(partition, 0) > release.announced[partition]:
            return True
        place = Place(release.epoch_number, self._time(release.name))
        if place < self._published.get(partition, place):
            return True
        # A partition begins a transaction when those before it are visible everywhere.
        return place < self._announced[partition] and ended(partition)
