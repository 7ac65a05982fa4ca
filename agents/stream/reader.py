"""Read a private stream as a downstream reader should: from its rows and the public configuration alone."""

from array import array
from collections.abc import Sequence

import numpy as np

from susurrus.agents.stream.mechanism import grid_of, mechanism_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.level_jumps import NONE
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics.private_stream import StreamRow


class RangeColumns:
    """What range sums need of a stream's rows, row by row."""

    def __init__(self) -> None:
        self.first, self.layout, self.jump_first, self.jump_last = (array("q") for _ in range(4))
        self.value, self.theta, self.lower, self.fit = (array("d") for _ in range(4))

    def __len__(self) -> int:
        return len(self.first)

    def add(self, row: StreamRow) -> None:
        """Take in the next row."""
        self.first.append(row.first)
        self.layout.append(row.layout)
        self.value.append(row.value.estimate)
        self.theta.append(row.theta)
        self.lower.append(row.lower or 0.0)
        self.fit.append(np.nan if row.fit is None else row.fit)
        self.jump_first.append(NONE if row.jump_first is None else row.jump_first)
        self.jump_last.append(NONE if row.jump_last is None else row.jump_last)

    def released(self, stream: StreamSection) -> ReleasedStream:
        """Return the stream of these rows, which are all from its first on. Raises as `released_stream`."""
        mechanism = mechanism_of(stream)
        if not isinstance(mechanism, Tops):
            raise ConfigurationError("stream.method=pak: a range is the difference of two running sums; subtract those")
        grid, first = grid_of(stream), np.array(self.first)
        if not len(self) or not np.array_equal(first, mechanism.holdout + mechanism.base.leaf * np.arange(len(self))):
            raise _rows_missing()
        value, theta, lower = (
            np.rint(np.array(each) / grid).astype(np.int64) for each in (self.value, self.theta, self.lower)
        )
        return ReleasedStream.of(
            mechanism,
            value=value,
            layout=np.array(self.layout),
            theta=theta,
            lower=lower,
            fit=np.array(self.fit),
            jump_first=np.array(self.jump_first),
            jump_last=np.array(self.jump_last),
        )


def released_stream(rows: Sequence[StreamRow], stream: StreamSection) -> ReleasedStream:
    """Return one stream, given by all its rows from the first on, for queries of range sums.

    Positions of the queries count from the first value after the holdout; sums are in steps of the grid.
    Raises ConfigurationError for PAK, whose ranges are differences of running sums, and for rows with a gap.
    """
    columns = RangeColumns()
    for row in rows:
        columns.add(row)
    return columns.released(stream)


def _rows_missing() -> ConfigurationError:
    return ConfigurationError("private-stream: rows are missing or out of order; read the stream from its first row")
