"""From the chunks of a batch to whole columns: a reason for every row; codes, items and numbers of the good rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.categories import Categories, combine, mark_too_large, renumber
from susurrus.topics.records.numbers import Reasons
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.wire.packing import Int32s, Int64s

Measure = Callable[[Sequence[Any]], tuple[Int64s, Reasons]]
"""Makes numbers of a field, with a Reason per row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assembled:
    """A batch. reason: uint8[n], a Reason, 0 = good.

    categories: for each group of scalars int32[n] codes, -1 for bad records, and their canonical bytes, all of them in use.
    numbers: int64[n] each, 0 for bad records.
    """

    reason: Reasons
    categories: list[tuple[Int32s, list[bytes]]]
    numbers: list[Int64s]
    record: Int64s | None
    """int64[n], the payload of each row; None where every payload is one row."""
    item: Int64s | None
    """int64[n], the row's place in it."""


class RecordColumns:
    """Columns of the accepted records, chunk by chunk; the rest of a record's checks; and their assembly at the end.

    groups: scalars that make one code together, such as the parts of a composite key. measures: of the columns of numbers.
    A chunk has the columns of all scalars in the order of the groups, then those of the numbers.
    """

    def __init__(self, groups: Sequence[Sequence[Categories]], measures: Sequence[Measure]) -> None:
        self._groups, self._measures = groups, measures
        self._refused: list[Reasons] = []
        self._records = 0
        self._record: list[Int64s] = []
        self._item: list[Int64s] = []
        self._codes: list[list[list[Int32s]]] = [[[] for _ in group] for group in groups]
        self._numbers: list[list[tuple[Int64s, Reasons]]] = [[] for _ in measures]

    def add(self, chunk: Chunk, codes: Int32s | None = None) -> None:
        """codes: of the only scalar, where the chunk does not have it."""
        refused = np.zeros(chunk.rows, np.uint8)
        refused[list(chunk.refused)] = list(chunk.refused.values())
        self._refused.append(refused)
        if chunk.record is not None and chunk.item is not None:
            self._record.append(chunk.record + self._records)
            self._item.append(chunk.item)
        self._records += chunk.payloads
        columns = iter(chunk.columns)
        for group, found in zip(self._groups, self._codes, strict=True):
            for categories, pieces in zip(group, found, strict=True):
                pieces.append(categories.add(next(columns)) if codes is None else codes)
        for measure, numbers in zip(self._measures, self._numbers, strict=True):
            numbers.append(measure(next(columns)))

    def finish(self) -> Assembled:
        """The whole batch. A record's reasons are found in the order of groups and numbers; the first one stands."""
        whole = np.concatenate([np.zeros(0, np.uint8), *self._refused])
        rows = np.flatnonzero(whole == 0)
        reason = np.zeros(rows.size, np.uint8)
        found = [resolve(group, pieces, reason) for group, pieces in zip(self._groups, self._codes, strict=True)]
        numbers = [np.zeros(whole.size, np.int64) for _ in self._numbers]
        for column, chunks in zip(numbers, self._numbers, strict=True):
            column[rows] = collect(chunks, reason)
        whole[rows] = reason
        good = whole == 0
        if not good.all():
            found = [spread(codes[reason == 0], items, good) for codes, items in found]
            for column in numbers:
                column[~good] = 0
        record, item = (np.concatenate(places) if places else None for places in (self._record, self._item))
        return Assembled(reason=whole, categories=found, numbers=numbers, record=record, item=item)


def note(reason: Reasons, found: npt.NDArray[np.integer]) -> None:
    """The first reason of a row stands."""
    np.copyto(reason, found.astype(np.uint8), where=reason == 0)


def collect(chunks: list[tuple[Int64s, Reasons]], reason: Reasons) -> Int64s:
    """The numbers of all chunks; notes their reasons."""
    note(reason, np.concatenate([np.zeros(0, np.uint8), *(found for _, found in chunks)]))
    return np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in chunks)])


def resolve(parts: Sequence[Categories], chunks: list[list[Int32s]], reason: Reasons) -> tuple[Int32s, list[bytes]]:
    """Codes and canonical bytes of a user (one part) or key (one or more); codes of bad rows mean nothing."""
    codes: list[Int32s] = []
    items: list[list[bytes]] = []
    for categories, pieces in zip(parts, chunks, strict=True):
        code = np.concatenate([np.zeros(0, np.int32), *pieces])
        canonical, why = categories.finish()
        if code.size and int(code.min()) < 0:
            note(reason, np.maximum(-code, 0))
            code = np.maximum(code, 0)
        if why.any():
            note(reason, why[code])
        codes.append(code)
        items.append(canonical or [b"null"] * bool(code.size))  # something to point at when all rows are bad
    if len(codes) == 1:
        return codes[0], items[0]
    combined, members = codes[0].astype(np.int64), [np.arange(len(items[0]), dtype=np.int32)]
    for code, canonical in zip(codes[1:], items[1:], strict=True):
        combined, before, last = combine(combined, code, len(canonical))
        members = [*(member[before] for member in members), last]
    texts = [[canonical[i] for i in member.tolist()] for canonical, member in zip(items, members, strict=True)]
    keys = [b"[" + b",".join(scalars) + b"]" for scalars in zip(*texts, strict=True)]
    why = np.zeros(len(keys), np.int32)
    mark_too_large(keys, parts[0].limit, why)
    if why.any():
        note(reason, why[combined])
    return combined.astype(np.int32), keys


def spread(codes: Int32s, items: list[bytes], good: npt.NDArray[np.bool_]) -> tuple[Int32s, list[bytes]]:
    """Codes of the good rows at their rows, -1 elsewhere, with only the items they use."""
    renumbered, rows = renumber(codes)
    spread = np.full(good.size, -1, np.int32)
    spread[good] = renumbered
    return spread, [items[i] for i in codes[rows].tolist()]
