"""The rows of a window's last trigger, where the users' lists are measured: what is told of each, and their calibration.

Strategy.step ──evidence, of all partitions──▶ LastRows.calibrated ──▶ estimates of users, with standard errors
                                                 new rows: Line; rows of keys that were public: Ratio (calibration.py)
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from susurrus.mechanisms.arrays import Bools, Floats, Int64s
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.calibration import CONSTANTS as CALIBRATION_CONSTANTS
from susurrus.mechanisms.histogram.calibration import Line, Ratio, quantile
from susurrus.mechanisms.histogram.strategy import PooledRows, Step

BEND = Fraction(9, 10)
"""The line through new rows has a bend at this quantile of their closing statistic."""
CONSTANTS = (*CALIBRATION_CONSTANTS, str(BEND))
"""What no parameter changes, for the digest of a plan."""


_DIRECT, _MEASURED, _MATCHED, _UNIT = range(4)
"""Columns of evidence: direct estimate of users; closing statistic, or second measurement of a public key, in units of 2^-20;
matched filter of a new row in these units; weight of a user on a public key, 0 for a new row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRows:
    """The rows of one strategy's last trigger.

    columns: those that count users, which are measured as one. variance: of the direct estimates' noise. public_sigma: standard
    deviation of the second measurement's noise, in units of weight.
    """

    columns: tuple[int, ...]
    variance: float
    public_sigma: float

    def pooled(self, step: Step[Any], public: Bools, *, statistics: Floats, again: Int64s, unit: Int64s) -> PooledRows:
        """Return the rows that are calibrated: those of new keys, and of keys that the lists have measured again.

        public: bool[k], before this trigger. statistics: float64[k, 2], of new rows, in users. again, unit: int64[k], of the
        others. Which measurement a row uses follows from what was published before; the noise is there with and without users.
        """
        new = step.published & ~public
        selecting = np.rint(statistics * WEIGHT_ONE).astype(np.int64)
        evidence = np.stack(
            (
                step.estimates[:, self.columns[0]],
                np.where(new, selecting[:, 0], again),
                np.where(new, selecting[:, 1], 0),
                np.where(new, 0, unit),
            ),
            axis=1,
        )
        rows = np.flatnonzero(new | (step.published & (unit > 0)))
        return PooledRows(index=rows, evidence=evidence[rows])

    def calibrated(self, estimates: Int64s, std_errors: Floats, rows: Int64s, pooled: Int64s) -> tuple[Int64s, Floats]:
        """Return (estimates, standard errors after rounding) of rows, [f, columns] each; see `Strategy.calibrate`.

        rows, pooled: evidence. A row that cannot be calibrated keeps its pair.
        """
        estimates, std_errors = estimates.copy(), std_errors.copy()
        for kind, fitted in ((0, self._by_line), (1, self._by_ratio)):
            places = np.flatnonzero((rows[:, _UNIT] > 0) == kind)
            found = fitted(rows[places], pooled[(pooled[:, _UNIT] > 0) == kind])
            if found is not None:
                for column in self.columns:
                    # Rounding to an integer adds at most a uniform error: variance 1/12.
                    estimates[places, column] = np.rint(found[0]).astype(np.int64)
                    std_errors[places, column] = np.sqrt(found[1] ** 2 + 1 / 12)
        return estimates, std_errors

    def _by_line(self, rows: Int64s, pooled: Int64s) -> tuple[Floats, Floats] | None:
        """Rows first published at the last trigger, on the two statistics that selected them."""
        bend = quantile(pooled[:, _MEASURED], BEND)

        def regressors(of: Int64s) -> list[Floats]:
            selecting = (of[:, _MEASURED], np.minimum(of[:, _MEASURED], bend), of[:, _MATCHED])
            return [np.ones(len(of)), *(statistic / WEIGHT_ONE for statistic in selecting)]

        line = Line.fit(pooled[:, _DIRECT].astype(np.float64), regressors(pooled), self.variance)
        return None if line is None else line.rows(rows[:, _DIRECT].astype(np.float64), regressors(rows))

    def _by_ratio(self, rows: Int64s, pooled: Int64s) -> tuple[Floats, Floats] | None:
        """Rows of keys that were public before, on what the lists measured of them again."""

        def measured(of: Int64s) -> tuple[Floats, Floats, Floats]:
            unit = of[:, _UNIT]
            noise = (self.public_sigma * WEIGHT_ONE / unit) ** 2
            return of[:, _DIRECT].astype(np.float64), of[:, _MEASURED] / unit, noise

        ratio = Ratio.fit(*measured(pooled), self.variance)
        return None if ratio is None else ratio.rows(*measured(rows))
