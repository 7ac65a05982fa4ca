"""Budgets that renew: what every period of a length holds of what was charged, and whether one more window fits.

A charge pays for records of an interval of event time, a span. A period holds the whole charge of every span that it touches. A
total for a period of a length is a total for each of its places, and there are finitely many to look at: `Periods.spends`.
Argument: docs/guarantees/composition.md. Pure; agents/runtime/standing.py asks before a window begins."""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.mechanisms.windows import TumblingWindows

YEAR = 365 * 86_400_000
"""ms."""
_BITS = 160
"""Sums are whole multiples of 2^-160: exact, the same in any order, and below any delta that a mechanism has."""


@dataclass(frozen=True, slots=True)
class ChargedSpan:
    """What was charged for the records with event times in [begin, end), in ms. Raises ValueError for an empty one."""

    begin: int
    end: int
    guarantee: Guarantee

    def __post_init__(self) -> None:
        if self.end <= self.begin:
            raise ValueError(f"begin={self.begin} end={self.end}: a span has at least one millisecond")


@lru_cache(maxsize=4096)
def _whole(number: float, power: int) -> int:
    """number^power in units of 2^-160, rounded up."""
    numerator, denominator = number.as_integer_ratio()
    whole: int = -((-(numerator**power) << _BITS) // denominator**power)
    return whole


def _cost(span: ChargedSpan) -> tuple[int, int]:
    """(mu^2, selection failures) of a span, in units of 2^-160, rounded up."""
    return _whole(span.guarantee.mu, 2), _whole(span.guarantee.delta_selection, 1)


def _spend(squares: int, failures: int) -> Spend:
    """The sums as floats, rounded up. A division of integers is rounded correctly, so more never becomes less."""
    up = 1 + 2.0**-50
    return Spend(squares / 2**_BITS * up, failures / 2**_BITS * up)


class _Sums:
    """Sums over spans in the order of a place of theirs."""

    def __init__(self, spans: Sequence[ChargedSpan], place: Callable[[ChargedSpan], int]) -> None:
        ordered = sorted(spans, key=place)
        self.places = [place(span) for span in ordered]
        costs = [_cost(span) for span in ordered]
        self._squares = [0, *accumulate(square for square, _ in costs)]
        self._failures = [0, *accumulate(failure for _, failure in costs)]

    def until(self, place: int) -> tuple[int, int]:
        """The sums over the spans whose place is at most this one."""
        number = bisect_right(self.places, place)
        return self._squares[number], self._failures[number]


@dataclass(frozen=True, slots=True)
class Periods:
    """A total for every period of ``length`` ms of event time: what a user did in any of them is (epsilon, delta)-DP.

    Privacy: neighbours differ by all records of one user in the windows that one period touches. It may touch one more than its
    length divided by theirs. Whether a charge fits can only turn from yes to no with more charges.
    """

    budget: Budget
    length: int

    def spends(self, spans: Iterable[ChargedSpan], touching: ChargedSpan | None = None) -> list[tuple[int, Spend]]:
        """(last instant in ms, spend) of the periods that hold most: every other one holds no more than one of these.

        A period that is moved back until its last instant is a span's first loses no span, so only those are looked at. With
        ``touching``, which is one of the spans, only periods that touch it. Largest mu^2 first. In n log n for n spans.
        """
        spans = list(spans)
        begun, ended = _Sums(spans, lambda span: span.begin), _Sums(spans, lambda span: span.end)
        places = sorted(set(begun.places))
        if touching is not None:
            first, beyond = touching.begin, touching.end + self.length
            places = [place for place in places if first <= place < beyond]
        found = []
        for last in places:
            # What ended a whole length before is not touched, even by a period that is open at its beginning.
            (squares, failures), (gone, lost) = begun.until(last), ended.until(last - self.length)
            found.append((squares - gone, failures - lost, last))
        found.sort(reverse=True)
        most, kept = -1, []
        for squares, failures, last in found:
            if failures > most:
                most = failures
                kept.append((last, _spend(squares, failures)))
        return kept

    def allows(self, spans: Iterable[ChargedSpan], more: ChargedSpan) -> bool:
        """Whether every period that touches ``more`` is within the total with it. Periods that do not are no question of its."""
        # The others share no period with it; a log of years has many.
        first, beyond = more.begin - self.length, more.end + self.length
        near = [span for span in spans if span.end > first and span.begin < beyond]
        return all(self.budget.allows(spend) for _, spend in self.spends([*near, more], more))

    def worst(self, spans: Iterable[ChargedSpan]) -> tuple[int, Spend] | None:
        """(last instant in ms, spend) of the period with the largest delta at the budget's epsilon; None without spans."""
        found = self.spends(spans)
        return max(found, key=lambda each: each[1].delta_total(self.budget.epsilon), default=None)

    def until(self, spans: Iterable[ChargedSpan], last: int) -> Spend:
        """What the period with this last instant (ms) holds of spans that have begun by then."""
        touched = [span for span in spans if span.begin <= last and span.end > last - self.length]
        return _spend(*_Sums(touched, lambda span: span.begin).until(last))

    def touched(self, every: int) -> int:
        """The most windows of ``every`` ms, one after the other, that one period touches."""
        return -(-self.length // every) + 1

    def fitting(self, guarantee: Guarantee, every: int) -> int:
        """How many of the windows that one period touches may be published, if nothing else is charged."""
        return min(self.touched(every), self.budget.windows_left(Spend(), guarantee))

    def most_within(self, duration: int, guarantee: Guarantee, windows: TumblingWindows) -> int:
        """The most windows that are published of those that touch ``duration`` ms, if nothing else is charged.

        Of as many windows in a row as a period surely touches, as many are published at most as have room. Windows of a calendar
        differ in length: the longest say what is surely touched, and the duration is longer by what the shortest lacks.
        """
        shortest, usual, longest = windows.lengths[0], windows.usual, windows.lengths[-1]
        row, room = self.touched(longest), self.budget.windows_left(Spend(), guarantee)
        whole, rest = divmod(-(-(duration + usual - shortest) // usual) + 1, row)
        return whole * min(row, room) + min(room, rest)

    def year(self, guarantee: Guarantee, windows: TumblingWindows) -> tuple[int, float, float]:
        """(the most windows that are published of those that touch 365 days, epsilon, delta), if nothing else is charged. delta is
        the budget's for each period that a year has."""
        most, delta = self.most_within(YEAR, guarantee, windows), self.delta_of_year
        return most, Spend().plus(guarantee, most).epsilon_total(delta), delta

    @property
    def delta_of_year(self) -> float:
        """The budget's delta for each of the periods that 365 days have, at most 1."""
        return min(1.0, self.in_a_year * self.budget.delta)

    @property
    def in_a_year(self) -> int:
        """How many periods 365 days have, rounded up."""
        return -(-YEAR // self.length)


class Rolling:
    """What will begin, of windows that are asked for in the order of their begins: for forecasts.

    Exact where nothing was charged yet for a later begin than that of the first window; otherwise it may skip too much.
    """

    def __init__(self, periods: Periods, spans: Iterable[ChargedSpan]) -> None:
        self._periods = periods
        self._open: list[tuple[int, int, int]] = []
        self._squares = self._failures = 0
        self._known: dict[tuple[int, int], bool] = {}
        for span in spans:
            self._add(span.end, *_cost(span))

    def _add(self, end: int, squares: int, failures: int) -> None:
        heapq.heappush(self._open, (end, squares, failures))
        self._squares += squares
        self._failures += failures

    def begins(self, span: ChargedSpan) -> bool:
        """Whether a window begins; then it counts for those after it."""
        while self._open and self._open[0][0] <= span.begin - self._periods.length:
            _, squares, failures = heapq.heappop(self._open)
            self._squares -= squares
            self._failures -= failures
        squares, failures = _cost(span)
        total = self._squares + squares, self._failures + failures
        fits = self._known.get(total)
        if fits is None:
            fits = self._known[total] = self._periods.budget.allows(_spend(*total))
        if fits:
            self._add(span.end, squares, failures)
        return fits
