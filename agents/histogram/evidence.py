"""What release keeps of its closing rows from window to window, where windows add up (`keys.evidence_windows`).

    state ──EvidenceTable.of──▶ EvidenceOf(window) ──past──▶ steps of the last trigger (window_keys.py)
                                       ◀──take──                      changes ──▶ the commit that publishes it

Every key with an open gate in one of the windows before is stepped over at a window's last trigger, also if nobody brought it: what
is tested must not follow today's records. Argument: docs/guarantees/evidence.md.

The table may have many times the keys of one window, so it is never in memory as a whole. Whoever goes through it has a chunk at a
time, and a commit writes the rows of keys that this window has weighed or published, and of no others.

State keys, both internal:
- ``x`` key -> `EvidenceStates` of a key that a window has weighed or published;
- ``y`` window -> a byte with the format, and the digest of the plan by which the window's last trigger has measured the keys.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.arrays import Bools
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.evidence_memory import PastRows
from susurrus.mechanisms.histogram.evidence_states import EvidenceStates, MeasuredWindow
from susurrus.mechanisms.histogram.strategy import Step, Strategy
from susurrus.mechanisms.noise import NoiseSource

_KEYS, _MEASURED = b"x", b"y"
_FORMAT: Final = b"\x01"
_CHUNK = 50_000


class EvidenceTable:
    """One bounded partition's closing rows of the windows before. Only where the strategy adds up windows."""

    def __init__(self, services: HistogramServices, store: Store, noise: NoiseSource, plans: WindowPlans) -> None:
        self._services, self._store, self._noise, self._plans = services, store, noise, plans
        self._before = services.strategy.evidence_windows - 1

    def of(self, window: WindowIndex, strategy: Strategy[Any]) -> "EvidenceOf":
        """What is known when the window's last trigger comes. Changes nothing. strategy: the window's."""
        before = [WindowIndex(window - 1 - column) for column in range(self._before)]
        return EvidenceOf(window, strategy.plan.digest(), self._store, [self._measured(each) for each in before])

    def _measured(self, window: WindowIndex) -> MeasuredWindow | None:
        """A window that is over; None for one that was skipped, or is before the epoch's first."""
        said = self._store.get_one(_MEASURED + ordered(window))
        if said is None:
            return None
        # Noise of another plan has other addresses: such rows were never measured.
        strategy = self._plans.strategy_with(window, said.removeprefix(_FORMAT))
        if strategy is None:
            raise Refusal(
                f"evidence of window={window} has another format or plan than this version gives that window",
                f"run the version that wrote it, or {self._services.ledger.way_out}",
            )
        return MeasuredWindow(strategy, self._noise.window(window))


@dataclass(frozen=True, slots=True)
class _Stepped:
    """Keys of the step that is under way, whether each has a row in the table, and their states."""

    keys: list[bytes]
    stored: list[bool]
    states: EvidenceStates


class EvidenceOf:
    """The evidence at one window's last trigger, and what that trigger makes of it.

    The table must not change between the first question and `changes`: it is read more than once.
    """

    def __init__(self, window: WindowIndex, plan: bytes, store: Store, measured: list[MeasuredWindow | None]) -> None:
        """plan: digest of the window's. measured: the windows before, the newest first."""
        self._window, self._plan, self._store, self._measured = window, plan, store, measured
        self._digest: bytes | None = None
        self._stepped: _Stepped | None = None
        self._puts: dict[bytes, bytes] = {}
        self._deletes: list[bytes] = []

    def digest(self) -> bytes:
        """32 bytes over all of it, for the chain of what was published from what."""
        if self._digest is None:
            digest = blake2b(digest_size=32, person=b"susurrus-evidenc")
            digest.update(bytes(window is not None for window in self._measured))
            digest.update(b"".join(window.strategy.plan.digest() for window in self._measured if window is not None))
            for items in self._scan():
                # Rows have one length.
                digest.update(b"".join(part for key, row in items for part in (len(key).to_bytes(8, "big"), key, row)))
            self._digest = digest.digest()
        return self._digest

    def opened(self) -> Iterator[bytes]:
        """The keys that are tested with or without news, in their order."""
        for items in self._scan():
            states = self._unpacked([row for _, row in items], self._window)
            yield from (items[row][0][len(_KEYS) :] for row in np.flatnonzero(states.opened).tolist())

    def past(self, keys: list[bytes], opened: Bools) -> PastRows:
        """What the windows before say of the keys with an open gate, now or then. opened: bool[k], by this window's users.

        The others are not tested at any scale, so nothing is drawn for them. `take` must follow, with the same keys.
        """
        self._stepped = self._read(keys)
        states, past = self._stepped.states, PastRows.none(len(keys), len(self._measured))
        rows = np.flatnonzero(opened | states.opened)
        some = [keys[row] for row in rows.tolist()]
        found = states.take(rows).past(some, self._measured)
        for each in fields(past):
            getattr(past, each.name)[rows] = getattr(found, each.name)
        return past

    def take(self, keys: list[bytes], step: Step[Any], declared: Collection[bytes]) -> None:
        """Take in a step of the window's last trigger, after `past`. declared: keys that no window tests."""
        if step.closing is None:
            raise RuntimeError("the last trigger of a strategy that adds up windows has closing rows")
        stepped, self._stepped = self._stepped, None
        if stepped is None or stepped.keys is not keys:
            raise RuntimeError("a step is taken in after the question what the windows before say of its keys")
        after = stepped.states.after(step.closing, step.published)
        # A key that was neither weighed nor published has the row that it had: it says itself how old it is.
        changed = np.flatnonzero(after.flags[:, 0])
        for row, packed in zip(changed.tolist(), after.take(changed).pack(self._window), strict=True):
            if keys[row] not in declared:
                self._puts[_KEYS + keys[row]] = packed
        if declared:
            known = zip(keys, stepped.stored, strict=True)
            self._deletes += [_KEYS + key for key, stored in known if stored and key in declared]

    def changes(self, commit: Commit) -> None:
        """What the commit that publishes the trigger changes in the state."""
        following = WindowIndex(self._window + 1)
        commit.puts += [*self._puts.items(), (_MEASURED + ordered(self._window), _FORMAT + self._plan)]
        commit.deletes += self._deletes
        # Other rows stay as they are, until all of their windows are too old.
        for items in self._scan():
            states = self._unpacked([row for _, row in items], following)
            gone = (items[row][0] for row in np.flatnonzero(~states.stays).tolist())
            commit.deletes += [place for place in gone if place not in self._puts]
        oldest = WindowIndex(following - len(self._measured))
        commit.drop(_MEASURED, _MEASURED + ordered(oldest))

    def _scan(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """The table in chunks, in the order of the keys, with their first byte."""
        return self._store.scan_chunks(_KEYS, prefix_end(_KEYS), _CHUNK)

    def _read(self, keys: list[bytes]) -> _Stepped:
        """The states of these keys; empty ones where nothing is known."""
        found = self._store.get([_KEYS + key for key in keys])
        states = EvidenceStates.empty(len(keys), len(self._measured))
        known = [row for row, value in enumerate(found) if value is not None]
        if known:
            some = self._unpacked([value for value in found if value is not None], self._window)
            states.flags[known], states.values[known] = some.flags, some.values
        return _Stepped(keys, [value is not None for value in found], states)

    def _unpacked(self, rows: list[bytes], window: WindowIndex) -> EvidenceStates:
        return EvidenceStates.unpack(rows, window, len(self._measured))
