"""Read a private stream as a downstream reader should: from its rows and the public configuration alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from susurrus.agents.stream.mechanism import grid_of, mechanism_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics.private_stream import StreamRow

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def released_stream(rows: Sequence[StreamRow], stream: StreamSection) -> ReleasedStream:
    """Return one stream, given by all its rows from the first on, for queries of range sums.

    Positions of the queries count from the first value after the holdout; sums are in steps of the grid.
    Raises ConfigurationError for PAK, whose ranges are differences of running sums, and for rows with a gap.
    """
    if not rows:
        raise _rows_missing()
    first, layouts = (np.array(each, np.int64) for each in zip(*((row.first, row.layout) for row in rows), strict=True))
    values = np.array([row.value.estimate for row in rows], np.float64)
    theta, lower = (np.array(each, np.float64) for each in zip(*((row.theta, row.lower) for row in rows), strict=True))
    return released_columns(first, values, layouts, theta=theta, lower=lower, stream=stream)


def released_columns(
    first: Ints, values: Floats, layouts: Ints, *, theta: Floats, lower: Floats, stream: StreamSection
) -> ReleasedStream:
    """The same from columns of all rows: first and layout int64[n], the estimates of `value`, theta and lower float64[n]. Raises
    as `released_stream`."""
    mechanism = mechanism_of(stream)
    if not isinstance(mechanism, Tops):
        raise ConfigurationError("stream.method=pak: a range is the difference of two running sums; subtract those")
    leaf, per_tree, grid = mechanism.base.leaf, mechanism.base.leaves, grid_of(stream)
    if not len(first) or not np.array_equal(first, mechanism.holdout + leaf * np.arange(len(first))):
        raise _rows_missing()
    sums = np.rint(values / grid).astype(np.int64)
    trees = [mechanism.menu[layout] for layout in layouts[::per_tree].tolist()]
    thetas, lowers = (np.rint(each[::per_tree] / grid).astype(np.int64) for each in (theta, lower))
    return ReleasedStream(mechanism.epsilon, sums, trees, thetas, lowers, mechanism.smoother)


def _rows_missing() -> ConfigurationError:
    return ConfigurationError("private-stream: rows are missing or out of order; read the stream from its first row")
