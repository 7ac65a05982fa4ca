"""How many samples the statistical tests draw, and how many odd records others. A campaign draws more (SUSURRUS_SAMPLES=10)."""

import os

import numpy as np

from susurrus.mechanisms.local.randomness import Words

FACTOR = int(os.environ.get("SUSURRUS_SAMPLES", "1"))


def samples(number: int) -> int:
    """So many of them in `make test`; a threshold that depends on their number is computed from the result."""
    return number * FACTOR


def many_odd(number: int) -> int:
    """So many odd records in `make check`, and five times as many in a campaign. The test is marked ``fuzz``."""
    return number * min(FACTOR, 5)


def seeded(seed: int) -> Words:
    """Random words for the local mechanisms, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return lambda n: rng.integers(0, 2**64, n, dtype=np.uint64)
