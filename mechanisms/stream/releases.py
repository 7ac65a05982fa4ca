"""What ToPS and PAK release of a stream, as columns: one row per leaf (ToPS) or per value (PAK)."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from susurrus.mechanisms.stream.addresses import Floats, Ints


@dataclass(frozen=True, slots=True)
class Releases:
    """Consecutive rows of one stream.  Unit: value grid; positions count from 0 over all events of the stream.

    first, last: int64[n], the positions that a row covers.  value: int64[n], the released sum of these values.  sum:
    int64[n], the released sum from the first released position on.  value_error, sum_error: float64[n], standard errors
    of the noise in them.  layout: int64[n], menu entry of the tree; 0 for PAK.  theta, lower: int64[n], values are clipped to
    [lower, theta].  filtered_sum, filtered_sum_error: float64[n], posterior of the running sum where a leaf completes a block,
    else nan.  jump_first, jump_last: int64[n], there the positions between which the level has jumped in the open tree (the
    first position behind the jump), else -1.  clipped, clipped_error: float64[n], how many values of a tree lay above theta, in the last row of a tree that
    counted them, else nan.
    """

    first: Ints
    last: Ints
    value: Ints
    value_error: Floats
    sum: Ints
    sum_error: Floats
    layout: Ints
    theta: Ints
    lower: Ints
    filtered_sum: Floats
    filtered_sum_error: Floats
    jump_first: Ints
    jump_last: Ints
    clipped: Floats
    clipped_error: Floats

    def __len__(self) -> int:
        return len(self.last)

    def taken(self, places: Ints) -> "Releases":
        """Return the rows at these places."""
        return Releases(*(column[places] for column in _COLUMNS(self)))


_COLUMNS = attrgetter(*Releases.__dataclass_fields__)
_NO_INTS, _NO_FLOATS = np.zeros(0, dtype=np.int64), np.zeros(0)
_NOTHING = Releases(
    *(_NO_INTS, _NO_INTS, _NO_INTS, _NO_FLOATS, _NO_INTS, _NO_FLOATS),
    *(_NO_INTS, _NO_INTS, _NO_INTS, _NO_FLOATS, _NO_FLOATS, _NO_INTS, _NO_INTS, _NO_FLOATS, _NO_FLOATS),
)


def joined(parts: Sequence[Releases]) -> Releases:
    """Return the rows of all parts, in order."""
    if len(parts) > 1:
        return Releases(*map(np.concatenate, zip(*map(_COLUMNS, parts), strict=True)))
    return parts[0] if parts else _NOTHING
