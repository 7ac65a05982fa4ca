"""Records taken apart: one row for each item of a list or map (`input.each`).

It stands between what a format reads of records and the expressions over rows. Each record is taken apart alone. All rows of a
record have what the record has beside its items; the rows are in the order of the list.

A list gives its items. A map gives an item {key, value} for each of its entries, in their order. Where the items stand for the
record itself, so that plain names are theirs, an object is one item. A text, number or truth value is no list: that is bad input.
Null, an absent field and an empty list have no items, and the record is left out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET, Raw

from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.topics.records.fields import BESIDE, Path, plain, walk
from susurrus.topics.records.payloads import AS_THEY_ARE, REFUSED, Chunk, plain_columns
from susurrus.topics.records.raw import MAX_ITEMS
from susurrus.topics.records.reason import LEFT_OUT, Reason
from susurrus.topics.records.refusal import reason_of

Columns = dict[Path, list[Any]]
_DECODE: Final = msgspec.json.Decoder().decode
_LISTS: Final = {list, type(None), type(UNSET)}


@dataclass(slots=True)
class RowTable:
    """The rows of a chunk. columns: by path, UNSET where absent. reason: why a row is to be refused, 0 where it is good.

    unasked: rows of which the condition's fields cannot be had. record: each row's record there; None where rows are records.
    whole: rows that stand for what could not be taken apart.
    """

    rows: int
    columns: Columns
    reason: list[int]
    unasked: set[int] = field(default_factory=set)
    record: list[int] | None = None
    whole: set[int] = field(default_factory=set)

    def refuse(self, row: int, why: Reason, *, unasked: bool) -> None:
        """Note why a row is bad, where nothing is noted yet. unasked: a field of the condition is missing therefore."""
        self.reason[row] = self.reason[row] or int(why)
        if unasked:
            self.unasked.add(row)

    def chunk(self, paths: Sequence[Path], records: int, *, asks: bool) -> Chunk:
        """The chunk with columns for some paths. asks: whether a condition is asked before bad rows are refused."""
        bad = [row for row, why in enumerate(self.reason) if why] if any(self.reason) else []
        refused = {
            row: Reason(self.reason[row])
            for row in bad
            if not asks or row in self.unasked or self.reason[row] in LEFT_OUT
        }
        pending = {row: Reason(self.reason[row]) for row in bad if row not in refused}
        columns = [self.columns[path] for path in paths]
        if refused:
            good = [row for row in range(self.rows) if row not in refused]
            columns = [[column[row] for row in good] for column in columns]
        if self.record is None:
            return Chunk(rows=self.rows, columns=columns, refused=refused, pending=pending)
        record = np.array(self.record, np.int64)
        first = np.searchsorted(record, record)  # of each row's record; records rise
        item = np.arange(len(record)) - first
        item[list(self.whole)] = -1
        return Chunk(
            rows=self.rows, columns=columns, refused=refused, pending=pending, records=records, record=record, item=item
        )


class ListStep:
    """Takes rows apart once.

    of: where the list or map is, or what computes a list of texts. name: what an item is called; None where the items stand for the
    record. wanted: all paths that anybody wants. asked: those of the condition.
    """

    def __init__(self, of: Path | Evaluation, name: str | None, wanted: Sequence[Path], asked: Sequence[Path]) -> None:
        self.of, self._alone = of, name is None
        prefix = () if name is None else (name,)
        mine = [path for path in wanted if path[:1] != (BESIDE,) and path[: len(prefix)] == prefix]
        self.inner = {path: path[len(prefix) :] for path in mine}
        """Where each of the wanted paths that are of this item is in it."""
        self._asked = {path for path in asked if path in self.inner}

    @property
    def outer(self) -> list[Path]:
        """What must be known of a row to take it apart."""
        return list(self.of.expression.fields) if isinstance(self.of, Evaluation) else [self.of]

    def close(self) -> None:
        """End the engine of a computed list."""
        if isinstance(self.of, Evaluation):
            self.of.engine.close()

    def apart(self, table: RowTable) -> RowTable:
        """The rows of the items. A row that is to be refused stays one row."""
        if (usual := self._usual(table)) is not None:
            return usual
        containers, failed = self._containers(table)
        found: list[list[Any] | Reason] = []
        for row, container in enumerate(containers):
            why = table.reason[row] or failed[row]
            found.append(Reason(why) if why else self._items(container))
        owners = range(table.rows) if table.record is None else table.record
        number: Counter[int] = Counter()
        for owner, items in zip(owners, found, strict=True):
            number[owner] += len(items) if isinstance(items, list) else 1
        index: list[int] = []
        flat: list[Any] = []
        reasons: dict[int, Reason] = {}
        last = -1
        for row, (owner, one) in enumerate(zip(owners, found, strict=True)):
            if number[owner] > MAX_ITEMS:
                if owner == last:
                    continue  # one row says it of the whole record
                one = Reason.TOO_MANY_ITEMS
            last = owner
            if not one:
                one = Reason.NO_ITEMS
            if isinstance(one, Reason):
                reasons[len(index)], one = one, [UNSET]
            index += [row] * len(one)
            flat += one
        return self._rows(table, index, flat, reasons)

    def _usual(self, table: RowTable) -> RowTable | None:
        """The same where all rows are good, and have lists or none, and all items are alike: objects, unless they themselves are
        wanted. Else None."""
        if isinstance(self.of, Evaluation) or any(table.reason):
            return None
        lists = table.columns[self.of]
        if not set(map(type, lists)) <= _LISTS:
            return None
        lists = [one or [] for one in lists]
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        owners = np.arange(table.rows) if table.record is None else np.array(table.record, np.int64)
        if not sizes.any() or np.bincount(owners, sizes).max() > MAX_ITEMS:
            return None
        items = _alike(list(chain.from_iterable(lists)))
        inner = None if items is None else self._of_items(items)
        if inner is None:
            return None
        # A row without items stays one row, which is left out.
        row_of = np.repeat(np.arange(table.rows), np.maximum(sizes, 1))
        there = np.repeat(sizes > 0, np.maximum(sizes, 1)).tolist()
        absent = set() if all(there) else {row for row, is_there in enumerate(there) if not is_there}
        if absent:
            inner = [_spread(column, there) for column in inner]
        index = row_of.tolist()
        columns = {path: [column[row] for row in index] for path, column in table.columns.items()}
        return RowTable(
            rows=len(index),
            columns={**columns, **dict(zip(self.inner, inner, strict=True))},
            reason=[0 if is_there else int(Reason.NO_ITEMS) for is_there in there],
            unasked=set(absent) if self._asked else set(),
            record=owners[row_of].tolist(),
            whole=absent,
        )

    def _of_items(self, items: list[Any]) -> list[list[Any]] | None:
        """A column for each of the wanted paths; None where one has to be found value by value."""
        paths = list(self.inner.values())
        if paths and not any(paths):
            return [list(items) for _ in paths] if set(map(type, items)) <= AS_THEY_ARE else None
        return plain_columns(items, paths)

    def _rows(self, table: RowTable, index: list[int], items: list[Any], reasons: Mapping[int, Reason]) -> RowTable:
        columns = {path: [column[row] for row in index] for path, column in table.columns.items()}
        after = RowTable(
            rows=len(index),
            columns=columns,
            reason=[int(reasons.get(row, Reason.OK)) for row in range(len(index))],
            unasked={row for row, before in enumerate(index) if before in table.unasked},
            whole={row for row, before in enumerate(index) if before in table.whole} | set(reasons),
            record=index if table.record is None else [table.record[row] for row in index],
        )
        if self._asked:
            after.unasked |= reasons.keys()
        for row, item in enumerate(items):
            items[row] = item = _decoded(item)
            if isinstance(item, Reason):
                after.refuse(row, item, unasked=bool(self._asked))
                items[row] = UNSET
        for path, inner in self.inner.items():
            columns[path] = column = []
            for row, item in enumerate(items):
                try:
                    column.append(plain(walk(item, inner)))
                except TypeError:
                    column.append(UNSET)
                    after.refuse(row, Reason.WRONG_TYPE, unasked=path in self._asked)
        return after

    def _containers(self, table: RowTable) -> tuple[Sequence[Any], Sequence[int]]:
        if not isinstance(self.of, Evaluation):
            return table.columns[self.of], [0] * table.rows
        # A field of a row that is bad already may be of any kind: it decides nothing.
        found, reasons = self.of.evaluate([table.columns[path] for path in self.outer], table.rows)
        return found, reasons.tolist()

    def _items(self, container: Any) -> list[Any] | Reason:
        if container is None or container is UNSET:
            return []
        if isinstance(container, list):
            return container
        if isinstance(container, Mapping):
            members = {key: _decoded(value) for key, value in container.items()}
            if self._alone:
                return [next((value for value in members.values() if isinstance(value, Reason)), members)]
            return [
                value if isinstance(value, Reason) else {"key": key, "value": value} for key, value in members.items()
            ]
        return Reason.NOT_ITEMS


def _alike(items: list[Any]) -> list[Any] | None:
    """Items that are all decoded already, or now; None where one cannot be, or they differ in that."""
    kinds = set(map(type, items))
    if Raw not in kinds:
        return items
    try:
        return list(map(_DECODE, items)) if kinds == {Raw} else None
    except REFUSED:  # which one it is, is found one by one
        return None


def _spread(column: list[Any], there: Sequence[bool]) -> list[Any]:
    """A column with UNSET at the rows that it lacks."""
    found = iter(column)
    return [next(found) if is_there else UNSET for is_there in there]


def _decoded(item: Any) -> Any:
    """A member of a list or object, which may have been left in JSON; the Reason of one that is no value. It is decoded by itself,
    as it may be of another user than its neighbours."""
    if not isinstance(item, Raw):
        return item
    try:
        return _DECODE(item)
    except REFUSED:
        return reason_of(bytes(item), [()])
