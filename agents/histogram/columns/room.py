"""What is wrong with the range and the grid of a field that is added up."""

from collections.abc import Callable, Iterator
from typing import Final

from susurrus.mechanisms.histogram.plan import MAX_BOUND
from susurrus.topics.records.numbers import MAX_STEPS, steps_within
from susurrus.topics.records.raw import ValueField

MAX_USERS_PER_WINDOW: Final = 2**32
"""Users of one window for which sums are guaranteed to fit 64 bits."""


def room_problems(value: ValueField, bound_of: Callable[[], int], records: int) -> Iterator[str]:
    """The grid must fit the range, and sums must fit 64 bits, one line each.

    bound_of: what one record adds at most, in grid units. records: m * C, the product of what can be kept per key and per user.
    """
    steps = steps_within(value.bound, value.grid)
    if not 1 <= steps < MAX_STEPS or bound_of() > MAX_BOUND:
        yield f"grid = {value.grid:g} against bound = {value.bound:g}; use bound / 2^24 to bound"
        return
    if value.lowest > value.highest:
        lower, upper = (
            -value.bound if value.lower is None else value.lower,
            value.bound if value.upper is None else value.upper,
        )
        yield f"no multiple of grid = {value.grid:g} lies between lower = {lower:g} and upper = {upper:g}; use a smaller grid"
        return
    # A key sums at most users * m * bound, a whole window at most users * C * bound; the product covers both.
    bound, room = bound_of(), (2**63 - 1) // (records * MAX_USERS_PER_WINDOW)
    if bound > room:
        fix = f"use a grid of at least {value.bound / room:.3g}, or lower" if room else "lower"
        yield (
            "sums could leave 64 bits (m * C * 2^32 users * floor(bound / grid) >= 2^63); "
            f"{fix} bounds.max_records_per_user"
        )
