"""`UserTable` compiled: the same results by one loop over the records (mechanisms/rust/src/user_table.rs).

What the loop does not cover goes through the definition, on lists gathered from here.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from susurrus.mechanisms.arrays import Bools, Int32s, Int64s
from susurrus.mechanisms.compiled import compiled
from susurrus.mechanisms.histogram import bounding as bounding_module
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounding
from susurrus.mechanisms.histogram.name_index import Names
from susurrus.mechanisms.histogram.per_key import offsets
from susurrus.mechanisms.histogram.record_order import Hashes
from susurrus.mechanisms.histogram.user_table import Changes, Closed, Codes, Lists, UserTable, spends

_UNRANKED = np.uint32(1 << 31)
_KEPT, _FIRST = np.uint8(1), np.uint8(2)
_MOST = 1 << 31
"""Caps from here on do not fit the compiled table's counts."""


def user_table(bounding: Bounding) -> UserTable:
    """An empty table: the compiled one, where it was built and counts what these caps allow."""
    most = max(bounding.max_records, bounding.max_records_per_key)
    return UserTable(bounding) if compiled is None or most >= _MOST else CompiledUserTable(bounding)


class CompiledUserTable(UserTable):
    """The columns are in the extension module."""

    def __init__(self, bounding: Bounding) -> None:
        self.bounding = bounding
        ledger = bounding.ledger
        self._spends = spends(bounding)
        self._table = compiled.UserTable(
            max_records=bounding.max_records,
            max_records_per_key=bounding.max_records_per_key,
            max_keys=-1 if bounding.max_keys is None else bounding.max_keys,
            ledger=None if ledger is None else (ledger.measured, ledger.counting, ledger.limit),
            spends=self._spends,
        )

    def __len__(self) -> int:
        return len(self._table)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        size: int = self._table.size
        return size

    def enter(self, names: Sequence[bytes]) -> Int32s:
        """As in the definition."""
        return self.enter_names(Names.of(names))

    def enter_names(self, names: Names) -> Int32s:
        """As in the definition. Raises ValueError for names outside their data."""
        start, length = (np.ascontiguousarray(column, np.int64) for column in (names.start, names.length))
        return np.frombuffer(self._table.enter(names.data, start, length), np.int32)

    def find(self, names: Sequence[bytes]) -> Int32s:
        """As in the definition."""
        return np.frombuffer(self._table.find(list(names)), np.int32)

    def names(self, start: int) -> list[bytes]:
        """As in the definition."""
        names: list[bytes] = self._table.names(start)
        return names

    def lengths(self) -> Int64s:
        """As in the definition."""
        return np.frombuffer(self._table.lengths(), np.int64)

    def lists(self, users: Int64s) -> Lists:
        """As in the definition."""
        lengths, code, counts, spent, charged = self._table.lists(np.ascontiguousarray(users, np.int64))
        noted = np.frombuffer(counts, np.uint32)
        count = (noted & ~_UNRANKED).astype(np.int32)
        return Lists(
            indptr=offsets(np.frombuffer(lengths, np.int64)),
            code=np.frombuffer(code, np.uint32),
            count=count,
            unranked=noted >= _UNRANKED,
            spent=(np.frombuffer(spent, np.uint32) if self._spends else count).astype(np.int64),
            charged=np.frombuffer(charged, np.int64) if charged else np.zeros(len(users), np.int64),
        )

    def fill(self, users: Int64s, lists: Lists) -> None:
        """As in the definition."""
        self._table.fill(
            np.ascontiguousarray(users, np.int64),
            np.diff(lists.indptr),
            np.ascontiguousarray(lists.code),
            lists.count.astype(np.uint32) | np.where(lists.unranked, _UNRANKED, np.uint32(0)),
            lists.spent.astype(np.uint32),
            np.ascontiguousarray(lists.charged, np.int64),
        )

    def apply(self, user: Int64s, code: Codes, unranked: Bools, added: Int64s, root: int) -> None:
        """As in the definition."""
        columns = (np.ascontiguousarray(column) for column in (user, code, unranked.view(np.uint8), added))
        self._table.apply(*columns, root)

    def close(
        self,
        user: Int32s,
        key: Int32s,
        codes: Codes,
        priority: Hashes,
        trigger: int,
        public: Bools | None = None,
    ) -> Closed:
        """As in the definition."""
        bounding = self.bounding
        if (public is None) != (bounding.lag is None):
            raise ValueError("public: must be given exactly where there is a lag")
        closed = self._table.close(
            np.ascontiguousarray(user, np.int32),
            np.ascontiguousarray(key, np.int32),
            np.ascontiguousarray(codes, np.uint32),
            np.ascontiguousarray(priority, np.uint32),
            None if public is None else np.ascontiguousarray(public).view(np.uint8),
            None if bounding.weights is None else np.ascontiguousarray(bounding.weights[:, trigger - 1], np.int64),
            one=WEIGHT_ONE,
            root=0 if bounding.ledger is None else int(bounding.ledger.roots[trigger - 1]),
            longest=bounding_module.MAX_LISTED_KEYS,
        )
        if closed is None:
            # Of such a user's records in one interval not all are considered.
            return self._close_by_definition(user, key, codes, priority, trigger, public)
        flags, weight, users, keys, added = closed
        flag = np.frombuffer(flags, np.uint8)
        return Closed(
            kept=(flag & _KEPT) != 0,
            first=(flag & _FIRST) != 0,
            weight=np.frombuffer(weight, np.int64),
            changes=Changes(
                user=np.frombuffer(users, np.int64),
                key=np.frombuffer(keys, np.int32),
                added=np.frombuffer(added, np.int64),
            ),
        )

    def _close_by_definition(
        self, user: Int32s, key: Int32s, codes: Codes, priority: Hashes, trigger: int, public: Bools | None
    ) -> Closed:
        """By a table of the definition that has the lists of these users."""
        users, member = np.unique(user.astype(np.int64), return_inverse=True)
        some = UserTable(self.bounding)
        some.enter([b"%d" % number for number in range(len(users))])
        some.fill(np.arange(len(users)), self.lists(users))
        closed = some.close(member.astype(np.int32), key, codes, priority, trigger, public)
        changes = replace(closed.changes, user=users[closed.changes.user])
        self.apply(
            changes.user,
            codes[changes.key],
            np.zeros(len(changes.user), np.bool_) if public is None else public[changes.key],
            changes.added,
            0 if self.bounding.ledger is None else int(self.bounding.ledger.roots[trigger - 1]),
        )
        return replace(closed, changes=changes)
