"""The users of one open window and what they brought, as columns: the state that `Bounding` needs, and the pass over an interval.

    users ──enter──▶ numbers ──close──▶ which records count, and the changes of the lists ──apply──▶ the same table elsewhere

This is the definition: `close` looks up what the interval's users and their keys had before, asks `Bounding.decide`, and applies
the changes it finds. compiled_user_table.py does the same in one loop. Both have the same results, changes included
(docs/guarantees/bounding.md, "Two programs, one rule").

A user is known by its exact bytes. Keys are known by codes of 32 bits: hashes, or numbers of keys where lists must lead back to
them. Keys with one code are one key to the caps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int32s, Int64s
from susurrus.mechanisms.histogram.bounding import Bounding, Brought, RowPairs
from susurrus.mechanisms.histogram.name_index import NameIndex, Names
from susurrus.mechanisms.histogram.pair_index import PairIndex, grown
from susurrus.mechanisms.histogram.per_key import offsets, segment_sums
from susurrus.mechanisms.histogram.record_order import Hashes, in_order
from susurrus.mechanisms.sorting import groups_of, in_order_of

Codes = npt.NDArray[np.uint32]

_ROOM = 16
_CODE_BITS = 32


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
        self._names = NameIndex()
        self._spends = spends(bounding)
        self._held, self._kept, self._taken, self._charged = (np.zeros(_ROOM, np.int64) for _ in range(4))
        """By user: keys on its list, kept records, ranks that were taken, and what its ledger holds."""
        self._entries = PairIndex()
        """All entries of all lists, in the order in which they came: the user's number above the key's code."""
        self._count = np.zeros(_ROOM, np.int32)
        self._unranked = np.zeros(_ROOM, np.bool_)
        self._spent = np.zeros(_ROOM if self._spends else 0, np.int64)
        self._by_user = np.zeros(0, np.intp)
        """Places of entries by user, as long as there is no other entry."""

    def __len__(self) -> int:
        """Number of users."""
        return len(self._names)

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        columns = self._count.nbytes + self._unranked.nbytes + self._spent.nbytes + self._by_user.nbytes
        return self._names.size + 4 * self._held.nbytes + self._entries.size + columns

    def enter(self, names: Sequence[bytes]) -> Int32s:
        """int32[n]: the users' numbers. Users that are new get the next ones, in this order, and empty lists."""
        return self.enter_names(Names.of(names))

    def enter_names(self, names: Names) -> Int32s:
        """The same of names as columns."""
        numbers = self._names.enter(names)
        users = len(self)
        self._held, self._kept = grown(self._held, users), grown(self._kept, users)
        self._taken, self._charged = grown(self._taken, users), grown(self._charged, users)
        return numbers.astype(np.int32)

    def find(self, names: Sequence[bytes]) -> Int32s:
        """int32[n]: the users' numbers, -1 for users that never entered."""
        return self._names.find(Names.of(names)).astype(np.int32)

    def names(self, start: int) -> list[bytes]:
        """The users from number ``start`` on."""
        return self._names.names[start:]

    def lengths(self) -> Int64s:
        """int64[users]: keys of each list."""
        return self._held[: len(self)]

    def lists(self, users: Int64s) -> Lists:
        """The lists of some users, by number."""
        if len(self._by_user) < len(self._entries):
            self._by_user = in_order_of(self._entries.pairs >> _CODE_BITS)
        indptr = offsets(self._held[users])
        begins = offsets(self.lengths())[users]
        at = self._by_user[np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], np.diff(indptr))]
        count = self._count[at]
        return Lists(
            indptr=indptr,
            code=self._entries.pairs[at].astype(np.uint32),
            count=count,
            unranked=self._unranked[at],
            spent=self._spent[at] if self._spends else count.astype(np.int64),
            charged=self._charged[users],
        )

    def fill(self, users: Int64s, lists: Lists) -> None:
        """Give users whose lists are empty these lists. users: distinct numbers."""
        lengths = np.diff(lists.indptr)
        at = self._enter_entries(_pairs(np.repeat(users, lengths), lists.code))
        self._count[at], self._unranked[at] = lists.count, lists.unranked
        if self._spends:
            self._spent[at] = lists.spent
        self._held[users], self._charged[users] = lengths, lists.charged
        self._kept[users] = segment_sums(lists.count.astype(np.int64), lists.indptr)
        self._taken[users] = lengths - segment_sums(lists.unranked.astype(np.int64), lists.indptr)

    def apply(self, user: Int64s, code: Codes, unranked: Bools, added: Int64s, root: int) -> None:
        """Make the changes of an interval.

        user int64[c], not decreasing; code uint32[c]: the keys, distinct for a user; unranked bool[c]: what to note of keys that
        are new to the list; added int64[c]; root: of a ledger, at the interval's trigger.
        """
        pairs = _pairs(user, code)
        self._apply(pairs, self._entries.find(pairs), unranked, added, root)

    def _apply(self, pairs: Int64s, place: Int64s, unranked: Bools, added: Int64s, root: int) -> None:
        """The same of pairs whose places are known, -1 for those that are new."""
        user, new = pairs >> _CODE_BITS, np.flatnonzero(place < 0)
        at = place.copy()
        at[new] = self._enter_entries(pairs[new])
        self._unranked[at[new]] = unranked[new]
        np.add.at(self._held, user[new], 1)
        np.add.at(self._taken, user[new[~unranked[new]]], 1)
        ledger = self.bounding.ledger
        if ledger is not None:
            earlier = self._spent[at] if self._spends else self._count[at].astype(np.int64)
            np.add.at(self._charged, user, ledger.price(earlier, added, root))
            if self._spends:
                self._spent[at] = earlier + added * root
        self._count[at] += added.astype(np.int32)
        np.add.at(self._kept, user, added)

    def _enter_entries(self, pairs: Int64s) -> Int64s:
        """int64[n]: the places of new entries, of which nothing is noted yet."""
        at = self._entries.enter(pairs)
        number = len(self._entries)
        self._count, self._unranked = grown(self._count, number), grown(self._unranked, number)
        if self._spends:
            self._spent = grown(self._spent, number)
        return at

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
        users, keys = user[order].astype(np.int64), key[order]
        code = codes[keys]
        begins = np.ones(len(users), np.bool_)
        begins[1:] = users[1:] != users[:-1]
        members, member = users[begins], (np.cumsum(begins) - 1).astype(np.int32)
        groups = groups_of(member, code)
        pairs = _pairs(users[groups.first], code[groups.first])
        place = self._entries.find(pairs)
        listed = place >= 0
        count = np.where(listed, self._count[place], 0).astype(np.int64)
        found = self.bounding.decide(
            member,
            np.full(len(members), trigger, np.int32),
            RowPairs(
                of_row=groups.of_row,
                repeat=groups.earlier(),
                listed=listed,
                count=count,
                spent=np.where(listed, self._spent[place], 0) if self._spends else count,
            ),
            Brought(
                held=self._held[members],
                kept=self._kept[members],
                taken=self._taken[members],
                charged=self._charged[members],
            ),
            None if public is None else public[keys],
        )
        noted = found.kept | found.listed
        at = np.flatnonzero(noted & (groups.earlier(noted) == 0))
        changed = groups.of_row[at]
        changes = Changes(
            user=users[at],
            key=keys[at].astype(np.int32, copy=False),
            added=np.bincount(groups.of_row[found.kept], minlength=len(groups))[changed],
        )
        ledger = self.bounding.ledger
        self._apply(
            pairs[changed],
            place[changed],
            np.zeros(len(at), np.bool_) if public is None else public[changes.key],
            changes.added,
            0 if ledger is None else int(ledger.roots[trigger - 1]),
        )
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Closed(kept=found.kept[back], first=found.first[back], weight=found.weight[back], changes=changes)


def _pairs(user: Int64s, code: Codes) -> Int64s:
    pairs: Int64s = user << _CODE_BITS | code.astype(np.int64)
    return pairs
