"""From samples of published rows to a lower bound on ε that holds with a stated confidence.

Flow: audit_scenarios.play (with, without the user) → features → `lower_bound`.
Nothing here knows the mechanism: half of the trials choose the most telling event, the other half are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

CONFIDENCE = 0.9999
"""Per bound; a run prints some twenty."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64] | int
"""Of many events at once, or of one."""


def clopper_pearson(hits: Ints, trials: int, confidence: float) -> tuple[Floats, Floats]:
    """One-sided exact bounds (lower, upper) on probabilities, each holding with `confidence`: float64 of the shape of hits."""
    slack, hits = 1 - confidence, np.asarray(hits)
    lower = np.where(hits == 0, 0.0, beta.ppf(slack, np.maximum(hits, 1), trials - hits + 1))
    upper = np.where(hits == trials, 1.0, beta.ppf(1 - slack, hits + 1, np.maximum(trials - hits, 1)))
    return lower, upper


def epsilon_bound(
    hits: Ints, trials: int, other_hits: Ints, other_trials: int, delta: float, confidence: float
) -> Floats:
    """Largest ε refuted by the counts: ln((P[E] - δ) / P'[E]) with both probabilities at their unfavourable bound."""
    slack = (1 - confidence) / 2
    lower = clopper_pearson(hits, trials, 1 - slack)[0] - delta
    upper = clopper_pearson(other_hits, other_trials, 1 - slack)[1]
    some = lower > 0
    return np.where(some, np.log(np.where(some, lower, 1.0) / upper), 0.0)


class Sample(Protocol):
    """N independent outputs. `features`: numbers of each; `flags`: events that may be distinguished; `names`: what those are."""

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, features]."""

    def flags(self) -> npt.NDArray[np.bool_]:
        """bool[N, flags]."""

    def names(self) -> list[str]:
        """One per flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What readers see in N trials: published bool[N, keys, T]; estimates float64[N, keys, T], 0 if unpublished.

    Of a strategy that calibrates the rows of T: evidence float64[N, ...], what that is made from, of published keys, because the
    promise is for that, too; calibrated bool[N], whether any row was changed by it. errors: float64[N, keys, T], the rows' standard
    errors, of one window that is played by itself.
    """

    published: npt.NDArray[np.bool_]
    estimates: npt.NDArray[np.float64]
    evidence: npt.NDArray[np.float64] | None = None
    calibrated: npt.NDArray[np.bool_] | None = None
    errors: npt.NDArray[np.float64] | None = None

    @classmethod
    def joined(cls, parts: "Sequence[Outputs]") -> "Outputs":
        """Of trials in which readers see several of them."""
        evidence = [part.evidence for part in parts if part.evidence is not None]
        calibrated = [part.calibrated for part in parts if part.calibrated is not None]
        return cls(
            published=np.concatenate([part.published for part in parts], axis=1),
            estimates=np.concatenate([part.estimates for part in parts], axis=1),
            evidence=np.concatenate(evidence, axis=1) if evidence else None,
            calibrated=np.any(calibrated, axis=0) if calibrated else None,
        )

    @classmethod
    def stacked(cls, parts: "Sequence[Outputs]") -> "Outputs":
        """The trials of one after those of the other."""
        evidence = [part.evidence for part in parts if part.evidence is not None]
        calibrated = [part.calibrated for part in parts if part.calibrated is not None]
        return cls(
            published=np.concatenate([part.published for part in parts]),
            estimates=np.concatenate([part.estimates for part in parts]),
            evidence=np.concatenate(evidence) if evidence else None,
            calibrated=np.concatenate(calibrated) if calibrated else None,
        )

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, 2 * keys * T], and the evidence."""
        size = len(self.published)
        seen = [self.estimates.reshape(size, -1), self.published.reshape(size, -1).astype(np.float64)]
        return np.concatenate(seen if self.evidence is None else [*seen, self.evidence], axis=1)

    def flags(self) -> npt.NDArray[np.bool_]:
        """bool[N, 1 + T]: something was ever published; something appeared for the first time at trigger t.

        One more where rows are calibrated: some were.
        """
        before = np.zeros_like(self.published)
        before[:, :, 1:] = np.maximum.accumulate(self.published, axis=2)[:, :, :-1]
        seen = [self.published.any(axis=(1, 2))[:, None], (self.published & ~before).any(axis=1)]
        if self.calibrated is not None:
            seen.append(self.calibrated[:, None])
        return np.concatenate(seen, axis=1)

    def names(self) -> list[str]:
        """What the flags say."""
        return [
            "something published",
            *(f"something new at trigger {t}" for t in range(1, self.published.shape[2] + 1)),
            *(["something calibrated"] if self.calibrated is not None else []),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`epsilon`: lower bound on ε at the claimed δ. `event`: the observed event, in words."""

    epsilon: float
    event: str


def lower_bound(with_user: Sample, without: Sample, delta: float, *, confidence: float = CONFIDENCE) -> Verdict:
    """Clopper-Pearson lower bound on ε from independent trials of two neighbouring inputs.

    Candidate events: each flag of the sample, its complement, and both sides of a linear score, the direction that
    separates the two means best under the pooled covariance (of the first half). The first half of the trials picks
    event, cut and direction (which of the inputs it is more likely under); the second half alone gives the bound.
    """
    a, b = with_user.features(), without.features()
    cut = len(a) // 2
    direction = _discriminant(a[:cut], b[:cut])
    scores = a @ direction, b @ direction
    flags = with_user.flags(), without.flags()
    events = _events(scores, flags, with_user.names(), cut)
    hits, other_hits = (np.array([event[at][:cut].sum() for event in events]) for at in (1, 2))
    # By event, and which of the inputs it is more likely under.
    bounds = np.stack(
        (
            epsilon_bound(hits, cut, other_hits, cut, delta, confidence),
            epsilon_bound(other_hits, cut, hits, cut, delta, confidence),
        ),
        axis=1,
    )
    best, swap = divmod(int(bounds.argmax()), 2)
    name, *both = events[best]
    first, second = (each[cut:] for each in (reversed(both) if swap else both))
    size = len(first)
    return Verdict(
        epsilon=float(epsilon_bound(int(first.sum()), size, int(second.sum()), size, delta, confidence)),
        event=name + (", more in the other input" if swap else ""),
    )


def _events(
    scores: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    flags: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    names: list[str],
    cut: int,
) -> list[tuple[str, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    a, b = scores
    found = []
    for value in np.unique(np.quantile(np.concatenate([a[:cut], b[:cut]]), np.linspace(0.002, 0.998, 120))):
        found.append((f"score > {value:.4g}", a > value, b > value))
        found.append((f"score <= {value:.4g}", a <= value, b <= value))
    for column, name in enumerate(names):
        found.append((name, flags[0][:, column], flags[1][:, column]))
        found.append(("not " + name, ~flags[0][:, column], ~flags[1][:, column]))
    return found


def _discriminant(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Fisher's direction, with a ridge so small that directions without any noise still stand out."""
    pooled = (np.cov(a, rowvar=False) + np.cov(b, rowvar=False)) / 2
    pooled = np.atleast_2d(pooled)
    ridge = 1e-9 * max(float(np.trace(pooled)) / len(pooled), 1e-12)
    direction: npt.NDArray[np.float64] = np.linalg.solve(
        pooled + ridge * np.eye(len(pooled)), a.mean(axis=0) - b.mean(axis=0)
    )
    return direction
