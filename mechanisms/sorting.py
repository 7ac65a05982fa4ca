"""Rows by columns of whole numbers: the order of a user's records, and which rows are alike.

    columns ──in_order_of──▶ rows by the first column, then by the next ──groups_of──▶ rows that agree in all of them

numpy sorts 16 bits by counting, in a tenth of the time in which it compares 64. So a column is sorted by 16 bits at a time, the
lowest first, and only by as many as its largest value has.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int64s

Column = npt.NDArray[np.integer[Any]]

_DIGIT = 16


def in_order_of(*columns: Column) -> npt.NDArray[np.intp]:
    """intp[n]: rows by the first column, those that agree in it by the next, and so on; rows that agree in all as they are given.

    columns: one or more of n numbers each, none of them negative.
    """
    order: npt.NDArray[np.intp] | None = None
    for column in reversed(columns):
        largest = int(column.max()) if len(column) else 0
        for shift in range(0, largest.bit_length(), _DIGIT):
            digit = (column >> shift if shift else column).astype(np.uint16)
            order = (
                np.argsort(digit, kind="stable") if order is None else order[np.argsort(digit[order], kind="stable")]
            )
    return np.arange(len(columns[0])) if order is None else order


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Rows that agree, as groups 0 to g - 1.

    of_row int64[n]: each row's group; order intp[n]: rows by group, those of one group as they are; start int64[n]: where in
    `order` the group of a place begins; first intp[g]: each group's first row.
    """

    of_row: Int64s
    order: npt.NDArray[np.intp]
    start: Int64s
    first: npt.NDArray[np.intp]

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.first)

    def earlier(self, rows: Bools | None = None) -> Int64s:
        """int64[n]: how many rows before each row are of its group; rows, bool[n]: which of them count, by default all."""
        found = np.empty(len(self.order), np.int64)
        if rows is None:
            found[self.order] = np.arange(len(self.order)) - self.start
        else:
            total = np.zeros(len(self.order) + 1, np.int64)
            np.cumsum(rows[self.order], out=total[1:])
            found[self.order] = total[:-1] - total[self.start]
        return found


def groups_of(*columns: Column) -> Groups:
    """Rows that agree in all columns, which are as `in_order_of` takes them."""
    order = in_order_of(*columns)
    begins = np.zeros(len(order), np.bool_)
    begins[:1] = True
    for column in columns:
        ordered = column[order]
        begins[1:] |= ordered[1:] != ordered[:-1]
    starts, number = np.flatnonzero(begins), np.cumsum(begins) - 1
    of_row = np.empty(len(order), np.int64)
    of_row[order] = number
    return Groups(of_row=of_row, order=order, start=starts[number], first=order[starts])


def group_starts(group: Column) -> npt.NDArray[np.intp]:
    """intp[n]: the first row of each row's group. group: of n rows, where those of a group stand together."""
    begins = np.ones(len(group), np.bool_)
    begins[1:] = group[1:] != group[:-1]
    starts: npt.NDArray[np.intp] = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return starts
