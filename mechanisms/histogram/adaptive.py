"""The strategy that selects only among keys that are not published yet, with ranked weights (ranked.py).

A key that was published at a trigger up to t - lag is public at trigger t: its records need no selection, so they use no
weight, and a user who brings it first then spends no rank on it. So a user's whole selection weight goes to
unpublished keys, and each of them is found with fewer users. The published keys come back to where users are
bounded: `Bounding.close` gets which keys are public. Values are measured without regard to that.
Argument and the price: docs/guarantees/adaptive.md.
"""

from dataclasses import dataclass

from susurrus.mechanisms.histogram.factored import Factored, budget_of
from susurrus.mechanisms.histogram.plan import MAX_TRIGGERS, Plan, constant
from susurrus.mechanisms.histogram.ranked import MAX_RANKED_KEYS, RankedParameters, ranked_design
from susurrus.mechanisms.histogram.strategy import Need

DECAY = 0.6
"""Each weight is so much of the one before, unless `prior` says otherwise. A public constant."""


class Adaptive(Factored):
    """Ranks are those among a user's keys that were not public when the user brought them first.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove, for outputs that steer what is measured next.
    """

    name = "adaptive"
    summary = "selection by ranked weights, for keys that are not published yet only"
    needs = frozenset({Need.PUBLISHED_KEYS})
    ranked_by = "ranked_keys"

    @dataclass(frozen=True, kw_only=True)
    class Parameters(RankedParameters):
        """Parameters of strategy `adaptive`."""

        # Most keys are public before their turn comes.
        ranked_keys: int = constant(
            8,
            "Keys per user, of those not published yet and in order of first occurrence, that carry weight in the "
            "selection.",
            ge=1,
            le=MAX_RANKED_KEYS,
        )
        lag: int = constant(
            1,
            "Triggers from a key's publication until its records need no selection. Bounding waits for what was "
            "published so many triggers before: more than 1 lets the stages work further apart, and finds fewer keys.",
            ge=1,
            le=MAX_TRIGGERS,
        )

        def default_prior(self, rank: int) -> float:
            """DECAY^i."""
            return DECAY**rank

    def __init__(self, plan: Plan) -> None:
        budget = budget_of(plan)
        parameters = plan.parameters_as(Adaptive.Parameters)
        design = ranked_design(
            plan,
            parameters,
            mu_square=budget.mu**2,
            delta_selection=budget.delta_selection,
            lag=parameters.lag,
        )
        super().__init__(plan, budget, design)
