"""The paper's post-processing, which the comparison with ToPL applies."""

import numpy as np
from topl import remove_trailing_zeros


def test_trailing_zeros_go_and_the_rest_sums_to_one() -> None:
    frequencies = np.array([0.5, 0.3, 0.1, 1e-6, 0, 0, 0, 0, 0.1])
    np.testing.assert_allclose(remove_trailing_zeros(frequencies), np.array([5, 3, 1, 0, 0, 0, 0, 0, 0]) / 9)
    short = np.array([0.5, 0, 0, 0.5])
    np.testing.assert_allclose(remove_trailing_zeros(short), short)
