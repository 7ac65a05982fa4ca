"""A synthetic law in place of data: so many users, with so many records each, on keys of a Zipf law.

Where nothing is known of the data but their size, a forecast from a law reveals nothing about any of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from susurrus.agents.planning.workload import CHUNK_USERS, DAY_MS, UserRecords, sample, sort_records, zipf_mandelbrot
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.raw import Measurable

Profile = Literal["uniform", "day"]

_RECORDS: Final = 100_000
_TAIL: Final = 6.738
"""Exponent of the law of records per user, as DP-SQLP's section 5.1 fits it to web users."""
_HOURS: Final = np.array([2, 1, 1, 1, 1, 1, 2, 3, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 4, 3], np.float64)
"""Records by hour, relatively, of profile `day`: a quiet night, and a day without peaks."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A `Workload` of one window.

    users: with one record or more. records_per_user: the mean; the law is P(x) ∝ (x + q)^-6.738. zipf, shift: of the keys,
    P(k) ∝ (k + 1 + shift)^-zipf for k < keys. fields: measured ones, whose values are uniform between their bounds (from 0 on,
    where they may be negative). occupied: the share of the window in which records come; the rest waits for late ones.
    Raises ConfigurationError.
    """

    users: int
    records_per_user: float = 5.905
    zipf: float = 1.4
    shift: float = 0.0
    keys: int = 100_000
    profile: Profile = "uniform"
    fields: tuple[Measurable, ...] = ()
    occupied: float = 1.0
    seed: int = 0
    name: str = field(default="synthetic law", init=False)

    def __post_init__(self) -> None:
        for name, least in (("users", 1), ("records_per_user", 1), ("keys", 1), ("zipf", 0), ("shift", 0)):
            if not getattr(self, name) >= least:
                raise ConfigurationError(f"{name}={getattr(self, name)}: must be at least {least}")
        if self.records_per_user > 1000:
            raise ConfigurationError(f"records_per_user={self.records_per_user:g}: must be at most 1000")

    @property
    def key_names(self) -> list[bytes]:
        """Numbers by rank, as JSON texts of a usual length."""
        return [b'"key-%06d"' % code for code in range(self.keys)]

    @cached_property
    def _per_user(self) -> npt.NDArray[np.float64]:
        """The probabilities of x = 0, 1, ... further records."""
        ranks = np.arange(_RECORDS)
        wanted = self.records_per_user - 1
        if wanted < 1e-3:
            return np.ones(1)

        def excess(logarithm: float) -> float:
            return float(ranks @ zipf_mandelbrot(_RECORDS, np.exp(logarithm), _TAIL)) - wanted

        return zipf_mandelbrot(_RECORDS, float(np.exp(brentq(excess, np.log(1e-3), np.log(1e6)))), _TAIL)

    def chunks(self) -> Iterator[UserRecords]:
        """Yields the chunks. As in every workload, chunk i follows from (seed, i) alone."""
        keys = zipf_mandelbrot(self.keys, 1 + self.shift, self.zipf)
        for index, start in enumerate(range(0, self.users, CHUNK_USERS)):
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
            users = min(CHUNK_USERS, self.users - start)
            counts = sample(self._per_user, users, rng) + 1
            user = np.repeat(np.arange(users, dtype=np.int32), counts)
            key = sample(keys, len(user), rng)
            time = self._times(len(user), rng)
            values = [
                rng.integers(min(max(0, each.lowest), each.highest), each.highest + 1, len(user))
                for each in self.fields
            ]
            columns = np.stack(values, axis=1) if values else None
            yield sort_records(user, key, time, users, columns)

    def _times(self, size: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
        day = int(DAY_MS * self.occupied)
        if self.profile == "uniform":
            return rng.integers(0, day, size, dtype=np.int32)
        hour = sample(_HOURS / _HOURS.sum(), size, rng)
        return np.minimum((hour + rng.random(size)) * (day / 24), day - 1).astype(np.int32)
