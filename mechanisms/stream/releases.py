"""What ToPS and PAK release of a stream, as columns: one row per leaf (ToPS) or per value (PAK)."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from susurrus.mechanisms.arrays import Floats, Int64s


@dataclass(frozen=True, slots=True)
class Releases:
    """Consecutive rows of one stream.  Unit: value grid; positions count from 0 over all events of the stream.

    first, last: int64[n], the positions that a row covers.  value: int64[n], the released sum of these values.  sum:
    int64[n], the released sum from the first released position on.  value_error, sum_error: float64[n], standard errors
    of the noise in them.  layout: int64[n], menu entry of the tree; 0 for PAK.  theta, lower: int64[n], values are clipped
    to [lower, theta].

    Where a leaf completes a block, else nan or -1: filtered_sum, filtered_sum_error: float64[n], posterior of the running
    sum; fit: float64[n], the recent mean of squared standardised innovations, about 1 while the filter's models fit;
    jump_first, jump_last: int64[n], the positions between which the level has jumped in the open tree (the first position
    behind the jump), -1 if it has not.

    In the last row of a tree that counted, else nan: clipped, clipped_error: float64[n], how many of its values lay above
    theta; truncated, truncated_error: float64[n], the sum that theta has cut off, estimated from it.
    """

    first: Int64s
    last: Int64s
    value: Int64s
    value_error: Floats
    sum: Int64s
    sum_error: Floats
    layout: Int64s
    theta: Int64s
    lower: Int64s
    filtered_sum: Floats
    filtered_sum_error: Floats
    fit: Floats
    jump_first: Int64s
    jump_last: Int64s
    clipped: Floats
    clipped_error: Floats
    truncated: Floats
    truncated_error: Floats

    def __len__(self) -> int:
        return len(self.last)

    def for_ranges(self) -> dict[str, Any]:
        """Return the columns that ``ReleasedStream.of`` takes."""
        return {name: getattr(self, name) for name in _FOR_RANGES}

    def taken(self, places: Int64s) -> "Releases":
        """Return the rows at these places."""
        return Releases(*(column[places] for column in _COLUMNS(self)))


_FOR_RANGES = ("value", "layout", "theta", "lower", "fit", "jump_first", "jump_last")
_COLUMNS = attrgetter(*Releases.__dataclass_fields__)


def joined(parts: Sequence[Releases]) -> Releases:
    """Return the rows of all parts, in order."""
    if len(parts) > 1:
        return Releases(*map(np.concatenate, zip(*map(_COLUMNS, parts), strict=True)))
    return parts[0] if parts else _nothing()


def _nothing() -> Releases:
    kinds: dict[str, Any] = {
        name: np.int64 if kind is Int64s else np.float64 for name, kind in Releases.__annotations__.items()
    }
    return Releases(**{name: np.zeros(0, kind) for name, kind in kinds.items()})
