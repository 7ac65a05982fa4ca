"""Exact accounting of the Gaussian mechanism, and the largest effect of one user on several of them at once.

Everything a histogram publishes is post-processing of one multivariate Gaussian with a worst-case shift of mu standard
deviations, so delta(epsilon) is a closed form and nothing is lost to composition theorems.
Argument: docs/guarantees/composition.md; the independent oracle in the tests is dp-accounting (PLD).
"""

import math
from dataclasses import dataclass

from scipy.special import log_ndtr, ndtri_exp

from susurrus.mechanisms.errors import ConfigurationError

RELATIVE_SLACK = 1e-9
"""The relative amount by which a solved mu is reduced, far above the rounding error of `delta_gaussian`."""


def delta_gaussian(mu: float, epsilon: float) -> float:
    """delta_G(mu, eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), the exact trade-off of N(0,1) and N(mu,1).

    Source: Balle and Wang 2018, theorem 8. The difference is formed in logarithms: both terms may be far below 1e-300.
    """
    if mu <= 0:
        return 0.0
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if lower >= upper:
        return 0.0
    return math.exp(upper) * -math.expm1(lower - upper)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu with delta_gaussian(mu, epsilon) <= delta, rounded down by `RELATIVE_SLACK`.

    Raises ConfigurationError if the numbers leave no room.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise ConfigurationError(f"epsilon={epsilon}, delta={delta}: need epsilon > 0 and 0 < delta < 1; raise them")
    low, high = 0.0, 1.0
    while delta_gaussian(high, epsilon) <= delta:
        low, high = high, 2 * high
        if high > 1e6:
            raise ConfigurationError(f"epsilon={epsilon}, delta={delta}: no noise would be needed; lower them")
    for _ in range(200):
        middle = (low + high) / 2
        if delta_gaussian(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    if low <= 0:
        raise ConfigurationError(f"epsilon={epsilon}, delta={delta}: too small for float64; raise them")
    return low * (1 - RELATIVE_SLACK)


def mu_of_bounded_range(log_range: float) -> float:
    """The smallest mu such that a mechanism whose log probabilities change within a range of ``log_range`` is mu-GDP, rounded up.

    2 Phi^-1(e^(r/2) / (1 + e^(r/2))): for all neighbours, log(P'(o) / P(o)) over outcomes o lies in an interval of length r. The
    exponential mechanism is such a mechanism at r = epsilon. Raises ConfigurationError outside 1e-6..1000.
    Argument: docs/guarantees/quantile.md.
    """
    if not 1e-6 <= log_range <= 1000:
        raise ConfigurationError(f"epsilon={log_range}: need 1e-6 to 1000; choose another")
    half = log_range / 2
    # log(1 / (1 + e^half)), where e^half may be large
    return -2 * float(ndtri_exp(-half - math.log1p(math.exp(-half)))) * (1 + RELATIVE_SLACK)


def mu_of_pure(epsilon: float) -> float:
    """The smallest mu such that every epsilon-DP mechanism is mu-GDP, rounded up: its range is at most 2 epsilon."""
    return mu_of_bounded_range(2 * epsilon)


def tail_quantile(probability: float) -> float:
    """The z with P(N(0, 1) > z) = probability, for probabilities down to 1e-300, rounded up."""
    return -float(ndtri_exp(math.log(probability))) * (1 + 1e-12) + 1e-12


def squares(keys: int, records: int, per_key: int) -> int:
    """max sum r_k^2 over exactly `keys` keys with 1 <= r_k <= per_key and sum r_k <= records (records >= keys).

    If 1 <= a <= b < m, moving one record from the key with a to the key with b adds 2 (b - a + 1) > 0, so at most one
    key is strictly between 1 and m.
    """
    extra = min(records, keys * per_key) - keys
    if per_key == 1 or extra == 0:
        return keys
    full, rest = divmod(extra, per_key - 1)
    if full == keys:
        return keys * per_key**2
    return full * per_key**2 + (1 + rest) ** 2 + (keys - full - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What one user can bring in one window: records, records per key, distinct keys (None: no cap of their own)."""

    records: int
    records_per_key: int = 1
    keys: int | None = None


def joint_cost(caps: Caps, *, per_key: float = 0.0, per_square: float = 0.0) -> float:
    """mu^2 of everything one user moves: max over allocations r of sum_i per_key + per_square r_i^2.

    The maximum is over the allocations the caps allow. It is one maximum, not a sum of maxima: many distinct keys and many
    records on one key exclude each other.
    """
    most = caps.records if caps.keys is None else min(caps.keys, caps.records)
    best, held = 0.0, 0.0
    for distinct in range(1, most + 1):
        held += per_key  # added up one by one: the last bits are part of every sigma
        best = max(best, held + per_square * squares(distinct, caps.records, caps.records_per_key))
    return best
