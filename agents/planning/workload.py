"""What a window holds, as compact columns: the synthetic day of DP-SQLP's section 5.1, or records that are at hand.

Flow: workload → spool (bounding, increments) → offline (strategy) → errors: `susurrus plan` and benchmarks/.
A workload is handed out in chunks of users, each a `UserRecords` sorted by (user, time of day). Chunk i depends on
(seed, i) alone, so nothing has to be kept in memory, and the data are the same for every number of triggers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

DAY_MS = 86_400_000
CHUNK_USERS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecords:
    """Records of a chunk of users, sorted by (user, time); a user's records are all in one chunk.

    `user`: int32[n], 0..users-1 within the chunk. `key`: int32[n], 0..keys-1 of the workload.
    `time`: int32[n], position in the window, which is DAY_MS long whatever its length is: milliseconds of a day. `users`: number
    of users in the chunk, also those without records. `values`: int64[n, fields] in grid units, not clamped, where sums are
    measured.
    """

    user: npt.NDArray[np.int32]
    key: npt.NDArray[np.int32]
    time: npt.NDArray[np.int32]
    users: int
    values: npt.NDArray[np.int64] | None = None

    def trigger(self, triggers: int) -> npt.NDArray[np.int32]:
        """int32[n]: the trigger in 1..triggers that closes the interval a record falls in."""
        return (self.time.astype(np.int64) * triggers // DAY_MS + 1).astype(np.int32)


class Workload(Protocol):
    """A day of records. `key_names` are the bytes that address the noise: canonical JSON of the key."""

    @property
    def name(self) -> str: ...

    @property
    def users(self) -> int: ...

    @property
    def key_names(self) -> list[bytes]: ...

    def chunks(self) -> Iterator[UserRecords]: ...


@dataclass(frozen=True, slots=True)
class RenamedWorkload:
    """A workload with other key names. place: int32[keys of the workload], where each key stands among them; None where the
    workload's own come first, in their order."""

    given: Workload
    key_names: list[bytes]
    place: npt.NDArray[np.int32] | None = None

    @property
    def name(self) -> str:
        """Of the workload."""
        return self.given.name

    @property
    def users(self) -> int:
        """Of the workload."""
        return self.given.users

    def chunks(self) -> Iterator[UserRecords]:
        """The same records."""
        if self.place is None:
            yield from self.given.chunks()
            return
        for chunk in self.given.chunks():
            yield replace(chunk, key=self.place[chunk.key])


def zipf_mandelbrot(ranks: int, q: float, s: float) -> npt.NDArray[np.float64]:
    """float64[ranks]: P(x) ∝ (x + q)^-s for x = 0..ranks-1; x counted from 0, as DP-SQLP's own totals require."""
    weights: npt.NDArray[np.float64] = (np.arange(ranks, dtype=np.float64) + q) ** -s
    law: npt.NDArray[np.float64] = weights / weights.sum()
    return law


def sample(distribution: npt.NDArray[np.float64], size: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """int32[size]: indices drawn from `distribution` by inversion."""
    cdf = np.cumsum(distribution)
    cdf[-1] = 1.0
    return np.searchsorted(cdf, rng.random(size), side="right").astype(np.int32)


def sort_records(
    user: npt.NDArray[np.int32],
    key: npt.NDArray[np.int32],
    time: npt.NDArray[np.int32],
    users: int,
    values: npt.NDArray[np.int64] | None = None,
) -> UserRecords:
    """Records in (user, time) order; equal times keep the order given."""
    order = np.argsort(user.astype(np.int64) << 32 | time, kind="stable")
    return UserRecords(
        user=user[order],
        key=key[order],
        time=time[order],
        users=users,
        values=None if values is None else values[order],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfMandelbrotDay:
    """DP-SQLP section 5.1: records per user and keys from two Zipf-Mandelbrot distributions, times uniform over the day.

    Records per user: x + 1 with P(x) ∝ (x + 26)^-6.738, x = 0..1e5-1 (mean 5.905; the paper's text says 10, its
    baseline's ℓ1 of 59.05M says 5.905). Keys: P(k) ∝ (k + 1000)^-1.4, k = 0..1e6-1.
    """

    users: int = 10_000_000
    keys: int = 1_000_000
    seed: int = 0
    name: str = "zipf-mandelbrot"

    @property
    def key_names(self) -> list[bytes]:
        return [b"%d" % code for code in range(self.keys)]

    def chunks(self) -> Iterator[UserRecords]:
        per_user = zipf_mandelbrot(100_000, 26, 6.738)
        key_distribution = zipf_mandelbrot(self.keys, 1000, 1.4)
        for index, start in enumerate(range(0, self.users, CHUNK_USERS)):
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
            users = min(CHUNK_USERS, self.users - start)
            counts = sample(per_user, users, rng) + 1
            user = np.repeat(np.arange(users, dtype=np.int32), counts)
            key = sample(key_distribution, len(user), rng)
            time = rng.integers(0, DAY_MS, len(user), dtype=np.int32)
            yield sort_records(user, key, time, users)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWorkload:
    """Records read from a file: one chunk."""

    name: str
    records: UserRecords
    key_names: list[bytes]

    @property
    def users(self) -> int:
        return self.records.users

    def chunks(self) -> Iterator[UserRecords]:
        yield self.records
