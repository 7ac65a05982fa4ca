"""Evidence over windows without Kafka: what the last triggers of earlier windows measured of keys that are not published yet.

    run ──last trigger──▶ Evidence.past ──▶ Strategy.step ──▶ Evidence.measured ──▶ Evidence.end, for the next window

As release does it (docs/guarantees/evidence.md), with states in memory.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows, PastRows
from susurrus.mechanisms.histogram.evidence_states import EvidenceStates, MeasuredWindow
from susurrus.mechanisms.histogram.strategy import Step, Strategy
from susurrus.mechanisms.noise import WindowNoise


class Evidence:
    """Of all keys, by code. windows: that add up, the present one among them."""

    def __init__(self, keys: int, windows: int) -> None:
        self._states = EvidenceStates.empty(keys, windows - 1)
        self._before: list[MeasuredWindow | None] = [None] * (windows - 1)
        self._rows = ClosingRows.none(keys)

    @property
    def tested(self) -> Int64s:
        """Codes of the keys that the last trigger tests with or without news."""
        return np.flatnonzero(self._states.opened)

    def past(self, codes: Int64s, keys: Sequence[bytes]) -> PastRows:
        """What earlier windows measured of these keys."""
        return self._states.take(codes).past(keys, self._before)

    def measured(self, codes: Int64s, step: Step[Any]) -> None:
        """Notes what the last trigger has measured of these keys."""
        if step.closing is not None:
            for name in ("values", "users", "opened"):
                getattr(self._rows, name)[codes] = getattr(step.closing, name)

    def end(self, strategy: Strategy[Any], noise: WindowNoise, published: Bools) -> None:
        """Ends the window. published: bool[keys], which it has published or had public."""
        self._states = self._states.after(self._rows, published)
        self._before = [MeasuredWindow(strategy, noise), *self._before[:-1]]
        self._rows = ClosingRows.none(len(published))
