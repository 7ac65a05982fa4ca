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
        if (public is None) != (self.lag is None):
            raise ValueError("public: must be given exactly where there is a lag")
        users = len(state.kept)
        if len(user) and (user[0] < 0 or user[-1] >= users or np.any(user[1:] < user[:-1])):
            raise ValueError("user: codes must not decrease and must be below the number of users")
        held = np.diff(state.indptr)
        owner = np.repeat(np.arange(users, dtype=np.int64), held)
        pairs = _pairs(user, key, owner, state)
        start = np.searchsorted(user, user, side="left")
        # A key's first occurrence always passes the cap per key, so counting occurrences is counting kept records
        # until the user is full, after which nothing is kept anyway. The same holds for distinct keys below.
        candidate = pairs.earlier < self.max_records_per_key
        unlisted = pairs.place == 0
        distinct = running(unlisted, start) + held[user]
        most = MAX_LISTED_KEYS if self.whole_lists else self.max_keys
        if most is not None:
            admitted = np.zeros(pairs.number, np.bool_)
            admitted[pairs.of_row[unlisted]] = distinct[unlisted] < most
            admitted[pairs.of_entry] = True
            candidate &= admitted[pairs.of_row]
        if self.whole_lists:
            # Such a record's key can only be on the list already. It is dropped all the same, for `arriving` must do so without
            # the list.
            candidate &= running(pairs.repeat == 0, start) < MAX_LISTED_KEYS
        spent = np.zeros(pairs.number, np.int64)
        charged = state.charged
        if self.ledger is None:
            kept = candidate & (running(candidate, start) + state.kept[user] < self.max_records)
        else:
            spent[pairs.of_entry] = state.spent
            root = self.ledger.roots[trigger[user] - 1]
            kept, cost = self.ledger.admit(user, root, pairs.of_row, pairs.repeat, spent, charged, candidate)
            np.add.at(spent, pairs.of_row[kept], root[kept])
            charged = charged.copy()
            np.add.at(charged, user, cost)
        first = kept & (pairs.earlier == 0)
        listed = unlisted & admitted[pairs.of_row] if self.whole_lists else first
        taken = np.bincount(owner[~state.unranked], minlength=users)
        ranked = listed if public is None else listed & ~public
        weight = self._weigh(ranked, start, trigger[user], taken[user])
        added = np.bincount(pairs.of_row[kept], minlength=pairs.number)
        entered = pairs.of_row[listed]
        all_owner = np.concatenate([owner, user[listed].astype(np.int64)])
        order = np.argsort(all_owner, kind="stable")  # earlier keys first, then new ones in order of occurrence
        updated = UserKeys(
            indptr=offsets(np.bincount(all_owner, minlength=users)),
            key=np.concatenate([state.key, key[listed]])[order].astype(np.int32),
            count=np.concatenate([state.count + added[pairs.of_entry], added[entered]])[order].astype(np.int32),
            unranked=np.concatenate([state.unranked, ~ranked[listed]])[order],
            kept=state.kept + np.bincount(user[kept], minlength=users),
            spent=np.concatenate([spent[pairs.of_entry], spent[entered]])[order],
            charged=charged,
        )
        return Bounded(kept=kept, first=first, listed=listed, weight=weight, state=updated)

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
        pairs = _pairs(user, key, np.empty(0, np.int64), UserKeys.empty(users))
        brought = running(pairs.repeat == 0, np.searchsorted(user, user, side="left"))
        return (brought < MAX_LISTED_KEYS) & (pairs.repeat < self.max_records_per_key)

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
        return self._weigh(ranked, np.searchsorted(user, user, side="left"), trigger, taken[user])

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


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The (user, key) pairs of a batch and of the state, numbered from 0.

    of_row int64[n], of_entry int64[entries]: the pair's number; place int64[n]: 0 for a pair that neither the state nor an earlier
    row has; repeat int64[n]: earlier rows of the pair; earlier int64[n]: these and its kept records in the state.
    """

    number: int
    of_row: npt.NDArray[np.int64]
    of_entry: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    repeat: npt.NDArray[np.int64]
    earlier: npt.NDArray[np.int64]


def _pairs(
    user: npt.NDArray[np.int32], key: npt.NDArray[np.int32], owner: npt.NDArray[np.int64], state: UserKeys
) -> _Pairs:
    """owner: int64[entries], the user of each entry of the state."""
    entries = len(owner)
    code = np.concatenate([owner, user.astype(np.int64)]) << 32
    code += np.concatenate([state.key, key]).astype(np.int64) + (1 << 31)
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    begins = np.ones(len(code), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    group = np.cumsum(begins) - 1
    within = np.arange(len(code)) - np.flatnonzero(begins)[group]
    pair = np.empty(len(code), np.int64)
    pair[order] = group
    index = np.empty(len(code), np.int64)
    index[order] = within
    # A state entry is the first of its pair and stands for `count` records.
    number = int(group[-1]) + 1 if len(group) else 0
    of_row, of_entry = pair[entries:], pair[:entries]
    stored, counted = np.zeros(number, np.int64), np.zeros(number, np.int64)
    stored[of_entry], counted[of_entry] = 1, state.count
    place = index[entries:]
    repeat = place - stored[of_row]
    return _Pairs(number, of_row, of_entry, place=place, repeat=repeat, earlier=repeat + counted[of_row])
