"""The strategy for whole-window histograms: selection by weights that fall with a user's rank, values apart (ranked.py).

What it costs: keys that come late and last in their users' lists.
Argument and the price: docs/guarantees/weighted.md.
"""

from dataclasses import dataclass

from susurrus.mechanisms.histogram.factored import Factored, budget_of
from susurrus.mechanisms.histogram.plan import Plan, constant
from susurrus.mechanisms.histogram.ranked import MAX_RANKED_KEYS, RankedParameters, ranked_design


class Weighted(Factored):
    """Design "two mechanisms": ranked weights for selection, counts and sums for values.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove; see `guarantee`.
    """

    name = "weighted"
    summary = "separate selection by ranked weights"
    ranked_by = "ranked_keys"

    @dataclass(frozen=True, kw_only=True)
    class Parameters(RankedParameters):
        """Parameters of strategy `weighted`."""

        ranked_keys: int = constant(
            32,
            "Keys per user, in order of first occurrence, that carry weight in the selection.",
            ge=1,
            le=MAX_RANKED_KEYS,
        )

        def default_prior(self, rank: int) -> float:
            """S_i = (1 + i / 26)^-5.738, the tail of the Zipf-Mandelbrot distribution by which web users are modelled."""
            return float((1 + rank / 26) ** -5.738)

    def __init__(self, plan: Plan) -> None:
        budget = budget_of(plan)
        parameters = plan.parameters_as(Weighted.Parameters)
        design = ranked_design(plan, parameters, mu_square=budget.mu**2, delta_selection=budget.delta_selection)
        super().__init__(plan, budget, design)
