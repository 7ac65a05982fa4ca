"""How many samples the statistical tests draw. A campaign draws ten times as many (SUSURRUS_SAMPLES=10)."""

import os

FACTOR = int(os.environ.get("SUSURRUS_SAMPLES", "1"))


def samples(number: int) -> int:
    """So many of them in `make test`; a threshold that depends on their number is computed from the result."""
    return number * FACTOR
