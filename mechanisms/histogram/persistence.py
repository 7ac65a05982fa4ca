"""How much of a window's output had been public before it, and the shares of the budget that may follow from that.

    rows of the newest complete window ──persistence_of──▶ kappa in tenths ──SHARES──▶ shares of the next window's plan

Where most keys of a window were known at its beginning, discovery has little left to find, and the last trigger has more to
measure. The measure is a function of rows that are published, and each of the eleven plans has the same promise. So nothing is
paid for it: docs/guarantees/closing.md, "Shares that follow the output".
"""

from fractions import Fraction
from typing import Final, NamedTuple

TENTHS: Final = 10
"""kappa is a multiple of 1 / TENTHS, so there are TENTHS + 1 plans."""
LEAST_ROW: Final = 15
"""Rows count from this number of users on. Smaller ones are mostly noise, and would dilute the measure."""


class BudgetShares(NamedTuple):
    """Parts of mu^2 that add up to 1: selection in the stream, values, lists on keys that are not public, and on those that are."""

    discovery: Fraction
    values: Fraction
    unknown: Fraction
    public: Fraction


FIRST: Final = BudgetShares(Fraction(40, 100), Fraction(42, 100), Fraction(13, 100), Fraction(5, 100))
"""Where nothing is known of earlier windows, or nothing lasted: kappa = 0. The defaults of the strategy."""
LASTING: Final = BudgetShares(Fraction(25, 100), Fraction(35, 100), Fraction(28, 100), Fraction(12, 100))
"""Where everything lasted: kappa = 1."""


def shares_at(persistence: int) -> BudgetShares:
    """(1 - kappa) FIRST + kappa LASTING. persistence: kappa in tenths. Raises ValueError outside of 0..10."""
    if not 0 <= persistence <= TENTHS:
        raise ValueError(f"persistence={persistence}: must be 0 to {TENTHS}")
    kappa = Fraction(persistence, TENTHS)
    return BudgetShares(*((1 - kappa) * first + kappa * lasting for first, lasting in zip(FIRST, LASTING, strict=True)))


SHARES: Final = tuple(shares_at(persistence) for persistence in range(TENTHS + 1))
"""The shares of every plan, by kappa in tenths."""


def persistence_of(known: int, rows: int) -> int:
    """kappa in tenths, rounded down: 0 where there are no rows.

    rows: a window's last rows of at least LEAST_ROW users, of all partitions. known: those among them whose keys were declared or
    remembered when the window began. Raises ValueError unless 0 <= known <= rows.
    """
    if not 0 <= known <= rows:
        raise ValueError(f"known={known}, rows={rows}: must be 0 <= known <= rows")
    return TENTHS * known // rows if rows else 0


def persistence_with(discovery: float, unknown: float, public: float) -> int | None:
    """kappa in tenths of the plan that has these shares; None where none of the eleven has them."""
    given = (discovery, unknown, public)
    found = ((float(each.discovery), float(each.unknown), float(each.public)) for each in SHARES)
    return next((persistence for persistence, each in enumerate(found) if each == given), None)
