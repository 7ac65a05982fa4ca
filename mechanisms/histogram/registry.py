"""Every strategy by its name, and which of them runs where none is named. A new one is a line here."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.dp_sqlp import DpSqlp
from susurrus.mechanisms.histogram.factored import Factored
from susurrus.mechanisms.histogram.levels import Levels
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.mechanisms.histogram.toeplitz import Toeplitz

_ALL: tuple[type[Strategy[Any]], ...] = (Toeplitz, Closing, DpSqlp)
STRATEGIES = {strategy.name: strategy for strategy in _ALL}
_INSTEAD = (
    'write strategy = "closing" and, to read windows only before they end, discovery_share = 0.5, unknown_share = 0 and '
    "public_share = 0 in [privacy.closing], which knows the other parameters, too; a pipeline that has run needs a new epoch"
)
RETIRED = {
    "weighted": f'is no strategy any more: "closing" finds more keys with smaller errors; {_INSTEAD}',
    "adaptive": f'is no strategy any more: it was "closing" without its last look; {_INSTEAD}',
}
"""What to write instead of a name that files may still have."""
DOZENS_OF_KEYS = 24
"""Where fewer records per user count, dozens of keys of each are no concern."""


@dataclass(frozen=True, slots=True)
class Choice:
    """name: of a strategy. reason: why it is the default, in words; None where the configuration names it."""

    name: str
    reason: str | None = None


def default_strategy(
    *, triggers: int, counts_users: bool, discover: bool, max_keys: int | None, most_triggers: int | None = None
) -> Choice:
    """The strategy of a histogram that names none. It follows from public constants alone, never from data.

    triggers: T, the smallest where windows differ; most_triggers: the largest. counts_users: whether a column does
    (`Column.counts_users`). discover, max_keys: as in `Plan`.
    """
    some = f"{triggers}" if most_triggers in (None, triggers) else f"{triggers} to {most_triggers}"
    if triggers < 2:
        return Choice(Toeplitz.name, "windows have one trigger")
    if not discover:
        return Choice(Toeplitz.name, "only declared keys are published")
    if not counts_users:
        return Choice(Toeplitz.name, "no column counts users")
    if max_keys is not None:
        return Choice(Toeplitz.name, "distinct keys per user are capped")
    return Choice(Closing.name, f"windows have {some} triggers, and a column counts users")


def strategy_named(name: str) -> type[Strategy[Any]]:
    """Raises ConfigurationError for a name that no strategy has."""
    if name in RETIRED:
        raise ConfigurationError(f"strategy={name!r}: {RETIRED[name]}")
    if name not in STRATEGIES:
        raise ConfigurationError(f"strategy={name!r}: choose one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def plan_of(strategy: str, **constants: Any) -> Plan:
    """The plan of a strategy by its name. constants: fields of `Plan` and of the strategy's `Parameters`, together.

    Raises ConfigurationError, naming the field.
    """
    kind = strategy_named(strategy).Parameters
    parameters = {name: constants.pop(name) for name in kind.__dataclass_fields__ if name in constants}
    return Plan(strategy=strategy, parameters=kind(**parameters), **constants)


def build_strategy(plan: Plan) -> Strategy[Any]:
    """The mechanism that a plan asks for. Raises ConfigurationError if its numbers cannot be met."""
    strategy = _built(plan)
    # Of one level: some levels may have no last look.
    if plan.part is None and strategy.evidence_windows != plan.evidence_windows:
        raise ConfigurationError(
            f"evidence_windows={plan.evidence_windows}: adds up what a last look measures, and strategy={plan.strategy} has none "
            f'with these constants; leave it out, or use strategy "{Closing.name}" with its last look'
        )
    return strategy


def _built(plan: Plan) -> Strategy[Any]:
    if plan.levels:
        return Levels(plan, build_strategy)
    strategy = strategy_named(plan.strategy)
    if type(plan.parameters) is not strategy.Parameters:
        raise ConfigurationError(
            f"parameters={plan.parameters!r}: are not those of strategy={plan.strategy}; give those"
        )
    if strategy.ranked_by and plan.max_keys is not None:
        raise ConfigurationError(
            f"max_keys={plan.max_keys}: strategy={plan.strategy} ranks keys; use {strategy.ranked_by}"
        )
    if strategy.shared_by and plan.selection_share != Plan.selection_share:
        raise ConfigurationError(
            f"selection_share={plan.selection_share}: strategy={plan.strategy} has shares of its own; use {strategy.shared_by}"
        )
    return strategy(plan)


@functools.lru_cache(maxsize=8)
def built(plan: Plan) -> Strategy[Any]:
    """`build_strategy`, once for equal plans: windows that differ in length, or in what lasted before them, have their own.

    The newest are kept. One takes 30 MB for 1,000 triggers and 130 MB for 2,048, and as many as there may be would take gigabytes.
    """
    return build_strategy(plan)


def better_for(plan: Plan) -> Iterator[str]:
    """Says in which cases another strategy is better than the default, or the default without its last look; a sentence each.

    Of a plan with levels nothing is said: what is better for one may be worse for another. The standard errors are computed from
    the plan. The other cases were measured: docs/results.md.
    Raises ConfigurationError where a strategy refuses the plan's numbers.
    """
    if (
        plan.levels
        or plan.strategy != Closing.name
        or not any(each.counts_users(plan.max_records_per_key) for each in plan.columns)
    ):
        return
    quarter = -(-plan.triggers // 4)
    here = _users_error(plan, quarter)
    there = _users_error(
        replace(plan, strategy=Toeplitz.name, parameters=Toeplitz.Parameters(), evidence_windows=1), quarter
    )
    if there < here:
        yield (
            f"{Toeplitz.name}, to read a few popular keys: standard error {there:.1f} instead of {here:.1f} users after a quarter "
            "of a window" + ("; or if users have dozens of keys each" if plan.max_records >= DOZENS_OF_KEYS else "")
        )
    if plan.triggers >= 4 and plan.parameters_as(Closing.Parameters).last_look:
        yield (
            f"{Closing.name} without its last look (discovery_share = 0.5, unknown_share = 0, public_share = 0), to read windows "
            "only before their last trigger: 5 to 20 % more keys there, and errors 2 to 8 % smaller"
        )


def _users_error(plan: Plan, trigger: int) -> float:
    """The standard error of a column that counts users, at a trigger."""
    strategy = build_strategy(plan)
    assert isinstance(strategy, Factored)
    column = next(i for i, each in enumerate(plan.columns) if each.counts_users(plan.max_records_per_key))
    return float(strategy.values[strategy.source[column]].std[trigger - 1])
