"""The rolling view of one release partition: of every trigger, the last window's length, from rows that are published.

    rows of the current window at trigger t ───────────────────────────┐
    rows of the window before at t, and at its newest trigger ──RestOfWindow───┴──▶ rolling

It is written in the transaction of the release. It uses nothing but published rows, so it costs no budget:
docs/guarantees/rolling.md.
The state has the rows of two windows (kept_rows.py).
"""

from dataclasses import dataclass
from itertools import repeat

import numpy as np

from susurrus.agents.histogram.columns.layout import Layout
from susurrus.agents.histogram.kept_rows import KEPT, KeptRows, before
from susurrus.agents.histogram.same_time import same_time_before, triggers_to_end
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram.rest import RestOfWindow
from susurrus.topics import rolling as codec
from susurrus.topics.rolling import RollingHeader
from susurrus.topics.wire.public_rows import PublicRows


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRows:
    """The view's rows at one trigger, in key order. counted_from, counted_until: int64[n], ms."""

    header: RollingHeader
    rows: SortedRows
    counted_from: Int64s
    counted_until: Int64s

    def __len__(self) -> int:
        return len(self.rows.keys)

    def encoded(self, layout: Layout, refined: tuple[int, ...]) -> tuple[list[bytes], PublicRows]:
        """Kafka keys and rows. refined: the measured columns that calibration changes."""
        rows = self.rows
        columns = [
            column.rows(
                rows.estimates, rows.std_errors, None if set(refined).isdisjoint(column.sources) else rows.direct
            )
            for column in layout.published
        ]
        return codec.public_rows(self.header, rows.keys, columns, self.counted_from, self.counted_until)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """The part of the earlier window, of its n keys in the order of its places; [n, columns]. Rows that are not `counted` are
    meaningless. since: int64[n], the trigger after which each is counted."""

    keys: list[bytes]
    places: dict[bytes, int]
    counted: Bools
    since: Int64s
    estimates: Int64s
    variances: Floats
    direct: tuple[Int64s, Floats] | None


class RollingView:
    """Keeps the rows of two windows, and computes the view's rows."""

    def __init__(self, services: HistogramServices, store: Store, plans: WindowPlans) -> None:
        """plans: of windows, whose noise a row follows."""
        self._plans = plans
        self._services, self._calendar = services, services.calendar
        self._store = store
        self._columns = services.strategy.plan.width
        self._windows: dict[WindowIndex, KeptRows] = {}

    def take(self, window: WindowIndex, trigger: Trigger, rows: SortedRows, commit: Commit) -> RollingRows | None:
        """Keep the rows of a trigger. Returns the view's rows; None for triggers behind a window's end, which have none."""
        length = triggers_to_end(self._calendar, window)
        if trigger > length + triggers_to_end(self._calendar, self._calendar.following(window)):
            return None  # the next window is over, and no view needs these rows
        self._of(window).keep(trigger, rows, commit)
        if trigger > length:
            return None
        found = self._view(window, trigger, rows)
        if trigger == length:
            for old in [known for known in self._windows if known < window]:
                del self._windows[old]
            commit.drop(*before(window))
        return found

    def _of(self, window: WindowIndex) -> KeptRows:
        if window not in self._windows:
            self._windows[window] = KeptRows(self._store, window, self._columns)
        return self._windows[window]

    def _view(self, window: WindowIndex, trigger: Trigger, today: SortedRows) -> RollingRows:
        calendar = self._calendar
        before = calendar.preceding(window)
        start, start_before = calendar.window_start(window), calendar.window_start(before)
        period_end = self._time(start, trigger)
        since = same_time_before(calendar, self._services.settings.window.time_zone, window, trigger)
        header = RollingHeader(
            period_start=self._time(start_before, since),
            period_end=period_end,
            window_start=start,
            window_end=calendar.window_end(window),
            trigger=trigger,
            of_triggers=calendar.triggers_of(window),
            strategy=self._services.strategy.plan.strategy,
            epoch=self._services.ledger.epoch,
        )
        earlier = self._earlier(before, trigger, since)
        n = len(today.keys)
        if earlier is None:
            whole, until = np.full(n, start), np.full(n, period_end)
            return RollingRows(header=header, rows=today, counted_from=whole, counted_until=until)
        known = set(today.keys)
        only_earlier = [
            key
            for key, counted in zip(earlier.keys, earlier.counted.tolist(), strict=True)
            if counted and key not in known
        ]
        keys = sorted([*today.keys, *only_earlier])
        here = _places({key: at for at, key in enumerate(today.keys)}, keys)
        there = _places(earlier.places, keys)
        there[there >= 0] = np.where(earlier.counted[there[there >= 0]], there[there >= 0], -1)
        counted_from = np.full(len(keys), start)
        with_earlier = np.flatnonzero(there >= 0)
        counted_from[with_earlier] = start_before + earlier.since[there[with_earlier]] * calendar.trigger_every
        total = _sum(here, there, (today.estimates, today.std_errors), (earlier.estimates, earlier.variances))
        direct = None
        if today.direct is not None or earlier.direct is not None:
            direct = _sum(
                here,
                there,
                today.direct or (today.estimates, today.std_errors),
                earlier.direct or (earlier.estimates, earlier.variances),
            )
        return RollingRows(
            header=header,
            rows=SortedRows(keys=keys, estimates=total[0], std_errors=total[1], direct=direct),
            counted_from=counted_from,
            counted_until=np.where(here >= 0, period_end, start),
        )

    def _time(self, start: int, trigger: Trigger) -> int:
        """The time of a trigger of the window that starts then, ms."""
        return start + trigger * self._calendar.trigger_every

    def _earlier(self, window: WindowIndex, trigger: Trigger, since: Trigger) -> _Earlier | None:
        """What a window had after its trigger ``since``; None where nothing of that is known. trigger: of the window after it."""
        end = Trigger(min(self._calendar.triggers_of(window), triggers_to_end(self._calendar, window) + trigger))
        kept = self._of(window)
        start = kept.kept_from(since)
        if start is None or start >= end or not kept.has(end):
            return None
        strategy = self._plans.strategy_of(window)
        late, published = kept.end(end)
        n = len(late)
        begins = np.maximum(kept.first[:n], start)
        early = kept.first_rows[:n].copy()
        there = kept.measured(start)
        early[: len(there)] = there
        counted = begins < end
        own = np.broadcast_to(strategy.standard_errors()[end - 1], late.shape)
        rest = RestOfWindow.of(strategy, begins[counted], end)

        def parts(estimates: Int64s, std_errors: Floats) -> tuple[Int64s, Floats]:
            found, variances = np.zeros_like(late), np.zeros(late.shape)
            found[counted], variances[counted] = rest.rows(
                begins[counted], early[counted], late[counted], estimates[counted], std_errors[counted]
            )
            return found, variances

        direct = None if published is None else parts(late, own)
        estimates, variances = parts(late, own) if published is None else parts(*published)
        return _Earlier(
            keys=kept.keys[:n],
            places=kept.places,
            counted=counted,
            since=begins,
            estimates=estimates,
            variances=variances,
            direct=direct,
        )


def forget(store: Store, commit: Commit) -> None:
    """Forget kept rows where there is no rolling view any more."""
    if next(iter(store.scan(KEPT, prefix_end(KEPT))), None) is not None:
        commit.drop(KEPT, prefix_end(KEPT))


def _places(of: dict[bytes, int], keys: list[bytes]) -> Int64s:
    """int64[n]: where each key stands, -1 where it does not."""
    return np.fromiter(map(of.get, keys, repeat(-1)), np.int64, len(keys))


def _sum(
    here: Int64s, there: Int64s, today: tuple[Int64s, Floats], earlier: tuple[Int64s, Floats]
) -> tuple[Int64s, Floats]:
    """(estimates, standard errors) of both windows' parts together, which have noise of their own. today: with standard errors;
    earlier: with variances. here, there: where the rows stand in them, -1: nowhere."""
    columns = today[0].shape[1]
    estimates, variances = np.zeros((len(here), columns), np.int64), np.zeros((len(here), columns))
    for place, numbers, squares in ((here, today[0], today[1] ** 2), (there, *earlier)):
        rows = np.flatnonzero(place >= 0)
        estimates[rows] += numbers[place[rows]]
        variances[rows] += squares[place[rows]]
    return estimates, np.sqrt(variances)
