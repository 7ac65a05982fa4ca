"""The caps: which of a user's records count, decided from that user's own records alone.

    by-user records of one closed trigger, by user, each user's in its order (record_order.py) ──close──▶ kept, first, weight

The order of a user's rows is the caller's and is part of the guarantee: no other user's record may influence it.
Argument and neighbour relation: docs/guarantees/bounding.md.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.per_key import offsets
from susurrus.mechanisms.histogram.value_ledger import MOST_USERS, ValueLedger, running
from susurrus.mechanisms.sorting import group_starts, groups_of, in_order_of

WEIGHT_ONE = 1 << 20
"""Selection weight 1 in the units of `Bounded.weight`."""
MAX_LISTED_KEYS = 1 << 16
"""Distinct keys of one user in one window, where whole lists are kept. Further ones are dropped, as if they had not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKeys:
    """What U users already brought in their window, compressed by user, in the order in which the keys came.

    indptr int64[U + 1]; key int32[nnz]: codes of the batch, or a negative number, unique per distinct key, for a key
    the batch does not hold; count int32[nnz]: kept records of the key (at most m), 0 only where whole lists are kept;
    unranked bool[nnz]: the key was public when the user brought it first, and took no rank; kept int64[U]: kept records;
    spent int64[nnz], charged int64[U]: of a `ValueLedger`, 0 without one.
    """

    indptr: npt.NDArray[np.int64]
    key: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    unranked: npt.NDArray[np.bool_]
    kept: npt.NDArray[np.int64]
    spent: npt.NDArray[np.int64]
    charged: npt.NDArray[np.int64]

    @staticmethod
    def empty(users: int) -> "UserKeys":
        """Users without history."""
        return UserKeys(
            indptr=np.zeros(users + 1, np.int64),
            key=np.empty(0, np.int32),
            count=np.empty(0, np.int32),
            unranked=np.empty(0, np.bool_),
            kept=np.zeros(users, np.int64),
            spent=np.empty(0, np.int64),
            charged=np.zeros(users, np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Outcome of `Bounding.close`, aligned with its rows.

    kept bool[n]; first bool[n]: first kept record of that (window, user, key); listed bool[n]: the record that put its key on the
    user's list, which is `first` unless whole lists are kept; weight int64[n]: selection weight in units of 2^-20 where listed
    and not public, else 0; state: updated, same key codes, in the same order, new ones behind.
    """

    kept: npt.NDArray[np.bool_]
    first: npt.NDArray[np.bool_]
    listed: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.int64]
    state: UserKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPairs:
    """The (user, key) pairs of n rows, numbered from 0 to p - 1, and what each of them had before.

    of_row int64[n]: the pair's number; repeat int64[n]: earlier rows of the pair; listed bool[p]: the key is on the user's list;
    count int64[p]: its kept records; spent int64[p]: of a `ValueLedger`, 0 without one.
    """

    of_row: npt.NDArray[np.int64]
    repeat: npt.NDArray[np.int64]
    listed: npt.NDArray[np.bool_]
    count: npt.NDArray[np.int64]
    spent: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What U users had before, int64[U] each: keys on their lists, kept records, ranks that were taken, and what a ledger holds."""

    held: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    taken: npt.NDArray[np.int64]
    charged: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """Outcome of `Bounding.decide`: kept, first, listed, weight as in `Bounded`; ranked bool[n]: listed, and took a rank;
    cost int64[n]: of a ledger, empty without one."""

    kept: npt.NDArray[np.bool_]
    first: npt.NDArray[np.bool_]
    listed: npt.NDArray[np.bool_]
    ranked: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.int64]
    cost: npt.NDArray[np.int64]


class Bounding:
    """At most C records, m per key and (optionally) C_0 distinct keys of a user in a window; selection weights by rank.

    A record is kept iff its key has fewer than m kept records, its user has fewer than C kept records, and its key was
    kept before or the user has fewer than C_0 distinct kept keys. With a `ledger`, the record must fit into it instead.

    A user's list holds its distinct kept keys. With `whole_lists` it holds all distinct keys that the user brings, kept or not, up
    to MAX_LISTED_KEYS, and only records of listed keys are kept; of the records of one interval only those up to the first of the
    key that comes after so many others. Ranks go by the list.

    Privacy: what becomes of a record is a function of the earlier records of the same (window, user). Removing one
    user therefore leaves every other record's `kept`, `first` and `weight` as they were, and the removed user
    contributes sum r_k <= C records over keys k with r_k <= m, and for selection at most one weight per distinct key,
    weights[rank, t - 1] for rank = 0, 1, ..., each rank at most once.

    Where published keys take no rank (`lag`), weights and ranks depend on the output published before as well, which is
    the same for both neighbours once it is fixed: docs/guarantees/ranks.md. A rank that was taken is never given
    back, also not when its key is published later. Otherwise the ranks of one user would add up beyond their norm.
    """

    def __init__(
        self,
        *,
        max_records: int,
        max_records_per_key: int,
        max_keys: int | None = None,
        weights: npt.NDArray[np.int64] | None = None,
        lag: int | None = None,
        ledger: ValueLedger | None = None,
        whole_lists: bool = False,
    ) -> None:
        """weights: int64[ranks, T] in units of 2^-20, zero beyond the last rank; None: weight 1 for every key.

        lag: the caller of `close` must give which keys are public, by what was published up to so many triggers before;
        None: it must not. ledger: takes the place of max_records. whole_lists: see above.
        Raises ValueError for a combination of caps that the early drop (`arriving`) is not made for.
        """
        self.max_records = max_records
        self.max_records_per_key = max_records_per_key
        self.max_keys = max_keys
        self.weights = weights
        self.lag = lag
        self.ledger = ledger
        self.whole_lists = whole_lists
        if (ledger is not None) != whole_lists or (whole_lists and max_keys is not None):
            raise ValueError("a ledger and whole lists go together, without max_keys")
        if ledger is not None and max_records_per_key > 1 and ledger.counting > MOST_USERS * ledger.measured > 0:
            raise ValueError(
                f"counting={ledger.counting}: must be at most {MOST_USERS} times measured={ledger.measured}"
            )
        if ledger is not None and ledger.most_records > MAX_LISTED_KEYS:
            raise ValueError(f"max_records={max_records}: a ledger must not admit more keys than a list holds")

    def close(
        self,
        user: npt.NDArray[np.int32],
        key: npt.NDArray[np.int32],
        trigger: npt.NDArray[np.int32],
        state: UserKeys,
        public: npt.NDArray[np.bool_] | None = None,
    ) -> Bounded:
        """Apply the caps to the records of a closed trigger.

        user: int32[n], codes 0..U-1, not decreasing (a "user" is a (window, user) pair); key: int32[n], codes >= 0;
        trigger: int32[U], 1-based trigger of each user's window; state: what these users brought before; public:
        bool[n], the row's key is declared or was published in its window by trigger - lag (where there is a lag).
        Raises ValueError if `user` decreases or leaves 0..U-1, or if `public` is missing or not asked for.
        """
        users, entries = len(state.kept), len(state.key)
        if len(user) and (user[0] < 0 or user[-1] >= users or np.any(user[1:] < user[:-1])):
            raise ValueError("user: codes must not decrease and must be below the number of users")
        held = np.diff(state.indptr)
        owner = np.repeat(np.arange(users, dtype=np.int64), held)
        all_keys = np.concatenate([state.key, key]).astype(np.int64) + (1 << 31)
        groups = groups_of(np.concatenate([owner, user.astype(np.int64)]), all_keys)
        # A state entry is the first of its pair and stands for `count` records.
        of_row, of_entry = groups.of_row[entries:], groups.of_row[:entries]
        listed = np.zeros(len(groups), np.bool_)
        count, spent = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        listed[of_entry], count[of_entry], spent[of_entry] = True, state.count, state.spent
        pairs = RowPairs(
            of_row=of_row,
            repeat=groups.earlier()[entries:] - listed[of_row],
            listed=listed,
            count=count,
            spent=spent,
        )
        taken = np.bincount(owner[~state.unranked], minlength=users)
        totals = Brought(held=held, kept=state.kept, taken=taken, charged=state.charged)
        found = self.decide(user, trigger, pairs, totals, public)
        charged = state.charged
        if self.ledger is not None:
            root = self.ledger.roots[trigger[user] - 1]
            np.add.at(spent, of_row[found.kept], root[found.kept])
            charged = charged.copy()
            np.add.at(charged, user, found.cost)
        added = np.bincount(of_row[found.kept], minlength=len(groups))
        new = found.listed
        entered = of_row[new]
        all_owner = np.concatenate([owner, user[new].astype(np.int64)])
        order = in_order_of(all_owner)  # earlier keys first, then new ones in order of occurrence
        updated = UserKeys(
            indptr=offsets(np.bincount(all_owner, minlength=users)),
            key=np.concatenate([state.key, key[new]])[order].astype(np.int32),
            count=np.concatenate([state.count + added[of_entry], added[entered]])[order].astype(np.int32),
            unranked=np.concatenate([state.unranked, ~found.ranked[new]])[order],
            kept=state.kept + np.bincount(user[found.kept], minlength=users),
            spent=np.concatenate([spent[of_entry], spent[entered]])[order],
            charged=charged,
        )
        return Bounded(kept=found.kept, first=found.first, listed=new, weight=found.weight, state=updated)

    def decide(
        self,
        user: npt.NDArray[np.int32],
        trigger: npt.NDArray[np.int32],
        pairs: RowPairs,
        totals: Brought,
        public: npt.NDArray[np.bool_] | None = None,
    ) -> Fates:
        """What becomes of the records of a closed trigger. `close` is the same with a state that is carried along.

        user, trigger, public: as for `close`. pairs: of the rows; totals: of the users, both as they were before.
        Raises ValueError if `public` is missing or not asked for.
        """
        if (public is None) != (self.lag is None):
            raise ValueError("public: must be given exactly where there is a lag")
        start, of_row = group_starts(user), pairs.of_row
        # A key's first occurrence always passes the cap per key, so counting occurrences is counting kept records
        # until the user is full, after which nothing is kept anyway. The same holds for distinct keys below.
        earlier = pairs.repeat + pairs.count[of_row]
        candidate = earlier < self.max_records_per_key
        unlisted = (pairs.repeat == 0) & ~pairs.listed[of_row]
        admitted = pairs.listed
        most = MAX_LISTED_KEYS if self.whole_lists else self.max_keys
        if most is not None:
            admitted = admitted.copy()
            admitted[of_row[unlisted]] = (running(unlisted, start) + totals.held[user])[unlisted] < most
            candidate &= admitted[of_row]
        if self.whole_lists:
            # Such a record's key can only be on the list already. It is dropped all the same, for `arriving` must do so without
            # the list.
            candidate &= running(pairs.repeat == 0, start) < MAX_LISTED_KEYS
        if self.ledger is None:
            kept = candidate & (running(candidate, start) + totals.kept[user] < self.max_records)
            cost = np.zeros(0, np.int64)
        else:
            root = self.ledger.roots[trigger[user] - 1]
            kept, cost = self.ledger.admit(user, root, of_row, pairs.repeat, pairs.spent, totals.charged, candidate)
        first = kept & (earlier == 0)
        listed = unlisted & admitted[of_row] if self.whole_lists else first
        ranked = listed if public is None else listed & ~public
        weight = self._weigh(ranked, start, trigger[user], totals.taken[user])
        return Fates(kept=kept, first=first, listed=listed, ranked=ranked, weight=weight, cost=cost)

    def arriving(self, user: npt.NDArray[np.int32], key: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """bool[n]: False for records that `close` would drop without a trace, whatever their users brought before.

        user, key: as for `close`, of the records of one interval or of any part of them, in the order that they have in `close`.
        Argument: docs/guarantees/bounding.md, "Dropping records early".
        """
        if self.max_keys is not None:
            return np.ones(len(user), np.bool_)  # a cap on distinct keys is not monotone: history may name the key
        users = int(user[-1]) + 1 if len(user) else 0
        if not self.whole_lists:
            caps = Bounding(max_records=self.max_records, max_records_per_key=self.max_records_per_key)
            return caps.close(user, key, np.ones(users, np.int32), UserKeys.empty(users)).kept
        repeat = groups_of(user, key).earlier()
        return (running(repeat == 0, group_starts(user)) < MAX_LISTED_KEYS) & (repeat < self.max_records_per_key)

    def weigh(
        self,
        ranked: npt.NDArray[np.bool_],
        user: npt.NDArray[np.int32],
        trigger: npt.NDArray[np.int32],
        taken: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """int64[n], in units of 2^-20: the weight of the rows that take a rank; 0 for the others.

        ranked: bool[n]; user: int32[n], not decreasing; trigger: int32[n], of each row; taken: int64[U], ranks that the
        users took before.
        """
        return self._weigh(ranked, group_starts(user), trigger, taken[user])

    def _weigh(
        self,
        ranked: npt.NDArray[np.bool_],
        start: npt.NDArray[np.intp],
        trigger: npt.NDArray[np.int32],
        taken: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        weight = np.zeros(len(ranked), np.int64)
        if self.weights is None:
            weight[ranked] = WEIGHT_ONE
        else:
            # 0-based, among the user's distinct kept keys that took one.
            rank = running(ranked, start) + taken
            some = np.flatnonzero(ranked & (rank < len(self.weights)))
            weight[some] = self.weights[rank[some], trigger[some] - 1]
        return weight
