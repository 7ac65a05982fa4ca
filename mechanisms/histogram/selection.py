"""Which keys may be named: two threshold tests at every trigger, and the index that says when a test can be skipped.

    y = C x + z per key (x: selection weight per trigger; C with normalized columns, where it has them)
    instantaneous test   (B y)_t                >= height + tau_t        catches a burst
    matched filter       sum_{s<=t} g_s y_s     >= its height + tau'_t   21-31 % lower for steady keys; g = row sums of C

The true gate (more than mu distinct users) hides a key that no other user brought. The tests make its opening
deniable: each of the 2 T tests may fail with probability beta / (2 T). Argument: docs/guarantees/selection.md.
"""

from dataclasses import dataclass, replace
from operator import mul

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.factorization import Factorization
from susurrus.mechanisms.histogram.per_key import Histories, segment_sums
from susurrus.mechanisms.histogram.rounding import Decoder
from susurrus.mechanisms.noise import WindowNoise, grid_units

LARGEST_NORMAL = 13.2
"""No draw exceeds it: the smallest u is 2^-129."""
_LIMIT = 1 << 61
_ELEMENTS = 1 << 19  # noise values handled at a time
_LIMB = 26
"""Bits of a limb: products of a total below 2^_LIMB and a limb add up exactly in float64, in any order."""


@dataclass(frozen=True, slots=True)
class SelectionOutcome:
    """Per candidate: selected now; else `need` in 2^-20 units and `due`, the first later trigger that could succeed."""

    selected: npt.NDArray[np.bool_]
    need: npt.NDArray[np.int64]
    due: npt.NDArray[np.int32]


class Selector:
    """The selection mechanism of one plan.

    Privacy: with mu-GDP of y accounted elsewhere, publishing the selected keys adds `keys * beta` to delta, where
    `keys` bounds the distinct keys one user brings with positive weight.

    factorization C; sigma: noise of y in units of weight; unit_bits: weights are multiples of 2^-unit_bits;
    heights int64[T]: the largest weight one user can put on a key at trigger t, in 2^-unit_bits units;
    minimum_users mu; beta: failure probability of one key over the whole window.
    """

    def __init__(
        self,
        factorization: Factorization,
        *,
        sigma: float,
        unit_bits: int,
        heights: npt.NDArray[np.int64],
        minimum_users: int,
        beta: float,
    ) -> None:
        triggers = factorization.triggers
        self.factorization = factorization
        self.sigma = sigma
        self.minimum_users = minimum_users
        self.noise_bits = factorization.grid_bits + unit_bits
        grid_units(sigma, self.noise_bits)
        self.quantile = tail_quantile(beta / (2 * triggers))
        self._drop = 20 - unit_bits  # from 2^-20 units to units of weight
        fraction_bits = max(10, unit_bits)
        self._lift = fraction_bits - unit_bits
        self.decoder = Decoder(factorization, noise_bits=self.noise_bits, fraction_bits=fraction_bits)
        # Instantaneous: floor(2^f N + 1/2) >= ceil(2^f tau + 1/2) implies N >= tau, and rounding moved each z by at
        # most 2^-(noise_bits + 1).
        height = np.maximum.accumulate(heights).astype(np.float64) * 2.0**-unit_bits * (minimum_users + 1)
        self.std = sigma * np.sqrt(factorization.row2)
        slack = factorization.row1 * 2.0 ** -(self.noise_bits + 1)
        level = (height + self.quantile * self.std + slack) * (1 + 1e-12)
        self.level = level
        self._threshold = np.ceil(level * 2.0**fraction_bits + 0.5).astype(np.int64)
        self._matched(heights)

    def _matched(self, heights: npt.NDArray[np.int64]) -> None:
        """The matched filter in exact int64 arithmetic: g is rounded to a grid on which no sum can overflow."""
        triggers, column = self.factorization.triggers, self.factorization.columns
        g = column.sum(axis=1).astype(np.float64) * 2.0**-self.factorization.grid_bits
        largest_noise = float(g.sum()) * LARGEST_NORMAL * self.sigma * 2.0**self.noise_bits
        # An unselected key failed the instantaneous test, so its weight is below this (units of weight).
        reach = float(self._threshold.max()) * 2.0**-self._lift
        reach += float(self.factorization.row1[-1]) * LARGEST_NORMAL * self.sigma * 2.0 ** (20 - self._drop) + 1
        reach = max(reach, float(self.minimum_users + 1) * float(heights.max()))
        largest_gain = float((g @ column).max())
        # One bit for rounding g up, two to spare.
        bits = int(np.floor(np.log2(_LIMIT / 8 / max(largest_noise, largest_gain * reach))))
        if bits < 0:
            raise ConfigurationError(
                f"epsilon: sigma={self.sigma:.3g} and minimum_users={self.minimum_users} over {triggers} triggers do "
                f"not fit into 64 bits; raise epsilon, lower minimum_users or use fewer triggers"
            )
        self._filter = np.rint(g * 2.0 ** min(bits, 10)).astype(np.int64)
        self._gain = np.cumsum(self._filter[:, None] * column, axis=0)  # [t, r]: what weight 1 at r adds to the filter
        self._ceiling = self._gain.max(axis=1)
        boundary = (self._gain * heights[None, :]).max(axis=1) * (self.minimum_users + 1)
        norm = np.sqrt(np.cumsum(self._filter.astype(np.float64) ** 2)) * (1 + 1e-12)
        noise = self.quantile * self.sigma * 2.0**self.noise_bits * norm + np.cumsum(self._filter) / 2
        self._filter_threshold = boundary + np.ceil(noise * (1 + 1e-12)).astype(np.int64)
        # What weight 1 adds to the filter if it comes steadily.
        steady = np.cumsum(self._gain, axis=1)[np.arange(triggers), np.arange(triggers)] / np.arange(1, triggers + 1)
        self._steady = steady / 2.0 ** -(20 - self._drop)
        # For readers: the lowest steady number of weight units that passes the filter without noise.
        self.matched_level = self._filter_threshold / steady * 2.0 ** -(20 - self._drop)
        self.matched_height = boundary / self._steady
        """float64[T]: the most that minimum_users + 1 users can add to `matched`."""
        self.matched_std = self.sigma * 2.0**self.noise_bits * norm / self._steady * (1 + 1e-12)
        """float64[T]: the standard deviation of the noise in `matched`."""
        self.matched_slack = np.cumsum(self._filter) / 2 / self._steady
        """float64[T]: by how much rounding of the noise can move `matched`."""
        self._exact_weight = int(_LIMIT / 2 / max(float(self._ceiling.max()), 1.0))

    def evaluate(
        self, trigger: int, labels: npt.NDArray[np.uint8], history: Histories, noise: WindowNoise
    ) -> SelectionOutcome:
        """Test candidates at `trigger`: keys whose gate is open, with the history of their weight (2^-20 units)."""
        size = len(history)
        selected = np.zeros(size, np.bool_)
        need = np.empty(size, np.int64)
        due = np.empty(size, np.int32)
        history = replace(history, weight=history.weight >> self._drop)
        rows = max(1, _ELEMENTS // self.factorization.triggers)
        for begin in range(0, size, rows):
            part = np.arange(begin, min(begin + rows, size))
            selected[part], need[part], due[part] = self._evaluate(trigger, labels[part], history.take(part), noise)
        return SelectionOutcome(selected, need, due)

    def _evaluate(
        self, trigger: int, labels: npt.NDArray[np.uint8], history: Histories, noise: WindowNoise
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        triggers = self.factorization.triggers
        now = trigger - 1
        total = history.totals()
        z = noise.normal(labels, 1, triggers, sigma=self.sigma, bits=self.noise_bits)
        # What is still missing: weight units (times 2^lift) for the instantaneous test, filter units for the other.
        missing = self._threshold[now:] - self.decoder.rounded(z, trigger, triggers)
        z *= self._filter
        np.cumsum(z, axis=1, out=z)
        missing_filter = self._filter_threshold[now:] - z[:, now:]
        lifted = total << self._lift
        selected = lifted >= missing[:, 0]
        rest = np.flatnonzero(~selected)
        filtered = self._filtered(history.take(rest), self._gain[now : now + 1])
        selected[rest] = filtered[:, 0] >= missing_filter[rest, 0]
        if trigger == triggers:
            return selected, np.zeros(len(total), np.int64), np.full(len(total), triggers + 1, np.int32)
        need = -(-missing[:, 1:].min(axis=1) >> self._lift)
        # A lower bound is enough here, and elementwise float64 division is the same everywhere.
        fraction = (missing_filter[:, 1:] / self._ceiling[now + 1 :]).min(axis=1)
        need = np.maximum(np.minimum(need, np.floor(fraction).astype(np.int64)), 0)
        due = np.full(len(total), triggers + 1, np.int32)
        close = np.flatnonzero(~selected & (total >= need))
        if len(close):
            reached = self._later(history.take(close), trigger) >= missing_filter[close, 1:]
            reached |= lifted[close, None] >= missing[close, 1:]
            due[close] = np.where(reached.any(axis=1), trigger + 1 + reached.argmax(axis=1), triggers + 1)
        return selected, need << self._drop, due

    def matched(
        self, trigger: int, labels: npt.NDArray[np.uint8], history: Histories, noise: WindowNoise
    ) -> npt.NDArray[np.float64]:
        """float64[k]: the matched filter at `trigger`, noise included, in units of weight that comes steadily."""
        history = replace(history, weight=history.weight >> self._drop)
        out = np.empty(len(history))
        rows = max(1, _ELEMENTS // trigger)
        for begin in range(0, len(history), rows):
            part = np.arange(begin, min(begin + rows, len(history)))
            z = noise.normal(labels[part], 1, trigger, sigma=self.sigma, bits=self.noise_bits)
            drawn = (z * self._filter[:trigger]).sum(axis=1)
            some = history.take(part)
            value = (self._filtered(some, self._gain[trigger - 1 : trigger])[:, 0] + drawn).astype(np.float64)
            # 64 bits hold the filter of every key that the stream has not selected before. A burst at this trigger may be larger.
            for row in np.flatnonzero(some.totals() > self._exact_weight).tolist():
                entries = slice(some.indptr[row], some.indptr[row + 1])
                gains = self._gain[trigger - 1, some.when[entries] - 1].tolist()
                value[row] = sum(map(mul, some.weight[entries].tolist(), gains)) + int(drawn[row])
            out[part] = value / self._steady[trigger - 1]
        return out

    def matched_heights(self, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """float64[k]: the most that one user can add to `matched` at the last trigger by a key of these weights.

        weights: int64[k, T], in 2^-20 units, by the trigger at which the user brings the key.
        """
        most: npt.NDArray[np.float64] = (self._gain[-1] * (weights >> self._drop)).max(axis=1) / self._steady[-1]
        return most * (1 + 1e-12)

    def least_multiples(
        self, weight: npt.NDArray[np.float64], normals: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """float64[k, T]: by what a key's weight must be multiplied to pass one of the tests of each trigger.

        weight: float64[T], what comes at each trigger, in units of weight, above 0 at the first. normals: float64[k, T], standard
        normal draws in place of the addressed noise, for forecasts. The gate is the caller's.
        """
        unit = 2.0 ** (20 - self._drop)
        least = (self.level - self.sigma * (normals @ self.factorization.decoding)) / np.cumsum(weight)
        drawn = self.sigma * 2.0**self.noise_bits * np.cumsum(normals * self._filter, axis=1)
        gain = np.tril(self._gain).astype(np.float64) @ (weight * unit)
        multiples: npt.NDArray[np.float64] = np.minimum(least, (self._filter_threshold - drawn) / gain)
        return multiples

    def matched_linear(
        self, weight: npt.NDArray[np.float64], normals: npt.NDArray[np.float64]
    ) -> tuple[float, npt.NDArray[np.float64]]:
        """(what weight float64[T] adds to `matched` at the last trigger, float64[k] its noise), of `least_multiples`' arguments."""
        last = float(self._steady[-1])
        gain = float(self._gain[-1].astype(np.float64) @ weight) * 2.0 ** (20 - self._drop)
        return gain / last, self.sigma * 2.0**self.noise_bits / last * (normals @ self._filter.astype(np.float64))

    def _filtered(self, history: Histories, gain: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """int64[k, len(gain)]: noiseless matched filter of these keys at the triggers of `gain`'s rows."""
        return segment_sums(history.weight[:, None] * gain.T[history.when - 1], history.indptr)

    def _later(self, history: Histories, trigger: int) -> npt.NDArray[np.int64]:
        """`_filtered` at every later trigger. As a float64 product of 26-bit limbs, exact, it is many times faster."""
        gain = self._gain[trigger:, :trigger]
        # Negative numbers never occur: neither coefficients nor weights are below zero.
        if history.totals().max(initial=0) >= 1 << _LIMB or gain.max(initial=0) >= 1 << (2 * _LIMB):
            step = max(1, _ELEMENTS // self.factorization.triggers // 8)
            parts = [np.arange(begin, min(begin + step, len(history))) for begin in range(0, len(history), step)]
            return np.concatenate([self._filtered(history.take(part), self._gain[trigger:]) for part in parts])
        at = history.owner * trigger + history.when - 1
        dense = np.bincount(at, weights=history.weight, minlength=len(history) * trigger).reshape(-1, trigger)
        high = dense @ (gain >> _LIMB).astype(np.float64).T
        low = dense @ (gain & ((1 << _LIMB) - 1)).astype(np.float64).T
        total: npt.NDArray[np.int64] = (high.astype(np.int64) << _LIMB) + low.astype(np.int64)
        return total

    def describe(self) -> dict[str, float | int]:
        """Public constants of the tests, thresholds in units of weight (toeplitz: users)."""
        return {
            "sigma": self.sigma,
            **self.factorization.describe(),
            "quantile": self.quantile,
            "threshold_first": float(self.level[0]),
            "threshold_mean": float(self.level.mean()),
            "threshold_last": float(self.level[-1]),
            "matched_threshold_first": float(self.matched_level[0]),
            "matched_threshold_mean": float(self.matched_level.mean()),
            "matched_threshold_last": float(self.matched_level[-1]),
            "weight_one": WEIGHT_ONE,
        }
