"""The rows of a window's last trigger, where the users' lists are measured: what is told of each, and their calibration.

Strategy.step ──evidence, of all partitions──▶ LastRows.calibrated ──▶ estimates of users, with standard errors
                                                 new rows: Line; rows of keys that were public: Ratio (calibration.py)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.calibration import CONSTANTS as CALIBRATION_CONSTANTS
from susurrus.mechanisms.histogram.calibration import Line, Ratio, quantile

BEND = Fraction(9, 10)
"""The line through new rows has a bend at this quantile of their closing statistic."""
CONSTANTS = (*CALIBRATION_CONSTANTS, str(BEND))
"""What no parameter changes, for the digest of a plan."""

Bools = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_DIRECT, _MEASURED, _MATCHED, _UNIT = range(4)
"""Columns of evidence: direct estimate of users; closing statistic, or second measurement of a public key, in units of 2^-20;
matched filter of a new row in these units; weight of a user on a public key, 0 for a new row."""


def evidence(*, direct: Int64, new: Bools, statistics: Floats, again: Int64, unit: Int64) -> Int64:
    """int64[k, 4] of k rows. statistics: float64[k, 2], of new rows, in users; again, unit: int64[k], of the others."""
    selecting = np.rint(statistics * WEIGHT_ONE).astype(np.int64)
    columns = (
        direct,
        np.where(new, selecting[:, 0], again),
        np.where(new, selecting[:, 1], 0),
        np.where(new, 0, unit),
    )
    return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRows:
    """variance: of the direct estimates' noise. public_sigma: of the second measurement's, in units of weight."""

    variance: float
    public_sigma: float

    def calibrated(self, rows: Int64, pooled: Int64) -> Iterator[tuple[npt.NDArray[np.intp], Int64, Floats]]:
        """(places, estimates, standard errors after rounding) of the rows that can be calibrated. rows, pooled: evidence."""
        for kind, fitted in ((0, self._by_line), (1, self._by_ratio)):
            places = np.flatnonzero((rows[:, _UNIT] > 0) == kind)
            found = fitted(rows[places], pooled[(pooled[:, _UNIT] > 0) == kind])
            if found is not None:
                # Rounding to an integer adds at most a uniform error: variance 1/12.
                yield places, np.rint(found[0]).astype(np.int64), np.sqrt(found[1] ** 2 + 1 / 12)

    def _by_line(self, rows: Int64, pooled: Int64) -> tuple[Floats, Floats] | None:
        """Rows first published at the last trigger, on the two statistics that selected them."""
        bend = quantile(pooled[:, _MEASURED], BEND)

        def regressors(of: Int64) -> list[Floats]:
            selecting = (of[:, _MEASURED], np.minimum(of[:, _MEASURED], bend), of[:, _MATCHED])
            return [np.ones(len(of)), *(statistic / WEIGHT_ONE for statistic in selecting)]

        line = Line.fit(pooled[:, _DIRECT].astype(np.float64), regressors(pooled), self.variance)
        return None if line is None else line.rows(rows[:, _DIRECT].astype(np.float64), regressors(rows))

    def _by_ratio(self, rows: Int64, pooled: Int64) -> tuple[Floats, Floats] | None:
        """Rows of keys that were public before, on what the lists measured of them again."""

        def measured(of: Int64) -> tuple[Floats, Floats, Floats]:
            unit = of[:, _UNIT]
            noise = (self.public_sigma * WEIGHT_ONE / unit) ** 2
            return of[:, _DIRECT].astype(np.float64), of[:, _MEASURED] / unit, noise

        ratio = Ratio.fit(*measured(pooled), self.variance)
        return None if ratio is None else ratio.rows(*measured(rows))
