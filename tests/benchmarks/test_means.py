"""The table of means and variances: the page shows what the program computes, and the formulas are what noise does."""

import math

import means
import numpy as np
import pytest

from susurrus.mechanisms.accounting import gaussian_mu


def test_the_page_has_the_table() -> None:
    assert means.main(["--check"]) == 0, "run python benchmarks/means.py and put its table into docs/sums.md"


def test_ours_is_the_formula_of_one_mechanism() -> None:
    """One release: two columns share mu^2, each with the noise of KEYS records."""
    sigma = math.sqrt(2 * means.KEYS) / gaussian_mu(means.EPSILON, means.DELTA)
    expected = [means.mean_error(sigma, n) for n in means.RECORDS]
    assert means.ours("mean", 1) == pytest.approx(expected, rel=1e-3)


@pytest.mark.statistical
@pytest.mark.parametrize(("centre", "middle"), [(means.MIDDLE, 0.0), (means.MIDDLE, 312.5), (0.0, 6250.0)])
def test_the_formulas_of_errors_are_those_of_noise(centre: float, middle: float) -> None:
    rng, n, sigma, squares, trials = np.random.default_rng(2), 100_000, 20.0, 700.0, 40_000
    z = rng.standard_normal((3, trials)) * sigma
    count = n + z[0]
    distance = ((means.MEAN - means.MIDDLE) * n + means.HALF * z[1]) / count
    q = means.DEVIATION**2 + (means.MEAN - centre) ** 2 - middle
    square = (q * n + squares * z[2]) / count + middle
    assert np.std(distance) == pytest.approx(means.mean_error(sigma, n), rel=0.03)
    variance = square - (distance + means.MIDDLE - centre) ** 2
    found = means.variance_error(sigma, n, squares=squares, middle=middle, centre=centre)
    assert np.std(variance) == pytest.approx(found, rel=0.03)
    assert variance.mean() == pytest.approx(means.DEVIATION**2, abs=5 * found / math.sqrt(trials))
