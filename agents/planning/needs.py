"""What the users of a sample need, as numbers for a quantile: a cap on records for each of their windows, and sizes of values.

    Sample ──caps on keys──▶ records that could count ──▶ the smallest max_records_per_user that keeps them all, by user and window
                                                     └──▶ |value| of each, by column of a field

Each number is a function of one user's own records. Which mechanism protects it is mechanisms/user_quantile.py.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.sample import Sample
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS, Bounding
from susurrus.mechanisms.histogram.record_order import Hashes, RecordOrder
from susurrus.topics.wire.partitioner import placements


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """user: int64[k], of each (user, window) of the sample. records: int64[k], the smallest cap under which nothing of what that
    user brings in that window is lost to it. by: int64[n], the user of each record that could count. sizes: int64[n, fields],
    |value| in grid units of the sample."""

    user: Int64s
    records: Int64s
    by: Int64s
    sizes: Int64s


def needs_of(sample: Sample, settings: HistogramSettings, bounding: Bounding) -> Needs:
    """The needs under the other caps of the settings: records per key, distinct keys. bounding: of the strategy that runs."""
    calendar = settings.calendar
    window = calendar.window_of(sample.time)
    # A stable sort keeps the records of a key in the order of time.
    order = np.lexsort((sample.key, window, sample.user))
    user, window, key, time = sample.user[order], window[order], sample.key[order], sample.time[order]
    in_window = _starts(user, window)
    of_key = _starts(user, window, key)
    counts = _place(of_key) < settings.bounds.max_records_per_key
    trigger = np.ones(len(time), np.int64)
    if sample.timed:
        # A trigger that only longer windows have counts as the usual window's last one.
        trigger += np.clip(calendar.interval(time) - calendar.first_intervals(window), 0, settings.triggers - 1)
    most_keys = MAX_LISTED_KEYS if bounding.whole_lists else settings.bounds.max_keys_per_user
    if most_keys is not None:
        # A hash of the key, as in a pipeline, but a public one. A user's code in the sample must not enter: it follows other users.
        names = placements(sample.key_names)[key]
        priority = RecordOrder(b"susurrus tune").priorities(0, np.zeros(len(key), np.uint32), names)
        counts &= _first_keys(in_window, of_key, trigger, priority, most_keys)
    group = np.cumsum(in_window) - 1
    if bounding.ledger is None:
        needed = np.bincount(group[counts], minlength=int(in_window.sum()))
    else:
        needed = _of_ledger(bounding, group, of_key, counts, trigger)
    return Needs(
        user=user[in_window],
        records=np.maximum(needed, 1).astype(np.int64),
        by=user[counts],
        sizes=np.abs(sample.values[order][counts]),
    )


def _of_ledger(bounding: Bounding, group: Int64s, of_key: Bools, counts: Bools, trigger: Int64s) -> Int64s:
    """int64[k]: the capacity, in records of the first trigger, that holds all records that could count."""
    ledger = bounding.ledger
    assert ledger is not None
    root = np.where(counts, ledger.roots[trigger - 1], 0).astype(np.float64)
    starts = np.flatnonzero(of_key)
    # In float64, since squares may leave 64 bits. Sums of roots are exact there, so other users' records move no rounding.
    whole = np.add.reduceat(root, starts) ** 2 if len(starts) else root
    first = np.where(counts[starts], root[starts], 0.0) ** 2
    cost = ledger.measured * whole + ledger.counting * first
    total = np.bincount(group[starts], weights=cost)
    one = float((ledger.measured + ledger.counting) << (2 * ledger.bits))
    return np.minimum(np.ceil(total / one * (1 - 1e-12)), 2.0**62).astype(np.int64)


def _starts(*columns: npt.NDArray[np.generic]) -> Bools:
    """Where a new group begins in sorted columns."""
    starts = np.ones(len(columns[0]), np.bool_)
    starts[1:] = False
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def _place(starts: Bools) -> Int64s:
    """int64[n]: how many rows of the group come before the row."""
    rows = np.arange(len(starts), dtype=np.int64)
    place: Int64s = rows - rows[starts][np.cumsum(starts) - 1]
    return place


def _first_keys(in_window: Bools, of_key: Bools, trigger: Int64s, priority: Hashes, most: int) -> Bools:
    """Whether the row's key is among the first of its user and window."""
    group = np.cumsum(in_window) - 1
    heads = np.flatnonzero(of_key)
    order = np.lexsort((priority[heads], trigger[heads], group[heads]))
    place = np.empty(len(heads), np.int64)
    place[order] = _place(_starts(group[heads][order]))
    first: Bools = (place < most)[np.cumsum(of_key) - 1]
    return first
