"""What release keeps of its closing rows from window to window, where windows add up (`keys.evidence_windows`).

    state ──EvidenceTable.of──▶ EvidenceOf(window) ──past──▶ steps of the last trigger (window_keys.py)
                                       ◀──take──                      changes ──▶ the commit that publishes it

Every key with an open gate in one of the windows before is stepped over at a window's last trigger, also if nobody brought it: what
is tested must not follow today's records. Argument: docs/guarantees/evidence.md.

State keys, both internal:
- ``x`` key -> `EvidenceStates` of a key that a window has weighed or published;
- ``y`` window -> a byte with the format, and the digest of the plan by which the window's last trigger has measured the keys.
"""

from collections.abc import Collection, Iterator
from dataclasses import fields
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
        rows = {key[len(_KEYS) :]: row for key, row in self._store.scan(_KEYS, prefix_end(_KEYS))}
        before = [WindowIndex(window - 1 - column) for column in range(self._before)]
        return EvidenceOf(window, strategy.plan.digest(), rows, [self._measured(each) for each in before])

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


class EvidenceOf:
    """The evidence at one window's last trigger, and what that trigger makes of it."""

    def __init__(
        self, window: WindowIndex, plan: bytes, rows: dict[bytes, bytes], measured: list[MeasuredWindow | None]
    ) -> None:
        """plan: digest of the window's. rows: of all keys that are known. measured: the windows before, the newest first."""
        self._window, self._plan, self._rows, self._measured = window, plan, rows, measured
        self._puts: list[tuple[bytes, bytes]] = []
        self._deletes: list[bytes] = []
        self._taken: set[bytes] = set()

    def digest(self) -> bytes:
        """32 bytes over all of it, for the chain of what was published from what."""
        digest = blake2b(digest_size=32, person=b"susurrus-evidenc")
        digest.update(bytes(window is not None for window in self._measured))
        digest.update(b"".join(window.strategy.plan.digest() for window in self._measured if window is not None))
        digest.update(np.fromiter(map(len, self._rows), "<i8", len(self._rows)).tobytes())
        # Rows have one length.
        digest.update(b"".join(self._rows))
        digest.update(b"".join(self._rows.values()))
        return digest.digest()

    def opened(self) -> Iterator[bytes]:
        """The keys that are tested with or without news, in their order."""
        for keys in _chunks(list(self._rows)):
            states = self._states(keys)
            yield from (keys[row] for row in np.flatnonzero(states.opened).tolist())

    def past(self, keys: list[bytes], opened: Bools) -> PastRows:
        """What the windows before say of the keys with an open gate, now or then. opened: bool[k], by this window's users.

        The others are not tested at any scale, so nothing is drawn for them.
        """
        states, past = self._states(keys), PastRows.none(len(keys), len(self._measured))
        rows = np.flatnonzero(opened | states.opened)
        some = [keys[row] for row in rows.tolist()]
        found = states.take(rows).past(some, self._measured)
        for each in fields(past):
            getattr(past, each.name)[rows] = getattr(found, each.name)
        return past

    def take(self, keys: list[bytes], step: Step[Any], declared: Collection[bytes]) -> None:
        """Take in a step of the window's last trigger. declared: keys that no window tests."""
        if step.closing is None:
            raise RuntimeError("the last trigger of a strategy that adds up windows has closing rows")
        after = self._states(keys).after(step.closing, step.published)
        packed, stays = after.pack(self._window), after.stays.tolist()
        for key, row, stay in zip(keys, packed, stays, strict=True):
            if stay and key not in declared:
                self._puts.append((_KEYS + key, row))
            elif key in self._rows:
                self._deletes.append(_KEYS + key)
        self._taken.update(keys)

    def changes(self, commit: Commit) -> None:
        """What the commit that publishes the trigger changes in the state."""
        following = WindowIndex(self._window + 1)
        commit.puts += [*self._puts, (_MEASURED + ordered(self._window), _FORMAT + self._plan)]
        commit.deletes += self._deletes
        # Keys that nothing happened to stay as they are, until all of their windows are too old.
        for keys in _chunks([key for key in self._rows if key not in self._taken]):
            states = EvidenceStates.unpack([self._rows[key] for key in keys], following, len(self._measured))
            commit.deletes += [_KEYS + keys[row] for row in np.flatnonzero(~states.stays).tolist()]
        oldest = WindowIndex(following - len(self._measured))
        commit.drop(_MEASURED, _MEASURED + ordered(oldest))

    def _states(self, keys: list[bytes]) -> EvidenceStates:
        """The states of these keys; empty ones where nothing is known."""
        before = len(self._measured)
        states = EvidenceStates.empty(len(keys), before)
        known = [row for row, key in enumerate(keys) if key in self._rows]
        if known:
            found = EvidenceStates.unpack([self._rows[keys[row]] for row in known], self._window, before)
            states.flags[known], states.values[known] = found.flags, found.values
        return states


def _chunks(keys: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]
