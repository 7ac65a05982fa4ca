"""The rule that closes intervals: whatever is read again after a crash, every interval is closed once, with all of its rows."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.open_intervals import OpenIntervals, TickVector
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.tick import Tick

DIGEST = bytes(32)
FIRST = 100


@dataclass(frozen=True)
class Block:
    """Rows of one interval of one source; ``name`` tells it from every other."""

    source: int
    interval: int
    name: int


Log = list[Block | Tick]


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, int, int]:
    """A log as the transactions of several sources write it (blocks of open intervals, then perhaps a tick), the sources at
    the start, and the last interval. A grown number of sources joins from the interval after the tick before which it
    was announced."""
    sources, intervals = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    grown = draw(st.integers(sources, 4))
    announced = draw(st.integers(FIRST, FIRST + intervals - 1)) if grown > sources else None
    queues: list[list[list[Block | Tick]]] = []
    name = 0
    for source in range(grown):
        joins = FIRST if source < sources else (announced or 0) + 1
        closed, queue = joins - 1, []
        while closed < FIRST + intervals - 1:
            wrote: list[Block | Tick] = []
            for _ in range(draw(st.integers(0, 2))):
                wrote.append(Block(source, draw(st.integers(closed + 1, FIRST + intervals - 1)), name))
                name += 1
            if draw(st.booleans()) or not wrote:
                closed = draw(st.integers(closed + 1, FIRST + intervals - 1))
                if source == 0 and announced is not None and closed >= announced > wrote_until(queue, 0):
                    closed = announced
                said = announced is not None and closed >= announced and source == 0
                wrote.append(Tick(source, closed, 0, DIGEST, (((announced or 0) + 1, grown),) if said else ()))
            queue.append(wrote)
        queues.append(queue)
    log: Log = []
    while any(queues):
        ready = [
            source
            for source, queue in enumerate(queues)
            if queue and (source < sources or any(isinstance(r, Tick) and r.sources for r in log))
        ]
        log += queues[draw(st.sampled_from(ready))].pop(0)
    return log, sources, FIRST + intervals - 1


def wrote_until(queue: list[list[Block | Tick]], source: int) -> int:
    return max(
        [FIRST - 1, *(r.interval for wrote in queue for r in wrote if isinstance(r, Tick) and r.source == source)]
    )


@dataclass
class Reader:
    """Reads a log as bound does: one commit per closed interval with rows, a restart from the last commit at any time."""

    log: Log
    sources: int
    spill_above: int = 10**9

    def __post_init__(self) -> None:
        self.closed: list[tuple[int, list[Block]]] = []
        self.meta: dict[str, Any] | None = None
        self.position = 0
        self.spilled: dict[int, list[Block]] = {}
        self.crash()

    def crash(self) -> None:
        if self.meta is None:
            self.open: OpenIntervals[Block] = OpenIntervals.fresh(
                config_digest=DIGEST, closed=FIRST - 1, sources=self.sources
            )
        else:
            self.open = OpenIntervals.from_meta(self.meta, config_digest=DIGEST)
        self.taken = self.position

    def take(self, end: int) -> None:
        for offset in range(self.taken, end):
            record = self.log[offset]
            if isinstance(record, Tick):
                self.open.tick(record, offset)
            else:
                self.open.add(record.interval, record, 1, offset)
        self.taken = end

    def commit(self, limit: int) -> int:
        """At most so many commits; how many there were."""
        for number in range(limit):
            ready = self.open.ready
            if ready <= self.open.closed:
                if self.open.rows > self.spill_above:
                    for interval, blocks in self.open.take_all():
                        self.spilled.setdefault(interval, []).extend(blocks)
                    self.position, self.meta = self.taken, self.open.to_meta(self.taken)
                return number
            intervals = [s for s in (self.open.next_with_rows(ready), min(self.spilled, default=None)) if s is not None]
            interval = min([s for s in intervals if s <= ready], default=ready)
            blocks = self.spilled.pop(interval, []) + self.open.peek(interval)
            self.open.close(interval)
            self.closed.append((interval, blocks))
            self.position = self.open.position(self.taken)
            self.meta = self.open.to_meta(self.position)
        return limit


def wanted(log: Log, interval: int) -> list[Block]:
    return [record for record in log if isinstance(record, Block) and record.interval == interval]


STEPS = st.lists(st.tuples(st.sampled_from(["take", "commit", "crash"]), st.integers(1, 6)), max_size=25)


@given(logs(), STEPS, st.sampled_from([0, 2, 10**9]))
def test_a_crash_anywhere_closes_the_same_intervals_with_the_same_rows(
    written: Any, steps: Any, spill_above: int
) -> None:
    log, sources, last = written
    reader = Reader(log, sources, spill_above)
    for action, amount in [*steps, ("take", len(log)), ("commit", 1000)]:
        if action == "take":
            reader.take(min(len(log), reader.taken + amount))
        elif action == "commit":
            reader.commit(amount)
        else:
            reader.crash()
    order = [interval for interval, _ in reader.closed]
    assert order == sorted(set(order))
    assert order[-1] == last
    assert {interval: blocks for interval, blocks in reader.closed if blocks} == {
        interval: blocks for interval in range(FIRST, last + 1) if (blocks := wanted(log, interval))
    }


@given(logs(), st.data())
def test_an_interval_is_never_closed_before_every_source_it_counts_for_has_ticked_it(
    written: Any, data: st.DataObject
) -> None:
    log, sources, _ = written
    reader = Reader(log, sources)
    ticks: dict[int, int] = {}
    joined = dict.fromkeys(range(sources), FIRST)
    for offset, record in enumerate(log):
        if isinstance(record, Tick):
            ticks[record.source] = record.interval
            for since, number in record.sources:
                for source in range(number):
                    joined.setdefault(source, since)
        reader.take(offset + 1)
        if data.draw(st.booleans()):
            reader.crash()
            reader.take(offset + 1)
        closed = FIRST - 1
        while all(
            ticks.get(source, FIRST - 1) >= closed + 1 for source, since in joined.items() if since <= closed + 1
        ):
            closed += 1
        reader.commit(1000)
        assert reader.open.closed == closed


@given(logs(), st.integers(0, 40))
def test_a_commit_claims_no_block_that_still_waits_and_no_tick_beyond_its_position(written: Any, end: int) -> None:
    log, sources, _ = written
    reader = Reader(log, sources)
    reader.take(min(end, len(log)))
    while reader.commit(1):
        assert reader.meta is not None
        closed = reader.meta["closed"]
        for record in log[reader.position : reader.taken][:1]:
            assert isinstance(record, Block)
            assert record.interval > closed
        below = [r for r in log[: reader.position] if isinstance(r, Block)]
        assert all(block.interval <= closed for block in below)
        behind = [r for r in log[: reader.position] if isinstance(r, Tick)]
        assert reader.meta["ticks"] == {tick.source: tick.interval for tick in behind}


def test_a_new_source_counts_from_the_interval_that_the_tick_names_wherever_the_tick_itself_stands() -> None:
    for carried_by in (10, 13):
        vector = TickVector({}, ((10, 2),))
        for tick in (
            Tick(0, carried_by, 0, DIGEST, ((12, 3), (14, 5))),
            Tick(1, 13, 0, DIGEST),
            Tick(0, 13, 0, DIGEST, ((13, 3), (14, 5))),
        ):
            vector.apply(tick)
        assert [vector.sources.number(interval) for interval in (10, 11, 12, 13, 14)] == [2, 2, 3, 3, 5]
        assert vector.ready(9) == 11
        vector.apply(Tick(2, 14, 0, DIGEST))
        assert vector.ready(9) == 13
        vector.sources.prune(11)
        assert vector.sources.schedule == ((12, 3), (14, 5))


def test_a_source_that_has_not_ticked_holds_everything_back() -> None:
    vector = TickVector({0: 20, 1: 30}, ((10, 3),))
    assert vector.ready(9) == 9


def test_a_tick_of_another_configuration_is_refused() -> None:
    intervals: OpenIntervals[Block] = OpenIntervals.fresh(config_digest=DIGEST, closed=9, sources=1)
    with pytest.raises(
        Refusal, match="source=0 closed interval=10 under another configuration: run every worker with the same"
    ):
        intervals.tick(Tick(0, 10, 0, b"\1" * 32, 1), 0)


def test_what_holds_the_next_interval_back_is_named() -> None:
    intervals: OpenIntervals[Block] = OpenIntervals.fresh(config_digest=DIGEST, closed=9, sources=3)
    assert intervals.stall() is None
    intervals.tick(Tick(1, 12, 0, DIGEST), 0)
    assert intervals.stall() == "interval=10 waits for source 0, 2: see what status says of source"
    intervals.tick(Tick(0, 10, 0, DIGEST), 1)
    intervals.tick(Tick(2, 10, 0, DIGEST), 2)
    assert intervals.stall() is None


def test_rows_in_memory_are_counted_until_their_interval_closes_or_they_are_spilled() -> None:
    intervals: OpenIntervals[Block] = OpenIntervals.fresh(config_digest=DIGEST, closed=9, sources=1)
    for interval, rows in ((10, 5), (11, 7), (13, 2), (9, 100)):
        intervals.add(interval, Block(0, interval, 0), rows, interval, 1000 * rows)
    assert (intervals.rows, intervals.size) == (14, 14_000)
    intervals.close(11)
    assert (intervals.rows, intervals.size) == (2, 2_000)
    assert intervals.position(99) == 13
    assert [interval for interval, _ in intervals.take_all()] == [13]
    assert (intervals.rows, intervals.size) == (0, 0)
    assert intervals.position(99) == 99
