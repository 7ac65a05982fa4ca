"""How often a key that no other user brought is named: at most beta per key over the whole window, and what breaks that.

beta is made large enough to be measured. A boundary key has one user more than the gate demands, placed where it
hurts most. Each broken variant must exceed beta clearly, so the tests can fail.
"""

from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.histogram.factorization import power
from susurrus.mechanisms.histogram.per_key import Histories
from susurrus.mechanisms.histogram.selection import SelectionOutcome, Selector
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from tests.samples import samples

TRIGGERS, BETA, SIGMA, KEYS = 16, 0.05, 2.0, samples(20_000)
SHAPES = {"toeplitz": (0.5, 20, 0), "ranked": (0.65, 16, 12)}


def window() -> WindowNoise:
    return NoiseSource(b"selection" * 4, epoch=b"e", config=b"c", pipeline="p").window(0)


def make(shape: str, *, beta: float = BETA, minimum_users: int = 0, sigma: float = SIGMA) -> Selector:
    exponent, bits, unit_bits = SHAPES[shape]
    f = power(TRIGGERS, exponent, bits)
    heights = np.ones(TRIGGERS, np.int64)
    if unit_bits:
        columns = np.array([float(square) for square in f.column_squares])
        heights = np.floor(0.5 * 2.0**unit_bits * np.sqrt(columns[0] / columns)).astype(np.int64)
    return Selector(f, sigma=sigma, unit_bits=unit_bits, heights=heights, minimum_users=minimum_users, beta=beta)


def height_at(shape: str, trigger: int) -> int:
    """Weight of one user at a trigger, 2^-20 units."""
    exponent, bits, unit_bits = SHAPES[shape]
    if not unit_bits:
        return 1 << 20
    columns = [float(square) for square in power(TRIGGERS, exponent, bits).column_squares]
    return int(0.5 * 2.0**unit_bits * np.sqrt(columns[0] / columns[trigger - 1])) << (20 - unit_bits)


def named(
    selector: Selector, shape: str, arrivals: list[int], keys: int = KEYS, **broken: Any
) -> npt.NDArray[np.bool_]:
    """Which keys are selected at any trigger, when a user arrives at each of `arrivals`; every trigger is tested."""
    noise = window()
    labels = noise.labels("m", [b"%d" % i for i in range(keys)])
    ever = np.zeros(keys, np.bool_)
    for trigger in range(arrivals[-1], TRIGGERS + 1):
        here = [(t, height_at(shape, t)) for t in arrivals]
        history = Histories(
            indptr=np.arange(keys + 1) * len(here),
            when=np.tile(np.array([t for t, _ in here], np.int32), keys),
            weight=np.tile(np.array([w for _, w in here]), keys),
        )
        outcome = selector.evaluate(trigger, labels, history, noise)
        ever |= outcome.selected
    return ever


def exceeds(hits: int, keys: int, beta: float) -> float:
    """Log of the p-value of the hypothesis that a key is named with probability at most beta."""
    return float(stats.binom.logsf(hits - 1, keys, beta))


CERTAIN, DOUBT = -25.0, -8.0


@pytest.mark.statistical
class TestBoundaryKeys:
    @pytest.mark.parametrize("arrival", [1, TRIGGERS // 2, TRIGGERS])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_named_at_most_beta(self, shape: str, arrival: int) -> None:
        hits = int(named(make(shape), shape, [arrival]).sum())
        assert exceeds(hits, KEYS, BETA) > DOUBT
        if arrival == 1:
            assert hits > BETA * KEYS / 5, "a union bound this loose would waste the budget"

    @pytest.mark.parametrize("shape", SHAPES)
    def test_gate_above_one_user(self, shape: str) -> None:
        hits = int(named(make(shape, minimum_users=2), shape, [1, 1, 3]).sum())
        assert exceeds(hits, KEYS, BETA) > DOUBT

    @pytest.mark.parametrize("shape", SHAPES)
    def test_without_the_boundary_height_beta_is_exceeded(self, shape: str) -> None:
        """Forgetting the +1 (and mu): thresholds made for a key without users."""
        selector = make(shape, minimum_users=0, sigma=0.7)
        honest = int(named(selector, shape, [1]).sum())
        assert exceeds(honest, KEYS, BETA) > DOUBT
        exponent, bits, unit_bits = SHAPES[shape]
        broken = Selector(
            power(TRIGGERS, exponent, bits),
            sigma=0.7,
            unit_bits=unit_bits,
            heights=np.zeros(TRIGGERS, np.int64),
            minimum_users=0,
            beta=BETA,
        )
        assert exceeds(int(named(broken, shape, [1]).sum()), KEYS, BETA) < CERTAIN

    @pytest.mark.parametrize("shape", SHAPES)
    def test_without_the_union_over_triggers_beta_is_exceeded(self, shape: str) -> None:
        broken = make(shape, beta=BETA * 2 * TRIGGERS)  # one test alone may fail with probability beta
        assert broken.quantile == tail_quantile(BETA)
        assert exceeds(int(named(broken, shape, [1]).sum()), KEYS, BETA) < CERTAIN

    @pytest.mark.parametrize("shape", SHAPES)
    def test_noise_larger_than_the_thresholds_assume_is_seen(self, shape: str) -> None:
        """Thresholds for sigma against noise of sqrt(2) sigma."""
        selector, wrong = make(shape), make(shape, sigma=SIGMA / np.sqrt(2))
        selector._threshold, selector._filter_threshold = wrong._threshold, wrong._filter_threshold
        assert exceeds(int(named(selector, shape, [1]).sum()), KEYS, BETA) < CERTAIN

    def test_the_two_tests_are_both_needed(self) -> None:
        """A steady key needs fewer users than a burst passes with; a late burst is seen by the first test only."""
        selector = make("toeplitz", beta=1e-6, sigma=6.0)
        level, matched_level = int(selector.level[-1]), int(selector.matched_level[-1])
        steady = sorted(1 + i % TRIGGERS for i in range((level + matched_level) // 2))
        burst = [TRIGGERS] * (level + 3)
        instantaneous, matched = selector._threshold.copy(), selector._filter_threshold.copy()
        rates = {}
        for name, first, second in (("both", 0, 0), ("only first", 0, 1), ("only second", 1, 0)):
            selector._threshold = instantaneous + first * (1 << 40)
            selector._filter_threshold = matched + second * (1 << 58)
            rates[name] = [float(named(selector, "toeplitz", shape, 2000).mean()) for shape in (steady, burst)]
        assert rates["only second"][0] > rates["only first"][0] + 0.2
        assert rates["only first"][1] > rates["only second"][1] + 0.2
        assert min(rates["both"]) > 0.3


class TestSkipIndex:
    """need and due against all later tests, one by one."""

    @pytest.mark.parametrize("shape", SHAPES)
    def test_due_is_the_first_success_and_need_is_never_too_high(self, shape: str) -> None:
        selector, noise, keys = make(shape, beta=1e-4), window(), 400
        labels = noise.labels("m", [b"%d" % i for i in range(keys)])
        rng = np.random.default_rng(2)
        counts = rng.integers(1, 9, keys)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        when = np.concatenate([np.sort(rng.integers(1, 5, c)) for c in counts]).astype(np.int32)
        weight = np.array([height_at(shape, t) for t in when])
        total = np.array([weight[a:b].sum() for a, b in pairwise(indptr.tolist())])
        history = Histories(indptr=indptr, when=when, weight=weight)

        def test(trigger: int) -> SelectionOutcome:
            return selector.evaluate(trigger, labels, history, noise)

        now = test(4)
        later = np.stack([test(t).selected for t in range(5, TRIGGERS + 1)], axis=1)
        first = np.where(later.any(axis=1), 5 + later.argmax(axis=1), TRIGGERS + 1)
        waiting = ~now.selected
        assert np.array_equal(now.due[waiting], first[waiting])
        assert len(set(first[waiting].tolist())) > 3
        assert not later[(total < now.need) & waiting].any()
        # Not so low that nothing is skipped, and no key may be skipped that a burst at the next trigger could select.
        assert (total < now.need).mean() > 0.2
        unit = 1 << selector._drop
        lift, z = (
            selector.decoder.fraction_bits,
            noise.normal(labels, 1, TRIGGERS, sigma=selector.sigma, bits=selector.noise_bits),
        )
        missing = selector._threshold[4:] - selector.decoder.rounded(z, 5, TRIGGERS)
        assert (now.need <= np.ceil(missing.min(axis=1) / 2.0 ** (lift - 20 + selector._drop)) * unit + unit).all()

    def test_nothing_is_due_after_the_last_trigger(self) -> None:
        selector, noise = make("toeplitz"), window()
        labels = noise.labels("m", [b"k"])
        history = Histories.empty(1).plus(1, np.array([1 << 20]))
        outcome = selector.evaluate(TRIGGERS, labels, history, noise)
        assert outcome.due.tolist() == [TRIGGERS + 1]

    def test_no_candidates(self) -> None:
        outcome = make("toeplitz").evaluate(1, window().labels("m", []), Histories.empty(0), window())
        assert len(outcome.selected) == len(outcome.need) == len(outcome.due) == 0


@pytest.mark.parametrize(("triggers", "sigma", "minimum_users"), [(1000, 10.0, 0), (1000, 5000.0, 10**6), (1, 3.0, 0)])
def test_sixty_four_bits_are_enough(triggers: int, sigma: float, minimum_users: int) -> None:
    """The matched filter with the largest conceivable noise and weight, in Python integers."""
    f = power(triggers, 0.5, 20)
    selector = Selector(
        f, sigma=sigma, unit_bits=0, heights=np.ones(triggers, np.int64), minimum_users=minimum_users, beta=1e-11
    )
    largest = int(13.2 * sigma * 2**20) * sum(selector._filter.tolist())
    reach = (int(selector._threshold.max()) >> 10) + int(13.2 * sigma * float(f.row1[-1])) + 1
    weight = max(reach, minimum_users + 1) * int(selector._gain.max())
    assert largest + weight + int(selector._filter_threshold.max()) < 1 << 63
    assert selector._filter.min() >= 1


@pytest.mark.parametrize("largest_weight", [3, 1 << 20, 1 << 28], ids=["units", "near the limit", "beyond the limit"])
def test_the_filter_by_limbs_is_the_filter(largest_weight: int) -> None:
    selector = make("ranked")
    generator = np.random.default_rng(1)
    for trigger in (1, 8, TRIGGERS - 1):
        counts = generator.integers(0, trigger + 1, 25)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        when = np.concatenate([np.sort(generator.choice(trigger, count, replace=False)) + 1 for count in counts])
        weight = generator.integers(0, largest_weight, len(when))
        some = np.flatnonzero(generator.random(25) < 0.7)
        history = Histories(indptr=indptr, when=when.astype(np.int32), weight=weight).take(some)
        expected = selector._filtered(history, selector._gain[trigger:])
        np.testing.assert_array_equal(selector._later(history, trigger), expected)


@pytest.mark.parametrize("minimum_users", [0, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_thresholds_are_those_of_the_definition_rounded_against_us(shape: str, minimum_users: int) -> None:
    """Both, at every trigger, in 50 digits: what mu + 1 users put on a key, the quantile of the noise, what rounding moves."""
    selector = make(shape, minimum_users=minimum_users, beta=1e-7)
    exponent, bits, unit_bits = SHAPES[shape]
    f = power(TRIGGERS, exponent, bits)
    c = [int(number) for number in f.numerators]
    heights = [height_at(shape, t) >> (20 - unit_bits) for t in range(1, TRIGGERS + 1)]
    with mpmath.workdps(50):
        tail = mpmath.mpf(1e-7) / (2 * TRIGGERS)
        quantile = mpmath.findroot(lambda z: mpmath.ncdf(-z) / tail - 1, 5.7)
        decoder = [mpmath.mpf(1)]  # of y into x, by long division: sum of c_k b_(t-k) = [t = 0]
        for t in range(1, TRIGGERS):
            decoder.append(-mpmath.fsum(mpmath.mpf(c[k]) / c[0] * decoder[t - k] for k in range(1, t + 1)))
        one = mpmath.mpf(c[0]) / (1 << bits)
        sums = [sum(decoder[: t + 1]) / one for t in range(TRIGGERS)]  # B = decoder of running totals
        grid = mpmath.mpf(2) ** -(bits + unit_bits)
        fraction_bits = max(10, unit_bits)
        for t in range(TRIGGERS):
            height = mpmath.mpf(max(heights[: t + 1])) / (1 << unit_bits) * (minimum_users + 1)
            std = SIGMA * mpmath.sqrt(mpmath.fsum(b * b for b in sums[: t + 1]))
            level = height + quantile * std + mpmath.fsum(map(abs, sums[: t + 1])) * grid / 2
            assert level <= selector.level[t] <= level * (1 + 1e-9)
            assert 0 <= int(selector._threshold[t]) - (level * 2**fraction_bits + mpmath.mpf("0.5")) < 1 + 1e-3
            # The filter: integers throughout, so that only its noise has to be bounded.
            chosen = [int(g) for g in selector._filter[: t + 1]]
            gains = [sum(chosen[s] * c[s - r] for s in range(r, t + 1)) for r in range(t + 1)]
            boundary = max(gain * height for gain, height in zip(gains, heights, strict=False)) * (minimum_users + 1)
            norm = mpmath.sqrt(sum(g * g for g in chosen))
            noise = quantile * SIGMA / grid * norm + mpmath.mpf(sum(chosen)) / 2
            assert boundary + noise <= int(selector._filter_threshold[t]) <= boundary + noise * (1 + 1e-9) + 1
