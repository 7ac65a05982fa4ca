"""From grid units to what readers see: scaled sums, means computed from noisy sums and counts. Post-processing only."""

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.topics.histogram import ColumnRows


def columns_of(
    settings: HistogramSettings, estimates: npt.NDArray[np.int64], std_errors: npt.NDArray[np.float64]
) -> list[ColumnRows]:
    """The output's columns of a release; estimates and std_errors: (rows, measured columns), in grid units.

    A mean is noisy sum / noisy count, kept inside the public bound, with the standard error of a ratio (delta method); a noisy
    count below one is taken for one. It is a ratio of noisy numbers: slightly biased for keys with few users.
    """
    columns = []
    for published in settings.published_columns:
        measured = settings.measured_columns[published.source]
        total, total_error = estimates[:, published.source], std_errors[:, published.source]
        if published.divisor is None:
            if measured.kind == "sum":
                estimate = (total * measured.grid).astype(np.float64)
                columns.append(
                    ColumnRows(name=published.name, estimate=estimate, std_error=total_error * measured.grid)
                )
            else:
                columns.append(ColumnRows(name=published.name, estimate=total, std_error=total_error))
            continue
        count = np.maximum(estimates[:, published.divisor], 1).astype(np.float64)
        limit = measured.bound * measured.grid
        mean: npt.NDArray[np.float64] = np.clip(total * measured.grid / count, -limit, limit).astype(np.float64)
        error = np.hypot(total_error * measured.grid, mean * std_errors[:, published.divisor]) / count
        columns.append(ColumnRows(name=published.name, estimate=mean, std_error=error))
    return columns
