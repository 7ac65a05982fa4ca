"""Sums, shares and means: by exact fractions, and by what the real strategies publish of known data, again and again."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums, public_units
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.propagation import LEAST_DENOMINATOR, Computed, half_width, pooled_mean, share, total
from tests.reference import NO_LAST_LOOK
from tests.samples import samples

VISITS = Column(name="visits", kind="count")
TRIGGERS = 4
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# ---- by exact fractions ------------------------------------------------------------------------------------------------

ERRORS = st.floats(0.0, 100.0)


@st.composite
def groups(draw: st.DrawFn) -> tuple[Ints, Floats]:
    """Counts that add up to something clear of 0, and their errors."""
    n = draw(st.integers(1, 8))
    counts = np.array(draw(st.lists(st.integers(-50, 5000), min_size=n, max_size=n)), np.int64)
    errors = np.array(draw(st.lists(ERRORS, min_size=n, max_size=n)))
    counts[0] += max(0, math.ceil(LEAST_DENOMINATOR * math.sqrt(n) * 100) - int(counts.sum()) + 1)
    return counts, errors


def variance(gradient: list[Fraction], errors: Floats) -> Fraction:
    """Of a linear function of independent numbers."""
    return sum((g * g * Fraction(e) ** 2 for g, e in zip(gradient, errors.tolist(), strict=True)), Fraction(0))


class TestExactly:
    @given(st.lists(st.tuples(st.integers(-(2**62), 2**62), ERRORS)))
    def test_a_sum_of_integers_is_exact(self, rows: list[tuple[int, float]]) -> None:
        estimates, errors = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64)
        found = total(estimates, errors)
        assert found.estimate == sum(row[0] for row in rows)
        assert found.std_error == pytest.approx(math.sqrt(variance([Fraction(1)] * len(rows), errors)))

    @given(groups(), st.data())
    def test_a_share_has_the_error_of_its_covariance(self, group: tuple[Ints, Floats], data: st.DataObject) -> None:
        """By var(a/b) = (var a - 2 p cov(a, b) + p^2 var b) / b^2, where cov(a, b) = var a since b holds a."""
        counts, errors = group
        part = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))), np.bool_)
        found = share(counts, errors, part)
        assert found is not None
        squares = [Fraction(e) ** 2 for e in errors.tolist()]
        var_a = sum((v for v, inside in zip(squares, part.tolist(), strict=True) if inside), Fraction(0))
        var_b, b = sum(squares, Fraction(0)), int(counts.sum())
        p = Fraction(int(counts[part].sum()), b)
        assert found.estimate == pytest.approx(float(p))
        assert found.std_error == pytest.approx(
            math.sqrt((var_a - 2 * p * var_a + p * p * var_b) / b**2), rel=1e-9, abs=1e-12
        )

    def test_everything_is_a_share_of_one_without_error(self) -> None:
        assert share(np.array([100, 50]), np.array([3.0, 4.0]), np.array([True, True])) == (1.0, 0.0)

    @given(groups(), st.data())
    def test_a_mean_is_the_quotient_of_sums(self, group: tuple[Ints, Floats], data: st.DataObject) -> None:
        """Sums and counts are known here; the function has only means, as the column kind publishes them."""
        counts, count_errors = group
        n = len(counts)
        sums = np.array(data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=n, max_size=n)), np.float64)
        sum_errors = np.array(data.draw(st.lists(st.floats(1.0, 1e4), min_size=n, max_size=n)))
        divisors = np.maximum(counts, 1)
        means = sums / divisors
        errors = np.hypot(sum_errors, means * count_errors) / divisors
        found = pooled_mean(means, errors, counts, count_errors)
        assert found is not None
        whole, part = int(counts.sum()), sum(map(Fraction, sums.tolist()), Fraction(0))
        mean = part / whole
        gradient = [Fraction(1, whole)] * n + [-mean / whole] * n
        assert found.estimate == pytest.approx(float(mean), abs=1e-9)
        assert found.std_error == pytest.approx(
            math.sqrt(variance(gradient, np.concatenate([sum_errors, count_errors]))), rel=1e-4
        )

    def test_a_ratio_by_what_may_be_nothing_is_refused(self) -> None:
        errors, part = np.array([10.0, 0.0]), np.array([True, False])
        assert share(np.array([30, 20]), errors, part) is None
        assert share(np.array([31, 20]), errors, part) is not None
        assert share(np.array([0, 0]), 0 * errors, part) is None
        assert pooled_mean(np.ones(2), errors, np.array([30, 20]), errors) is None

    def test_half_widths_are_those_of_the_normal_distribution(self) -> None:
        assert half_width(0.95) == pytest.approx(1.959963984540054)
        assert math.erf(half_width(0.8) / math.sqrt(2)) == pytest.approx(0.8)
        for wrong in (0.0, 1.0, -1.0, math.nan):
            with pytest.raises(ValueError, match="between 0 and 1"):
                half_width(wrong)


# ---- by the strategies -------------------------------------------------------------------------------------------------


@dataclass
class Published:
    """Rows of the last trigger, a line for each repetition of the same data: [repetitions, keys].

    estimates, errors: as published. direct, direct_error: of the rows' own stream.
    """

    shown: npt.NDArray[np.bool_]
    estimates: Ints
    errors: Floats
    direct: Ints
    direct_errors: Floats


def publish(
    name: str, users: Ints, repetitions: int, *, declared: bool = False, seed: int = 0, first: bool = False, **plan: Any
) -> Published:
    """What a strategy publishes of keys with so many users each, who have no other key; a quarter of them at each trigger.

    All repetitions are keys of one window, whose noises are independent. first: everybody comes at the first trigger.
    """
    fields: dict[str, Any] = {"epsilon": 6.0, "delta": 1e-9, "max_records": 32} | plan
    strategy = build_strategy(plan_of(strategy=name, columns=(VISITS,), triggers=TRIGGERS, **fields))
    source = NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=f"p{seed}")
    size = repetitions * len(users)
    keys = [b"%d" % key for key in range(size)]
    noise, states, public = source.window(0), strategy.empty(size), np.full(size, declared)
    everyone = np.tile(users, repetitions)
    unit = np.zeros(size, np.int64)
    step: Any = None
    for trigger in range(1, TRIGGERS + 1):
        come = (
            everyone * (trigger == 1)
            if first
            else everyone * trigger // TRIGGERS - everyone * (trigger - 1) // TRIGGERS
        )
        weights = strategy.bounding.weights
        each = WEIGHT_ONE if weights is None else int(weights[0][trigger - 1])
        lists = None
        if trigger == TRIGGERS and strategy.lists is not None:
            # A list of one key has weight 1; on a public key, the unit.
            lists = ListSums(
                users=everyone * (unit == 0),
                weight=everyone * (unit == 0) * WEIGHT_ONE,
                public_weight=everyone * unit,
                unit=unit,
            )
        increments = Increments(users=come, weight=come * each, sums=come[:, None], lists=lists)
        step = strategy.step(trigger, keys, states, increments, noise, public)
        states = step.states
        if trigger + 1 == TRIGGERS:  # what has been published by T - 1 is public
            unit = np.where(step.published, public_units(step.estimates[:, 0]), 0)
    estimates, errors = step.estimates, step.std_errors
    if step.pooled_rows is not None:
        estimates, errors = estimates.copy(), errors.copy()
        rows, evidence = step.pooled_rows.index, step.pooled_rows.evidence
        estimates[rows], errors[rows] = strategy.calibrate(estimates[rows], errors[rows], evidence, evidence)

    def lines(column: Any) -> Any:
        return column.reshape(repetitions, len(users))

    return Published(
        lines(step.published),
        lines(estimates[:, 0]),
        lines(errors[:, 0]),
        lines(step.estimates[:, 0]),
        lines(step.std_errors[:, 0]),
    )


USERS = np.array([3000, 900, 300, 150, 80, 60, 50, 45, 40, 35, 30, 25, 20])
"""From popular keys down to those that are found now and then."""
APART = {"closing": {}, "no last look": NO_LAST_LOOK}
"""Parameters of `closing`, whose selection has noise of its own. A release of dp-sqlp has only the keys that are published anew."""


def scores(found: list[Computed], truth: list[float]) -> Floats:
    """How many standard errors each is off."""
    return np.array([(one.estimate - true) / one.std_error for one, true in zip(found, truth, strict=True)])


def check(z: Floats) -> None:
    """Standard scores: mean 0, variance 1, 95 % within 1.96, each within five standard errors."""
    n = len(z)
    assert n > 300
    assert abs(z.mean()) < 5 / math.sqrt(n), f"mean {z.mean():.3f} of {n}"
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / n), f"variance {z.var():.3f} of {n}"
    covered = (np.abs(z) < half_width(0.95)).mean()
    assert abs(covered - 0.95) < 5 * math.sqrt(0.95 * 0.05 / n), f"{covered:.3f} of {n} are covered"


def totals(found: Published, users: Ints) -> Floats:
    """Scores of the sums over what is published."""
    pairs = zip(found.shown, found.direct, found.direct_errors, strict=True)
    sums = [total(estimates[shown], errors[shown]) for shown, estimates, errors in pairs]
    return scores(sums, [float(users[shown].sum()) for shown in found.shown])


def shares(found: Published, users: Ints, part: Ints, error: Any = None) -> Floats:
    """Scores of the share of some keys in what is published. error: another standard error, of estimates, errors and part."""
    inside = np.isin(np.arange(len(users)), part)
    estimates, truth = [], []
    for shown, direct, errors in zip(found.shown, found.direct, found.direct_errors, strict=True):
        ratio = share(direct[shown], errors[shown], inside[shown])
        assert ratio is not None
        if error is not None:
            ratio = Computed(ratio.estimate, error(direct[shown], errors[shown], inside[shown]))
        estimates.append(ratio)
        truth.append(users[shown & inside].sum() / users[shown].sum())
    return scores(estimates, truth)


def without_covariance(estimates: Ints, errors: Floats, part: npt.NDArray[np.bool_]) -> float:
    """As if numerator and denominator had independent noise."""
    above, below = total(estimates[part], errors[part]), total(estimates, errors)
    ratio = above.estimate / below.estimate
    return math.hypot(above.std_error, ratio * below.std_error) / below.estimate


REPETITIONS = samples(2_000)
GROUP = np.array([0, 1, 3, 8])


@pytest.mark.statistical
@pytest.mark.parametrize("first", [True, False], ids=["at once", "over the window"])
@pytest.mark.parametrize("name", APART)
class TestStrategiesThatSelectApart:
    def test_sums_of_what_is_published_are_unbiased_and_covered(self, name: str, first: bool) -> None:
        found = publish("closing", USERS, REPETITIONS, first=first, **APART[name])
        assert 0 < found.shown[:, -1].mean() < 1 or name == "closing"
        check(totals(found, USERS))

    def test_shares_of_what_is_published_are_unbiased_and_covered(self, name: str, first: bool) -> None:
        check(shares(publish("closing", USERS, REPETITIONS, first=first, **APART[name]), USERS, GROUP))

    def test_a_share_without_its_covariance_fails(self, name: str, first: bool) -> None:
        found = publish("closing", USERS, REPETITIONS, first=first, **APART[name])
        with pytest.raises(AssertionError, match="variance"):
            check(shares(found, USERS, GROUP, without_covariance))


@pytest.mark.statistical
class TestToeplitz:
    def test_declared_keys_are_not_selected_and_so_unbiased(self) -> None:
        found = publish("toeplitz", USERS, REPETITIONS, declared=True)
        assert found.shown.all()
        check(totals(found, USERS))
        check(shares(found, USERS, GROUP))

    def test_popular_keys_are_unbiased_in_effect(self) -> None:
        """The level is so far below them that selection decides nothing."""
        users = USERS[USERS >= 150]
        found = publish("toeplitz", users, REPETITIONS)
        assert found.shown.all()
        check(totals(found, users))

    def test_keys_near_the_level_are_published_with_noise_that_was_high(self) -> None:
        """The bias that docs/sums.md states: the noise that selected a row is the noise in it. It never makes sums too small."""
        found = publish("toeplitz", USERS, REPETITIONS, first=True)
        with pytest.raises(AssertionError, match="mean"):
            check(totals(found, USERS))
        assert totals(found, USERS).mean() > 0.1
        rare = found.shown & (USERS <= 45)
        excess = (found.direct - USERS)[rare]
        assert 0 < excess.mean() < 2 * found.direct_errors[rare].mean()


@pytest.mark.statistical
class TestCalibratedRows:
    """500 rows of closing are calibrated together in each window, so their errors have a part in common."""

    KEYS = np.repeat([60, 300], 250)

    @pytest.fixture(scope="class")
    def windows(self) -> list[Published]:
        return [publish("closing", self.KEYS, 1, seed=seed, epsilon=2.0, delta=1e-6) for seed in range(samples(400))]

    def test_sums_of_direct_estimates_are_covered(self, windows: list[Published]) -> None:
        check(np.concatenate([totals(found, self.KEYS) for found in windows]))

    def test_sums_of_calibrated_estimates_are_not(self, windows: list[Published]) -> None:
        found, truth = [], []
        for one in windows:
            [shown] = one.shown
            assert (one.estimates != one.direct)[0, shown].mean() > 0.5
            found.append(total(one.estimates[0, shown], one.errors[0, shown]))
            truth.append(float(self.KEYS[shown].sum()))
        with pytest.raises(AssertionError, match="mean"):
            check(scores(found, truth))
        assert scores(found, truth).var() > 1.5
