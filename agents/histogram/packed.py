"""Columns of released numbers in few bytes: the integers and the errors of a hundred triggers stay in memory without any loss."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_INTEGERS = (np.int8, np.int16, np.int32)


@dataclass(frozen=True, slots=True)
class Packed:
    """A column of n numbers. values: the numbers, or the distinct ones among them; codes: which of them each is, or None."""

    values: Array
    codes: Array | None
    length: int

    @classmethod
    def of(cls, column: Array) -> Self:
        """int64[n] or float64[n] -> the same numbers. Integers take the smallest type that holds them. Where 65,536 floats or fewer
        differ, each is kept once: standard errors are few, because they follow from the calendar more than from the key."""
        if column.dtype.kind == "i":
            low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
            kind = next((k for k in _INTEGERS if np.iinfo(k).min <= low and high <= np.iinfo(k).max), np.int64)
            return cls(column.astype(kind), None, len(column))
        distinct, codes = np.unique(column, return_inverse=True)
        if len(distinct) == 1:
            return cls(distinct, None, len(column))
        if len(distinct) <= min(1 << 16, len(column) // 2):
            return cls(distinct, codes.astype(np.uint8 if len(distinct) <= 1 << 8 else np.uint16), len(column))
        return cls(column, None, len(column))

    def all(self) -> Array:
        """int64[n] or float64[n]."""
        if self.codes is not None:
            column: Array = self.values[self.codes]
            return column
        if len(self.values) == 1 and self.length != 1:
            return np.full(self.length, self.values[0])
        return self.values.astype(np.int64) if self.values.dtype.kind == "i" else self.values

    def at(self, row: int) -> int | float:
        """Returns one of the numbers, as Python's own. Raises IndexError beyond the end."""
        if row >= self.length:
            raise IndexError(row)
        if self.codes is not None:
            row = int(self.codes[row])
        elif len(self.values) == 1:
            row = 0
        number: int | float = self.values[row].item()
        return number

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.values.nbytes + (0 if self.codes is None else self.codes.nbytes)
