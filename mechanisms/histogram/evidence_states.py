"""What is kept of a key's closing rows from window to window, as columns, and its layout in the store.

    state ──past──▶ PastRows ──Strategy.step──▶ ClosingRows ──after──▶ state of the next window

Columns are windows: column 0 is the window before the one that is looked at, or, in the store, the newest window that is kept.
Rules: docs/guarantees/evidence.md. Internal: which keys have a state, and what is in it, follows from raw data and the secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Floats
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows, PastRows
from susurrus.mechanisms.histogram.per_key import PerKey
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.mechanisms.noise import WindowNoise

LAYOUT: Final = 1
"""First byte of every stored state."""
_WEIGHED, _OPENED, _PUBLIC = np.uint8(1), np.uint8(2), np.uint8(4)


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """A window whose last trigger measured the keys that were not public: its mechanism and its noise."""

    strategy: Strategy[Any]
    noise: WindowNoise


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceStates(PerKey):
    """k keys, p earlier windows: one fewer than `evidence_windows`.

    flags   uint8[k, p]    bit 0: somebody weighed the key; bit 1: more than minimum_users did; bit 2: the window published the key,
                           or had it public, and no older row counts any more
    values  float64[k, p]  the closing row where somebody weighed the key, else 0
    """

    flags: npt.NDArray[np.uint8]
    values: Floats

    @classmethod
    def empty(cls, size: int, windows: int) -> Self:
        """Keys that are not known."""
        return cls(flags=np.zeros((size, windows), np.uint8), values=np.zeros((size, windows)))

    @property
    def stays(self) -> Bools:
        """bool[k]: whether anything is known of the key that the next window needs."""
        known: Bools = (self.flags != 0).any(axis=1)
        return known

    @property
    def counts(self) -> Bools:
        """bool[k, p]: whether no later window published the key or had it public, nor did this one."""
        public: Bools = np.logical_or.accumulate(self.flags & _PUBLIC != 0, axis=1)
        return ~public

    @property
    def opened(self) -> Bools:
        """bool[k]: whether some window that counts has opened the key's gate: then the key is tested with or without news."""
        found: Bools = (self.counts & (self.flags & _OPENED != 0)).any(axis=1)
        return found

    def past(self, keys: Sequence[bytes], windows: Sequence[MeasuredWindow | None]) -> PastRows:
        """What these windows say of the keys; those that measured nothing, or are before an epoch's first, are None."""
        counts, past = self.counts, PastRows.none(len(keys), len(windows))
        for column, window in enumerate(windows):
            if window is None:
                continue
            past.in_play[:, column] = counts[:, column]
            weighed = self.flags[:, column] & _WEIGHED != 0
            past.values[:, column] = np.where(weighed, self.values[:, column], 0.0)
            unbrought = np.flatnonzero(counts[:, column] & ~weighed)
            some = [keys[i] for i in unbrought.tolist()]
            past.values[unbrought, column] = window.strategy.unbrought(some, window.noise)
            past.heights[:, column], past.variances[:, column] = window.strategy.closing_constants(keys)
            past.opened[:, column] = self.flags[:, column] & _OPENED != 0
        return past

    def after(self, rows: ClosingRows, published: Bools) -> Self:
        """The states that the next window begins with. published: bool[k], by the end of this window, however."""
        weighed = ~published & (rows.users > 0)
        newest = np.where(published, _PUBLIC, np.where(weighed, _WEIGHED | np.where(rows.opened, _OPENED, 0), 0))
        flags = np.concatenate((newest[:, None].astype(np.uint8), self.flags[:, :-1]), axis=1)
        values = np.concatenate((np.where(weighed, rows.values, 0.0)[:, None], self.values[:, :-1]), axis=1)
        gone = published[:, None] & (np.arange(flags.shape[1]) > 0)
        return type(self)(flags=np.where(gone, 0, flags).astype(np.uint8), values=np.where(gone, 0.0, values))

    def pack(self, newest: WindowIndex) -> list[bytes]:
        """One byte string per key: layout u8, newest i64, the window of column 0; then by column flags u8, and value f64."""
        size, windows = self.flags.shape
        table = np.zeros(size, _layout(windows))
        table["layout"], table["newest"] = LAYOUT, newest
        table["flags"], table["values"] = self.flags, self.values
        data, width = table.tobytes(), table.dtype.itemsize
        return [data[at : at + width] for at in range(0, size * width, width)]

    @classmethod
    def unpack(cls, rows: Sequence[bytes], window: WindowIndex, windows: int) -> Self:
        """The states that a window begins with: `windows` earlier ones. Raises ValueError for bytes that `pack` did not write."""
        layout = _layout(windows)
        data = b"".join(rows)
        table = np.frombuffer(data, layout) if {len(row) for row in rows} <= {layout.itemsize} else None
        if table is None or (table["layout"] != LAYOUT).any():
            raise ValueError("evidence of a key has another layout; it was written by another version or configuration")
        states = cls.empty(len(rows), windows)
        older = window - 1 - table["newest"]
        if (older < 0).any():
            raise ValueError(f"evidence of a window after window={window}: state and window do not belong together")
        for column in range(windows):
            at = column - older
            there = np.flatnonzero(at >= 0)
            states.flags[there, column] = table["flags"][there, at[there]]
            states.values[there, column] = table["values"][there, at[there]]
        return states


def _layout(windows: int) -> np.dtype[Any]:
    return np.dtype([("layout", "u1"), ("newest", "<i8"), ("flags", "u1", (windows,)), ("values", "<f8", (windows,))])
