"""Rankings of released rows: a condition on columns, an order by one of them, and a limit.

It is post-processing: all it sees is released, so it costs no privacy (docs/guarantees/post-processing.md). Release uses it to
choose what may come first in all partitions together, the rank stage and readers use it for the whole.

    rows of a release, in the order of their keys ──▶ the numbers of the first rows, in the order of the ranking
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Released = npt.NDArray[np.int64] | npt.NDArray[np.float64]

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">=": np.greater_equal,
    ">": np.greater,
    "<=": np.less_equal,
    "<": np.less,
}
"""By their signs."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``column sign number``, for example n >= 100. column: of the release. sign: one of ``COMPARISONS``."""

    column: str
    sign: str
    number: int | float

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRanking:
    """Which rows come first. order_by: a column. descending: the largest estimate is the first. limit: at most so many rows.
    having: all of them must hold for the estimates of a row."""

    order_by: str
    descending: bool
    limit: int
    having: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        conditions = f"HAVING {' AND '.join(map(str, self.having))} " if self.having else ""
        return f"{conditions}ORDER BY {self.order_by}{' DESC' if self.descending else ''} LIMIT {self.limit}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at, each once."""
        return tuple(dict.fromkeys((self.order_by, *(condition.column for condition in self.having))))

    def first(self, columns: Mapping[str, Released]) -> Rows:
        """The numbers of the first rows, at most ``limit``, in the order of the ranking; ties are in the order of the rows.

        columns: by name, released numbers of n rows, which stand in the byte order of their keys. Raises ValueError for a number
        that is not finite, KeyError for a column that is not there. Post-processing.
        """
        if not all(np.isfinite(columns[name]).all() for name in self.columns):
            raise ValueError("an estimate is not finite, which is never published")
        met = np.ones(len(columns[self.order_by]), np.bool_)
        for condition in self.having:
            met &= COMPARISONS[condition.sign](columns[condition.column], condition.number)
        rows = np.flatnonzero(met)
        # Their places among the distinct numbers can be negated, which the least integer cannot.
        _, place = np.unique(columns[self.order_by][rows], return_inverse=True)
        return rows[np.argsort(-place if self.descending else place, kind="stable")[: self.limit]]
