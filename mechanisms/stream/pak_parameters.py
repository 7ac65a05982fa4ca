r"""PAK's parameters from public numbers only: p, lambda, r, the split of the failure probability, and m.

The paper minimises its bound on the error at step n (its equation 16) numerically.  The bound used here is in units of
the scale of an exponentially decaying tail, which is unknown and cancels:

.. math:: F = r\Big(\ln\frac1{\lambda p} + \frac{2\kappa Q\,e^{-1}}{a\,b\,\lambda p m}\Big)\,E_{tree}(n) + E_{tail}(n)

The first bracket is the size of tau: the lambda-p quantile plus the smooth sensitivity's share, where SS is estimated
by max_k k e^{-bk} / (lambda p m) = e^{-1} / (b lambda p m) (the paper's equation 19 has k d for k / d).  E_tree bounds
the sum of H Laplace draws, E_tail the cut-off mass of n values whose excess over r tau has moment generating function
1 + p^r h / (1 - h) (the paper's bound lacks p^r).  Constraints: lambda p m >= 1 and (e^b - 1) Q < a.

No data enter, so the optimiser costs no privacy.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
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


def tree_error(leaves: int, epsilon: float, beta: float) -> float:
    """Return a bound on |sum of H Laplace(H / epsilon)| that fails with probability at most beta, unit theta.

    Chernoff: for |h| < 1 / s, E e^{hX} = (1 - h^2 s^2)^-H; the bound is minimised over h on a fine grid.
    """
    levels = leaves.bit_length()
    h = np.linspace(0.01, 0.99, 99)
    exponents = (math.log(2 / beta) - levels * np.log1p(-(h**2))) / h
    return float(exponents.min()) * levels / epsilon


def tail_error(count: int, p: float, inflation: float, beta: float) -> float:
    """Return a bound on the cut-off mass of ``count`` values that fails with probability at most beta.

    Unit: the tail's scale.
    """
    weight = count * p**inflation
    h = np.linspace(0.01, 0.99, 99)
    return float(((math.log(1 / beta) + weight * h / (1 - h)) / h).min()) if weight > 1e-12 else 0.0


def optimise(
    *, epsilon: float, delta: float, holdout: int, horizon: int, exact: bool = False, tail_start: float = TAIL_START
) -> PakParameters:
    """Return the parameters that minimise F, by SciPy's TNC on (ln p, r, shares of beta).

    exact: use the largest smoothness that delta allows.  tail_start: upper limit of p; the public assumption is that the
    tail decays at least exponentially from there on.  Raises: ConfigurationError if no point meets the constraints.
    """
    epsilon_1 = THRESHOLD_SHARE * epsilon
    smoothness = exact_smoothness(epsilon_1, delta) if exact else textbook_smoothness(epsilon_1, delta)
    divisor = epsilon_1 / 2

    def unpacked(x: Floats) -> tuple[float, float, Floats]:
        shares = np.exp(x[2:] - x[2:].max())
        return min(math.exp(x[0]), tail_start), float(x[1]), BETA * shares / shares.sum()

    def objective(x: Floats) -> float:
        p, inflation, (beta_sample, beta_tail, beta_noise, beta_cut) = unpacked(x)
        spread = 2 * math.log(1 / beta_sample) / (p * holdout)
        slack = 1 - math.sqrt(spread)  # lambda by Chernoff: smooth in p, and below the exact one
        offset = -math.log(2 * min(beta_tail, 0.49))
        margin = 1 - math.expm1(smoothness) * offset / divisor
        # Outside the constraints the objective is continued upwards, so that TNC can find its way back.
        penalty = 100 * PENALTY * (max(0.0, 0.05 - slack) + max(0.0, 0.05 - margin) + max(0.0, 2 - slack * p * holdout))
        slack, margin = max(slack, 0.05), max(margin, 0.05)
        tail = slack * p
        size = math.log(1 / tail) + 2 * offset / (margin * divisor * smoothness * math.e * tail * holdout)
        noise = inflation * size * tree_error(horizon - holdout, epsilon, beta_noise)
        return math.log(noise + tail_error(horizon, p, inflation, beta_cut)) + penalty

    best: tuple[float, Floats] | None = None
    for p in (tail_start, tail_start / 2, tail_start / 8):
        start = np.array([math.log(p), max(1.0, math.log(horizon) / -math.log(p)), 0.0, 0.0, 0.0, 0.0])
        bounds = [(math.log(tail_start / 100), math.log(tail_start)), (1.0, 20.0), *[(-6.0, 6.0)] * 4]
        found = minimize(objective, start, method="TNC", bounds=bounds, options={"maxfun": 3000})
        if best is None or found.fun < best[0]:
            best = (float(found.fun), np.asarray(found.x))
    assert best is not None
    feasible = best[0] < PENALTY
    p, inflation, (beta_sample, beta_tail, _, _) = unpacked(best[1])
    rank = int(binom.ppf(beta_sample, holdout, p))
    while rank > 0 and sampling_failure(holdout, p, rank / holdout) > beta_sample:
        rank -= 1
    tail = rank / holdout
    if not feasible or rank < 1 or math.expm1(smoothness) * -math.log(2 * beta_tail) >= divisor:
        raise ConfigurationError(
            f"holdout={holdout} epsilon={epsilon} delta={delta}: no parameters meet PAK's constraints; hold out more "
            "values, or raise tail_start"
        )
    return PakParameters(p=p, tail=tail, inflation=inflation, beta_tail=float(beta_tail), objective=math.exp(best[0]))


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
