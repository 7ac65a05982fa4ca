"""Caps for every user of a window at once, without Kafka: what remains, filed by trigger, and the truth beside it.

Flow: workload → `spool` (Bounding.close on every user, compact columns per trigger) → offline.run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from susurrus.agents.planning.workload import UserRecords, Workload
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE, Bounding, UserKeys
from susurrus.mechanisms.histogram.record_order import Hashes, RecordOrder, in_order

UNKEPT = -WEIGHT_ONE
"""Weight of a record in a `Spool` that is not kept, though it put its key on the user's list."""

Progress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and the total."""


Priorities = Callable[[UserRecords, int], Hashes]
"""uint32[n]: the order of each user's records within a trigger (`RecordOrder`), from a chunk and the users before it."""
_PUBLIC_ORDER = RecordOrder(b"susurrus offline")


def public_priorities(records: UserRecords, before: int) -> Hashes:
    """Those of a public secret, over the numbers of users and keys: `Priorities`."""
    return _PUBLIC_ORDER.priorities(
        0, (records.user + np.int64(before)).astype(np.uint32), records.key.astype(np.uint32)
    )


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that says nothing."""


def checkpoints(triggers: int) -> list[int]:
    """The triggers that end each quarter of the window."""
    return sorted({-(-triggers * quarter // 4) for quarter in (1, 2, 3, 4)})


class Measures(Protocol):
    """What records add to the measured columns. `columns`: how many there are."""

    columns: int

    def adds(self, records: UserRecords, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """int64[n, columns]: what each kept record adds, clamped; 0 for the others."""

    def truth(self, records: UserRecords) -> npt.NDArray[np.int64]:
        """int64[n, columns]: what each record would add without caps and clamps."""


@dataclass(slots=True)
class Spool:
    """Kept records by trigger, and the truth.

    `rows[t - 1]`: list of (key int32[n], weight int32[n]), one pair per chunk of users; weight is the selection weight
    in 2^-20 units for the first kept record of a (user, key), 0 for a repeat. `by[t - 1]`: list of user int32[n], not
    decreasing from chunk to chunk, aligned with `rows`, only where ranks wait for the output; weights are then 2^20,
    0 or UNKEPT, and `run` replaces them. `ends`: the checkpoints, ascending triggers, of which the last is T. `truth[c]`:
    int64[keys], records of each key up to checkpoint c, capped or not.
    `records`, `kept`: totals. `adds[t - 1]`: list of int64[n, columns], aligned with `rows`, and `truths[c]`: int64[keys,
    columns], both of `Measures` where there are any.
    """

    triggers: int
    key_names: list[bytes]
    rows: list[list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]]
    by: list[list[npt.NDArray[np.int32]]]
    ends: list[int]
    truth: npt.NDArray[np.int64]
    users: int = 0
    records: int = 0
    kept: int = 0
    adds: list[list[npt.NDArray[np.int64]]] | None = None
    truths: npt.NDArray[np.int64] | None = None

    def trigger(self, number: int) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        yield from self.rows[number - 1]


def spool(
    workload: Workload,
    bounding: Bounding,
    triggers: int,
    *,
    measures: Measures | None = None,
    ends: Sequence[int] | None = None,
    priorities: Priorities | None = None,
    filed: Callable[[UserRecords, npt.NDArray[np.int32], npt.NDArray[np.bool_]], None] | None = None,
    progress: Progress = silent,
) -> Spool:
    """Caps every user's records trigger by trigger and files them.

    Within a trigger they count in the order of a keyed hash, as in bound. By default the hash is that of a public secret over the
    numbers of users and keys, so which of a trigger's records are kept is another choice than a pipeline's, of the same kind.

    measures: of the columns, where they are others than one count of records. ends: the checkpoints; by default each quarter's
    end. priorities: of a pipeline that runs. filed: called for every chunk, with its records, int32[n] their triggers and bool[n]
    which of them are kept.

    `Bounding.close` is called once per chunk of users with the whole day instead of once per trigger with a state: a
    record's fate depends on its own user's earlier records only, so the two agree (tests/agents/planning compares them);
    the weight then comes from the record's own trigger. The caps never depend on which keys are public, but ranks may
    (`Bounding.lag`), and those are left to `run`.
    """
    caps = bounding
    if bounding.lag is not None and bounding.ledger is None:
        caps = Bounding(max_records=bounding.max_records, max_records_per_key=bounding.max_records_per_key)
    names = workload.key_names
    ends = checkpoints(triggers) if ends is None else [*ends]
    rows: list[list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]] = [[] for _ in range(triggers)]
    by: list[list[npt.NDArray[np.int32]]] = [[] for _ in range(triggers)]
    result = Spool(triggers, names, rows, by, ends, np.zeros((len(ends), len(names)), np.int64))
    if measures is not None:
        result.adds = [[] for _ in range(triggers)]
        result.truths = np.zeros((len(ends), len(names), measures.columns), np.int64)
    for records in workload.chunks():
        records = _in_order(records, triggers, (priorities or public_priorities)(records, result.users))
        trigger = records.trigger(triggers)
        if bounding.ledger is None:
            bounded = caps.close(
                records.user, records.key, np.ones(records.users, np.int32), UserKeys.empty(records.users)
            )
            entered = bounded_kept = bounded.kept
            weight = caps.weigh(bounded.first, records.user, trigger, np.zeros(records.users, np.int64))
        else:
            bounded_kept, listed = within_ledger(bounding, records, trigger)
            entered = bounded_kept | listed
            weight = np.where(listed, np.where(bounded_kept, WEIGHT_ONE, UNKEPT), 0)
        if filed is not None:
            filed(records, trigger, bounded_kept)
        for quarter, end in enumerate(ends):
            lower = ends[quarter - 1] if quarter else 0
            seen = records.key[(trigger > lower) & (trigger <= end)]
            result.truth[quarter:] += np.bincount(seen, minlength=len(names))
        added = None if measures is None else measures.adds(records, bounded_kept)
        if measures is not None and result.truths is not None:
            true = measures.truth(records)
            for quarter, end in enumerate(ends):
                lower = ends[quarter - 1] if quarter else 0
                some = np.flatnonzero((trigger > lower) & (trigger <= end))
                result.truths[quarter:] += totals(records.key[some], true[some], len(names))
        kept = np.flatnonzero(entered)
        kept = kept[np.argsort(trigger[kept].astype(np.uint16), kind="stable")]
        key, weights = records.key[kept], weight[kept].astype(np.int32)
        user = records.user[kept] + np.int32(result.users)
        cuts = np.searchsorted(trigger[kept], np.arange(1, triggers + 2))
        for number in range(triggers):
            part = slice(cuts[number], cuts[number + 1])
            if part.stop > part.start:
                result.rows[number].append((key[part], weights[part]))
                if added is not None and result.adds is not None:
                    result.adds[number].append(added[kept[part]])
                if bounding.lag is not None:
                    result.by[number].append(user[part])
        result.users += records.users
        result.records += len(records.key)
        result.kept += int((weights >= 0).sum())
        progress("reading and bounding, users", result.users, workload.users)
    return result


def _in_order(records: UserRecords, triggers: int, priority: Hashes) -> UserRecords:
    """The records by user, trigger and priority; those of one priority stay in order of time."""
    place = records.user.astype(np.int64) * (triggers + 1) + records.trigger(triggers)
    order = in_order(place, priority)
    values = None if records.values is None else records.values[order]
    return replace(records, user=records.user[order], key=records.key[order], time=records.time[order], values=values)


def within_ledger(
    bounding: Bounding, records: UserRecords, trigger: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(kept, listed), bool[n] each: what `Bounding.close` decides trigger by trigger, for whole days of users at once.

    Nearly all users keep everything. The others go through the rule record by record.
    """
    ledger = bounding.ledger
    assert ledger is not None
    n = len(records.key)
    pair = records.user.astype(np.int64) << 32 | records.key
    order = np.argsort(pair, kind="stable")
    begins = np.ones(n, np.bool_)
    begins[1:] = pair[order][1:] != pair[order][:-1]
    first = np.flatnonzero(begins)
    begin = first[np.cumsum(begins) - 1]
    listed, earlier, before = np.zeros(n, np.bool_), np.empty(n, np.int64), np.empty(n, np.int64)
    listed[order] = begins
    earlier[order] = np.arange(n) - begin
    root = ledger.roots[trigger - 1]
    spent = np.concatenate(([0], np.cumsum(root[order])))
    before[order] = spent[:-1] - spent[begin]
    kept = earlier < bounding.max_records_per_key
    cost = ledger.measured * (2 * before + root) * root + np.where(listed, ledger.counting * root * root, 0)
    total = np.bincount(records.user, weights=np.where(kept, cost, 0), minlength=records.users)
    starts = np.searchsorted(records.user, np.arange(records.users + 1))
    for user in np.flatnonzero(total > ledger.limit).tolist():
        charged = 0
        roots: dict[int, int] = {}
        counts: dict[int, int] = {}
        for row in range(starts[user], starts[user + 1]):
            key, r = int(records.key[row]), int(root[row])
            held, count = roots.get(key, 0), counts.get(key, 0)
            dear = ledger.measured * (2 * held + r) * r + (0 if count else ledger.counting * r * r)
            kept[row] = count < bounding.max_records_per_key and charged + dear <= ledger.limit
            if kept[row]:
                charged, roots[key], counts[key] = charged + dear, held + r, count + 1
    return kept, listed


def totals(place: npt.NDArray[np.integer[Any]], values: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """int64[size, columns]: exact sums of values int64[n, columns] by their places int[n]."""
    out = np.zeros((values.shape[1], size), np.int64)
    for total, column in zip(out, np.ascontiguousarray(values.T), strict=True):
        np.add.at(total, place, column)
    return out.T
