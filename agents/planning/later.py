"""What a pipeline whose windows remember shows after a while: its seventh window beside its first, by the mechanism itself.

    a window's records, of other users and with some keys swapped ──each time──▶ WindowsInARow ──▶ LaterForecast

It depends on how much lasts from one window to the next, of which a single window says nothing. So a share of the keys is assumed
to swap places every time: `churn`. A sample of several windows shows it (`churn_of`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.columns import Count
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.forecast import true_totals, with_declared
from susurrus.agents.planning.in_a_row import WindowRows, WindowsInARow
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.measures import LayoutMeasures
from susurrus.agents.planning.spool import Progress, silent, spool
from susurrus.agents.planning.windows import records_of
from susurrus.agents.planning.workload import RenamedWorkload, UserRecords, Workload, sort_records
from susurrus.mechanisms.errors import ConfigurationError

CHURN: Final = 0.1
"""What is assumed where nothing is known."""
WINDOWS: Final = 7
LARGE: Final = 50
"""Records of a key in a window from which on its share in the next one says whether it has changed. Of fewer, chance may be why."""
LEAST_KEYS: Final = 10
"""Fewer such keys say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadersView:
    """What readers have at the end of a quarter. shown: rows. usable: those of a key that has come, at most half of its count off.
    relative: the sum of |shown - true| over all keys, one that is not shown with all it has, over the sum of the true counts."""

    trigger: int
    shown: int
    usable: int
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterForecast:
    """The first window and a later one, of the column that counts users. churn: the share of keys that swap places each time;
    measured: in the sample, and not assumed. remembered: keys that are public when the later window begins."""

    window: int
    column: str
    churn: float
    measured: bool
    remembered: int
    first: list[ReadersView]
    later: list[ReadersView]


def later_forecast(
    settings: HistogramSettings,
    workloads: Sequence[Workload],
    *,
    churn: float | None = None,
    progress: Progress = silent,
) -> LaterForecast | None:
    """The forecast from the newest of these windows; None where windows leave nothing to each other, or nothing is known
    of the data.

    churn: by default what the windows show, or CHURN. One draw of users and noise. Raises ConfigurationError.
    """
    if churn is not None and not 0 <= churn <= 1:
        raise ConfigurationError(f"churn={churn:g}: is a share of the keys, and must be 0 to 1")
    carries_on = settings.remember > 0 or settings.evidence_windows > 1
    if not carries_on or not workloads or settings.grouping:
        return None
    found = churn_of(workloads) if churn is None else None
    share = CHURN if churn is None and found is None else found if churn is None else churn
    assert share is not None
    workload, declared = with_declared(workloads[-1], settings.declared_keys)
    plan = HistogramPipeline(settings).strategy.plan
    windows = WindowsInARow(
        plan,
        workload.key_names,
        remember=settings.remember,
        partitions=settings.topics.bounded_partitions,
        declared=declared,
    )
    plain = len(settings.layout.measured) == 1 and settings.layout.measured[0].measures == Count.measures
    views: list[list[ReadersView]] = []
    remembered = 0
    for window in _repeated(workload, share):
        measures = None if plain else LayoutMeasures(settings.layout)
        spooled = spool(window, windows.strategy.bounding, plan.triggers, measures=measures, progress=progress)
        remembered = int(windows.memory.keys.sum())
        seen: list[ReadersView] = []

        def look(trigger: int, rows: WindowRows) -> None:
            true = true_totals(settings, spooled, trigger)[:, windows.deciding]  # noqa: B023
            seen.append(_view(trigger, rows, true, windows.deciding))  # noqa: B023

        windows.next(spooled, 0, checked=look, progress=progress)
        views.append(seen)
    return LaterForecast(
        window=WINDOWS,
        column=plan.columns[windows.deciding].name,
        churn=share,
        measured=found is not None,
        remembered=remembered,
        first=views[0],
        later=views[-1],
    )


def churn_of(windows: Sequence[Workload]) -> float | None:
    """The share of large keys whose part of all records is less than half, or more than double, in the window after; None where
    windows show no such keys.

    windows: in order, with the same key codes.
    """
    large = changed = 0
    before = None
    for window in windows:
        now = np.zeros(len(window.key_names), np.int64)
        for chunk in window.chunks():
            now += np.bincount(chunk.key, minlength=len(now))
        if before is not None and now.any():
            some = before >= LARGE
            ratio = now[some] / now.sum() * (before.sum() / before[some])
            large += len(ratio)
            changed += int(((ratio < 0.5) | (ratio > 2)).sum())
        before = now
    return changed / large if large >= LEAST_KEYS else None


def swapped(place: npt.NDArray[np.int32], share: float, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """The places, of which a random share is permuted among itself."""
    moved = rng.choice(len(place), round(share * len(place)), replace=False)
    found = place.copy()
    found[moved] = place[rng.permutation(moved)]
    return found


@dataclass(frozen=True, slots=True)
class RedrawnWorkload:
    """As many users, drawn from those of a workload with replacement: how many records a key has varies as it does by chance."""

    given: Workload
    seed: int

    @property
    def name(self) -> str:
        """Of the workload."""
        return self.given.name

    @property
    def users(self) -> int:
        """As many."""
        return self.given.users

    @property
    def key_names(self) -> list[bytes]:
        """Of the workload."""
        return self.given.key_names

    def chunks(self) -> Iterator[UserRecords]:
        """Each chunk is drawn by itself."""
        for number, chunk in enumerate(self.given.chunks()):
            drawn = np.random.default_rng([self.seed, number]).integers(0, chunk.users, chunk.users)
            user, row = records_of(chunk, drawn)
            values = None if chunk.values is None else chunk.values[row]
            yield sort_records(user.astype(np.int32), chunk.key[row], chunk.time[row], chunk.users, values)


def _repeated(workload: Workload, churn: float) -> Iterator[Workload]:
    """The window itself, and six more like it."""
    yield workload
    given = workload.given if isinstance(workload, RenamedWorkload) else workload
    names = workload.key_names
    place = np.arange(len(names), dtype=np.int32)
    for number in range(1, WINDOWS):
        place = swapped(place, churn, np.random.default_rng([number, 1]))
        drawn = replace(given, seed=number) if isinstance(given, Law) else RedrawnWorkload(given, number)
        yield RenamedWorkload(drawn, names, place)


def _view(trigger: int, rows: WindowRows, true: npt.NDArray[np.int64], column: int) -> ReadersView:
    off = np.abs(np.where(rows.shown, rows.estimates[:, column], 0) - true)
    return ReadersView(
        trigger=trigger,
        shown=int(rows.shown.sum()),
        usable=int((rows.shown & (true > 0) & (off <= true / 2)).sum()),
        relative=float(off.sum() / max(1, true.sum())),
    )
