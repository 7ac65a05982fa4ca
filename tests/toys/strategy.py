"""A strategy that is this file and one registration: ranked weights for keys that are not public, on a part of the budget.

It is honest: a smaller mu than the budget's keeps the promise. It has parameters of its own and needs the published keys, so that
sections, digests, topics and the way back from release to bound are shown to follow from the class alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from pydantic import create_model

from susurrus.agents.histogram.pipeline import Histogram
from susurrus.agents.histogram.privacy import privacy_model
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.histogram.factored import Factored, budget_of
from susurrus.mechanisms.histogram.plan import Plan, constant
from susurrus.mechanisms.histogram.ranked import RankedParameters, ranked_design
from susurrus.mechanisms.histogram.registry import STRATEGIES
from susurrus.mechanisms.histogram.strategy import Need, Strategy


class Frugal(Factored):
    """Uses a share of its budget.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove; in truth less.
    """

    name = "frugal-toy"
    summary = "ranked weights on a part of the budget"
    needs = frozenset({Need.PUBLISHED_KEYS})
    ranked_by = "ranked_keys"

    @dataclass(frozen=True, kw_only=True)
    class Parameters(RankedParameters):
        """Parameters of a toy."""

        ranked_keys: int = constant(4, "Keys per user that carry weight.", ge=1, le=64)
        spent: float = constant(0.9, "Share of the squared budget that is used.", gt=0, le=1)

        def default_prior(self, rank: int) -> float:
            """2^-i."""
            return 2.0**-rank

    def __init__(self, plan: Plan) -> None:
        budget, parameters = budget_of(plan), plan.parameters_as(Frugal.Parameters)
        super().__init__(
            plan,
            budget,
            ranked_design(
                plan,
                parameters,
                mu_square=budget.mu**2 * parameters.spent,
                delta_selection=budget.delta_selection,
                lag=1,
            ),
        )


@contextmanager
def registered(strategy: type[Strategy[Any]]) -> Iterator[type[HistogramSettings]]:
    """The strategy in the registry, and a histogram's settings as they would be with a line for it in registry.py.

    The line itself would be there before anything is imported; here the sections are made again.
    """
    with patch.dict(STRATEGIES, {strategy.name: strategy}):
        field = HistogramSettings.model_fields["privacy"]
        settings: Any = create_model(
            HistogramSettings.__name__, __base__=HistogramSettings, privacy=(privacy_model(), field)
        )
        with patch.object(Histogram, "settings_class", settings):
            yield settings
