"""The three clocks against an obvious clock that takes one record at a time, and the promises they make."""

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from susurrus.agents.histogram.clock import CLOCKS, CREATE_TIME, LOG_APPEND_TIME, Clock
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.calendar import Calendar, Interval
from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.mechanisms.windows import FixedWindows
from tests.agents.released import settings

EVERY = 1_000
CALENDAR = Calendar(windows=FixedWindows(origin=0, length_ms=10 * EVERY), origin=0, trigger_every=EVERY)
PLACE = {"topic": "raw", "partition": 3}
GRACE, IDLE_GRACE, MAX_AHEAD = 300, 700, 4_000


def configured(kind: str, **clock: Any) -> HistogramSettings:
    fields = {"grace": GRACE, "idle_grace": IDLE_GRACE, "max_ahead": MAX_AHEAD}
    followed = {name: value for name, value in fields.items() if name in CLOCKS[kind].follows}
    found = settings(
        start={"from": "earliest", "first_window": "1970-01-01T00:00:00Z"},
        clock={"kind": kind, **followed, **clock},
        window={"length": 10 * EVERY, "trigger_every": EVERY},
    )
    return HistogramSettings.of(found)


SETTINGS = {
    "broker": configured("broker"),
    "producer": configured("producer"),
    "replay": configured("replay", until="1970-01-01T00:00:50Z"),
}
LAST_REPLAY_INTERVAL = 49


def clock_of(kind: str, *, closed: int = -1, end: int | None = None) -> Clock:
    clock = SETTINGS[kind].clock
    return clock.chosen(clock, CALENDAR, closed=closed, end=end)


@dataclass
class SlowClock:
    """One record at a time, from DESIGN's sentences."""

    kind: str
    closed: int
    cuts: list[tuple[int, int]]

    def place(self, stamp: int, offset: int) -> tuple[int, bool]:
        """Interval of the record, and whether its stamp is too far ahead."""
        for interval, at in self.cuts:
            if offset >= at:
                self.closed = max(self.closed, interval)
        own = stamp // EVERY
        if self.kind == "broker":
            while stamp >= CALENDAR.boundary(self.closed + 1) + GRACE:
                self.closed += 1
        if self.kind == "replay":
            self.closed = max(self.closed, min((stamp - GRACE) // EVERY - 1, LAST_REPLAY_INTERVAL))
        too_far = False
        if self.kind == "producer":
            following = [interval for interval, at in self.cuts if offset < at]
            now = max([self.closed, *following[:1]])
            too_far = own > now + 1 + -(-(MAX_AHEAD + IDLE_GRACE) // EVERY) + 1
        return max(own, self.closed + 1), too_far


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, list[int], list[int], list[tuple[int, int]], list[int], int]:
    """Kind, stamps, offsets (with holes), cuts, split points, closed."""
    kind = draw(st.sampled_from(["broker", "producer", "replay"]))
    stamps = draw(st.lists(st.integers(0, 60_000), min_size=1, max_size=40))
    if kind == "replay":  # by the grace out of order
        drifts = draw(st.lists(st.integers(0, GRACE), min_size=len(stamps), max_size=len(stamps)))
        stamps = [stamp - drift for stamp, drift in zip(sorted(stamps), drifts, strict=True)]
    offsets = np.cumsum(draw(st.lists(st.integers(1, 4), min_size=len(stamps), max_size=len(stamps)))).tolist()
    cuts: list[tuple[int, int]] = []
    if kind != "replay":
        intervals = sorted(draw(st.sets(st.integers(0, 60), max_size=4)))
        places = sorted(
            draw(st.lists(st.integers(0, offsets[-1] + 3), min_size=len(intervals), max_size=len(intervals)))
        )
        cuts = list(zip(intervals, places, strict=True))
    splits = sorted(draw(st.sets(st.integers(1, len(stamps)), max_size=5)))
    return kind, stamps, offsets, cuts, splits, draw(st.integers(-1, 20))


@given(logs())
def test_places_and_cuts_do_not_depend_on_how_the_log_was_fetched(log: Any) -> None:
    kind, stamps, offsets, cuts, splits, closed = log
    slow = SlowClock(kind, closed, cuts)
    wanted = [slow.place(stamp, offset) for stamp, offset in zip(stamps, offsets, strict=True)]
    for bounds in ([0, len(stamps)], [0, *splits, len(stamps)], list(range(len(stamps) + 1))):
        for known in (True, False):
            clock = clock_of(kind, closed=closed)
            for interval, at in cuts:
                clock.cuts.asked(interval, at)
            intervals: list[int] = []
            far: list[bool] = []
            for start, end in itertools.pairwise(bounds):
                placed = clock.place(
                    np.array(stamps[start:end], np.int64), np.array(offsets[start:end], np.int64), **PLACE
                )
                intervals += placed.interval.tolist()
                far += placed.too_far.tolist()
                if known and end > start:  # the task passes the position after some fetches and not after others
                    clock.moved(offsets[end - 1] + 1)
            assert list(zip(intervals, far, strict=True)) == wanted
            clock.moved(offsets[-1] + 1)
            assert clock.closed == max([slow.closed, *(interval for interval, at in cuts if offsets[-1] + 1 >= at)])


@given(logs())
def test_no_record_is_put_into_an_interval_that_was_closed_before_it(log: Any) -> None:
    kind, stamps, offsets, cuts, splits, closed = log
    clock = clock_of(kind, closed=closed)
    for interval, at in cuts:
        clock.cuts.asked(interval, at)
    for start, end in zip([0, *splits], [*splits, len(stamps)], strict=True):
        before = clock.closed
        placed = clock.place(np.array(stamps[start:end], np.int64), np.array(offsets[start:end], np.int64), **PLACE)
        assert (placed.interval > before).all()
        clock.moved(offsets[end - 1] + 1 if end else 0)
        assert clock.closed >= before


def test_a_broker_stamp_closes_an_interval_only_once_it_is_the_grace_beyond_its_boundary() -> None:
    for stamp, closed in ((10_000 + GRACE - 1, 8), (10_000 + GRACE, 9), (12_000 + GRACE, 11)):
        clock = clock_of("broker", closed=8)
        clock.place(np.array([stamp]), np.array([0]), **PLACE)
        assert clock.closed == closed


def test_a_broker_clock_that_goes_back_puts_its_records_into_the_first_open_interval_and_counts_them() -> None:
    clock = clock_of("broker", closed=0)
    placed = clock.place(np.array([20_500, 20_900, 3_000, 20_100, 21_500]), np.arange(5), **PLACE)
    assert placed.interval.tolist() == [20, 20, 20, 20, 21]
    assert placed.clamped == 1
    assert clock.closed == 20


def test_producer_stamps_years_back_land_in_the_first_open_interval_and_close_nothing() -> None:
    clock = clock_of("producer", closed=41)
    placed = clock.place(np.array([-1, 0, 42_500]), np.arange(3), **PLACE)
    assert placed.interval.tolist() == [42, 42, 42]
    assert placed.clamped == 2
    assert clock.closed == 41


def test_producer_stamps_years_ahead_are_too_far_and_move_no_other_record() -> None:
    years = 20 * 365 * 86_400_000
    stamps = np.array([42_100, years, 42_200, 42_999])
    clock = clock_of("producer", closed=41)
    placed = clock.place(stamps, np.arange(4), **PLACE)
    assert placed.too_far.tolist() == [False, True, False, False]
    assert clock.closed == 41
    alone = clock_of("producer", closed=41).place(stamps[[0, 2, 3]], np.arange(3), **PLACE)
    assert placed.interval[[0, 2, 3]].tolist() == alone.interval.tolist()


def ask(clock: Clock, now: int, offset: int) -> None:
    wanted = clock.wants_cut(now)
    if wanted is not None:
        clock.cuts.asked(wanted, offset)


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(-30_000, MAX_AHEAD), st.integers(0, 20_000)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 8),
)
@example([(0, 0, 0), (0, 0, 0), (0, 0, 20_000), (15_000, MAX_AHEAD, 0)], 2)
def test_an_honest_producer_within_max_ahead_is_never_too_far_however_long_the_worker_slept(
    history: list[tuple[int, int, int]], fetch: int
) -> None:
    """Each record: appended so much later than the last, stamped so far from then, read so much later."""
    clock = clock_of("producer", closed=-1)
    appended, records = 10_000, []
    for wait, ahead, delay in history:
        appended += wait
        records.append((appended, appended + ahead, delay))
    now, taken = 0, 0
    while taken < len(records):
        now = max(now, records[taken][0]) + records[taken][2]
        there = sum(at <= now for at, _, _ in records)
        ask(clock, now, there)
        end = min(there, taken + fetch)
        stamps = np.array([stamp for _, stamp, _ in records[taken:end]])
        placed = clock.place(stamps, np.arange(taken, end), **PLACE)
        assert not placed.too_far.any()
        taken = end
        clock.moved(taken)


def test_a_stamp_beyond_max_ahead_is_too_far_also_behind_a_cut() -> None:
    clock = clock_of("producer", closed=-1)
    ask(clock, 100_000, 10)
    far = 100_000 + MAX_AHEAD + IDLE_GRACE + 4 * EVERY
    placed = clock.place(np.array([100_000, far, 100_500, far]), np.array([8, 9, 10, 11]), **PLACE)
    assert placed.too_far.tolist() == [False, True, False, True]


def test_a_cut_is_asked_for_once_an_interval_after_boundary_and_idle_grace() -> None:
    for kind in ("broker", "producer"):
        clock = clock_of(kind, closed=4)
        assert clock.wants_cut(6_000 + IDLE_GRACE - 1) is None
        assert clock.wants_cut(6_000 + IDLE_GRACE) == 5
        clock.cuts.asked(5, 100)
        assert clock.wants_cut(6_999 + IDLE_GRACE) is None
        assert clock.wants_cut(7_000 + IDLE_GRACE) == 6
        assert clock.closed == 4


def test_an_interval_stays_open_until_the_position_has_reached_its_cut() -> None:
    clock = clock_of("producer", closed=4)
    clock.cuts.asked(5, 100)
    clock.cuts.asked(6, 250)
    clock.moved(99)
    assert clock.closed == 4
    clock.moved(100)
    assert clock.closed == 5
    clock.moved(249)
    assert clock.closed == 5
    clock.moved(250)
    assert clock.closed == 6


def test_an_idle_partition_closes_intervals_at_the_cut_alone() -> None:
    clock = clock_of("broker", closed=4)
    ask(clock, 1_000_000, 0)
    clock.moved(0)
    assert clock.closed == (1_000_000 - IDLE_GRACE) // EVERY - 1


def test_what_stalls_at_a_cut_is_named_with_the_interval_the_offset_and_what_to_do() -> None:
    clock = clock_of("producer", closed=4)
    assert clock.cuts.stall(7, "") is None
    clock.cuts.asked(5, 100)
    assert "interval=5" in str(clock.cuts.stall(7, ""))
    assert "read up to offset=7; interval=5 closes at offset=100" in str(clock.cuts.stall(7, ""))
    assert "find-hanging" in str(clock.cuts.stall(7, ""))


@given(st.lists(st.integers(0, 60_000), min_size=2, max_size=12), st.integers(1, 11))
def test_an_archive_out_of_order_is_refused_with_its_place_however_it_was_fetched(stamps: list[int], at: int) -> None:
    disorder = next((i for i in range(1, len(stamps)) if stamps[i] < max(stamps[:i]) - GRACE), None)
    assume(disorder is not None)
    offsets = [100 + 2 * i for i in range(len(stamps))]
    clock = clock_of("replay")

    def read() -> None:
        for part in (slice(0, at), slice(at, None)):
            clock.place(np.array(stamps[part], np.int64), np.array(offsets[part], np.int64), **PLACE)

    with pytest.raises(Refusal, match=rf"topic=raw partition=3 offset={offsets[disorder or 0]} is older"):
        read()


@given(
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 2_000)), min_size=2, max_size=12),
    st.integers(0, 2_000),
    st.integers(0, 2_000),
    st.integers(1, 11),
)
@example(drawn=[(3_000, 0), (3_000, 1_500)], before=0, after=2_000, at=1)
def test_an_archives_records_keep_their_own_interval_or_are_refused_also_where_the_grace_was_changed(
    drawn: list[tuple[int, int]], before: int, after: int, at: int
) -> None:
    """No other record's stamp moves one: a grace that grew does not open what had been closed."""
    stamps = [stamp - drift for stamp, drift in sorted(drawn)]
    closed, oldest = Interval(-4), None
    with contextlib.suppress(Refusal):
        for part, grace in ((slice(0, at), before), (slice(at, None), after)):
            section = configured("replay", until="1970-01-01T00:00:50Z", grace=grace).clock
            clock = section.chosen(section, CALENDAR, closed=closed, oldest=oldest)
            some = np.array(stamps[part], np.int64)
            placed = clock.place(some, np.arange(len(some)), **PLACE)
            assert placed.interval.tolist() == [stamp // EVERY for stamp in stamps[part]]
            assert placed.clamped == 0
            closed, oldest = clock.closed, clock.oldest


def test_the_end_of_an_archive_closes_everything_before_until_and_no_wall_clock_does() -> None:
    clock = clock_of("replay", end=10)
    assert clock.wants_cut(10**15) is None
    clock.place(np.array([7_500, 9_000 + GRACE - 1]), np.array([3, 9]), **PLACE)
    clock.moved(9)
    assert clock.closed == 7
    clock.moved(10)
    assert clock.closed == LAST_REPLAY_INTERVAL


def test_an_archive_must_say_where_it_ends_or_one_users_last_record_would() -> None:
    with pytest.raises(ConfigurationError, match=r"clock\.until: is missing"):
        configured("replay")


def test_stamps_beyond_until_close_no_interval_beyond_it() -> None:
    clock = clock_of("replay", end=2)
    clock.place(np.array([7_500, 10**12]), np.array([0, 1]), **PLACE)
    assert clock.closed == LAST_REPLAY_INTERVAL


@pytest.mark.parametrize(
    ("kind", "otherwise"),
    [("broker", {CREATE_TIME}), ("producer", {LOG_APPEND_TIME}), ("replay", set())],
)
def test_a_clock_says_which_records_were_stamped_by_the_other_side(kind: str, otherwise: set[int]) -> None:
    types = [CREATE_TIME, LOG_APPEND_TIME, LOG_APPEND_TIME, CREATE_TIME]
    for dtype in (np.uint8, np.int64):  # of record batches, and of parsed records
        found = clock_of(kind).stamped_otherwise(np.array(types, dtype))
        assert found.tolist() == [one in otherwise for one in types]
