"""Standard errors of local reports before they come."""

from collections.abc import Iterator

import numpy as np

from susurrus.agents.local.settings import LocalSection
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.mechanisms.local.hybrid import Hybrid, hybrid_alpha


def expected_errors(local: LocalSection) -> ExpectedErrors:
    """The errors of means, by how many reports they are of."""
    return ExpectedErrors(
        rows=list(_means(local.epsilon)),
        bound=local.bound,
        note="the noise of the devices at the least favourable values; clipping at theta is not in it",
    )


def _means(epsilon: float) -> Iterator[tuple[str, int, float]]:
    """The mean of so many reports."""
    fractions = np.linspace(0, 1, 101)
    one = float(np.sqrt(Hybrid(epsilon, hybrid_alpha(epsilon)).variance(fractions).max()))
    for reports in (100, 1_000, 10_000, 100_000, 1_000_000):
        yield "the mean of reports", reports, one / np.sqrt(reports)
