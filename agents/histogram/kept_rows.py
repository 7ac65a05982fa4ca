"""What a release partition keeps of the rows that it has published in one window, for the rolling view (rolling.py).

    rows of a trigger ──KeptRows.keep──▶ state ──▶ own measurements at a trigger, and first ones; what is published of the end

A key is written once, at the trigger at which the window first publishes it, and has its place in that order from then on. Of each
trigger there is a row of numbers for each place, 8 bytes a measured column. All of it is published, or follows from what is.

State keys, under ``r`` window:
- ``k`` trigger chunk -> keys that are new at this trigger, and their own measurements; at least one chunk for each trigger;
- ``m`` trigger chunk -> own measurements of all keys;
- ``e`` trigger chunk -> estimates and standard errors that are published, where they are calibrated.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.arrays import Floats, Int64s
from susurrus.mechanisms.calendar import Trigger, WindowIndex

KEPT = b"r"
_KEYS, _MEASURED, _END = b"k", b"m", b"e"
_NUMBER_BYTES = 4
_CHUNK = 4096
"""Keys, or rows, of one value."""
_new_keys = msgspec.msgpack.Decoder(tuple[list[bytes], bytes])


class KeptRows:
    """The published rows of one window in one partition, by trigger. columns: measured ones."""

    def __init__(self, store: Store, window: WindowIndex, columns: int) -> None:
        self._store, self._columns = store, columns
        self._prefix = KEPT + ordered(window)
        self.keys: list[bytes] = []
        """In the order in which they were published, those of one trigger by key."""
        self.first = np.empty(0, np.int64)
        """int64[n]: the trigger at which each key was first kept."""
        self.first_rows = np.empty((0, columns), np.int64)
        """int64[n, columns]: its own measurements then."""
        self._triggers: list[Trigger] = []
        """Those that are kept, ascending."""
        self._newest: tuple[Trigger, Int64s, tuple[Int64s, Floats] | None] | None = None
        """Of the newest trigger that was read or kept: own measurements, and what is published where that differs."""
        self._load()
        self.places = dict(zip(self.keys, range(len(self.keys)), strict=True))

    def _load(self) -> None:
        table, first, rows = self._prefix + _KEYS, list[int](), [self.first_rows]
        for place, value in self._store.scan(table, prefix_end(table)):
            trigger = Trigger(int.from_bytes(place[len(table) : len(table) + _NUMBER_BYTES], "big"))
            keys, measured = _new_keys.decode(value)
            self.keys += keys
            first += [trigger] * len(keys)
            rows.append(self._rows(measured))
            if trigger not in self._triggers[-1:]:
                self._triggers.append(trigger)
        self.first, self.first_rows = np.array(first, np.int64), np.concatenate(rows)

    def kept_from(self, trigger: Trigger) -> Trigger | None:
        """The first trigger from this one on that is kept."""
        return next((kept for kept in self._triggers if kept >= trigger), None)

    def has(self, trigger: Trigger) -> bool:
        """Whether this trigger is kept."""
        return trigger in self._triggers

    def keep(self, trigger: Trigger, rows: SortedRows, commit: Commit) -> None:
        """Keep the rows of the next trigger: of every key that is kept, and of new ones."""
        direct, _ = rows.direct or (rows.estimates, rows.std_errors)
        new = [at for at, key in enumerate(rows.keys) if key not in self.places]
        keys = [rows.keys[at] for at in new]
        self.places.update(zip(keys, range(len(self.keys), len(self.keys) + len(keys)), strict=True))
        self.keys += keys
        self.first = np.append(self.first, np.full(len(new), trigger, np.int64))
        self.first_rows = np.concatenate((self.first_rows, direct[new]))
        order = np.argsort(np.fromiter(map(self.places.__getitem__, rows.keys), np.intp, len(rows.keys)))
        measured = direct[order]
        end = None if rows.direct is None else (rows.estimates[order], rows.std_errors[order])
        firsts = [
            msgspec.msgpack.encode((keys[at : at + _CHUNK], _bytes(direct[new[at : at + _CHUNK]])))
            for at in range(0, max(len(new), 1), _CHUNK)
        ]
        self._put(_KEYS, trigger, firsts, commit)
        self._put(_MEASURED, trigger, _chunks(measured), commit)
        if end is not None:
            self._put(_END, trigger, _chunks(np.hstack((end[0], end[1].view(np.int64)))), commit)
        self._triggers.append(trigger)
        self._newest = trigger, measured, end

    def measured(self, trigger: Trigger) -> Int64s:
        """int64[n, columns]: own measurements at a kept trigger, of the n keys that were kept by then."""
        if self._newest is not None and self._newest[0] == trigger:
            return self._newest[1]
        n = int(np.searchsorted(self.first, trigger, "right"))
        return self._rows(b"".join(self._get(_MEASURED, trigger, n)))

    def end(self, trigger: Trigger) -> tuple[Int64s, tuple[Int64s, Floats] | None]:
        """`measured`, and (estimates, standard errors) that are published of this trigger where they are not the same. It is
        remembered, because a window's end is asked for at every trigger of the next window."""
        if self._newest is None or self._newest[0] != trigger:
            measured, published = self.measured(trigger), None
            if found := b"".join(self._get(_END, trigger, len(measured))):
                both = np.frombuffer(found, "<i8").astype(np.int64).reshape(-1, 2 * self._columns)
                published = both[:, : self._columns], np.ascontiguousarray(both[:, self._columns :]).view(np.float64)
            self._newest = trigger, measured, published
        return self._newest[1], self._newest[2]

    def _get(self, table: bytes, trigger: Trigger, rows: int) -> list[bytes]:
        """The chunks of a trigger; without those that are not there."""
        found = self._store.get([self._place(table, trigger, chunk) for chunk in range(-(-rows // _CHUNK))])
        return [value for value in found if value is not None]

    def _put(self, table: bytes, trigger: Trigger, values: Sequence[bytes], commit: Commit) -> None:
        commit.puts += [(self._place(table, trigger, chunk), value) for chunk, value in enumerate(values)]

    def _place(self, table: bytes, trigger: Trigger, chunk: int) -> bytes:
        return self._prefix + table + trigger.to_bytes(_NUMBER_BYTES, "big") + chunk.to_bytes(_NUMBER_BYTES, "big")

    def _rows(self, data: bytes) -> Int64s:
        return np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, self._columns)


def _bytes(rows: Int64s) -> bytes:
    return np.ascontiguousarray(rows).astype("<i8").tobytes()


def _chunks(rows: Int64s) -> list[bytes]:
    return [_bytes(rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]


def before(window: WindowIndex) -> tuple[bytes, bytes]:
    """The range of state keys of all windows before this one."""
    return KEPT, KEPT + ordered(window)
