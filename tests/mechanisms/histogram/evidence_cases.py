"""What the tests of evidence over windows share: the last triggers of several windows in a row, by the real mechanism."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.evidence_states import EvidenceStates, MeasuredWindow
from susurrus.mechanisms.histogram.strategy import Increments, Step
from susurrus.mechanisms.noise import NoiseSource
from tests.mechanisms.histogram.closing_cases import ONE, Bools, Ints, lists_of, names

SOURCE = NoiseSource(b"e" * 32, epoch=b"e", config=b"c", pipeline="evidence")


class Windows:
    """The same keys in one window after another. Only users' lists bring something, with full weight; nothing is in the stream."""

    def __init__(self, strategy: Any, size: int) -> None:
        self.strategy, self.keys = strategy, names(size)
        self.states = EvidenceStates.empty(size, strategy.evidence_windows - 1)
        self.measured: list[MeasuredWindow | None] = []
        self.published: list[Bools] = []

    def window(self, users: Ints | int, *, public: Bools | None = None, weight: Ints | None = None) -> Step[Any]:
        """users: of each key, or of every key. public: keys that are declared in this window. weight: of them together."""
        strategy, size = self.strategy, len(self.keys)
        users = np.broadcast_to(np.asarray(users), (size,)).astype(np.int64)
        noise = SOURCE.window(WindowIndex(len(self.measured)))
        known = [*reversed(self.measured)][: self.states.flags.shape[1]]
        known += [None] * (self.states.flags.shape[1] - len(known))
        none = np.zeros(size, np.int64)
        increments = Increments(
            users=none,
            weight=none,
            sums=np.zeros((size, strategy.plan.width), np.int64),
            lists=lists_of(users, users * ONE if weight is None else weight),
            past=self.states.past(self.keys, known),
        )
        declared = np.zeros(size, np.bool_) if public is None else public
        last = strategy.plan.triggers
        step: Step[Any] = strategy.step(last, self.keys, strategy.empty(size), increments, noise, declared)
        assert step.closing is not None
        self.states = self.after(step)
        # Through the bytes of the store, as between two windows of a pipeline.
        newest = WindowIndex(len(self.measured))
        self.states = EvidenceStates.unpack(
            self.states.pack(newest), WindowIndex(newest + 1), strategy.evidence_windows - 1
        )
        self.measured.append(MeasuredWindow(strategy, noise))
        self.published.append(step.published)
        return step

    def after(self, step: Step[Any]) -> EvidenceStates:
        assert step.closing is not None
        return self.states.after(step.closing, step.published)

    def skipped(self) -> None:
        """A window that measures nothing."""
        moved = self.states.pack(WindowIndex(len(self.measured) - 1))
        self.measured.append(None)
        self.states = EvidenceStates.unpack(moved, WindowIndex(len(self.measured)), self.strategy.evidence_windows - 1)

    def take(self, index: Sequence[int] | Ints) -> None:
        """Go on with some of the keys."""
        at = np.asarray(index, np.intp)
        self.keys = [self.keys[i] for i in at.tolist()]
        self.states = self.states.take(at)


class Kept(Windows):
    """Planted: evidence stays when a key is published."""

    def after(self, step: Step[Any]) -> EvidenceStates:
        assert step.closing is not None
        return self.states.after(step.closing, np.zeros(len(self.keys), np.bool_))


class Dropped(Windows):
    """Planted: a window without users ends the evidence of a key, and does not test it."""

    def window(self, users: Ints | int, *, public: Bools | None = None, weight: Ints | None = None) -> Step[Any]:
        nobody = np.broadcast_to(np.asarray(users), (len(self.keys),)) == 0
        self.states = replace(self.states, flags=np.where(nobody[:, None], 0, self.states.flags).astype(np.uint8))
        return super().window(users, public=public, weight=weight)
