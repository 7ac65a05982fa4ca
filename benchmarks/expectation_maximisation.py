"""EM and EMS: the paper's way from Square Wave reports to a distribution, which ours (mechanisms/local/shape.py) is compared with.

Source: [LWL+20] Li, Wang, Lopuhaä-Zwakenberg, Li, Škorić, "Estimating numerical distributions under local differential privacy",
SIGMOD 2020, sections 5.4 (EM) and 5.5 (EMS: a [1 2 1] / 4 smoothing after each step).
"""

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError


def smooth(frequencies: Floats) -> Floats:
    """Return one binomial smoothing [1 2 1] / 4, the rows at both ends renormalised, and the total restored to 1."""
    padded = np.concatenate(([0.0], frequencies, [0.0]))
    out = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    out[1:-1] /= 4
    if out.size > 1:
        out[[0, -1]] /= 3
    return np.asarray(out / out.sum())


def maximise(
    matrix: Floats,
    counts: npt.NDArray[np.int64],
    *,
    smoothing: bool = False,
    tolerance: float = 1e-3,
    max_iterations: int = 10_000,
) -> Floats:
    """Return float64[d], by EM (or, with `smoothing`, EMS) from the uniform distribution, until the log-likelihood gains less
    than `tolerance`.

    matrix: Pr[output bucket | input bucket], float64[D, d].  counts: reports per output bucket, int64[D].  [LWL+20] stops EM at
    1e-3 e^eps and EMS at 1e-3.  Post-processing of the reports.  Raises ConfigurationError without reports.
    """
    total = int(counts.sum())
    if total <= 0:
        raise ConfigurationError("counts=0: no reports to reconstruct a distribution from; wait for reports")
    observed = counts.astype(np.float64)
    frequencies = np.full(matrix.shape[1], 1.0 / matrix.shape[1])
    expected = matrix @ frequencies
    likelihood = float(observed @ np.log(expected))
    for _ in range(max_iterations):
        frequencies = frequencies * (matrix.T @ (observed / expected))
        np.maximum(frequencies, 0.0, out=frequencies)
        frequencies /= frequencies.sum()
        if smoothing:
            frequencies = smooth(frequencies)
        expected = matrix @ frequencies
        previous, likelihood = likelihood, float(observed @ np.log(expected))
        if abs(likelihood - previous) < tolerance:
            break
    return np.asarray(frequencies)
