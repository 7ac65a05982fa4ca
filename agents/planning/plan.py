"""A plan: every strategy beside the others, what-if variants of the constants, and which one the numbers speak for.

    configuration, source ──variants──▶ forecast.py, one after the other ──▶ PipelinePlan ──▶ text, JSON, plot

sources.py says what the windows hold: nothing, a sample of the trust zone, or a synthetic law.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.forecast import forecast, refused
from susurrus.agents.planning.later import LaterForecast, later_forecast
from susurrus.agents.planning.levels import level_forecasts
from susurrus.agents.planning.outcome import Spread, StrategyForecast
from susurrus.agents.planning.sources import OfSample, WindowSize, WindowSource
from susurrus.agents.planning.spool import Progress, silent
from susurrus.agents.planning.variants import Changes, Configuration
from susurrus.agents.planning.windows import thinned, windows_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram import rest
from susurrus.mechanisms.histogram.registry import STRATEGIES, better_for, build_strategy

CLEAR: Final = 2.0
"""A strategy is preferred to the one that runs if its number is lower by so many standard deviations of the difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One row of a what-if table: the forecast with other constants, or why there is none."""

    changes: Changes
    forecast: StrategyForecast | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """What scaling up does, tried on the sample: a part of it, scaled up to the whole, against the whole. Ratios."""

    share: float
    keys: float
    l1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """runs: the strategy of the configuration, and why (None: the file names it). preferred: the one with the lowest number,
    `by` which: in words. consider: what the constants alone say for other strategies. rolling: what the rolling view costs. later:
    the seventh of windows that remember."""

    pipeline: str
    settings: HistogramSettings
    title: str
    private: bool
    sizes: list[WindowSize]
    notes: list[str]
    seeds: int
    forecasts: list[StrategyForecast]
    runs: str
    why: str | None
    preferred: str | None
    by: str
    consider: list[str] = field(default_factory=list)
    rolling: str | None = None
    later: LaterForecast | None = None
    what_if: list[Variant] = field(default_factory=list)
    extrapolation: Extrapolation | None = None
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> StrategyForecast:
        """The forecast of a strategy."""
        return next(each for each in self.forecasts if each.name == name)


def make_plan(
    configuration: Configuration,
    source: WindowSource,
    *,
    strategies: Sequence[str] = tuple(STRATEGIES),
    variants: Sequence[Changes] = (),
    seeds: int = 3,
    churn: float | None = None,
    progress: Progress = silent,
) -> PipelinePlan:
    """The plan of a histogram. seeds: runs with other noise, for each window and strategy. churn: see `later_forecast`.

    Raises ConfigurationError.
    """
    settings = configuration.histogram()
    if settings.grouping:
        return _of_levels(settings, source, variants, seeds, progress)
    runs = settings.choice.name
    forecasts = []
    for name in dict.fromkeys((runs, *strategies)):
        try:
            chosen = settings if name == runs else configuration.histogram(strategy=name)
        except ConfigurationError as problem:
            forecasts.append(refused(STRATEGIES[name], problem))
            continue
        forecasts.append(forecast(chosen, source.workloads(chosen), seeds=range(seeds), progress=progress))
    forecasts.sort(key=lambda each: list(STRATEGIES).index(each.name))
    preferred, by = preference(forecasts, runs, settings)
    return PipelinePlan(
        **_known(settings, source, seeds),
        forecasts=forecasts,
        runs=runs,
        why=settings.choice.reason,
        preferred=preferred,
        by=by,
        consider=list(better_for(settings.plan())) if settings.choice.reason is not None else [],
        rolling=_rolling(settings),
        later=later_forecast(settings, source.workloads(settings), churn=churn, progress=progress),
        what_if=[_variant(configuration, source, changes, seeds, progress) for changes in variants],
        extrapolation=_extrapolation(settings, source, progress),
    )


def _known(settings: HistogramSettings, source: WindowSource, seeds: int) -> dict[str, Any]:
    """What a plan says of its data, whatever is forecast."""
    sample = source.sample if isinstance(source, OfSample) else None
    return {
        "pipeline": settings.pipeline.name,
        "settings": settings,
        "title": source.title,
        "private": source.private,
        "sizes": source.sizes(settings),
        "notes": source.notes(settings),
        "seeds": seeds,
        "read": 0 if sample is None else sample.read,
        "dropped": {} if sample is None else dict(sample.dropped),
    }


def _rolling(settings: HistogramSettings) -> str | None:
    if not settings.window.rolling:
        return None
    return rest.costs(build_strategy(settings.plan()), settings.window.triggers_to_end)


def _of_levels(
    settings: HistogramSettings, source: WindowSource, variants: Sequence[Changes], seeds: int, progress: Progress
) -> PipelinePlan:
    """The plan of a pipeline with grouping sets: its rows are levels. The one with the largest cap stands for "what runs"."""
    if variants:
        raise ConfigurationError(
            "--what-if: changes the constants of one grouping, and every level has its own; change [[levels]] and plan again"
        )
    finest = max(settings.grouping, key=lambda level: level.max_records)
    return PipelinePlan(
        **_known(settings, source, seeds),
        forecasts=level_forecasts(settings, source, seeds=range(seeds), progress=progress),
        runs=finest.name,
        why=None,
        preferred=None,
        by="levels are not compared with each other",
    )


def number_of(each: StrategyForecast, settings: HistogramSettings) -> tuple[str, Spread] | None:
    """What strategies are compared by: the first column's error over all keys at the end of a window, or of published keys."""
    if each.outcome is None:
        return None
    end = each.outcome.triggers[-1]
    for column in settings.published_columns:
        errors = end.columns[column.name]
        if not np.isnan(errors.l1.mean):
            return f"ℓ1 of {column.name} at the last trigger", errors.l1
    name = settings.published_columns[0].name
    return f"mean error of {name} over published keys at the last trigger", end.columns[name].published


def preference(forecasts: Sequence[StrategyForecast], runs: str, settings: HistogramSettings) -> tuple[str | None, str]:
    """(the strategy with the lowest number, by which). It is the one that runs where the others are not clearly better."""
    found = {each.name: number for each in forecasts if (number := number_of(each, settings)) is not None}
    if runs not in found:
        return None, "nothing is known of the data, so no strategy is preferred"
    best = min(found, key=lambda name: found[name][1].mean)
    what, here = found[runs]
    lowest = found[best][1]
    spread = float(np.hypot(here.deviation, lowest.deviation))
    if best == runs or here.mean - lowest.mean <= CLEAR * spread:
        rest = {name: number for name, (_, number) in found.items() if name != runs}
        if not rest:
            return runs, f"{runs} was forecast alone: {what} {here.mean:,.0f}"
        second = min(rest, key=lambda name: rest[name].mean)
        verdict = "lowest" if best == runs else "no clear difference"
        return runs, f"{what}: {here.mean:,.0f} with {runs}, {rest[second].mean:,.0f} with {second} ({verdict})"
    return best, f"{what}: {lowest.mean:,.0f} with {best}, {here.mean:,.0f} with {runs}"


def _variant(
    configuration: Configuration, source: WindowSource, changes: Changes, seeds: int, progress: Progress
) -> Variant:
    try:
        settings = configuration.histogram(changes)
    except ConfigurationError as problem:
        return Variant(changes=changes, refused=str(problem).splitlines()[0])
    found = forecast(settings, source.workloads(settings), seeds=range(seeds), progress=progress)
    return Variant(changes=changes, forecast=found)


def _extrapolation(settings: HistogramSettings, source: WindowSource, progress: Progress) -> Extrapolation | None:
    """Returns how far, on the sample itself as it was read, a part of it, scaled up as it is, misses it."""
    if not isinstance(source, OfSample) or source.share >= 1:
        return None
    whole = windows_of(source.sample, settings, stretch=source.stretch)
    rng = np.random.default_rng(0)
    ends = []
    for windows in (whole, [thinned(window, max(source.share, 0.1), rng) for window in whole]):
        found = forecast(settings, [window.workload for window in windows], progress=progress)
        number = number_of(found, settings)
        assert found.outcome is not None
        assert number is not None
        ends.append((found.outcome.triggers[-1].keys.mean, number[1].mean))
    (keys, l1), (part_keys, part_l1) = ends
    return Extrapolation(
        share=max(source.share, 0.1),
        keys=part_keys / keys if keys else float("nan"),
        l1=part_l1 / l1 if l1 else float("nan"),
    )
