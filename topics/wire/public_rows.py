"""Rows on their way to a public topic: columns, of which each output format makes its own bytes.

a release as columns ──histogram.public_rows──▶ PublicRows ──┬─ json ────────────────────────────▶ values in JSON
                                                             └─ ColumnWriter (column_writer.py) ─▶ values in another format
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Self

import numpy as np

from susurrus.topics.wire.json_rows import Members, OfSomeRows, OrNull, Value, check, checked_rows

CHUNK: Final = 1 << 14
"""Rows that are written at a time, so that what stands between columns and rows stays small. It changes no byte."""


class PublicRows:
    """Rows of one topic. members: as for `json_rows.rows`; None where the rows are JSON already.

    Raises ValueError where a number is not finite, which is never published, or a column does not have n rows.
    """

    __slots__ = ("_json", "_n", "members")

    def __init__(self, n: int, members: Members) -> None:
        check(members, "", n)
        self._n = n
        self.members: Members | None = members
        self._json: Sequence[bytes] | None = None

    @classmethod
    def of_json(cls, json: Sequence[bytes]) -> Self:
        """Rows that were written one by one."""
        found = cls(0, {})
        found._n, found.members, found._json = len(json), None, json
        return found

    def __len__(self) -> int:
        return self._n

    @property
    def json(self) -> Sequence[bytes]:
        """The rows as JSON objects. They are made when they are first asked for."""
        if self._json is None:
            self._json = [row for n, members in self.chunks() for row in checked_rows(n, members)]
        return self._json

    def chunks(self) -> Iterator[tuple[int, Members]]:
        """The rows in their order, `CHUNK` at a time: how many, and their columns. None of rows that are JSON already."""
        for start in range(0, 0 if self.members is None else self._n, CHUNK):
            end = min(start + CHUNK, self._n)
            yield end - start, _part(self.members or {}, start, end)


def _part(members: Members, start: int, end: int) -> Members:
    return {name: _part_of(value, start, end) for name, value in members.items()}


def _part_of(value: Value, start: int, end: int) -> Value:
    """What rows ``start`` to ``end`` have of it."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return _part(value, start, end)
    if isinstance(value, OfSomeRows | OrNull):
        first, rows = int(np.count_nonzero(value.rows[:start])), value.rows[start:end]
        last = first + int(np.count_nonzero(rows))
        if isinstance(value, OfSomeRows):
            return OfSomeRows(rows, _part(value.of, first, last))
        return OrNull(rows, value.of[first:last] if isinstance(value.of, np.ndarray) else _part(value.of, first, last))
    return value[start:end]
