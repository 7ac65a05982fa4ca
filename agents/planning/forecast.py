"""What a histogram would publish, before it does: the pipeline's own mechanism on a sample or a law, without Kafka.

    windows ──spool.py──▶ caps ──offline.py, once per seed──▶ rows ──here──▶ keys found, errors, their spread

Every run draws noise from a public seed, never from the pipeline's secret: so a forecast says nothing about the noise that will be
drawn. What is computed from a sample is as secret as the sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.about_columns import about_columns
from susurrus.agents.histogram.columns import Count
from susurrus.agents.histogram.detectable import detectable_curve
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.measures import LayoutMeasures, first_of_pairs
from susurrus.agents.planning.offline import LatestEstimates, run, window_noise
from susurrus.agents.planning.outcome import (
    AtTrigger,
    ColumnErrors,
    SizeClass,
    Spread,
    StrategyForecast,
    StrategyOutcome,
)
from susurrus.agents.planning.spool import Progress, Spool, checkpoints, silent, spool
from susurrus.agents.planning.volumes import Filed, Volumes, volumes_of
from susurrus.agents.planning.workload import RenamedWorkload, UserRecords, Workload
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.levels import level_of
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics.records.raw import ValueField

PROBABILITIES: Final = (0.5, 0.95)
CLASSES: Final = (1, 10, 20, 50, 100, 200, 500, 1000, 10_000)
"""Keys are classed by their users, from each of these numbers up to the next."""


def forecast(
    settings: HistogramSettings,
    workloads: Sequence[Workload] = (),
    *,
    seeds: Sequence[int] = (0, 1, 2),
    progress: Progress = silent,
    level: int | None = None,
) -> StrategyForecast:
    """The strategy that runs with these settings, on windows with these workloads; without any, what follows from constants.

    level: of grouping sets, the number of one; workloads have its keys, and the forecast has its name. Raises ConfigurationError.
    """
    strategy, declared = HistogramPipeline(settings).strategy, settings.declared_keys
    name, summary = strategy.name, strategy.summary
    if level is not None:
        strategy = strategy.by_level[level]
        declared = tuple(key for key, of in zip(declared, level_of(declared).tolist(), strict=True) if of == level)
        name, summary = settings.level_names[level], f"{strategy.name}: {strategy.summary}"
    at = sorted({1, *checkpoints(settings.triggers)})
    appears = {}
    if strategy.plan.discover:
        try:
            appears = {p: detectable_curve(strategy, p)[np.array(at) - 1].tolist() for p in PROBABILITIES}
        except ConfigurationError:  # a strategy of someone else's that has no model: its runs speak for it
            appears = {}
    outcome = _outcome(settings, strategy, declared, workloads, seeds, progress) if workloads else None
    return StrategyForecast(
        name=name,
        summary=summary,
        triggers=at,
        std_errors=_std_errors(settings, strategy, at),
        appears=appears,
        about=tuple(about_columns(settings.layout, strategy)),
        outcome=outcome,
    )


def refused(strategy: type[Strategy[Any]], problem: ConfigurationError) -> StrategyForecast:
    """A strategy that these settings do not allow, with its reason: the first line of the problem."""
    return StrategyForecast(name=strategy.name, summary=strategy.summary, refused=str(problem).splitlines()[0])


def _std_errors(settings: HistogramSettings, strategy: Strategy[Any], at: list[int]) -> dict[str, list[float]]:
    try:
        errors = strategy.standard_errors()[np.array(at) - 1]
    except ConfigurationError:
        return {}
    zeros = np.zeros(errors.shape, np.int64)
    return {
        each.column.name: np.asarray(each.rows(zeros, errors).std_error).tolist()
        for each in settings.layout.published
        if each.column.additive
    }


@dataclass(slots=True)
class _Seen:
    """What one run shows at one trigger."""

    trigger: int
    keys: int
    covered: float
    columns: dict[str, tuple[float, float, float, float]]


@dataclass(frozen=True, slots=True)
class _Look:
    """Notes what is published at the end of each quarter."""

    settings: HistogramSettings
    spooled: Spool
    rows: list[_Seen]

    def __call__(self, at: int, published: LatestEstimates) -> None:
        self.rows.append(_see(self.settings, self.spooled, at, published))


class _Truth:
    """The truth about one window, as chunks go by: distinct users of every key, and users over their caps."""

    def __init__(self, keys: int, filed: Filed) -> None:
        self.users = np.zeros(keys, np.int64)
        self.over = 0
        self._filed = filed

    def __call__(self, records: UserRecords, trigger: npt.NDArray[np.int32], kept: npt.NDArray[np.bool_]) -> None:
        first = first_of_pairs(records, np.ones(len(kept), np.bool_))
        self.users += np.bincount(records.key[first], minlength=len(self.users))
        self.over += len(np.unique(records.user[~kept]))
        self._filed(records, trigger, kept)


def _outcome(
    settings: HistogramSettings,
    strategy: Strategy[Any],
    declared_keys: Sequence[bytes],
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    progress: Progress,
) -> StrategyOutcome:
    layout = settings.layout
    plain = len(layout.measured) == 1 and layout.measured[0].measures == Count.measures
    seen: list[list[_Seen]] = []
    classes: list[tuple[npt.NDArray[np.int64], Floats, Floats, Floats]] = []
    volumes: list[Volumes] = []
    totals = np.zeros(5)
    clamps = np.zeros((3, len(layout.values)))
    for given in workloads:
        workload, declared = with_declared(given, declared_keys)
        measures = LayoutMeasures(layout)
        filed = Filed(settings, strategy)
        truth = _Truth(len(workload.key_names), filed)
        spooled = spool(
            workload,
            strategy.bounding,
            strategy.plan.triggers,
            measures=None if plain else measures,
            filed=truth,
            progress=progress,
        )
        for seed in seeds:
            rows: list[_Seen] = []
            done = run(
                strategy,
                spooled,
                window_noise(seed, strategy.plan.digest()),
                declared=declared,
                checked=_Look(settings, spooled, rows),
                progress=progress,
            )
            seen.append(rows)
            classes.append(_by_size(settings, spooled, done.published, truth.users))
        volumes.append(volumes_of(settings, strategy, spooled, filed, done))
        found = (spooled.records, spooled.users, np.count_nonzero(spooled.truth[-1]), spooled.kept, truth.over)
        totals += np.array(found, np.float64)
        clamps += np.stack([measures.clamped, measures.lost, measures.size])
    records, users, keys, kept, over = totals / len(workloads)
    shares = {
        str(value.path): (clamped / max(1, totals[0]), lost / max(1.0, size))
        for value, clamped, lost, size in zip(layout.values, *clamps, strict=True)
        if isinstance(value, ValueField)  # of the others the bucket alone is read
    }
    return StrategyOutcome(
        triggers=[_joined([run[i] for run in seen]) for i in range(len(seen[0]))],
        sizes=_size_classes(classes),
        records=float(records),
        users=float(users),
        keys=float(keys),
        kept=float(kept / max(1, records)),
        users_over=float(over / max(1, users)),
        clamped=shares,
        volumes=Volumes.mean(volumes),
    )


def with_declared(workload: Workload, declared: Sequence[bytes]) -> tuple[Workload, npt.NDArray[np.bool_] | None]:
    """(the workload with the declared keys that it lacks, bool[keys] which are declared, or None)."""
    if not declared:
        return workload, None
    names = workload.key_names
    known = set(names)
    named = set(declared)
    everything = [*names, *(key for key in declared if key not in known)]
    return RenamedWorkload(workload, everything), np.array([name in named for name in everything], np.bool_)


def true_totals(settings: HistogramSettings, spooled: Spool, at: int) -> Int64s:
    """int64[keys, width] at the end of a quarter: what would be released without caps and noise."""
    quarter = spooled.ends.index(at)
    true: Int64s = spooled.truth[quarter][:, None] if spooled.truths is None else spooled.truths[quarter]
    return settings.layout.totals(true)


def _see(settings: HistogramSettings, spooled: Spool, at: int, published: LatestEstimates) -> _Seen:
    true = true_totals(settings, spooled, at)
    records = spooled.truth[spooled.ends.index(at)]
    known = published.known
    columns = {}
    for each in settings.layout.published:
        row = each.rows(published.estimates, published.std_errors)
        exact = each.rows(true, np.zeros(true.shape)).estimate
        additive = each.column.additive
        error = np.abs(np.where(known, row.estimate, 0.0) - exact)
        size = float(np.abs(exact).sum())
        some = known if additive else known & (true[:, list(each.sources)] != 0).any(axis=1)
        columns[each.column.name] = (
            float(error.sum()) if additive else np.nan,
            float(error.sum() / max(size, 1e-300)) if additive else np.nan,
            float(error[some].mean()) if some.any() else np.nan,
            float(np.median(np.asarray(row.std_error)[some])) if some.any() else np.nan,
        )
    covered = float(records[known].sum() / max(1, records.sum()))
    return _Seen(trigger=at, keys=int(known.sum()), covered=covered, columns=columns)


def _joined(runs: list[_Seen]) -> AtTrigger:
    columns = {}
    for name in runs[0].columns:
        l1, relative, published, std_error = (Spread.of([run.columns[name][i] for run in runs]) for i in range(4))
        columns[name] = ColumnErrors(l1=l1, relative=relative, published=published, std_error=std_error)
    return AtTrigger(
        trigger=runs[0].trigger,
        keys=Spread.of([run.keys for run in runs]),
        covered=Spread.of([run.covered for run in runs]),
        columns=columns,
    )


def _by_size(
    settings: HistogramSettings, spooled: Spool, published: LatestEstimates, users: Int64s
) -> tuple[Int64s, Floats, Floats, Floats]:
    """[classes] each: keys, how many are published, the sum of their errors in the first column, the sum of their true values."""
    each = settings.layout.published[0]
    true = true_totals(settings, spooled, spooled.triggers)
    exact = np.asarray(each.rows(true, np.zeros(true.shape)).estimate, np.float64)
    error = np.abs(np.asarray(each.rows(published.estimates, published.std_errors).estimate, np.float64) - exact)
    place = np.searchsorted(CLASSES, users, side="right") - 1
    some = place >= 0
    size = len(CLASSES)
    known = published.known & some
    return (
        np.bincount(place[some], minlength=size).astype(np.int64),
        np.bincount(place[known], minlength=size).astype(np.float64),
        np.bincount(place[known], weights=error[known], minlength=size).astype(np.float64),
        np.bincount(place[known], weights=np.abs(exact[known]), minlength=size).astype(np.float64),
    )


def _size_classes(runs: list[tuple[Int64s, Floats, Floats, Floats]]) -> list[SizeClass]:
    found = []
    for i, least in enumerate(CLASSES):
        if not any(keys[i] for keys, *_ in runs):
            continue
        some = [run for run in runs if run[0][i]]
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(
                SizeClass(
                    least=least,
                    most=CLASSES[i + 1] - 1 if i + 1 < len(CLASSES) else None,
                    keys=float(np.mean([run[0][i] for run in runs])),
                    found=Spread.of([run[1][i] / run[0][i] for run in some]),
                    error=Spread.of([run[2][i] / run[1][i] for run in some]),
                    relative=Spread.of([run[2][i] / run[3][i] for run in some]),
                )
            )
    return found
