"""The audit of local privacy: what one report reveals about its value.

Neighbours are any two values of one device; δ is 0. The audit tests the randomisers themselves, in two ways:

- `enumerated`: on a machine whose words have 7 bits and on grids of a few cells, every word is tried for every value. This
  gives the exact distribution, and its ε: ln of the largest ratio that any report has between any two values.
- `sampled`: on the real grid of 2^32 cells, reports of two values are drawn; audit_statistics bounds ε from below.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_statistics import Verdict, lower_bound

from susurrus.mechanisms.local import hybrid, randomness, window
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.randomness import Words, exp_below
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.mechanisms.local.window import GRID, WindowMechanism

REAL = "none"
DEFECTS = {
    "off by one bucket": "a report outside the window skips one cell too few",
    "window too likely": "the window's probability is one unit above the largest that keeps the ratio",
    "coin looks at the value": "large values are reported by the piecewise mechanism half as often",
}
EPSILON = 1.0
BUCKETS = 48
_WORD_BITS = 7
_CELLS, _WIDTH = 12, 4
_HYBRID_BITS = 3

Codes = npt.NDArray[np.int64]
Report = Callable[[float, int, Words], Codes]
"""(value as a fraction of the bound, number of reports, words) -> int64[number] codes."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Codes of N reports of one value, 0..2 GRID, as a sample for audit_statistics."""

    codes: Codes

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, 2]: the code as a fraction of the grid, and whether it is a bit."""
        return np.stack([np.minimum(self.codes, GRID) / GRID, self.codes >= GRID], axis=1).astype(np.float64)

    def flags(self) -> npt.NDArray[np.bool_]:
        """bool[N, buckets + 3]: the part of the grid a code lies in; a bit; each of the bits."""
        bucket = np.minimum(self.codes * BUCKETS >> 32, BUCKETS)
        shown = bucket[:, None] == np.arange(BUCKETS + 1)
        return np.concatenate([shown, self.codes[:, None] == GRID + np.arange(2)], axis=1)

    def names(self) -> list[str]:
        """What the flags say."""
        return [f"part {i} of {BUCKETS}" for i in range(BUCKETS)] + ["a bit", "bit 0", "bit 1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One randomiser. `report`: as it is used; `exposes`: the defects it can have.

    `calls`: how many words a report takes at a time, for the small machine; empty: reports are sampled.
    """

    what: str
    report: Report
    exposes: tuple[str, ...]
    calls: tuple[int, ...] = ()


def _small_window(fraction: float, number: int, words: Words) -> Codes:
    window = WindowMechanism(EPSILON, _WIDTH, _CELLS)
    return window.randomise(window.position(np.full(number, fraction)), words)


def _small_window_one_by_one(fraction: float, number: int, words: Words) -> Codes:
    window = WindowMechanism(EPSILON, _WIDTH, _CELLS)
    position = int(window.position(np.array([fraction]))[0])
    drawn = words(2 * number).reshape(2, number)
    draws = (iter(pair) for pair in drawn.T.tolist())
    return np.array([window.randomise_one(position, lambda pair=pair: next(pair)) for pair in draws], np.int64)  # type: ignore[misc]


def _mixture(alpha: float) -> Report:
    return lambda fraction, number, words: Hybrid(EPSILON, alpha).randomise(np.full(number, fraction), words)


def _wave(fraction: float, number: int, words: Words) -> Codes:
    return SquareWave(EPSILON, 1.0).randomise(np.full(number, fraction), words)


CASES = {
    "window, every word": Case(
        what="the window mechanism",
        report=_small_window,
        exposes=("off by one bucket", "window too likely"),
        calls=(2,),
    ),
    "window of one device, every word": Case(
        what="its scalar twin, which devices call",
        report=_small_window_one_by_one,
        exposes=("off by one bucket", "window too likely"),
        calls=(2,),
    ),
    "mixture, every word": Case(
        what="the hybrid mechanism of phase 2",
        report=_mixture(0.5),
        exposes=("coin looks at the value",),
        calls=(1, 2, 1),
    ),
    "phase 1, sampled": Case(what="Square Wave", report=_wave, exposes=()),
    "phase 2, sampled": Case(
        what="the hybrid mechanism of phase 2",
        report=_mixture(hybrid.hybrid_alpha(EPSILON)),
        exposes=("coin looks at the value",),
    ),
}


@contextmanager
def small_machine() -> Iterator[None]:
    """Words of 7 bits, and grids that fit them."""
    word = 1 << _WORD_BITS
    with ExitStack() as stack:
        for module in (window, randomness, hybrid):
            stack.enter_context(patch.object(module, "WORD", word))
        stack.enter_context(patch.object(hybrid, "GRID_BITS", _HYBRID_BITS))
        stack.enter_context(patch.object(hybrid, "GRID", 1 << _HYBRID_BITS))
        cells = 1 << _HYBRID_BITS
        stack.enter_context(
            patch.object(hybrid, "piecewise", lambda epsilon: WindowMechanism(epsilon, cells // 2, cells))
        )
        yield


@contextmanager
def planted(defect: str) -> Iterator[None]:
    """The randomisers with one fault."""
    with ExitStack() as stack:
        if defect == "off by one bucket":
            many, one = WindowMechanism.randomise, WindowMechanism.randomise_one

            def short(window: WindowMechanism, position: Codes, words: Words) -> Codes:
                code = many(window, position, words)
                return np.where(code == position + window.width, position, code)

            def short_one(window: WindowMechanism, position: int, draw: Callable[[], int]) -> int:
                code = one(window, position, draw)
                return position if code == position + window.width else code

            stack.enter_context(patch.object(WindowMechanism, "randomise", short))
            stack.enter_context(patch.object(WindowMechanism, "randomise_one", short_one))
        if defect == "window too likely":
            exact = WindowMechanism.inside.func  # type: ignore[attr-defined]
            stack.enter_context(
                patch.object(WindowMechanism, "inside", property(cache(lambda window: exact(window) + 1)))
            )
        if defect == "coin looks at the value":
            mix = Hybrid.randomise

            def peeking(hybrid: Hybrid, fraction: npt.NDArray[np.float64], words: Words) -> Codes:
                share = hybrid.alpha if fraction[0] < 0.5 else hybrid.alpha / 2
                return mix(Hybrid(hybrid.epsilon, share), fraction, words)

            stack.enter_context(patch.object(Hybrid, "randomise", peeking))
        yield


def every_word(calls: tuple[int, ...]) -> Words:
    """Words that go through all possible sequences. calls: how many words a report takes at each call, in order.

    A first call for one word is the coin; the words after it go to the reports by the coin's outcome, so that each outcome has all
    sequences of two words behind it, as often as the coin says.
    """
    size, coming = np.uint64(1 << _WORD_BITS), list(calls)

    def words(count: int) -> npt.NDArray[np.uint64]:
        coin, each = len(coming) > 2, coming.pop(0)
        place = np.arange(count // each, dtype=np.uint64)
        if coin:
            return place // (size * size)
        pair = place % (size * size)
        return pair % size if each == 1 else np.concatenate([pair // size, pair % size])

    return words


def exact_distribution(report: Report, fraction: float, calls: tuple[int, ...]) -> dict[int, int]:
    """Code -> number of word sequences that give it. Call it on the `small_machine`."""
    number = (1 << _WORD_BITS) ** max(2, len(calls))
    codes, counts = np.unique(report(fraction, number, every_word(calls)), return_counts=True)
    return dict(zip(codes.tolist(), counts.tolist(), strict=True))


def enumerate_case(case: Case, defect: str) -> tuple[Verdict, bool]:
    """(ε of the distribution and the report that shows it, whether it exceeds the claim: compared as fractions)."""
    steps = _CELLS - _WIDTH
    assert steps == 1 << _HYBRID_BITS  # one grid of values serves both
    with small_machine(), planted(defect):
        distributions = [exact_distribution(case.report, step / steps, case.calls) for step in range(steps + 1)]
    worst, event = Fraction(1), "none"
    for code in {code for distribution in distributions for code in distribution}:
        counts = [distribution.get(code, 0) for distribution in distributions]
        if min(counts) == 0:
            return Verdict(epsilon=math.inf, event=f"code {code} comes from some values only"), True
        ratio = Fraction(max(counts), min(counts))
        if ratio > worst:
            worst, event = ratio, f"code {code}"
    return Verdict(epsilon=math.log(worst), event=event), worst > exp_below(EPSILON)


def sample_case(case: Case, defect: str, *, trials: int, seed: int) -> Verdict:
    """From reports of the smallest and of the largest value."""
    samples = []
    with planted(defect):
        for value in (0.0, 1.0):
            rng = np.random.default_rng([seed, int(value)])

            def words(count: int, rng: np.random.Generator = rng) -> npt.NDArray[np.uint64]:
                return rng.integers(0, 1 << 64, count, dtype=np.uint64)

            samples.append(Reports(case.report(value, trials, words)))
    return lower_bound(*samples, delta=0.0)
