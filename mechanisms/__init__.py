"""Private mechanisms: pure functions of data, public constants and addressed noise. No Kafka, clock or global state.

The names below are the public interface for histograms; real-valued streams are in `mechanisms.stream`, local privacy in
`mechanisms.local`. They are loaded on first use, so that importing one module does not load all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from susurrus.mechanisms.errors import (
        BudgetExhausted,
        ConfigurationError,
        PrivacyError,
        Refusal,
        ReplayMismatch,
        SusurrusError,
    )
    from susurrus.mechanisms.guarantee import Guarantee
    from susurrus.mechanisms.histogram.bounding import Bounded, Bounding, UserKeys
    from susurrus.mechanisms.histogram.plan import Column, Constants, Plan, constant
    from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
    from susurrus.mechanisms.histogram.strategy import Increments, KeyStates, Step, Strategy
    from susurrus.mechanisms.noise import NoiseSource, WindowNoise
    from susurrus.mechanisms.spend import Budget, Spend

__all__ = [
    "Bounded",
    "Bounding",
    "Budget",
    "BudgetExhausted",
    "Column",
    "ConfigurationError",
    "Constants",
    "Guarantee",
    "Increments",
    "KeyStates",
    "NoiseSource",
    "Plan",
    "PrivacyError",
    "Refusal",
    "ReplayMismatch",
    "Spend",
    "Step",
    "Strategy",
    "SusurrusError",
    "UserKeys",
    "WindowNoise",
    "build_strategy",
    "constant",
    "plan_of",
]

_HOME = {
    "histogram.bounding": ("Bounded", "Bounding", "UserKeys"),
    "errors": ("BudgetExhausted", "ConfigurationError", "PrivacyError", "Refusal", "ReplayMismatch", "SusurrusError"),
    "guarantee": ("Guarantee",),
    "spend": ("Budget", "Spend"),
    "noise": ("NoiseSource", "WindowNoise"),
    "histogram.plan": ("Column", "Constants", "Plan", "constant"),
    "histogram.registry": ("build_strategy", "plan_of"),
    "histogram.strategy": ("Increments", "KeyStates", "Step", "Strategy"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
