"""Follow the releases of a histogram: every complete one, in order, as columns.

    histogram, progress ──ReleaseReader──▶ Release

Only committed records are read, no group is joined, and only rows of releases that are not complete yet are kept. assembly.py says
when a release is complete, and which ones are passed over. Announcements are read first: they say which releases there are, so a
reader of few releases begins at the rows of these.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
from confluent_kafka import Message, TopicPartition

from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.frames import json_of
from susurrus.agents.histogram.assembly import AnnouncedRelease, Assembly, OpenRelease, ReleasedPart, Wanted
from susurrus.agents.histogram.due import Announced
from susurrus.agents.histogram.estimates import Estimates as Estimates
from susurrus.agents.histogram.estimates import Release as Release
from susurrus.agents.histogram.estimates import ReleasedLevel
from susurrus.agents.histogram.public_progress import memory_of
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.follow import Follower, Place
from susurrus.agents.kafka.requests import REQUEST_SECONDS
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import strategy_named
from susurrus.topics import histogram, progress
from susurrus.topics.histogram import ColumnRows, RowColumns
from susurrus.topics.progress import Progress
from susurrus.topics.wire.packing import MalformedRecord

Start = Literal["start", "now"]

_SLICE_SECONDS = 0.05
_ROWS_AHEAD: Final = 1_000_000
"""Partitions that run ahead are paused where so many rows wait for others; some 100 bytes each."""
_SETTLED_SECONDS = 2.0
"""A partition has ended when it has not grown for so long: a broker that has just become leader may show an earlier end."""

Since = int | Callable[[list[AnnouncedRelease]], int | None] | None
"""Releases of earlier times (ms) are not wanted. A function returns that time; it is given what is announced at the beginning."""


class ReleaseReader:
    """Follows the topics `histogram` and `progress` of one pipeline. Use as a context manager; not thread-safe.

    start: "start" reads every release that the topics still hold; "now" those that become visible from here on. wanted: whether
    a release is wanted, by its window's start (ms), its trigger and the window's number of triggers. since: releases of
    earlier times are not wanted, and most of their rows are not even read. heard: called with every announcement. Raises
    ConfigurationError where a topic is missing.
    """

    topic: ClassVar[str] = "histogram"
    """The topic with the rows."""

    def __init__(
        self,
        settings: HistogramSettings,
        *,
        start: Start = "start",
        wanted: Wanted | None = None,
        since: Since = None,
        heard: Callable[[Progress], object] = lambda said: None,
    ) -> None:
        self._settings, self._start, self._wanted, self._heard = settings, start, wanted, heard
        self._since = since
        self._levels = released_levels(settings)
        self._rows, self._progress = settings.topic(self.topic), settings.topic("progress")
        self._json = reader_of(settings.output, settings.schemas[self._rows], settings.namespace)
        self._assembly = Assembly(settings.window.trigger_every, self._wants)
        self._said = Announced()
        self._clients = clients_of(settings, quiet=True)
        self._consumer = self._clients.reader("releases", lost="earliest")
        self._begun, self._caught_up = False, False
        self._paused: set[int] = set()
        self._read: dict[Place, int] = {}
        """The offset behind the last record of each topic's partition."""
        self._settled: dict[int, tuple[int, float]] = {}
        """For each partition the end that was reached, and since when it has been the end."""
        self.newest: AnnouncedRelease | None = None
        """Of what was announced at the beginning, the newest window's newest release; None until that is known."""
        try:
            self._places = [(self._rows, at) for at in range(self._clients.partitions_to_read(self._rows))]
            self._clients.partitions_to_read(self._progress)
            now = start == "now"
            self._ends: dict[Place, int] = {place: self._end(place) if now else 0 for place in self._places}
            self._starts = dict(self._ends)
            self._skipped = self._end((self._progress, 0)) if now else 0
            """Announcements below this offset are of releases that are not returned."""
            self._follower = Follower(self._consumer, {(self._progress, 0): 0})
        except BaseException:
            self.close()
            raise

    def _wants(self, window: int, trigger: int, of_triggers: int) -> bool:
        time_of = window + trigger * self._settings.window.trigger_every
        if isinstance(self._since, int) and time_of < self._since:
            return False
        return self._wanted is None or self._wanted(window, trigger, of_triggers)

    @property
    def skipped(self) -> Collection[int]:
        """The windows (starts in ms) of which the newest epoch says that they are skipped, as far as that is read."""
        return self._said.skipped

    def skips(self, window: int) -> bool:
        """See `ReleaseSource.skips`."""
        return self._said.skips(window)

    @property
    def caught_up(self) -> bool:
        """Whether every complete release that had been announced when this reader began has been returned."""
        return self._caught_up

    @property
    def progress(self) -> tuple[int, int]:
        """How many offsets of rows were read, and how many there were at the beginning; 0 while that is unknown."""
        read = sum(max(0, self._read.get(place, 0) - start) for place, start in self._starts.items())
        return read, sum(self._ends[place] - start for place, start in self._starts.items())

    def poll(self, timeout: float) -> list[Release]:
        """The releases that were completed since the last call, oldest first; waits up to ``timeout`` seconds for one.

        Returns early, once, where it has caught up. Raises KafkaException for what the client does not recover from by itself,
        Refusal for a record that no release stage has written.
        """
        deadline = time.monotonic() + timeout
        behind = not self._caught_up
        while True:
            left = deadline - time.monotonic()
            self._take(self._follower.read(max(0.0, min(_SLICE_SECONDS, left))))
            found = []
            if self._begun or self._begin_rows():
                # One answer for both questions: a partition that ends between them would end the reading before its last release.
                ended = functools.cache(self._ended)
                found = [self._release(whole) for whole in self._assembly.complete(ended)]
                self._balance()
                self._caught_up = self._caught_up or self._nothing_left(ended)
            if found or left <= _SLICE_SECONDS or (behind and self._caught_up):
                return found

    def _take(self, messages: list[Message]) -> None:
        values: dict[int, list[bytes]] = {}
        for message in messages:
            value: Any = message.value()
            place: Any = (message.topic(), message.partition())
            offset = self._read[place] = int(message.offset() or 0) + 1
            if value is None:
                continue  # a window that has left the compacted topic
            if place[0] == self._rows:
                values.setdefault(place[1], []).append(value)
                continue
            if offset > self._skipped:
                self._skip()
            try:
                said = progress.decode(value)
            except MalformedRecord as error:
                raise _foreign(place, offset - 1, error) from error
            if (announced := self._announced(said)) is not None:
                self._assembly.announce(announced)
            self._said.add(said)
            self._heard(said)
        for partition, found in values.items():
            try:
                for rows in self._decode([self._json(value) for value in found]):
                    self._assembly.add(partition, rows)
            except MalformedRecord as error:
                raise _foreign((self._rows, partition), self._read[self._rows, partition] - 1, error) from error

    def _announced(self, said: Progress) -> Progress | None:
        """What an announcement says of the rows that are read; None where there are none."""
        return said

    def _decode(self, values: Sequence[bytes]) -> Iterator[ReleasedPart]:
        return histogram.decode_rows(values)

    def _skip(self) -> None:
        """Pass over what had been announced when this reader began, once all of it has been read."""
        if self._skipped:
            self._skipped = 0
            self._assembly.skip_announced()

    def _begin_rows(self) -> bool:
        """Once progress has been read to its end, go on with it and read the rows. Whether that is so."""
        if not self._follower.caught_up:
            return False
        self._skip()
        announced = self._assembly.announced
        if callable(self._since):
            self._since = self._since(announced)
        if self._since is not None:
            announced = [each for each in announced if each.time >= self._since]
        self.newest = max(announced, key=recency, default=None)
        self._assembly.aim()
        self._begun = True
        if self._start == "start":
            self._starts = self._first_offsets(self._since)
        progress_place = (self._progress, 0)
        starts = {progress_place: self._read.get(progress_place, 0), **self._starts}
        self._follower = Follower(self._consumer, starts)
        return True

    def _first_offsets(self, since: int | None) -> dict[Place, int]:
        there = {place: self._watermarks(place) for place in self._places}
        self._ends = {place: end for place, (_, end) in there.items()}
        # To Kafka, a negative time means something else.
        if since is None or since <= 0 or self._settings.kafka.embedded:
            return {place: start for place, (start, _) in there.items()}
        # The time stamp of a row is the time of its trigger; a broker that stamps by its own clock stamps later.
        asked = [TopicPartition(*place, since) for place in self._places]
        found = self._consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS)
        return {
            place: at.offset if at.offset >= 0 else self._ends[place]
            for place, at in zip(self._places, found, strict=True)
        }

    def _balance(self) -> None:
        """Hold back partitions that run ahead of others, so that few rows wait."""
        rows, awaited = self._assembly.rows, self._assembly.awaited
        paused = set(self._paused)
        if awaited is None or rows < _ROWS_AHEAD // 2:
            paused = set()
        elif rows > _ROWS_AHEAD:
            paused = {partition for _, partition in self._places}
        paused -= set(awaited or ())
        for change, partitions in (
            (self._consumer.pause, paused - self._paused),
            (self._consumer.resume, self._paused - paused),
        ):
            if partitions:
                change([TopicPartition(self._rows, partition) for partition in partitions])
        self._paused = paused

    def _nothing_left(self, ended: Callable[[int], bool]) -> bool:
        """Whether all that it began with is done, or waits for a release that will not go on."""
        awaited = self._assembly.awaited
        return self._assembly.reached or (awaited is not None and any(map(ended, awaited)))

    def _end(self, place: Place) -> int:
        """The end of a partition as read_committed readers see it."""
        return self._watermarks(place)[1]

    def _watermarks(self, place: Place) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=REQUEST_SECONDS)
        return int(low), int(high)

    def _ended(self, partition: int) -> bool:
        place = (self._rows, partition)
        end = self._follower.ends.get(place, -1)
        if end < self._read.get(place, 0):
            return False
        found, since = self._settled.setdefault(partition, (end, time.monotonic()))
        if found == end and time.monotonic() < since + _SETTLED_SECONDS:
            return False
        if found == end == self._end(place):
            return True
        self._settled[partition] = (end, time.monotonic())
        return False

    def _release(self, whole: OpenRelease) -> Release:
        return self._made(whole, *parts_of(whole))

    def _made(self, whole: OpenRelease, parts: Sequence[ReleasedPart], order: list[int]) -> Release:
        """The release of all parts. order: where its rows stand in the parts one after the other."""
        settings, name = self._settings, whole.name
        texts = [text for part in parts for text in part.keys]
        levels = _levels_of(parts)
        if levels is not None:
            number = {name: at for at, name in enumerate(settings.level_names)}
            order = sorted(order, key=lambda row: number.get(levels[row], len(number)))
        published = [column.name for column in settings.published_columns]
        names = [column.name for column in parts[0].columns] if parts else published
        by_name = [{column.name: column for column in part.columns} for part in parts]
        memory = memory_of(list(whole.said.values()))
        return Release(
            window_start=name.window,
            window_end=parts[0].release.window_end if parts else settings.calendar.end_of(WindowStart(name.window)),
            trigger_time=name.window + name.trigger * settings.window.trigger_every,
            trigger=name.trigger,
            of_triggers=whole.of_triggers,
            epoch=name.epoch,
            epoch_number=whole.epoch_number,
            strategy=parts[0].release.strategy if parts else settings.choice.name,
            time_zone=settings.window.time_zone,
            fields=settings.input.key_names,
            keys=msgspec.json.decode(b"[" + b",".join(texts[row] for row in order) + b"]"),
            columns={
                name: self._column(name, [of[name] for of in by_name], np.array(order, np.intp)) for name in names
            },
            ranking=None if settings.top is None else settings.top.ranking,
            levels=self._levels,
            remembered=None if memory is None else memory.remembered,
            persistence=None if memory is None else memory.persistence,
            row_levels=[] if levels is None and self._levels else levels and [levels[row] for row in order],
        )

    def _column(self, name: str, parts: list[ColumnRows], order: npt.NDArray[np.intp]) -> Estimates:
        layout = self._settings.layout
        published = next((column for column in layout.published if column.column.name == name), None)
        return joined(
            parts,
            order,
            additive=published is not None and published.column.additive,
            divisor=None if published is None else layout.divisor(published),
            centre=(None if published is None else published.column.centre) or 0.0,
        )

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()
        self._clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parts_of(whole: OpenRelease) -> tuple[list[ReleasedPart], list[int]]:
    """The parts of a whole release, and where its rows stand in them, in the order of their keys."""
    parts = [part for parts in whole.parts.values() for part in parts]
    texts = [text for part in parts for text in part.keys]
    return parts, sorted(range(len(texts)), key=texts.__getitem__)


def _levels_of(parts: Sequence[ReleasedPart]) -> list[str] | None:
    """The level of each row; None where the rows have none."""
    of_parts = [part.levels if isinstance(part, RowColumns) else None for part in parts]
    if all(levels is None for levels in of_parts):
        return None
    return [level for part, levels in zip(parts, of_parts, strict=True) for level in levels or [""] * len(part.keys)]


def recency(announced: AnnouncedRelease) -> tuple[int, int, int]:
    """What orders releases as readers see them: a later window is newer, then a later epoch, then a later trigger."""
    return announced.window, announced.epoch_number, announced.time


def released_levels(settings: HistogramSettings) -> dict[str, ReleasedLevel]:
    """What a reader must know of the levels, by name, in their order; nothing where the key is the only grouping."""
    found = {}
    for level in settings.grouping:
        longest = strategy_named(settings.level_choice(level).name).longest(settings.triggers, level.max_records)
        of_users = frozenset(
            published.column.name
            for published in settings.layout.published
            for measured in published.column.measured()
            if Column(name="", kind=measured.measures).counts_users(level.max_records_per_key)
        )
        found[level.name] = ReleasedLevel(parts=level.parts, single=longest == 1, of_users=of_users)
    return found


def newest_rows(releases: Sequence[Release]) -> Release:
    """Of releases of one window in one epoch, oldest first: the newest row of each key, as a release like the last one."""
    last = releases[-1]
    if len(releases) == 1:
        return last
    keys = [key for release in releases for key in release.keys]
    newest = {
        json_of(key): row for row, key in enumerate(keys)
    }  # strategies of grouping sets repeat all rows, so there is no level
    order = [newest[text] for text in sorted(newest)]
    columns = {}
    for name, of in last.columns.items():
        parts = [release.columns[name] for release in releases]
        columns[name] = joined(
            parts, np.array(order, np.intp), additive=of.additive, divisor=of.divisor, centre=of.centre
        )
    return dataclasses.replace(last, keys=[keys[row] for row in order], columns=columns)


def joined(
    parts: Sequence[ColumnRows | Estimates],
    order: npt.NDArray[np.intp],
    *,
    additive: bool = True,
    divisor: str | None = None,
    centre: float = 0.0,
) -> Estimates:
    """One column from its parts. order: intp[n], where the rows of the result stand in the parts one after the other.

    A row without an estimate of its own stream, where others have one, uses nothing else; one without a smoothed number has its
    estimate there. additive, divisor, centre: of `Estimates`.
    """
    if not parts:
        return Estimates(np.empty(0, np.int64), np.empty(0), None, additive, divisor, centre)

    def column(arrays: list[Any]) -> Any:
        return np.concatenate(arrays)[order]

    direct = None
    if any(part.direct is not None for part in parts):
        alone = [part.direct or (part.estimate, part.std_error) for part in parts]
        direct = column([of[0] for of in alone]), column([of[1] for of in alone])
    smoothed, some = None, None
    if any(part.smoothed is not None for part in parts):
        pairs = [part.smoothed or (part.estimate, part.std_error) for part in parts]
        smoothed = column([of[0] for of in pairs]), column([of[1] for of in pairs])
        some = column([_smoothed_rows(part) for part in parts])
    estimate, std_error = column([part.estimate for part in parts]), column([part.std_error for part in parts])
    intervals = [part.interval for part in parts if part.interval is not None]
    interval = None
    if intervals:
        if len(intervals) < len(parts):
            raise MalformedRecord("some rows have an interval and others have none")
        interval = column([ends[0] for ends in intervals]), column([ends[1] for ends in intervals])
    return Estimates(estimate, std_error, direct, additive, divisor, centre, interval, smoothed, some)


def _smoothed_rows(part: ColumnRows | Estimates) -> npt.NDArray[np.bool_]:
    """bool[n]: which rows have a smoothed number."""
    if part.smoothed_rows is not None:
        return part.smoothed_rows
    return np.full(len(part.estimate), part.smoothed is not None)


def _foreign(place: Place, offset: int, error: MalformedRecord) -> Refusal:
    return Refusal(
        f"topic={place[0]} partition={place[1]} offset<={offset}: {error}",
        "find out who else writes to it",
    )
