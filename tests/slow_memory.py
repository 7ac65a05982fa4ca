"""What a window's list of remembered keys makes of its rows, key by key: smoothed numbers, and which rows are shown.

Shares the fit with the product and nothing else: no arrays of rows, no state, no order of arrival.
"""

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from susurrus.mechanisms.histogram.smoothing import Smoothing
from susurrus.topics.wire.partitioner import partition as partition_of

InternalRow = tuple[list[int], list[float]]
"""Estimates and standard errors by measured column."""
Numbers = dict[int, tuple[float, float]]
"""Measured column -> number and its standard error."""


@dataclass
class SlowMemory:
    """One epoch. remember: users; 0 for nothing. plan: of any window. partitions: bounded ones."""

    remember: int
    plan: Any
    declared: Collection[bytes]
    partitions: int
    handed_on: dict[bytes, Numbers] = field(default_factory=dict)
    """The list of the window that runs: what is remembered, rates and the variances of their errors."""
    rates: dict[bytes, Numbers] = field(default_factory=dict)
    """Of the rows that `smoothed` had last."""
    lasted: tuple[int, int] = 0, 0
    """Of the last rows of 15 users or more: those of keys that the window began with, and all."""

    @classmethod
    def of(cls, settings: Any, plan: Any, declared: Collection[bytes]) -> "SlowMemory":
        return cls(settings.remember, plan, declared, settings.topics.bounded_partitions)

    def smoothed(self, rows: dict[bytes, InternalRow]) -> dict[bytes, Numbers]:
        """Of the keys on the list: key -> column -> number and its error, where a partition has enough of them."""
        found: dict[bytes, Numbers] = defaultdict(dict)
        self.rates = defaultdict(dict)
        keys_of: dict[int, list[bytes]] = defaultdict(list)
        for key in sorted(self.handed_on.keys() & rows.keys(), reverse=True):
            keys_of[int(partition_of([key], self.partitions)[0])].append(key)
        for keys in keys_of.values():
            for column in self._counting:
                given = []
                for key in keys:
                    own = rows[key][1][column]
                    given.append((rows[key][0][column], own * own, *self.handed_on[key][column]))
                columns = np.array(given, np.float64).T.copy()
                fitted = Smoothing.fit(*columns)
                if fitted is not None:
                    for key, number, error in zip(keys, *fitted.rows(*columns), strict=True):
                        found[key][column] = round(float(number)), math.sqrt(float(error) * float(error) + 1 / 12)
                    for key, number, variance in zip(keys, *fitted.rates(*columns), strict=True):
                        self.rates[key][column] = float(number), float(variance)
        return found

    def hidden(
        self, rows: dict[bytes, InternalRow], smoothed: dict[bytes, Numbers], found: Collection[bytes] = ()
    ) -> set[bytes]:
        """Keys on the list whose row is not shown. found: keys that the window had published before the list held."""
        hidden = set()
        for key in (self.handed_on.keys() & rows.keys()) - set(self.declared) - set(found):
            assert self._deciding is not None
            number, error = self._newest(rows, smoothed, key)[self._deciding]
            if number < 3 or number < error:
                hidden.add(key)
        return hidden

    def hand_on(self, rows: dict[bytes, InternalRow], smoothed: dict[bytes, Numbers]) -> None:
        """At the last trigger: the next window's list. rows: calibrated where they are."""
        found = {}
        if self._deciding is not None:
            last = {key: self._newest(rows, smoothed, key)[self._deciding][0] for key in rows}
            large = {key for key, users in last.items() if users >= 15}
            self.lasted = len(large & (set(self.declared) | self.handed_on.keys())), len(large)
        for key in rows:
            newest = self._newest(rows, smoothed, key)
            if self.remember and self._deciding is not None and newest[self._deciding][0] >= self.remember:
                own = {column: (rows[key][0][column], rows[key][1][column]) for column in self._counting}
                drawn = {column: (max(number, 0), error**2 + max(number, 1)) for column, (number, error) in own.items()}
                found[key] = drawn | self.rates.get(key, {})
        self.handed_on = found

    def _newest(self, rows: dict[bytes, InternalRow], smoothed: dict[bytes, Numbers], key: bytes) -> Numbers:
        own: Numbers = {column: (rows[key][0][column], rows[key][1][column]) for column in self._counting}
        return own | smoothed.get(key, {})

    @property
    def _counting(self) -> list[int]:
        return [at for at, column in enumerate(self.plan.columns) if column.kind in ("users", "count")]

    @property
    def _deciding(self) -> int | None:
        cap = self.plan.max_records_per_key
        return next((at for at, column in enumerate(self.plan.columns) if column.counts_users(cap)), None)


def kappa_of(lasted: tuple[int, int]) -> int:
    """In tenths, of (known, rows)."""
    known, rows = lasted
    return int(Fraction(known, rows) * 10) if rows else 0
