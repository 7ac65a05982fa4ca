"""Releases put together from rows and announcements: whole ones only, in order, whatever is compacted, deleted or read first."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.agents.histogram.assembly import Assembly, Name
from susurrus.topics.histogram import ColumnRows, RowColumns, TriggerHeader
from susurrus.topics.progress import Progress
from tests.agents.released import DAY, EPOCHS, WINDOW

HOUR = DAY // 4
TRIGGERS = 4


dices = st.randoms(use_true_random=True)
"""For what has many steps: Hypothesis needs longer for a choice of its own than the step needs."""


@dataclass(frozen=True)
class Published:
    """One release in one partition."""

    epoch: int
    window: int
    trigger: int
    partition: int
    rows: int

    @property
    def name(self) -> Name:
        return Name(EPOCHS[self.epoch], self.window, self.trigger)

    @property
    def time(self) -> int:
        return self.window + self.trigger * HOUR

    def said(self, of_partitions: int) -> Progress:
        return Progress(
            window=self.window,
            trigger=self.trigger,
            of_triggers=TRIGGERS,
            partition=self.partition,
            of_partitions=of_partitions,
            rows=self.rows,
            epoch=EPOCHS[self.epoch],
            epoch_number=self.epoch,
        )

    def columns(self, first: int, end: int) -> RowColumns:
        head = TriggerHeader(
            window_start=self.window,
            window_end=self.window + DAY,
            trigger=self.trigger,
            of_triggers=TRIGGERS,
            strategy="toeplitz",
            epoch=EPOCHS[self.epoch],
        )
        keys = [b'"%d-%d"' % (self.partition, row) for row in range(first, end)]
        visits = ColumnRows(name="visits", estimate=np.arange(first, end), std_error=np.ones(end - first))
        return RowColumns(head, keys, [visits])


@dataclass(frozen=True)
class World:
    """What was published, by partition in the order of its log, and what is left of it.

    announced: what progress still holds, in its order. kept: by partition, the rows of each release that are left.
    """

    partitions: int
    logs: list[list[Published]]
    announced: list[Published]
    kept: list[list[tuple[Published, int]]]


@st.composite
def worlds(draw: st.DrawFn, *, damage: bool = True, epochs: int = 2) -> World:
    """Up to three partitions and two epochs. With ``damage``, progress is compacted and old rows are deleted."""
    partitions = draw(st.integers(1, 3))
    logs: list[list[Published]] = [[] for _ in range(partitions)]
    for epoch in range(1, draw(st.integers(1, epochs)) + 1):
        first, last = draw(st.integers(0, 2)), draw(st.integers(0, 9))
        begin = max((log[-1].window for log in logs if log), default=WINDOW + first * DAY)
        begin = draw(st.sampled_from([begin, max(WINDOW, begin - DAY)]))
        for partition, log in enumerate(logs):
            counts = draw(st.lists(st.integers(0, 3), min_size=TRIGGERS, max_size=TRIGGERS).map(np.cumsum))
            behind = draw(st.integers(0, 2))  # a partition may have stopped before the others
            for step in range(max(0, last + 1 - behind)):
                window, trigger = begin + step // TRIGGERS * DAY, step % TRIGGERS + 1
                log.append(Published(epoch, window, trigger, partition, int(counts[trigger - 1])))
    # Progress is one log that the partitions write in turn; an epoch begins when the one before it is over.
    announced, dice = [], draw(dices)
    for epoch in range(1, epochs + 1):
        queues = [[one for one in log if one.epoch == epoch] for log in logs]
        while left := [queue for queue in queues if queue]:
            announced.append(dice.choice(left).pop(0))
    kept = [[(one, 0) for one in log] for log in logs]
    if damage:
        newest = {(one.epoch, one.window, one.partition): one for one in announced}
        compacted = draw(st.integers(0, len(announced)))
        announced = announced[draw(st.integers(0, len(announced) // 3)) :]
        announced = [
            one
            for at, one in enumerate(announced)
            if at >= compacted or newest[one.epoch, one.window, one.partition] == one
        ]
        for partition, log in enumerate(logs):
            gone = draw(st.integers(0, sum(one.rows for one in log) // 2))
            kept[partition] = []
            for one in log:
                missing = min(gone, one.rows)
                gone -= missing
                kept[partition].append((one, missing))
    return World(partitions, logs, announced, kept)


def chunks(dice: random.Random, kept: list[tuple[Published, int]]) -> Iterator[RowColumns]:
    """The rows of a partition, cut as batches may cut them."""
    for one, missing in kept:
        while missing < one.rows:
            end = dice.randint(missing + 1, one.rows)
            yield one.columns(missing, end)
            missing = end


def expected(world: World) -> list[tuple[Name, int]]:
    """The reference: announced by all, no row missing, of the window's newest epoch that was announced by all; by time."""
    said: dict[Name, dict[int, Published]] = {}
    for one in world.announced:
        said.setdefault(one.name, {})[one.partition] = one
    whole = {name: parts for name, parts in said.items() if len(parts) == world.partitions}
    newest = {name.window: 0 for name in whole}
    for name, parts in whole.items():
        newest[name.window] = max(newest[name.window], parts[0].epoch)
    damaged = {one.name for log in world.kept for one, missing in log if missing}
    found = [
        (parts[0].time, name.window, name, sum(one.rows for one in parts.values()))
        for name, parts in whole.items()
        if name not in damaged and parts[0].epoch == newest[name.window]
    ]
    return [(name, rows) for *_, name, rows in sorted(found)]


def read(assembly: Assembly, ended: set[int]) -> list[tuple[Name, int]]:
    """Name and rows of what is complete; what is returned has exactly its rows."""
    found = []
    for release in assembly.complete(ended.__contains__):
        keys = [key for parts in release.parts.values() for part in parts for key in part.keys]
        assert len(set(keys)) == len(keys) == sum(release.announced.values())
        assert {part.release.trigger for parts in release.parts.values() for part in parts} <= {release.name.trigger}
        assert {part.release.epoch for parts in release.parts.values() for part in parts} <= {release.name.epoch}
        found.append((release.name, len(keys)))
    return found


def as_it_happens(world: World, dice: random.Random) -> tuple[Assembly, list[tuple[Name, int]]]:
    """What is complete while the announcements and rows of each partition come in their order, and in none among each other."""
    assembly, found = Assembly(HOUR), []
    rows = {partition: list(chunks(dice, kept)) for partition, kept in enumerate(world.kept)}
    said = list(world.announced)
    while left := [partition for partition, queue in rows.items() if queue] + ([-1] if said else []):
        partition = dice.choice(left)
        if partition < 0:
            assembly.announce(said.pop(0).said(world.partitions))
        else:
            assembly.add(partition, rows[partition].pop(0))
        found += read(assembly, set())
    return assembly, found


class TestAnyOrder:
    @given(st.data())
    @settings(max_examples=400, deadline=None)
    def test_history_gives_exactly_what_can_be_proved(self, data: st.DataObject) -> None:
        """As a reader from the start finds it: progress first, then the partitions in any interleaving."""
        world, dice = data.draw(worlds()), data.draw(dices)
        assembly = Assembly(HOUR)
        for one in world.announced:
            assembly.announce(one.said(world.partitions))
        queues = {p: list(chunks(dice, kept)) for p, kept in enumerate(world.kept)}
        found, ended = [], {p for p, queue in queues.items() if not queue}
        while left := [p for p, queue in queues.items() if queue]:
            partition = dice.choice(left)
            assembly.add(partition, queues[partition].pop(0))
            if not queues[partition]:
                ended.add(partition)
            found += read(assembly, ended)
        found += read(assembly, ended)
        # A last release that lacks rows may be on its way as far as anyone can see; it holds nothing back.
        assert found == expected(world)

    @given(st.data())
    @settings(max_examples=300, deadline=None)
    def test_as_it_happens_every_release_of_one_epoch_comes_in_order(self, data: st.DataObject) -> None:
        world = data.draw(worlds(damage=False, epochs=1))
        _, found = as_it_happens(world, data.draw(dices))
        assert found == expected(world)

    @given(st.data())
    @settings(max_examples=300, deadline=None)
    def test_as_it_happens_a_new_epoch_replaces_an_old_one(self, data: st.DataObject) -> None:
        world = data.draw(worlds(damage=False))
        assembly, found = as_it_happens(world, data.draw(dices))
        found += read(assembly, set(range(len(world.kept))))
        numbers = {epoch: number for number, epoch in EPOCHS.items()}
        for _, names in groupby(sorted(found, key=lambda one: one[0].window), lambda one: one[0].window):
            of_window = [numbers[name.epoch] for name, _ in names]
            assert of_window == sorted(of_window)
        assert set(found) >= set(expected(world))
        for number in numbers.values():
            order = [(name.window, name.trigger) for name, _ in found if numbers[name.epoch] == number]
            assert order == sorted(order)


def whole(assembly: Assembly, *ended: int) -> list[int]:
    return [name.trigger for name, _ in read(assembly, set(ended))]


class TestAssembly:
    one = Published(epoch=1, window=WINDOW, trigger=1, partition=0, rows=2)

    def test_an_empty_release_is_a_release(self) -> None:
        assembly = Assembly(HOUR)
        assembly.announce(replace(self.one, rows=0).said(1))
        assert read(assembly, set()) == [(self.one.name, 0)]

    def test_a_release_that_is_on_its_way_is_not_lost(self) -> None:
        """An announcement may be visible before its rows, when the partition's end shows."""
        assembly = Assembly(HOUR)
        assembly.announce(self.one.said(1))
        assert whole(assembly, 0) == []
        assembly.add(0, self.one.columns(0, 2))
        assert whole(assembly, 0) == [1]

    def test_a_release_that_lost_rows_is_passed_over_once_the_next_is_announced_and_the_end_is_read(self) -> None:
        assembly = Assembly(HOUR)
        assembly.announce(self.one.said(1))
        assembly.announce(replace(self.one, trigger=2, rows=0).said(1))
        assert whole(assembly) == []
        assert whole(assembly, 0) == [2]

    def test_a_release_with_too_many_rows_is_passed_over(self) -> None:
        assembly = Assembly(HOUR)
        assembly.announce(replace(self.one, rows=1).said(1))
        assembly.add(0, self.one.columns(0, 2))
        assembly.announce(replace(self.one, trigger=2, rows=0).said(1))
        assert whole(assembly) == [2]

    @pytest.mark.parametrize("order", ["rows first", "announcements first"])
    def test_what_is_not_wanted_is_neither_kept_nor_returned(self, order: str) -> None:
        assembly = Assembly(HOUR, lambda window, trigger, of_triggers: trigger == of_triggers)
        releases = [replace(self.one, trigger=trigger) for trigger in range(1, TRIGGERS + 1)]
        for _ in range(2):
            for release in releases:
                if order == "rows first":
                    assembly.add(0, release.columns(0, 2))
                else:
                    assembly.announce(release.said(1))
            assert assembly.rows <= 2
            order = "rows first" if order == "announcements first" else "announcements first"
        assert whole(assembly) == [TRIGGERS]

    def test_nothing_that_is_over_is_kept(self) -> None:
        """Neither what was returned, nor what compaction or retention has damaged, nor rows of an unknown epoch."""
        assembly = Assembly(HOUR)
        for day in range(50):
            window = WINDOW + day * DAY
            for trigger in range(1, TRIGGERS + 1):
                release = replace(self.one, window=window, trigger=trigger)
                if trigger != 2:  # compacted
                    assembly.announce(release.said(1))
                assembly.add(0, replace(release, epoch=2, rows=1).columns(0, 1))
                assembly.add(0, release.columns(0, 1 if trigger == 3 else 2))
            assert whole(assembly) == [1, 4]
        assert assembly.rows == 0
        assert not assembly._open
        assert not assembly._incomplete
        assert not assembly._unknown

    def test_rows_whose_announcement_was_compacted_away_are_dropped_at_once(self) -> None:
        assembly = Assembly(HOUR)
        parts = [replace(self.one, partition=partition) for partition in range(2)]
        assembly.announce(replace(parts[0], trigger=2).said(2))  # which partition 1 has compacted
        for part in parts:
            assembly.announce(replace(part, trigger=TRIGGERS).said(2))
        for trigger in range(1, TRIGGERS):
            for part in parts:
                assembly.add(part.partition, replace(part, trigger=trigger).columns(0, 2))
                assert assembly.rows == 0

    def test_it_says_which_partitions_the_oldest_release_lacks(self) -> None:
        assembly = Assembly(HOUR)
        assert assembly.awaited is None
        assembly.announce(self.one.said(2))
        assert assembly.awaited is None
        assembly.announce(replace(self.one, partition=1).said(2))
        assert assembly.awaited == [0, 1]
        assembly.add(1, replace(self.one, partition=1).columns(0, 2))
        assert assembly.awaited == [0]

    def test_what_is_skipped_does_not_come_back(self) -> None:
        assembly = Assembly(HOUR)
        assembly.announce(self.one.said(1))
        assembly.skip_announced()
        later = replace(self.one, trigger=2)
        assembly.announce(later.said(1))
        assembly.add(0, self.one.columns(0, 2))
        assembly.add(0, later.columns(0, 2))
        assert whole(assembly) == [2]
        assert not assembly._open
