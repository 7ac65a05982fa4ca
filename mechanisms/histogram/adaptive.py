"""The strategy that asks only about keys nobody knows yet: `weighted`, with ranks for keys that are not public.

A key that was published at a trigger up to t - lag is public at trigger t: its records need no selection, so they use no
weight, and a user who brings it first then spends no rank on it. What a user has for selection goes to the keys that
the output does not name yet, so each of them is found with fewer users. The published keys come back to where users are
bounded: `Bounding.close` is told which keys are public. Values are measured as by `weighted`.
Argument and the price: docs/guarantees/adaptive.md.
"""

from susurrus.mechanisms.histogram.strategy import Plan
from susurrus.mechanisms.histogram.weighted import Weighted

RANKED_KEYS = 8
"""Keys of a user that take part in selection, unless `max_keys` says otherwise: most are public before their turn comes."""
DECAY = 0.6
"""Each weight is so much of the one before, unless `prior` says otherwise. A public constant."""


class Adaptive(Weighted):
    """`Weighted` whose ranks are those among a user's keys that were not public when the user brought them first.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove, for outputs that steer what is measured next.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, lag=plan.lag, ranked_keys=RANKED_KEYS, prior=geometric)


def geometric(ranked: int) -> tuple[float, ...]:
    """DECAY^i for i < ranked."""
    return tuple(DECAY**i for i in range(ranked))
