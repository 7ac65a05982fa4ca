"""The window mechanism on small grids, where every probability can be enumerated, and on the real one."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.hybrid import piecewise
from susurrus.mechanisms.local.randomness import secure_words, uniform_below, uniform_below_one
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.mechanisms.local.window import GRID, WindowMechanism
from tests.samples import seeded

EPSILONS = (0.01, 0.2, 0.61, 1.0, 2.0, 8.0)


def distribution(window: WindowMechanism) -> list[list[Fraction]]:
    """The exact distribution of the code for every position, from the definition."""
    inner, outer = window.exact_probabilities()
    return [
        [inner if s <= code < s + window.width else outer for code in range(window.cells)]
        for s in range(window.positions + 1)
    ]


def worst_ratio(rows: list[list[Fraction]]) -> Fraction:
    return max(max(column) / min(column) for column in zip(*rows, strict=True))


def ratio_holds(ratio: Fraction, epsilon: float) -> bool:
    """ratio <= e**epsilon, with epsilon the exact double, at 80 digits."""
    with mpmath.workdps(80):
        return bool(mpmath.mpf(ratio.numerator) / ratio.denominator <= mpmath.exp(mpmath.mpf(epsilon)))


class TestExactLaw:
    @pytest.mark.parametrize("epsilon", EPSILONS)
    @pytest.mark.parametrize(("cells", "width"), [(7, 1), (12, 5), (20, 13)])
    def test_probabilities_sum_to_one_and_keep_the_bound_on_the_whole_support(
        self, epsilon: float, cells: int, width: int
    ) -> None:
        rows = distribution(WindowMechanism(epsilon, width, cells))
        assert all(sum(row) == 1 for row in rows)
        ratio = worst_ratio(rows)
        assert ratio_holds(ratio, epsilon)
        assert float(ratio) == pytest.approx(math.exp(epsilon), rel=1e-9)  # and wastes nothing

    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_the_full_grids_keep_the_bound_exactly(self, epsilon: float) -> None:
        for window in (SquareWave(epsilon, 1.0).window, piecewise(epsilon)):
            inner, outer = window.exact_probabilities()
            assert inner * window.width + outer * window.positions == 1
            assert ratio_holds(inner / outer, epsilon)

    def test_one_more_unit_of_probability_would_break_the_bound(self) -> None:
        window = WindowMechanism(1.0, 5, 12)
        p = Fraction(window.inside + 1, 2**64)
        assert not ratio_holds((p / 5) / ((1 - p) / 7), 1.0)

    @given(st.integers(2, 40), st.data(), st.sampled_from(EPSILONS))
    def test_decoding_is_unbiased_at_every_position(self, cells: int, data: st.DataObject, epsilon: float) -> None:
        width = data.draw(st.integers(1, cells - 1))
        window = WindowMechanism(epsilon, width, cells)
        scale, offset = window.decoder
        for s, row in enumerate(distribution(window)):
            mean = sum(p * code for code, p in enumerate(row))
            assert scale * float(mean) + offset == pytest.approx(s / window.positions, abs=1e-6)

    @pytest.mark.parametrize(("cells", "width"), [(7, 1), (12, 5), (20, 13)])
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_the_closed_form_variance_is_the_enumerated_one(self, epsilon: float, cells: int, width: int) -> None:
        window = WindowMechanism(epsilon, width, cells)
        scale, _ = window.decoder
        for s, row in enumerate(distribution(window)):
            mean = sum(p * code for code, p in enumerate(row))
            expected = float(sum(p * (code - mean) ** 2 for code, p in enumerate(row))) * scale**2
            assert window.variance(np.array([s / window.positions]))[0] == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_on_the_full_grid_it_is_the_papers_variance(self, epsilon: float) -> None:
        x = np.linspace(0, 1, 11)
        t, root = 2 * x - 1, math.exp(epsilon / 2)
        paper = t**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)  # [WXY+19] eq. 6
        np.testing.assert_allclose(4 * piecewise(epsilon).variance(x), paper, rtol=1e-6)


@pytest.mark.statistical
class TestSampling:
    @staticmethod
    def p_value(window: WindowMechanism, position: int, codes: np.ndarray, bins: int = 40) -> float:
        """Chi-square of codes against the exact distribution, in bins of equal width."""
        edges = np.linspace(0, window.cells, bins + 1)
        inner, outer = (float(p) for p in window.exact_probabilities())
        covered = np.clip(edges[1:], position, position + window.width) - np.clip(
            edges[:-1], position, position + window.width
        )
        expected = (covered * inner + (np.diff(edges) - covered) * outer) * codes.size
        observed, _ = np.histogram(codes, edges)
        return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), bins - 1))

    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
    @pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
    def test_codes_follow_the_density_over_the_whole_support(self, epsilon: float, fraction: float) -> None:
        for window in (SquareWave(epsilon, 1.0).window, piecewise(epsilon)):
            position = int(window.position(np.array([fraction]))[0])
            codes = window.randomise(np.full(200_000, position), seeded(7))
            assert codes.min() >= 0
            assert codes.max() < GRID
            assert self.p_value(window, position, codes) > 1e-6

    def test_a_wrong_epsilon_is_caught(self) -> None:
        codes = piecewise(1.1).randomise(np.full(200_000, 1 << 30), seeded(7))
        assert self.p_value(piecewise(1.0), 1 << 30, codes) < 1e-6

    def test_a_small_grid_is_hit_cell_by_cell(self) -> None:
        window = WindowMechanism(1.0, 5, 12)
        rows = distribution(window)
        for s in (0, 3, 7):
            observed = np.bincount(window.randomise(np.full(120_000, s), seeded(s)), minlength=12)
            expected = np.array([float(p) for p in rows[s]]) * 120_000
            assert chi2.sf(((observed - expected) ** 2 / expected).sum(), 11) > 1e-6


class TestScalarTwin:
    @given(st.integers(0, 2**32), st.sampled_from(EPSILONS), st.integers(0, 2**32 - 1))
    def test_one_report_equals_the_batch_from_the_same_words(self, start: int, epsilon: float, seed: int) -> None:
        window = piecewise(epsilon)
        position = min(start, window.positions)
        drawn = seeded(seed)(2)
        words = iter(int(w) for w in drawn)
        batch = window.randomise(np.array([position]), lambda n: drawn[:n])
        assert window.randomise_one(position, lambda: next(words)) == batch[0]


class TestUniform:
    def test_a_biased_remainder_is_redrawn(self) -> None:
        bound = 3  # 2**64 % 3 == 1: only the largest word is rejected
        top = np.array([2**64 - 1, 5], dtype=np.uint64)
        redrawn = uniform_below(bound, lambda n: np.full(n, 7, dtype=np.uint64), top)
        assert redrawn.tolist() == [1, 2]
        words = iter([2**64 - 1, 7])
        assert uniform_below_one(bound, lambda: next(words)) == 1

    def test_secure_words_differ(self) -> None:
        assert not np.array_equal(secure_words(4), secure_words(4))


@pytest.mark.parametrize(
    ("epsilon", "width", "cells"), [(0.0, 2, 5), (math.nan, 2, 5), (99.0, 2, 5), (1.0, 5, 5), (1.0, 0, 5)]
)
def test_unusable_parameters_are_refused(epsilon: float, width: int, cells: int) -> None:
    with pytest.raises(ConfigurationError, match="="):
        WindowMechanism(epsilon, width, cells)
