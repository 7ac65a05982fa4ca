"""The paper's post-processing, which the comparison with ToPL applies; rounds that follow the level; ratios."""

import numpy as np
import pytest
from topl import DELAY, Measured, Setting, our_round, remove_trailing_zeros, seeded_words


def test_trailing_zeros_go_and_the_rest_sums_to_one() -> None:
    frequencies = np.array([0.5, 0.3, 0.1, 1e-6, 0, 0, 0, 0, 0.1])
    np.testing.assert_allclose(remove_trailing_zeros(frequencies), np.array([5, 3, 1, 0, 0, 0, 0, 0, 0]) / 9)
    short = np.array([0.5, 0, 0, 0.5])
    np.testing.assert_allclose(remove_trailing_zeros(short), short)


def test_theta_follows_in_the_second_interval_after_it_was_chosen() -> None:
    """Values that quadruple at once, estimated with the server's own code."""
    rng = np.random.default_rng(1)
    one, two = rng.gamma(2.0, 10.0, 20_000), rng.gamma(2.0, 40.0, 40_000)
    queries = np.sort(rng.integers(0, two.size, (20, 2)), axis=1)
    setting = Setting(one, two, 2_000.0, queries, 1_000)
    followed, fixed = (our_round(setting, 2.0, seeded_words(np.random.default_rng(2)), follow=f) for f in (True, False))
    assert followed.thetas.size == 40
    assert len(set(followed.thetas[:DELAY].tolist())) == 1
    assert followed.thetas[DELAY] > 1.2 * followed.thetas[0]
    assert len(set(fixed.thetas.tolist())) == 1
    errors = [float(np.mean((ours.tested - setting.truth()) ** 2)) for ours in (followed, fixed)]
    assert errors[0] < 0.2 * errors[1]


def test_ratios_are_of_means_with_the_error_of_paired_rounds() -> None:
    """Rounds that share their luck: the ratio is known far better than either mean."""
    rng = np.random.default_rng(0)
    luck = rng.exponential(1.0, 200)
    other, own = Measured(luck.tolist(), [1.0]), Measured((luck * rng.uniform(0.45, 0.55, 200)).tolist(), [1.0])
    row = own.row(other)
    assert row["ratio"] == pytest.approx(0.5, abs=4 * row["ratio_standard_error"])
    assert row["ratio_standard_error"] < 0.2 * row["mse_standard_error"]
    assert other.row(other)["ratio_standard_error"] == pytest.approx(0.0, abs=1e-12)
