r"""PAK's parameters from public numbers only: p, lambda, r, the split of the failure probability, and m.

The paper minimises its bound on the error at step n (its equation 16) numerically.  The bound used here is in units of
the scale of an exponentially decaying tail, which is unknown and cancels:

.. math:: F = r\Big(\ln\frac1{\lambda p} + \frac{2\kappa Q\,e^{-1}}{a\,b\,\lambda p m}\Big)\,E_{tree}(n) + E_{tail}(n)

The first bracket is the size of tau: the lambda-p quantile plus the smooth sensitivity's share, where SS is estimated
by max_k k e^{-bk} / (lambda p m) = e^{-1} / (b lambda p m) (the paper's equation 19 has k d for k / d).  E_tree bounds
the sum of H Laplace draws, E_tail the cut-off mass of n values whose excess over r tau has moment generating function
1 + p^r h / (1 - h) (the paper's bound lacks p^r).  Constraints: lambda p m >= 1 and (e^b - 1) Q < a.

No data enter, so the optimiser costs no privacy.

Workers on different CPUs must find the same parameters, or a stream that is replayed elsewhere gets another theta from the
same noise.  exp and log differ there in their last bits.  So F is compared only with a margin, on a lattice of dyadic
numbers, and the parameters follow from the lattice point by operations that IEEE 754 rounds correctly.
"""

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.quantile import SmoothQuantile, exact_smoothness, textbook_smoothness

PENALTY = 50.0
"""The most that ln F may be: no bound worth having is e^50 times the tail's scale."""
TAIL_START = 0.005
"""The paper's p: beyond this quantile the tail is taken to decay at least exponentially."""
BETA = 0.02
"""Total probability that the bound on the error fails."""
THRESHOLD_SHARE = 0.85
"""epsilon_1 / epsilon; the paper has 0.8 to 0.9."""
MARGIN = 1e-9
"""How much ln F must fall for a move: rounding errors are a hundred thousand times smaller."""

_LOW, _HIGH = np.array([0.0, 1.0, -16.0, -16.0, -16.0]), np.array([7.0, 20.0, 16.0, 16.0, 16.0])
"""The lattice: halvings of p below tail_start, r, and doublings of the shares of beta but the first."""
_STARTS = ((0.0, 2.0), (1.0, 2.0), (3.0, 2.0))
_FIRST_STEP, _LAST_STEP = 2.0, 2.0**-9
_DIRECTIONS = np.array([d for d in itertools.product((-1.0, 0.0, 1.0), repeat=5) if any(d)])
_H = np.linspace(0.01, 0.99, 99)
_LOG_H, _ODDS_H = np.log1p(-(_H**2)), _H / (1 - _H)


@dataclass(frozen=True, slots=True, kw_only=True)
class PakParameters:
    """What the optimiser decides.  tail: lambda p.  inflation: r.  beta_tail: probability that tau is below the quantile.
    objective: F.
    """

    p: float
    tail: float
    inflation: float
    beta_tail: float
    objective: float


def sampling_failure(holdout: int, p: float, tail: float) -> float:
    """Return the chance that the released rank lies below the true (1-p)-quantile: P[Bin(m, p) <= lambda p m].

    At most that many of m values exceed the quantile although p m are expected (the paper's equation 5, inclusive).
    """
    return float(binom.cdf(math.floor(tail * holdout), holdout, p))


def tree_error(leaves: int, epsilon: float, beta: npt.ArrayLike) -> Floats:
    """Return bounds on |sum of H Laplace(H / epsilon)| that fail with probability at most beta, unit theta: float64[...].

    Chernoff: for |h| < 1 / s, E e^{hX} = (1 - h^2 s^2)^-H; the bound is minimised over h on a fine grid.
    """
    levels = leaves.bit_length()
    exponents = (np.log(2 / np.asarray(beta))[..., None] - levels * _LOG_H) / _H
    return np.asarray(exponents.min(axis=-1) * levels / epsilon)


def tail_error(count: int, p: npt.ArrayLike, inflation: npt.ArrayLike, beta: npt.ArrayLike) -> Floats:
    """Return bounds on the cut-off mass of ``count`` values that fail with probability at most beta: float64[...].

    Unit: the tail's scale.
    """
    weight = count * np.asarray(p, dtype=np.float64) ** np.asarray(inflation)
    exponents = (np.log(1 / np.asarray(beta))[..., None] + weight[..., None] * _ODDS_H) / _H
    return np.where(weight > 1e-12, exponents.min(axis=-1), 0.0)


def optimise(
    *, epsilon: float, delta: float, holdout: int, horizon: int, exact: bool = False, tail_start: float = TAIL_START
) -> PakParameters:
    """Return the parameters that minimise F, by a pattern search over p, r and the shares of beta.

    All but the objective are the same on every machine.  exact: use the largest smoothness that delta allows.
    tail_start: upper limit of p; the public assumption is that the tail decays at least exponentially from there on.
    Raises: ConfigurationError if no point meets the constraints.
    """
    epsilon_1 = THRESHOLD_SHARE * epsilon
    smoothness = exact_smoothness(epsilon_1, delta) if exact else textbook_smoothness(epsilon_1, delta)
    divisor = epsilon_1 / 2

    def objective(points: Floats) -> Floats:
        p, inflation, (beta_sample, beta_tail, beta_noise, beta_cut) = _unpacked(points, tail_start)
        spread = 2 * np.log(1 / beta_sample) / (p * holdout)
        slack = 1 - np.sqrt(spread)  # lambda by Chernoff: smooth in p, and below the exact one
        offset = -np.log(2 * np.minimum(beta_tail, 0.49))
        margin = 1 - math.expm1(smoothness) * offset / divisor
        # Outside the constraints the objective is continued upwards, so that the search can find its way back.
        excess = sum(np.maximum(0.0, of) for of in (0.05 - slack, 0.05 - margin, 2 - slack * p * holdout))
        slack, margin = np.maximum(slack, 0.05), np.maximum(margin, 0.05)
        tail = slack * p
        size = np.log(1 / tail) + 2 * offset / (margin * divisor * smoothness * math.e * tail * holdout)
        noise = inflation * size * tree_error(horizon - holdout, epsilon, beta_noise)
        return np.asarray(np.log(noise + tail_error(horizon, p, inflation, beta_cut)) + 100 * PENALTY * excess)

    point, least = _lowest(objective)
    p, inflation, (beta_sample, beta_tail, _, _) = (np.asarray(part).tolist() for part in _unpacked(point, tail_start))
    rank = _rank(holdout, p, beta_sample)
    if least >= PENALTY or rank < 1 or math.expm1(smoothness) * -math.log(2 * beta_tail) >= divisor:
        raise ConfigurationError(
            f"holdout={holdout} epsilon={epsilon} delta={delta}: no parameters meet PAK's constraints; hold out more "
            "values, or raise tail_start"
        )
    return PakParameters(p=p, tail=rank / holdout, inflation=inflation, beta_tail=beta_tail, objective=math.exp(least))


def _unpacked(points: Floats, tail_start: float) -> tuple[Floats, Floats, Floats]:
    """Return p, r and the four parts of beta float64[4, ...] of float64[..., 5] points, to the bit.

    2^x is taken to be linear between powers of two: no logarithm or exponential is in it.
    """
    whole = np.floor(points)
    powers = np.moveaxis(np.ldexp(1 + (points - whole), whole.astype(np.int64)), -1, 0)
    shares = np.stack([np.ones_like(powers[0]), *powers[2:]])
    total = ((shares[0] + shares[1]) + shares[2]) + shares[3]  # NumPy's sum may add in another order elsewhere
    halvings = points[..., 0]
    below = np.ceil(halvings)
    p = tail_start * np.ldexp(1 + (below - halvings), -below.astype(np.int64))
    return p, points[..., 1], BETA * shares / total


def _lowest(objective: Callable[[Floats], Floats]) -> tuple[Floats, float]:
    """Return the lattice point float64[5] with the least ln F that the search finds, and that ln F.

    A step goes to the lowest of all neighbours, the first of those that are equal within the margin.  Where none is lower
    by the margin, the step is halved.
    """
    best: tuple[Floats, float] | None = None
    for start in _STARTS:
        point = np.array([*start, 0.0, 0.0, 0.0])
        least, step = float(objective(point[None])[0]), _FIRST_STEP
        while step >= _LAST_STEP:
            around = np.clip(point + step * _DIRECTIONS, _LOW, _HIGH)
            values = objective(around)
            lowest = int(np.argmax(values <= values.min() + MARGIN))
            if values[lowest] < least - MARGIN:
                point, least = around[lowest], float(values[lowest])
            else:
                step /= 2
        if best is None or least < best[1] - MARGIN:
            best = point, least
    assert best is not None
    return best


def _rank(holdout: int, p: float, beta: float) -> int:
    """Return how many values may lie above the released one: the most whose chance of failure is at most beta.

    Only this chance decides, whose neighbours are percents apart; where SciPy's inverse begins does not matter.
    """
    rank = int(binom.ppf(beta, holdout, p))
    while sampling_failure(holdout, p, (rank + 1) / holdout) <= beta:
        rank += 1
    while rank > 0 and sampling_failure(holdout, p, rank / holdout) > beta:
        rank -= 1
    return rank


def build(
    *,
    bound: int,
    epsilon: float,
    delta: float,
    holdout: int,
    horizon: int,
    exact: bool = False,
    tail_start: float = TAIL_START,
) -> Pak:
    """Return PAK with optimised parameters."""
    chosen = optimise(
        epsilon=epsilon, delta=delta, holdout=holdout, horizon=horizon, exact=exact, tail_start=tail_start
    )
    threshold = SmoothQuantile(
        bound=bound,
        epsilon=THRESHOLD_SHARE * epsilon,
        delta=delta,
        holdout=holdout,
        tail=chosen.tail,
        beta_tail=chosen.beta_tail,
        inflation=chosen.inflation,
        exact=exact,
    )
    return Pak(threshold=threshold, epsilon=epsilon, horizon=horizon)


def holdout_for_accuracy(*, epsilon: float, delta: float, tail: float, share: float = 0.1) -> int:
    """First heuristic: the least m at which the smooth sensitivity adds at most ``share`` to tau's quantile.

    SS is about e^{-1} / (b tail m) in units of the tail's scale and the quantile ln(1 / tail), so m follows in closed
    form.
    """
    smoothness, divisor = textbook_smoothness(epsilon, delta), epsilon / 2
    return math.ceil(1 / (math.e * smoothness * divisor * tail * share * math.log(1 / tail)))


def holdout_for_stream(*, epsilon: float, delta: float, horizon: int, largest_share: float = 0.1) -> int:
    """Second heuristic: the m, among powers of two up to a share of n, with the least bound on the error at step n."""
    costs: dict[float, int] = {}
    power = 256
    while power <= max(256, largest_share * horizon):
        with suppress(ConfigurationError):
            found = optimise(epsilon=epsilon, delta=delta, holdout=power, horizon=horizon)
            costs.setdefault(found.objective * horizon / (horizon - power), power)
        power *= 2
    if not costs:
        raise ConfigurationError(
            f"horizon={horizon} epsilon={epsilon}: no holdout gives a private threshold; raise the horizon or epsilon"
        )
    return costs[min(costs)]
