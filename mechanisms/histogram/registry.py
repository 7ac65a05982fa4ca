"""Every strategy by its name. A new one is a line here."""

from typing import Any

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.adaptive import Adaptive
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.dp_sqlp import DpSqlp
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.mechanisms.histogram.toeplitz import Toeplitz
from susurrus.mechanisms.histogram.weighted import Weighted

_ALL: tuple[type[Strategy[Any]], ...] = (Toeplitz, Weighted, Adaptive, Closing, DpSqlp)
STRATEGIES = {strategy.name: strategy for strategy in _ALL}
DEFAULT = Toeplitz.name


def strategy_named(name: str) -> type[Strategy[Any]]:
    """Raises ConfigurationError for a name that no strategy has."""
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
    strategy = strategy_named(plan.strategy)
    if type(plan.parameters) is not strategy.Parameters:
        raise ConfigurationError(
            f"parameters={plan.parameters!r}: are not those of strategy={plan.strategy}; give those"
        )
    if strategy.ranked_by and plan.max_keys is not None:
        raise ConfigurationError(
            f"max_keys={plan.max_keys}: strategy={plan.strategy} ranks keys; use {strategy.ranked_by}"
        )
    return strategy(plan)
