"""From how many users on a key appears: for the forecast (`susurrus plan`) and for a status that explains an empty result.

    Strategy.appearing (its own tests, on noise of a fixed public seed) ──▶ DETECTION_KEYS simulated keys ──▶ a quantile of them

Everything here follows from public constants. No data enter, and no noise that is published or ever will be.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.strategy import Strategy

DETECTION_KEYS: Final = 2_000
"""Simulated keys. The 95 % quantile of so many is that of 94 to 96 %."""
_NOISE_AT_ONCE: Final = 1 << 21
_SEED: Final = 20


def detectable_users(strategy: Strategy[Any], trigger: int, probability: float = 0.95) -> int:
    """The smallest number of users of a key with which it is published at some trigger up to this one, with this probability.

    The users are new to the key at a steady rate from the window's first trigger to this one, and it is the first key that each
    of them brings (with strategies that rank keys: the first that is not published yet). A key whose users come late, or have
    brought other keys before, needs more users, and a key whose users come all at once fewer or more.
    Raises ConfigurationError where the strategy has no model of this, ValueError for a trigger outside 1..T. A key that is not
    declared never appears where `discover` is off: do not ask then.
    """
    return int(detectable_curve(strategy, probability)[checked(strategy, trigger) - 1])


@lru_cache(maxsize=32)
def detectable_curve(strategy: Strategy[Any], probability: float = 0.95) -> npt.NDArray[np.int64]:
    """int64[T]: `detectable_users` of every trigger."""
    if not 0 < probability < 1:
        raise ValueError(f"probability={probability}: must be between 0 and 1")
    if not strategy.plan.discover:
        raise ValueError("discover=False: keys that are not declared never appear")
    triggers = strategy.plan.triggers
    ends = np.arange(1, triggers + 1)
    rng = np.random.default_rng(_SEED)
    least = np.empty((DETECTION_KEYS, triggers), np.float32)
    rows = max(1, _NOISE_AT_ONCE // (2 * triggers))
    for begin in range(0, DETECTION_KEYS, rows):
        part = slice(begin, min(begin + rows, DETECTION_KEYS))
        rates = strategy.appearing(rng, part.stop - part.start)
        # The gate opens when more than minimum_users users have come.
        least[part] = np.minimum.accumulate(np.maximum(rates, (strategy.plan.minimum_users + 1) / ends), axis=1)
    least.sort(axis=0)
    at = min(DETECTION_KEYS - 1, int(np.ceil(probability * DETECTION_KEYS)) - 1)
    users: npt.NDArray[np.int64] = np.maximum(np.ceil(least[at] * ends * (1 - 1e-6)), 1).astype(np.int64)
    return users


def checked(strategy: Strategy[Any], trigger: int) -> int:
    """The trigger. Raises ValueError outside 1..T."""
    if not 1 <= trigger <= strategy.plan.triggers:
        raise ValueError(f"trigger={trigger}: must be 1 to {strategy.plan.triggers}")
    return trigger
