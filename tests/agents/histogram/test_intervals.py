"""The rule that closes intervals: whatever is read again after a crash, every interval is closed once, with all of its rows."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.intervals import OpenIntervals
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.ticks import Incoming
from susurrus.mechanisms.calendar import Interval
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
CODEC = {
    "encode": lambda block: b"%d %d %d" % (block.source, block.interval, block.name),
    "decode": lambda data: Block(*map(int, data.split())),
}


@dataclass
class MemoryStore:
    """What spilled blocks are read from."""

    rows: dict[bytes, bytes]

    def scan(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(row for row in self.rows.items() if start <= row[0] < end)


def fresh(*, closed: int) -> dict[str, Any]:
    return {"closed": closed, "spilled": {}, "spills": 0}


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
        self.stored = MemoryStore({})
        self.meta = fresh(closed=FIRST - 1)
        self.vector: tuple[Any, Any, Any] = ({}, ((FIRST, self.sources),), {})
        self.position = 0
        self.crash()

    def crash(self) -> None:
        ticks, sources, received = self.vector
        self.incoming = Incoming(
            "topic=t", config_digest=DIGEST, way_out="begin again", ticks=ticks, sources=sources, received=received
        )
        self.intervals: OpenIntervals[Block] = OpenIntervals(self.stored, **CODEC, meta=self.meta)  # type: ignore[arg-type]
        self.taken = self.position

    def take(self, end: int) -> None:
        for offset in range(self.taken, end):
            record = self.log[offset]
            if isinstance(record, Tick):
                self.incoming.tick(record, offset)
            else:
                self.intervals.add(record.interval, record, 1, offset)
        self.taken = end

    def claim(self) -> None:
        self.position = self.intervals.position(self.taken)
        self.vector = self.incoming.claim(self.position, self.intervals.closed)
        self.meta = {"closed": self.intervals.closed, **self.intervals.to_meta()}

    def commit(self, limit: int) -> int:
        """At most so many commits; how many there were."""
        for number in range(limit):
            ready = self.incoming.now.ready(self.intervals.closed)
            if ready <= self.intervals.closed:
                if self.intervals.rows > self.spill_above:
                    self.stored.rows.update(self.intervals.spill())
                    self.claim()
                return number
            with_rows = self.intervals.next_with_rows(ready)
            interval = ready if with_rows is None else with_rows
            blocks = self.intervals.blocks(interval)
            assert self.intervals.blocks(interval) == blocks
            for start, end in self.intervals.close(interval):
                self.stored.rows = {key: row for key, row in self.stored.rows.items() if not start <= key < end}
            self.closed.append((interval, blocks))
            self.claim()
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
        assert reader.intervals.closed == closed


@given(logs(), st.integers(0, 40))
def test_a_commit_claims_no_block_that_still_waits_and_no_tick_beyond_its_position(written: Any, end: int) -> None:
    log, sources, _ = written
    reader = Reader(log, sources)
    reader.take(min(end, len(log)))
    while reader.commit(1):
        closed = reader.meta["closed"]
        for record in log[reader.position : reader.taken][:1]:
            assert isinstance(record, Block)
            assert record.interval > closed
        below = [r for r in log[: reader.position] if isinstance(r, Block)]
        assert all(block.interval <= closed for block in below)
        behind = [r for r in log[: reader.position] if isinstance(r, Tick)]
        assert reader.vector[0] == {tick.source: tick.interval for tick in behind}


def test_rows_in_memory_are_counted_until_their_interval_closes_or_they_are_spilled() -> None:
    intervals: OpenIntervals[Block] = OpenIntervals(MemoryStore({}), **CODEC, meta=fresh(closed=9))  # type: ignore[arg-type]
    for interval, rows in ((10, 5), (11, 7), (13, 2), (9, 100)):
        intervals.add(interval, Block(0, interval, 0), rows, interval, 1000 * rows)
    assert (intervals.rows, intervals.size) == (14, 14_000)
    intervals.close(11)
    assert (intervals.rows, intervals.size) == (2, 2_000)
    assert intervals.position(99) == 13
    assert not intervals.spilled
    assert len(intervals.spill()) == 1
    assert intervals.spilled
    assert intervals.next_with_rows(12) is None
    assert intervals.next_with_rows(13) == 13
    assert (intervals.rows, intervals.size) == (0, 0)
    assert intervals.position(99) == 99


def test_small_blocks_outgrow_memory_with_fewer_rows() -> None:
    """A decoded block takes memory beside its rows, and windows with few records have little but such blocks."""

    def held(blocks: int, rows: int) -> OpenIntervals[Block]:
        intervals: OpenIntervals[Block] = OpenIntervals(MemoryStore({}), **CODEC, meta=fresh(closed=9))  # type: ignore[arg-type]
        for number in range(blocks):
            intervals.add(Interval(10 + number % 7), Block(0, 10, number), rows, Offset(number), 100)
        return intervals

    few, many = held(10, 1_000), held(10_000, 1)
    assert few.rows == many.rows
    assert not few.outgrows(20_000)
    assert many.outgrows(20_000)
    many.close(Interval(13))  # four of the seven
    assert many.outgrows(20_000)
    assert not many.outgrows(50_000)
    many.spill()
    assert not many.outgrows(0)


def test_many_blocks_are_a_crowd_until_they_are_closed_or_spilled() -> None:
    intervals: OpenIntervals[Block] = OpenIntervals(MemoryStore({}), **CODEC, meta=fresh(closed=9))  # type: ignore[arg-type]
    seen = []
    for number in range(20_000):
        intervals.add(Interval(10 + number % 2), Block(0, 10, number), 1, Offset(number), 100)
        seen.append(intervals.crowded)
    assert 10_000 < seen.index(True) < 20_000
    intervals.close(Interval(10))
    assert not intervals.crowded
    assert len(intervals.spill()) == 10_000
    assert not intervals.crowded
