"""What part of the values' squared budget each measured column has, by the columns' weights.

Columns that count users are measured as one, with the largest of their weights. Argument: docs/guarantees/shares.md.
"""

from collections.abc import Iterable
from fractions import Fraction

from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.value_ledger import MOST_USERS

MOST_PARTS = 8
"""The ledger's integers are in a ratio of which the smaller one is at most this."""


def counting_weight(plan: Plan) -> Fraction:
    """The weight of the number of users; 0 where no column counts them."""
    return max(_weights(plan, counting=True), default=Fraction(0))


def measured_weight(plan: Plan) -> Fraction:
    """The sum of the weights of the columns that have a mechanism of their own; 0 where there are none."""
    return sum(_weights(plan, counting=False), Fraction(0))


def inverse_share(column: Column, total: Fraction) -> float:
    """By what a budget is divided for a column, where weights add up to ``total``: n of n columns of equal weight, exactly."""
    return float(total / Fraction(column.weight))


def ledger_weights(plan: Plan) -> tuple[int, int]:
    """(a, b): what every record pays in all columns with a mechanism of their own, and what the first one of a key pays beside.

    As a : b is close to the ratio of the weights, the budget is shared out by these integers, so that the ledger's bound is met.
    """
    measured, counting = measured_weight(plan), counting_weight(plan)
    if not counting:
        return len(plan.columns), 0
    if not measured:
        return 0, 1
    ratio = measured / counting
    if ratio >= 1:
        near = ratio.limit_denominator(MOST_PARTS)
        return near.numerator, near.denominator
    near = (1 / ratio).limit_denominator(MOST_PARTS)
    if plan.max_records_per_key > 1:
        near = min(near, Fraction(MOST_USERS))
    return near.denominator, near.numerator


def _weights(plan: Plan, *, counting: bool) -> Iterable[Fraction]:
    per_key = plan.max_records_per_key
    return (Fraction(column.weight) for column in plan.columns if column.counts_users(per_key) is counting)
