"""bound's users: a table per open window in memory, and what the state holds of it.

    close of an interval ──▶ one row of changes per window (user_changes.py)
    too much in memory   ──▶ a row per user (user_caps.py), the rows of changes go, and the tables begin anew
    a new owner          ──▶ the rows of changes, applied in order

A user that comes again after its window was gathered enters the new table with the list of its row. Rows of users change in a
gathering only, which takes all rows of changes with it. So changes are always applied to the lists that they were found on.

State keys: ``v`` window interval -> changes; ``g`` window user -> row; ``u`` window user -> row of the version before, which counts
where there is none in ``g``. They are dropped with their window.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram import user_changes
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.user_caps import CapsLayout
from susurrus.agents.runtime.store import prefix_end
from susurrus.agents.runtime.store_part import ReadStore
from susurrus.mechanisms.arrays import Bools, Int32s
from susurrus.mechanisms.calendar import Interval, WindowIndex
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.compiled_user_table import user_table
from susurrus.mechanisms.histogram.name_index import Names
from susurrus.mechanisms.histogram.pair_index import grown
from susurrus.mechanisms.histogram.record_order import Hashes
from susurrus.mechanisms.histogram.user_table import Closed, Codes, Lists, UserTable
from susurrus.topics.wire.blobs import BlobColumns
from susurrus.topics.wire.partitioner import placements

CHANGES, GATHERED, BEFORE = b"v", b"g", b"u"

_MEMORY_BYTES = 128 << 20
"""The most memory of a partition's tables, with what it takes to write them down."""
_WORKER_MEMORY_BYTES = 512 << 20
"""Shared by the partitions of a worker, so that its memory does not grow with their number."""
_ROW_BYTES = 150
"""What the row of one user takes while it is written, beside its bytes."""
_PIECE_USERS = 1 << 16
_PIECE_BYTES = 1 << 24
"""The most bytes of lists that are read at once."""

Users = tuple[npt.NDArray[np.int32], Sequence[bytes]]
"""Codes of records into users' names, which are distinct."""

_in_use: "WeakSet[UserState]" = WeakSet()


@dataclass(frozen=True, slots=True)
class Entered:
    """The users of some records. known: how many the table had before; number int32[n]; hashes uint32[n], as `RecordOrder` takes
    them."""

    known: int
    number: Int32s
    hashes: Hashes


class UserState:
    """The users of one by-user partition. ``meta`` is that of the last commit. bounding_of: that of one window."""

    def __init__(
        self, store: ReadStore, bounding_of: Callable[[WindowIndex], Bounding], layout: CapsLayout, meta: dict[str, Any]
    ) -> None:
        self._store, self._bounding_of, self._layout = store, bounding_of, layout
        self._tables: dict[WindowIndex, UserTable] = {}
        self._hashes: dict[WindowIndex, Hashes] = {}
        """Of the tables' users, by number, with room behind. They are what orders records, and do not change."""
        self._gathered = {WindowIndex(int(window)) for window in meta.get("gathered", ())}
        if meta["format"] == layout.before:
            self._before = set(self._windows_before())
        else:
            self._before = {WindowIndex(int(window)) for window in meta.get("before", ())}
        _in_use.add(self)
        for name, row in store.scan(CHANGES, prefix_end(CHANGES)):
            window = WindowIndex(int.from_bytes(name[1:9], "big") - (1 << 63))
            changes = user_changes.decode(row)
            table = self._table(window)
            self._enter(window, table, changes.names)
            changes.apply(table)

    def _windows_before(self) -> Iterator[WindowIndex]:
        """The windows of which the version before has rows."""
        start = BEFORE
        while (found := next(iter(self._store.scan(start, prefix_end(BEFORE))), None)) is not None:
            yield WindowIndex(int.from_bytes(found[0][1:9], "big") - (1 << 63))
            start = prefix_end(found[0][:9])

    def to_meta(self) -> dict[str, Any]:
        """What a new owner must know to read the state."""
        windows = {"gathered": sorted(self._gathered), "before": sorted(self._before)}
        return {name: found for name, found in windows.items() if found}

    # ---- an interval -------------------------------------------------------------------------------------------------

    def enter(self, window: WindowIndex, users: Sequence[Users]) -> Entered:
        """The users of a window's records of an interval, by block, in order."""
        table = self._table(window)
        known = len(table)
        numbers = [self._enter(window, table, names)[user] for user, names in users]
        number = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
        return Entered(known, number, self._hashes[window][number])

    def close(
        self,
        window: WindowIndex,
        interval: Interval,
        users: Entered,
        key: Int32s,
        codes: Codes,
        priority: Hashes,
        trigger: int,
        public: Bools | None,
    ) -> tuple[Closed, list[tuple[bytes, bytes]]]:
        """(what counts of a window's records in an interval, what to store), as `UserTable.close`."""
        table = self._table(window)
        closed = table.close(users.number, key, codes, priority, trigger, public)
        names = table.names(users.known)
        if not names and not len(closed.changes.user):
            return closed, []
        ledger = self._bounding_of(window).ledger
        root = 0 if ledger is None else int(ledger.roots[trigger - 1])
        row = user_changes.encode(users.known, names, closed.changes, codes, public, root)
        return closed, [(CHANGES + ordered(window) + ordered(interval), row)]

    def _table(self, window: WindowIndex) -> UserTable:
        if window not in self._tables:
            self._tables[window] = user_table(self._bounding_of(window))
            self._hashes[window] = np.zeros(0, np.uint32)
        return self._tables[window]

    def _enter(self, window: WindowIndex, table: UserTable, names: Sequence[bytes]) -> Int32s:
        known = len(table)
        if isinstance(names, BlobColumns):
            numbers = table.enter_names(Names(data=names.data, start=names.start, length=names.length))
        else:
            numbers = table.enter(names)
        if len(table) > known:
            hashes = self._hashes[window] = grown(self._hashes[window], len(table))
            hashes[known : len(table)] = placements(table.names(known))
            if window in self._gathered:
                self._read_back(table, known, GATHERED + ordered(window))
            if window in self._before:
                self._read_back(table, known, BEFORE + ordered(window), before=True)
        return numbers

    def _read_back(self, table: UserTable, known: int, prefix: bytes, *, before: bool = False) -> None:
        """Give the users from number ``known`` on the lists that are stored, unless they have one."""
        rows = self._store.get([prefix + name for name in table.names(known)])
        users = np.array([known + at for at, row in enumerate(rows) if row is not None], np.int64)
        if not len(users):
            return
        lists = self._layout.unpack([row for row in rows if row is not None], before=before)
        empty = table.lengths()[users] == 0
        if not empty.all():
            lists = _some(lists, empty)
        table.fill(users[empty], lists)

    def drop(self, oldest: WindowIndex) -> None:
        """Forget the windows before this one."""
        for window in [window for window in self._tables if window < oldest]:
            del self._tables[window], self._hashes[window]
        self._gathered = {window for window in self._gathered if window >= oldest}
        self._before = {window for window in self._before if window >= oldest}

    # ---- memory ------------------------------------------------------------------------------------------------------

    @property
    def outgrown(self) -> bool:
        """Whether the tables take more than memory should hold."""
        tables = sum(table.size + _ROW_BYTES * len(table) for table in self._tables.values())
        return tables + sum(hashes.nbytes for hashes in self._hashes.values()) > min(
            _MEMORY_BYTES, _WORKER_MEMORY_BYTES // len(_in_use)
        )

    def gather(self) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
        """(what to store, ranges to drop before) so that all users have rows of their own; the tables are empty then."""
        puts: list[tuple[bytes, bytes]] = []
        drops = []
        for window, table in self._tables.items():
            prefix, names = GATHERED + ordered(window), table.names(0)
            for start in range(0, len(names), _PIECE_USERS):
                some = names[start : start + _PIECE_USERS]
                rows = self._layout.pack(table.lists(np.arange(start, start + len(some))))
                puts += zip(map(prefix.__add__, some), rows, strict=True)
            changes = CHANGES + ordered(window)
            drops.append((changes, prefix_end(changes)))
        self._gathered.update(self._tables)
        self._tables.clear()
        self._hashes.clear()
        return puts, drops

    # ---- all of a window's lists -----------------------------------------------------------------------------------

    def lists(self, window: WindowIndex) -> Iterator[Lists]:
        """The lists of all users of a window, in pieces."""
        table = self._table(window)
        entries = np.cumsum(table.lengths() + 1)
        start = 0
        # By entries, not by users: a full list is ten thousand times as long as most.
        while start < len(entries):
            before = int(entries[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(entries, before + _PIECE_BYTES // 8, side="right")))
            yield table.lists(np.arange(start, end))
            start = end
        if window in self._gathered:
            for names, rows in self._stored(GATHERED + ordered(window)):
                yield self._not_in_memory(table, names, rows)
        if window in self._before:
            prefix = GATHERED + ordered(window)
            for names, rows in self._stored(BEFORE + ordered(window)):
                newer = self._store.get([prefix + name for name in names])
                places = [at for at, row in enumerate(newer) if row is None]
                of_names, of_rows = [names[at] for at in places], [rows[at] for at in places]
                yield self._not_in_memory(table, of_names, of_rows, before=True)

    def _not_in_memory(self, table: UserTable, names: list[bytes], rows: list[bytes], *, before: bool = False) -> Lists:
        away = np.flatnonzero(table.find(names) < 0).tolist()
        return self._layout.unpack([rows[at] for at in away], before=before)

    def _stored(self, prefix: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """(users, rows) with a prefix, in pieces."""
        names: list[bytes] = []
        rows: list[bytes] = []
        size = 0
        for name, row in self._store.scan(prefix, prefix_end(prefix)):
            names.append(name[len(prefix) :])
            rows.append(row)
            size += len(row)
            if size >= _PIECE_BYTES:
                yield names, rows
                names, rows, size = [], [], 0
        yield names, rows


def _some(lists: Lists, users: Bools) -> Lists:
    """The entries of some users: bool[U]."""
    lengths = np.diff(lists.indptr)
    entries = np.repeat(users, lengths)
    columns = {name: getattr(lists, name)[entries] for name in ("code", "count", "unranked", "spent")}
    return Lists(indptr=np.concatenate(([0], np.cumsum(lengths[users]))), charged=lists.charged[users], **columns)
