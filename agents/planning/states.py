"""States of all keys in memory, in place of the store of a release partition."""

from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.histogram.strategy import Strategy

MERGE_PARTS = 8


class StateTable:
    """States of all keys, found by key code: an append-only list of parts, merged when there are many.

    Uses only what every strategy's KeyStates offers (take, concatenate), so ragged histories need no special case.
    """

    def __init__(self, strategy: Strategy[Any], keys: int) -> None:
        self.strategy = strategy
        self.part = np.full(keys, -1, np.int32)
        self.row = np.zeros(keys, np.int64)
        self.parts: list[Any] = []
        self.codes: list[npt.NDArray[np.int64]] = []

    def get(self, codes: npt.NDArray[np.int64]) -> Any:
        """States aligned with `codes`; empty ones for keys never seen."""
        where = self.part[codes]
        order = np.argsort(where, kind="stable")
        found = []
        for part in np.unique(where):
            rows = self.row[codes[where == part]]
            found.append(self.strategy.empty(len(rows)) if part < 0 else self.parts[part].take(rows))
        if not found:
            return self.strategy.empty(0)
        back = np.empty(len(codes), np.int64)
        back[order] = np.arange(len(codes))
        return type(found[0]).concatenate(found).take(back)

    def put(self, codes: npt.NDArray[np.int64], states: Any) -> None:
        """Replaces the states of `codes` (distinct)."""
        self.part[codes] = len(self.parts)
        self.row[codes] = np.arange(len(codes))
        self.parts.append(states)
        self.codes.append(codes)
        if len(self.parts) > MERGE_PARTS:
            self._merge()

    def _merge(self) -> None:
        """Joins all parts but the largest when that is still much larger than they are, else all of them."""
        sizes = [len(codes) for codes in self.codes]
        start = 1 if sizes[0] > 2 * sum(sizes[1:]) else 0
        live = [
            (codes[alive], states.take(np.flatnonzero(alive)))
            for number, (codes, states) in enumerate(zip(self.codes, self.parts, strict=True))
            if number >= start
            for alive in [self.part[codes] == number]
        ]
        codes = np.concatenate([codes for codes, _ in live])
        states = type(self.parts[0]).concatenate([states for _, states in live])
        self.parts, self.codes = [*self.parts[:start], states], [*self.codes[:start], codes]
        self.part[codes] = start
        self.row[codes] = np.arange(len(codes))
