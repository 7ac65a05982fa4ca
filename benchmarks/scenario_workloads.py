"""Synthetic days that differ from the paper's in one respect each: benchmarks/scenarios.py.

Interface and determinism as in agents/planning/workload.py: chunk i of a workload follows from (seed, i) alone. What belongs to a
key, such as when it appears, follows from the seed alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.agents.planning import workload
from susurrus.agents.planning.workload import DAY_MS, UserRecords, sample, sort_records, zipf_mandelbrot

HOUR_MS = DAY_MS // 24
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf:
    """A pure Zipf law of keys, P(k) ∝ (k + 1)^-exponent, and the paper's law of records per user.

    A user has a key at most once: later records of it are left out. At exponents above 1 the most popular keys would otherwise
    be most of the records of every user, and all errors would be those of counting a key once per user. Exponent 0 is the flat law.
    """

    name: str
    exponent: float
    users: int = 1_000_000
    keys: int = 1_000_000
    seed: int = 0

    @property
    def key_names(self) -> list[bytes]:
        return _names(self.keys)

    def chunks(self) -> Iterator[UserRecords]:
        law = zipf_mandelbrot(self.keys, 1, self.exponent)
        for rng, users in _chunks(self.users, self.seed):
            user = _papers_users(users, rng)
            key = sample(law, len(user), rng)
            fresh = ~_repeats(user, key)
            user, key = user[fresh], key[fresh]
            yield sort_records(user, key, _any_time(len(user), rng), users)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateKeys:
    """The paper's day, in which a share of the keys exists only from a random hour on, 1 to 23.

    As many records as on the paper's day have a late key; they lie between its hour and the end of the day.
    """

    name: str = "late-keys"
    share: float = 0.5
    users: int = 1_000_000
    keys: int = 1_000_000
    seed: int = 0

    @property
    def key_names(self) -> list[bytes]:
        return _names(self.keys)

    def begins(self) -> Int64:
        """int64[keys]: the millisecond from which each key exists; 0 for keys that are not late."""
        rng = _rng_of_keys(self.seed)
        late = rng.random(self.keys) < self.share
        hour: Int64 = np.where(late, rng.integers(1, 24, self.keys), 0) * HOUR_MS
        return hour

    def chunks(self) -> Iterator[UserRecords]:
        begins = self.begins()
        for rng, users, user, key in _papers_day(self.users, self.keys, self.seed):
            time = begins[key] + rng.random(len(key)) * (DAY_MS - begins[key])
            yield sort_records(user, key, time.astype(np.int32), users)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """The paper's day, in which all records of a share of the keys lie in a few minutes, at a random time for each key."""

    name: str = "bursts"
    share: float = 0.5
    minutes: int = 5
    users: int = 1_000_000
    keys: int = 1_000_000
    seed: int = 0

    @property
    def key_names(self) -> list[bytes]:
        return _names(self.keys)

    def bursts(self) -> tuple[Int64, Int64]:
        """(begin, length), int64[keys] each, in milliseconds; the whole day for keys without a burst."""
        rng = _rng_of_keys(self.seed)
        length = np.where(rng.random(self.keys) < self.share, self.minutes * 60_000, DAY_MS)
        return (rng.random(self.keys) * (DAY_MS - length)).astype(np.int64), length

    def chunks(self) -> Iterator[UserRecords]:
        begin, length = self.bursts()
        for rng, users, user, key in _papers_day(self.users, self.keys, self.seed):
            time = begin[key] + rng.random(len(key)) * length[key]
            yield sort_records(user, key, time.astype(np.int32), users)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The paper's day, in which one order of popularity gives way to another, steadily from the first record to the last.

    A record at time t follows the evening's order, a random one, with probability t / day, else the morning's.
    """

    name: str = "drift"
    users: int = 1_000_000
    keys: int = 1_000_000
    seed: int = 0

    @property
    def key_names(self) -> list[bytes]:
        return _names(self.keys)

    def evening(self) -> Int64:
        """int64[keys]: the key that has each rank in the evening; in the morning key k has rank k."""
        return _rng_of_keys(self.seed).permutation(self.keys)

    def chunks(self) -> Iterator[UserRecords]:
        evening = self.evening()
        for rng, users, user, rank in _papers_day(self.users, self.keys, self.seed):
            time = _any_time(len(user), rng)
            late = rng.random(len(user)) * DAY_MS < time
            yield sort_records(user, np.where(late, evening[rank], rank).astype(np.int32), time, users)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLists:
    """The paper's law of keys, and users with dozens of keys each: `least` to `most` distinct ones, every number as likely."""

    name: str = "long-lists"
    least: int = 30
    most: int = 60
    users: int = 1_000_000
    keys: int = 1_000_000
    seed: int = 0

    @property
    def key_names(self) -> list[bytes]:
        return _names(self.keys)

    def chunks(self) -> Iterator[UserRecords]:
        law = zipf_mandelbrot(self.keys, 1000, 1.4)
        for rng, users in _chunks(self.users, self.seed, share=8):  # ten times as many records
            counts = rng.integers(self.least, self.most + 1, users)
            user = np.repeat(np.arange(users, dtype=np.int32), counts)
            key = sample(law, len(user), rng)
            # Few are drawn twice, so redrawing them hardly changes the law.
            while len(again := np.flatnonzero(_repeats(user, key))):
                key[again] = sample(law, len(again), rng)
            yield sort_records(user, key, _any_time(len(user), rng), users)


def _names(keys: int) -> list[bytes]:
    return [b"%d" % code for code in range(keys)]


def _rng_of_keys(seed: int) -> np.random.Generator:
    """For what belongs to the keys: no chunk has this spawn key."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))


def _chunks(users: int, seed: int, share: int = 1) -> Iterator[tuple[np.random.Generator, int]]:
    """(generator, number of users) of every chunk. share: chunks are smaller by this factor."""
    size = max(1, workload.CHUNK_USERS // share)
    for index, start in enumerate(range(0, users, size)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
        yield rng, min(size, users - start)


def _papers_users(users: int, rng: np.random.Generator) -> Int32:
    """int32[records]: users of records, as many of each as on the paper's day."""
    counts = sample(zipf_mandelbrot(100_000, 26, 6.738), users, rng) + 1
    return np.repeat(np.arange(users, dtype=np.int32), counts)


def _papers_day(users: int, keys: int, seed: int) -> Iterator[tuple[np.random.Generator, int, Int32, Int32]]:
    """(generator, number of users, user, key) of every chunk of the paper's day, without times."""
    law = zipf_mandelbrot(keys, 1000, 1.4)
    for rng, number in _chunks(users, seed):
        user = _papers_users(number, rng)
        yield rng, number, user, sample(law, len(user), rng)


def _any_time(size: int, rng: np.random.Generator) -> Int32:
    return rng.integers(0, DAY_MS, size, dtype=np.int32)


def _repeats(user: Int32, key: Int32) -> npt.NDArray[np.bool_]:
    """bool[n]: an earlier row has the same user and key."""
    pair = user.astype(np.int64) << 32 | key
    order = np.argsort(pair, kind="stable")
    again = np.zeros(len(pair), np.bool_)
    again[order[1:]] = pair[order[1:]] == pair[order[:-1]]
    return again
