"""What last_look_noise.py computes with: the plan, privacy losses of keys' noise, and densities in the place of a Gaussian."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize
from scipy.special import ndtr

from susurrus.mechanisms.accounting import delta_gaussian
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of

Floats = npt.NDArray[np.float64]
Potential = Callable[[Floats], Floats]
"""-log of a density, without its constant."""

TRIGGERS, RECORDS = 100, 32
BUDGETS = (6.0, 1e-9), (2.0, 1e-6), (1.0, 1e-6)
KEYS = 1, 2, 4, 8, 16
"""Of the numbers of keys, those that are tried for delta_G; the level takes all."""
STEP, LOSSES = 2.0**-10, 1 << 16
"""The grid of privacy losses: 64 wide, around 0."""
KNOTS = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0])
"""Between these the score of an optimized density is linear."""


@dataclass(frozen=True)
class Setting:
    """What the plan says, in users."""

    epsilon: float
    mu: float
    share: float
    """Of mu^2, what S has."""
    sigma: float
    """Of S today."""
    delta_t: float
    """What one user's keys at the boundary may be named with."""
    filter_weight: float
    filter_std: float
    filter_heights: Floats
    """What one user adds to M_T, by rank; 0 beyond the ranks."""
    level: float
    """Today's."""

    @classmethod
    def of(cls, epsilon: float, delta: float) -> "Setting":
        strategy = build_strategy(
            plan_of(
                strategy="closing",
                triggers=TRIGGERS,
                epsilon=epsilon,
                delta=delta,
                columns=(Column(name="users", kind="users"),),
                max_records=RECORDS,
            )
        )
        assert isinstance(strategy, Closing)
        look = strategy.look
        assert look is not None
        return cls(
            epsilon=epsilon,
            mu=strategy.guarantee.mu,
            share=strategy.describe()["shares"]["unknown"],
            sigma=look.unknown_sigma,
            delta_t=look.delta,
            filter_weight=look.filter_weight,
            filter_std=float(look.selector.matched_std[-1]),
            filter_heights=look.filter_heights,
            level=look.level,
        )

    @property
    def delta_g(self) -> float:
        return delta_gaussian(self.mu, self.epsilon)

    @property
    def rest(self) -> float:
        """m: mu of all but S."""
        return self.mu * math.sqrt(1 - self.share)

    def own(self, filter_weight: float) -> list[Floats]:
        """For each number of keys, what a user adds to the statistic of each."""
        keys = range(1, len(self.filter_heights) + 1)
        return [1 / math.sqrt(k) + filter_weight * self.filter_heights[:k] for k in keys]


class Noise:
    """A density by its potential, for numbers of its own scale: a symmetric one, on a fine grid."""

    def __init__(self, potential: Potential, reach: float = 16.0, points: int = 8001) -> None:
        self.potential, self.at = potential, np.linspace(-reach, reach, points)
        mass = np.exp(-(potential(self.at) - potential(np.zeros(1))))
        self.mass: Floats = mass / mass.sum()
        self.std = math.sqrt(float(self.mass @ self.at**2))

    def losses(self, shift: float) -> tuple[Floats, float]:
        """Return the distribution of the loss for this shift, zero loss first and circular, and what is beyond its end."""
        loss = (self.potential(self.at + shift) - self.potential(self.at)) / STEP
        top = LOSSES // 4
        beyond = float(self.mass[loss > top].sum())
        place = np.clip(loss, -top, top)
        low = np.floor(place).astype(np.int64)
        part, mass = place - low, np.where(loss > top, 0, self.mass)
        found = np.bincount(low % LOSSES, mass * (1 - part), LOSSES) + np.bincount(
            (low + 1) % LOSSES, mass * part, LOSSES
        )
        return found, beyond

    def delta(self, scale: float, setting: Setting) -> float:
        """delta_G where S has this noise, times `scale`."""
        return total([profile(*self.losses(1 / math.sqrt(keys) / scale), keys) for keys in KEYS], setting)

    def scale(self, setting: Setting) -> float:
        """The least one at today's delta_G."""
        guess = setting.sigma / self.std

        def excess(factor: float) -> float:
            return math.log(self.delta(guess * factor, setting) / setting.delta_g)

        return guess * float(brentq(excess, 0.7, 2.5, xtol=1e-5))

    def level(self, scale: float, setting: Setting) -> float:
        """The lowest at which the keys of one user pass with `delta_t`, for each number of keys."""
        std = setting.filter_weight * setting.filter_std

        def tail(needed: Floats) -> float:
            return float((ndtr((scale * self.at - needed[:, None]) / std) @ self.mass).sum())

        def excess(level: float) -> float:
            return math.log(max(tail(level - own) for own in setting.own(setting.filter_weight)) / setting.delta_t)

        return float(brentq(excess, 2.0, 3 * setting.level, xtol=1e-6))

    def lowest(self, share: float, scale: float, setting: Setting) -> float:
        """This quantile of the noise of the joint statistic."""
        std, high = setting.filter_weight * setting.filter_std, 20 * setting.sigma
        return float(brentq(lambda at: float(ndtr((at - scale * self.at) / std) @ self.mass) - share, -high, high))


def profile(one: Floats, beyond: float, keys: int) -> Floats:
    """Return delta(epsilon') of that many keys on `loss_grid`, from one key's losses by `Noise.losses` or `dominating`."""
    mass = np.fft.fftshift(np.fft.irfft(np.fft.rfft(one) ** keys, LOSSES))
    at = loss_grid()
    above = np.cumsum(mass[::-1])[::-1]
    weighed = np.cumsum((mass * np.exp(-at))[::-1])[::-1]
    found: Floats = above - np.exp(at) * weighed + keys * beyond
    return found


def total(profiles: list[Floats], setting: Setting) -> float:
    """delta_G of the rest and S, where an observer picks the worst of these profiles when the loss of the rest is known."""
    every = slice(None, None, 8)
    loss, m = setting.epsilon - loss_grid()[every], setting.rest
    weights = np.exp(-((loss / m - m / 2) ** 2) / 2) / math.sqrt(2 * math.pi) / m * (8 * STEP)
    return float(weights @ np.max(profiles, axis=0)[every])


def loss_grid() -> Floats:
    """float64[LOSSES]"""
    return (np.arange(LOSSES) - LOSSES // 2) * STEP


def gaussian(x: Floats) -> Floats:
    return x * x / 2


def subbotin(shape: float) -> Potential:
    """exp(-|x|^shape / shape): 1 Laplace, 2 Gaussian."""
    return lambda x: np.abs(x) ** shape / shape


def laplace_beside_gaussian(share: float) -> Potential:
    """A mixture: so much of a Laplace with the Gaussian's variance."""
    root = math.sqrt(2)

    def potential(x: Floats) -> Floats:
        normal = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return -np.log((1 - share) * normal + share * np.exp(-root * np.abs(x)) / root)

    return potential


def by_slopes(slopes: Floats) -> Potential:
    """A log-concave density whose score is linear between KNOTS, with these slopes; the last goes on."""
    starts = np.concatenate(([0.0], np.cumsum(slopes[:-1] * np.diff(KNOTS))))
    heights = np.concatenate(([0.0], np.cumsum((starts[:-1] + slopes[:-1] * np.diff(KNOTS) / 2) * np.diff(KNOTS))))

    def potential(x: Floats) -> Floats:
        distance = np.abs(x)
        piece = np.searchsorted(KNOTS, distance, side="right") - 1
        beyond = distance - KNOTS[piece]
        found: Floats = heights[piece] + beyond * (starts[piece] + slopes[piece] * beyond / 2)
        return found

    return potential


def optimized(setting: Setting) -> Noise:
    """The density of least level among those of `by_slopes`, as far as a simplex search finds it."""

    def level(logs: Floats) -> float:
        noise = Noise(by_slopes(np.exp(np.clip(logs, -4, 3))))
        try:
            return noise.level(noise.scale(setting), setting)
        except ValueError:
            return 10 * setting.level

    # From the Gaussian, in which all slopes are 1.
    simplex = np.vstack([np.zeros(len(KNOTS)), np.diag(np.full(len(KNOTS), 0.6))])
    options = {"initial_simplex": simplex, "maxfev": 250, "xatol": 0.01, "fatol": 1e-3}
    found = minimize(level, np.zeros(len(KNOTS)), method="Nelder-Mead", options=options)
    return Noise(by_slopes(np.exp(np.clip(found.x, -4, 3))))


def additive(setting: Setting) -> Iterator[tuple[str, Noise]]:
    yield "Gaussian", Noise(gaussian)
    for shape in (1.0, 1.5, 1.8, 2.2, 2.5, 3.0):
        yield f"exp(-|x|^{shape:g})", Noise(subbotin(shape), reach=40 if shape < 2 else 16)
    yield "Gaussian with 5 % Laplace", Noise(laplace_beside_gaussian(0.05), reach=30)
    yield "optimized", optimized(setting)
