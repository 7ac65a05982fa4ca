"""A strategy that is this file and one registration: ranked weights for keys that are not public, on a part of the budget.

It is honest: a smaller mu than the budget's keeps the promise. It has parameters of its own and needs the feedback, so that
sections, digests, topics and the way back from release to bound are shown to follow from the class alone.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from pydantic import create_model

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.privacy import privacy_model
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.accounting import Caps, joint_cost
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.factored import Design, Factored, budget_of, counts_users, value_mechanisms
from susurrus.mechanisms.histogram.plan import Plan, constant
from susurrus.mechanisms.histogram.ranked import SELECTION, RankedParameters, Ranking
from susurrus.mechanisms.histogram.registry import STRATEGIES
from susurrus.mechanisms.histogram.strategy import Strategy


class Frugal(Factored):
    """Uses a share of its budget.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove; in truth less.
    """

    name = "frugal-toy"
    summary = "ranked weights on a part of the budget"
    feedback = True
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
        ranking = Ranking(plan, parameters)
        mu_square = budget.mu**2 * parameters.spent * (1 - 1e-12)
        squares = joint_cost(Caps(records=plan.max_records, records_per_key=plan.max_records_per_key), per_square=1.0)
        measured = sum(not counts_users(column, plan) for column in plan.columns)
        share = mu_square / 2 / len(plan.columns)
        values, source = value_mechanisms(
            plan,
            users_cost=share / plan.max_records if measured < len(plan.columns) else None,
            column_cost=lambda column: share / squares,
            normalized=True,
        )
        design = Design(
            bounding=Bounding(
                max_records=plan.max_records,
                max_records_per_key=plan.max_records_per_key,
                weights=ranking.bounding_weights,
                lag=parameters.lag,
            ),
            selector=ranking.selector(plan, cost=mu_square / 2, delta_selection=budget.delta_selection),
            selection_mechanism=SELECTION,
            values=values,
            source=source,
            notes={**ranking.notes(), "mu": math.sqrt(mu_square)},
        )
        super().__init__(plan, budget, design)


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
        with patch.object(HistogramPipeline, "settings_class", settings):
            yield settings
