"""Read a private stream as a downstream reader should: from its rows and the public configuration alone."""

from collections.abc import Sequence

import numpy as np

from susurrus.agents.stream.mechanism import grid_of, mechanism_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics.private_stream import StreamRow


def released_stream(rows: Sequence[StreamRow], stream: StreamSection) -> ReleasedStream:
    """Return one stream, given by all its rows from the first on, for queries of range sums.

    Positions of the queries count from the first value after the holdout; sums are in steps of the grid.
    Raises ConfigurationError for PAK, whose ranges are differences of running sums, and for rows with a gap.
    """
    mechanism = mechanism_of(stream)
    if not isinstance(mechanism, Tops):
        raise ConfigurationError("stream.method=pak: a range is the difference of two running sums; subtract those")
    leaf, per_tree, grid = mechanism.base.leaf, mechanism.base.leaves, grid_of(stream)
    wanted = mechanism.holdout + leaf * np.arange(len(rows))
    if not rows or [row.first for row in rows] != wanted.tolist():
        raise ConfigurationError("private-stream: rows are missing or out of order; read the stream from its first row")
    sums = np.rint(np.array([row.value.estimate for row in rows]) / grid).astype(np.int64)
    trees = [mechanism.menu[row.layout] for row in rows[::per_tree]]
    return ReleasedStream(round(rows[0].theta / grid), mechanism.epsilon, sums, trees, mechanism.smoother)
