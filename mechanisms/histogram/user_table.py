"""The users of one open window and what they brought, as columns: the state that `Bounding` needs, and the pass over an interval.

    users ──enter──▶ numbers ──close──▶ which records count, and the changes of the lists ──apply──▶ the same table elsewhere

This is the definition: `close` gathers the lists of the interval's users, asks `Bounding.close`, and applies the changes it finds.
compiled_user_table.py does the same in one loop. Both have the same results, changes included (docs/guarantees/bounding.md, "Two
programs, one rule").

A user is known by its exact bytes. Keys are known by codes of 32 bits: hashes, or numbers of keys where lists must lead back to
them. Keys with one code are one key to the caps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int32s, Int64s
from susurrus.mechanisms.histogram.bounding import Bounding, UserKeys
from susurrus.mechanisms.histogram.per_key import offsets, segment_sums
from susurrus.mechanisms.histogram.record_order import Hashes, in_order

Codes = npt.NDArray[np.uint32]

_ROOM = 16
_USER_BYTES = 200
"""What a user costs in a dictionary and in lists, beside the bytes of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """The lists of U users, compressed by user, in the order in which the keys came on them.

    indptr int64[U + 1]; code uint32[n]: keys, distinct within a list; count int32[n]: kept records; unranked bool[n]: the key took
    no rank; spent int64[n]: of a ledger, or the same as count where nothing more is needed; charged int64[U]: 0 without a ledger.
    """

    indptr: Int64s
    code: Codes
    count: Int32s
    unranked: Bools
    spent: Int64s
    charged: Int64s

    def user_keys(self, found: Codes) -> UserKeys:
        """Returns users and keys as `Bounding.close` takes them. found: codes of the batch, ascending; a key's place there is its
        code in the batch."""
        at = np.minimum(np.searchsorted(found, self.code), len(found) - 1)
        other = -1 - np.arange(len(self.code))
        key = np.where(found[at] == self.code, at, other) if len(found) else other
        return UserKeys(
            indptr=self.indptr,
            key=key.astype(np.int32),
            count=self.count,
            unranked=self.unranked,
            kept=segment_sums(self.count.astype(np.int64), self.indptr),
            spent=self.spent,
            charged=self.charged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What an interval changes in the lists: one row per (user, key), by user, each user's in the order of its records.

    user int64[c]: numbers, not decreasing; key int32[c]: place among the batch's keys; added int64[c]: kept records, 0 only where a
    key comes on a whole list and nothing is kept of it.
    """

    user: Int64s
    key: Int32s
    added: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Outcome of `UserTable.close`, aligned with its rows: kept bool[n], first bool[n], weight int64[n] as in `Bounded`."""

    kept: Bools
    first: Bools
    weight: Int64s
    changes: Changes


def spends(bounding: Bounding) -> bool:
    """Whether a ledger must know more of a key than how many of its records are kept.

    A key whose one record is kept admits no other; and where users alone are counted, a kept record is all that matters.
    """
    ledger = bounding.ledger
    return ledger is not None and ledger.measured > 0 and bounding.max_records_per_key > 1


class UserTable:
    """Users are numbered from 0 in order of arrival. Nothing is ever taken out: who needs room gathers the lists, and begins anew.

    A user is its exact bytes: if two were taken for one, either would decide about the other's records.
    """

    def __init__(self, bounding: Bounding) -> None:
        self.bounding = bounding
        self._numbers: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self._name_bytes = 0
        self._spends = spends(bounding)
        self._start, self._length, self._room, self._charged = (np.zeros(_ROOM, np.int64) for _ in range(4))
        self._code = np.zeros(_ROOM, np.uint32)
        self._count = np.zeros(_ROOM, np.int32)
        self._unranked = np.zeros(_ROOM, np.bool_)
        self._spent = np.zeros(_ROOM if self._spends else 0, np.int64)
        self._used = 0
        """Places of the pool that lists have or had."""

    def __len__(self) -> int:
        """Number of users."""
        return len(self._names)

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        pool = self._code.nbytes + self._count.nbytes + self._unranked.nbytes + self._spent.nbytes
        return self._name_bytes + len(self) * _USER_BYTES + 4 * self._start.nbytes + pool

    def enter(self, names: Sequence[bytes]) -> Int32s:
        """int32[n]: the users' numbers. Users that are new get the next ones, in this order, and empty lists."""
        numbers = self._numbers
        found = list(map(numbers.get, names))
        if None in found:
            for at, name in enumerate(names):
                if found[at] is None:
                    number = numbers.setdefault(name, len(numbers))
                    found[at] = number
                    if number == len(self._names):
                        self._names.append(name)
                        self._name_bytes += len(name)
            users = len(self._names)
            self._start, self._length = grown(self._start, users), grown(self._length, users)
            self._room, self._charged = grown(self._room, users), grown(self._charged, users)
        return np.array(found, np.int32)

    def find(self, names: Sequence[bytes]) -> Int32s:
        """int32[n]: the users' numbers, -1 for users that never entered."""
        return np.array([self._numbers.get(name, -1) for name in names], np.int32)

    def names(self, start: int) -> list[bytes]:
        """The users from number ``start`` on."""
        return self._names[start:]

    def lengths(self) -> Int64s:
        """int64[users]: keys of each list."""
        return self._length[: len(self)]

    def lists(self, users: Int64s) -> Lists:
        """The lists of some users, by number."""
        lengths = self._length[users]
        indptr = offsets(lengths)
        at = self._places(users, indptr)
        count = self._count[at]
        return Lists(
            indptr=indptr,
            code=self._code[at],
            count=count,
            unranked=self._unranked[at],
            spent=self._spent[at] if self._spends else count.astype(np.int64),
            charged=self._charged[users],
        )

    def fill(self, users: Int64s, lists: Lists) -> None:
        """Give users whose lists are empty these lists. users: distinct numbers."""
        lengths = np.diff(lists.indptr)
        self._make_room(users, lengths)
        self._length[users] = lengths
        at = self._places(users, lists.indptr)
        self._code[at], self._count[at], self._unranked[at] = lists.code, lists.count, lists.unranked
        if self._spends:
            self._spent[at] = lists.spent
        self._charged[users] = lists.charged

    def apply(self, user: Int64s, code: Codes, unranked: Bools, added: Int64s, root: int) -> None:
        """Make the changes of an interval.

        user int64[c], not decreasing; code uint32[c]: the keys, distinct for a user; unranked bool[c]: what to note of keys that
        are new to the list; added int64[c]; root: of a ledger, at the interval's trigger.
        """
        if not len(user):
            return
        begins = np.flatnonzero(np.concatenate(([True], user[1:] != user[:-1])))
        users = user[begins]
        each = np.diff(np.append(begins, len(user)))
        member = np.repeat(np.arange(len(users)), each)
        lengths = self._length[users]
        indptr = offsets(lengths)
        held = np.repeat(np.arange(len(users)), lengths) << 32 | self._code[self._places(users, indptr)].astype(
            np.int64
        )
        wanted = member << 32 | code.astype(np.int64)
        order = np.argsort(held)
        place = np.searchsorted(held, wanted, sorter=order)
        found = order[np.minimum(place, len(order) - 1)] if len(order) else place
        known = held[found] == wanted if len(order) else np.zeros(len(user), np.bool_)
        new = ~known
        before = np.cumsum(new) - new
        before -= before[begins][member]
        within = np.where(known, found - indptr[member], lengths[member] + before)
        total = lengths + segment_sums(new.astype(np.int64), np.append(begins, len(user)))
        self._make_room(users, total)
        self._length[users] = total
        at = self._start[users][member] + within
        self._code[at[new]], self._count[at[new]], self._unranked[at[new]] = code[new], 0, unranked[new]
        if self._spends:
            self._spent[at[new]] = 0
        ledger = self.bounding.ledger
        if ledger is not None:
            earlier = self._spent[at] if self._spends else self._count[at].astype(np.int64)
            self._charged[users] += segment_sums(ledger.price(earlier, added, root), np.append(begins, len(user)))
            if self._spends:
                self._spent[at] = earlier + added * root
        self._count[at] += added.astype(np.int32)

    def close(
        self,
        user: Int32s,
        key: Int32s,
        codes: Codes,
        priority: Hashes,
        trigger: int,
        public: Bools | None = None,
    ) -> Closed:
        """Apply the caps to the window's records of one interval, and note what they change.

        user int32[n]: numbers; key int32[n]: places in codes; rows by (source, raw offset). codes uint32[K]: of the batch's keys.
        priority uint32[n]: a user's records count in this order (`RecordOrder`), those of equal priority in that of the rows.
        trigger: 1-based, of this window. public bool[K]: as `Bounding.close` takes it, by key. Raises as that does.
        """
        order = in_order(user, priority)
        members, member = np.unique(user[order].astype(np.int64), return_inverse=True)
        found, code_of = np.unique(codes, return_inverse=True)
        keys = key[order]
        result = self.bounding.close(
            member.astype(np.int32),
            code_of.astype(np.int32)[keys],
            np.full(len(members), trigger, np.int32),
            self.lists(members).user_keys(found),
            None if public is None else public[keys],
        )
        rows = np.flatnonzero(result.kept | result.listed)
        pair = member[rows].astype(np.int64) << 32 | code_of[keys[rows]]
        _, first, of_row = np.unique(pair, return_index=True, return_inverse=True)
        added = np.zeros(len(first), np.int64)
        np.add.at(added, of_row, result.kept[rows])
        by_row = np.argsort(first)
        at = rows[first[by_row]]
        changes = Changes(user=members[member[at]], key=keys[at].astype(np.int32), added=added[by_row])
        ledger = self.bounding.ledger
        self.apply(
            changes.user,
            codes[changes.key],
            np.zeros(len(at), np.bool_) if public is None else public[changes.key],
            changes.added,
            0 if ledger is None else int(ledger.roots[trigger - 1]),
        )
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Closed(kept=result.kept[back], first=result.first[back], weight=result.weight[back], changes=changes)

    # ---- the pool -----------------------------------------------------------------------------------------------------

    def _places(self, users: Int64s, indptr: Int64s) -> Int64s:
        """int64[entries]: where in the pool the entries of users are that have lists of these lengths."""
        places: Int64s = np.arange(indptr[-1]) + np.repeat(self._start[users] - indptr[:-1], np.diff(indptr))
        return places

    def _make_room(self, users: Int64s, lengths: Int64s) -> None:
        """Move lists that outgrow their room to the end of the pool, with room for twice as many."""
        outgrown = lengths > self._room[users]
        if not outgrown.any():
            return
        users, lengths = users[outgrown], lengths[outgrown]
        room = np.int64(1) << np.frexp(lengths - 1)[1].astype(np.int64)  # the next power of two
        indptr = offsets(self._length[users])
        old = self._places(users, indptr)
        starts = self._used + offsets(room)
        self._used = int(starts[-1])
        self._code, self._count = grown(self._code, self._used), grown(self._count, self._used)
        self._unranked = grown(self._unranked, self._used)
        self._start[users], self._room[users] = starts[:-1], room
        new = self._places(users, indptr)
        self._code[new], self._count[new], self._unranked[new] = self._code[old], self._count[old], self._unranked[old]
        if self._spends:
            self._spent = grown(self._spent, self._used)
            self._spent[new] = self._spent[old]


def grown(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The column with room for ``size`` rows: itself, or a copy of twice as many."""
    if size <= len(column):
        return column
    larger = np.zeros(max(size, 2 * len(column)), column.dtype)
    larger[: len(column)] = column
    return larger
