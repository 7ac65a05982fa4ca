"""The leaves that a batch of values completes, for many streams at once, by one cumulative sum."""

from dataclasses import dataclass

import numpy as np

from susurrus.mechanisms.arrays import Int64s


@dataclass(frozen=True, slots=True)
class Leaves:
    """counts: int64[streams], complete leaves of each stream.  sums: int64[leaves], stream by stream.

    ends: int64[leaves], the place behind each leaf's last value.  partials: int64[streams], sums of the open leaves.
    """

    counts: Int64s
    sums: Int64s
    ends: Int64s
    partials: Int64s


def flat(starts: Int64s, counts: Int64s) -> Int64s:
    """Return int64[sum of counts]: starts[0], starts[0] + 1, ... counts[0] of them, then the same of the next."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def closed(values: Int64s, *, begins: Int64s, ends: Int64s, offsets: Int64s, partials: Int64s, leaf: int) -> Leaves:
    """Return the leaves of ``leaf`` values each that streams complete.

    values: int64[n], clipped.  The values of stream i are values[begins[i]:ends[i]].  offsets, partials: how many values its
    open leaf has already, and their sum.
    """
    counts = (offsets + ends - begins) // leaf
    running = np.concatenate(([0], np.cumsum(values)))
    behind = flat(np.ones(len(counts), dtype=np.int64), counts) * leaf + np.repeat(begins - offsets, counts)
    last = np.cumsum(counts)  # one behind the stream's last leaf
    some = counts > 0
    before = np.concatenate(([0], behind))[:-1]
    firsts = (last - counts)[some]
    before[firsts] = begins[some]
    sums = running[behind] - running[before]
    sums[firsts] += partials[some]
    left = begins.copy()
    left[some] = behind[last[some] - 1]
    rest = running[ends] - running[left] + np.where(some, 0, partials)
    return Leaves(counts, sums, behind, rest)
