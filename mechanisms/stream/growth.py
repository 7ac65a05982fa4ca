r"""How the clipping range of the next tree follows the stream: public rules on released numbers.

    a tree's released block sums, the filter's level ──▶ Growth.follow ──▶ width and lower clip of the next tree,
    the released count of its clipped values, if any ─┘                    whether its clipped values are counted

The range of a tree is fixed before its first value.  It depends on earlier trees' released numbers, so that following the
level costs nothing.  The count of values above theta costs a share of the tree's epsilon; the sums have the rest.

Levels and widths are in units of the first width, the level as a share of it: the mean of v - lower over theta - lower.
Source: our addition; ToPS chooses theta once.  docs/guarantees/tops.md has the proof.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtr, ndtri

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream.addresses import GRID_BITS, AddressedNoise, address, whole

SHARE = 3 / 32
"""The share of a tree's epsilon for the count of its clipped values, if they are counted.  Exact in binary."""
STEP = 1.25
"""Widths are the first one times powers of this."""
HEADROOM = 1.05
"""A width is at least so many times what the level asks for."""
RISEN = 0.1
"""A level that has risen by this share, and significantly, has the next tree's clipped values counted."""
SIGNIFICANT = 2.0
"""Standard errors between two levels that count as two."""
RAISES = ((0.05, 2.5), (0.0, 1.5))
"""(share of a tree's values above theta, factor on the width), from the top."""
CERTAIN = 4.0
"""Standard errors of a count that must lie above 0."""


@dataclass(slots=True)
class Followed:
    """What is remembered of a stream's levels.  All of it is a function of released numbers.

    level, error: when the first significant level was released, with its standard error; level = 0: not yet.  counted: the
    level when clipped values were last counted.  least: the factor that a count in the first tree asked for.
    factor: width of the open tree.
    """

    level: float = 0.0
    error: float = 0.0
    counted: float = 0.0
    least: float = 1.0
    factor: float = 1.0
    fallen: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One complete tree, released.

    levels: the filter's level and those of the tree's two halves; error: the largest of their standard errors.  mean: the
    tree's released mean.  clipped, clipped_error: the released share of its values above theta, None where nothing was counted.
    """

    levels: tuple[float, ...]
    error: float
    mean: float
    clipped: float | None = None
    clipped_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """The rules.  share: of a tree's epsilon for the count; 0 keeps the first range for ever."""

    share: float = SHARE

    def follow(self, followed: Followed, seen: Seen, *, first: bool) -> bool:
        """Take in a complete tree; set the next one's factor.  Return whether its clipped values are to be counted.

        first: the tree is the stream's first.
        """
        factor, risen = 1.0, False
        if followed.level:
            low, high, noise = min(seen.levels), max(seen.levels), math.hypot(seen.error, followed.error)
            if low - followed.level > SIGNIFICANT * noise:
                factor = STEP ** math.ceil(math.log(HEADROOM * low / followed.level) / math.log(STEP))
            followed.fallen = followed.level / 2 - high > SIGNIFICANT * noise
            risen = low - followed.counted > RISEN * followed.counted + (SIGNIFICANT + 1) * noise
            followed.counted = low if risen else followed.counted
        elif seen.levels[0] > CERTAIN * seen.error:
            followed.level, followed.error, followed.counted = seen.levels[0], seen.error, seen.levels[0]
        if seen.clipped is not None and seen.clipped > CERTAIN * seen.clipped_error:
            by = next(by for share, by in RAISES if seen.clipped >= share)
            factor = max(factor, followed.factor * by)
            if first:
                followed.least = factor
        followed.factor = max(factor, followed.least)
        return risen


def count_noise(noise: AddressedNoise, streams: Sequence[bytes], trees: Int64s, epsilon: float) -> Int64s:
    """Return int64[streams]: the noise of each stream's count in one tree, rounded to whole values (halves up).

    The address is ("tops/clipped", stream, tree).
    """
    labels = noise.labels("tops/clipped", [address(*of) for of in zip(streams, trees.tolist(), strict=True)])
    return whole(noise.laplace(labels, 0, 0, scale=1 / epsilon, bits=GRID_BITS)[:, 0])


def truncation(mean: float, theta: float, share: float) -> float:
    """Return E[(x - theta)+] of the log-normal with E[min(x, theta)] = mean and P[x > theta] = share.

    mean, theta: above the lower clip, in one unit.  0 without a usable share.  What it is off by depends on how far the values
    are from log-normal.
    """
    if not (0 < share < 0.5 and 0 < mean < theta):
        return 0.0
    quantile, excess = -float(ndtri(share)), 0.0
    for _ in range(20):
        # P[x > theta] = share and E[x] = total fix sigma: sigma^2 / 2 - quantile sigma + ln(theta / total) = 0.
        total = mean + excess
        inside = quantile**2 - 2 * math.log(theta / total)
        if inside <= 0:
            return share * theta / 2
        sigma = quantile - math.sqrt(inside)
        excess = total * float(ndtr(sigma - quantile)) - theta * share
        if mean + excess >= theta:
            return share * theta / 2
    return excess
