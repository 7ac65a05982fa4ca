r"""From Square Wave reports to a distribution: the transition matrix as a product in O(buckets).

Source: [LWL+20] section 5.4.

With the window starting at s = v (1 - w), v the value's place in [0, 1] and w = W/N, the report's density on [0, 1] is
lo + (hi - lo) 1{s <= y < s + w}. If F is the distribution function of s then the mass of an output bucket [a, b] is
lo (b - a) + (hi - lo) (G(b) - G(a) - G(b - w) + G(a - w)), G the integral of F: piecewise quadratic for a histogram.
So a product costs two cumulative sums and a gather.
"""

import numpy as np

from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.wave import SquareWave


class _SecondIntegral:
    """t -> integral of the integral of a step function on `knots`, at fixed points; linear beyond the last knot."""

    def __init__(self, knots: Floats, points: Floats) -> None:
        self._steps = np.diff(knots)
        inside = np.clip(points, knots[0], knots[-1])
        self._cell = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, self._steps.size - 1)
        self._offset = inside - knots[self._cell]
        self._half_square = self._offset**2 / 2
        self._beyond = np.maximum(points - knots[-1], 0.0)

    def __call__(self, heights: Floats) -> Floats:
        masses = heights * self._steps
        first = np.concatenate(([0.0], np.cumsum(masses)))
        second = np.concatenate(([0.0], np.cumsum((first[:-1] + masses / 2) * self._steps)))
        cell = self._cell
        within = first[cell] * self._offset + heights[cell] * self._half_square
        return np.asarray(second[cell] + within + first[-1] * self._beyond)


class Transition:
    """Pr[output bucket j | value uniform in input bucket i] of a Square Wave, as fast products.

    `edges`: the input buckets' edges in the wave's [0, 1], increasing from 0 to 1 (float64[d + 1]).
    `outputs`: number D of equal output buckets.
    """

    def __init__(self, wave: SquareWave, edges: Floats, outputs: int) -> None:
        edges = np.asarray(edges, dtype=np.float64)
        if edges[0] != 0 or edges[-1] != 1 or np.any(np.diff(edges) <= 0) or outputs < 1:
            raise ConfigurationError("edges must increase from 0 to 1 and outputs be positive: choose other buckets")
        window = wave.window
        share = window.width / window.cells
        inside = window.inside / 2**64
        self._low = (1 - inside) / (1 - share)
        self._gain = inside / share - self._low
        self.inputs, self.outputs = edges.size - 1, outputs
        starts = edges * (1 - share)
        self._lengths = np.diff(starts)
        out = np.linspace(0.0, 1.0, outputs + 1)
        self._from_inputs = _SecondIntegral(starts, np.concatenate((out, out - share)))

    def forward(self, frequencies: Floats) -> Floats:
        """Distribution of the reports: float64[d] -> float64[D]."""
        cover = self._from_inputs(frequencies / self._lengths)
        mass = np.diff(cover[: self.outputs + 1]) - np.diff(cover[self.outputs + 1 :])
        return np.asarray(self._low / self.outputs * frequencies.sum() + self._gain * mass)

    def dense(self) -> Floats:
        """The matrix itself, float64[D, d]; columns sum to 1."""
        return np.stack([self.forward(row) for row in np.eye(self.inputs)], axis=1)
