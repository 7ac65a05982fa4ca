"""The key states of one window in release's store, and what a trigger does to them.

A trigger steps over the keys with news, the keys that are due, the published keys, at first the declared keys, and the keys that
the window before hands on (remembered.py), when it is over; where windows add up (evidence.py), at last also the keys that earlier
windows measured. All others stay as they are: the strategy said at their last step that
nothing can happen to them before they are due.

State keys:
- ``s`` window key -> due trigger and state of an unpublished key;
- ``d`` window trigger key -> nothing: the index of what is due;
- ``p`` window key -> state of a published key;
- ``w`` window key -> unit of a key that is public when the users' lists look back, for strategies that need the lists.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from heapq import merge
from itertools import compress, groupby, islice
from typing import Generic

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.evidence import EvidenceOf
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.table import Gathered, Rows
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.arrays import Int32s
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.strategy import States, Step, Strategy
from susurrus.mechanisms.noise import WindowNoise

_UNPUBLISHED, _DUE, _PUBLISHED, _UNITS = b"s", b"d", b"p", b"w"
_TRIGGER_BYTES = 4
_NONE: frozenset[bytes] = frozenset()
_CHUNK = 50_000


class WindowKeys(Generic[States]):
    """The keys of one window. noise: kept as long as this object, because it remembers the noise of published keys."""

    def __init__(
        self,
        store: Store,
        strategy: Strategy[States],
        declared: frozenset[bytes],
        window: WindowIndex,
        noise: WindowNoise,
    ) -> None:
        self._store = store
        self._strategy = strategy
        self._declared = declared
        self._public: Set[bytes] = declared
        """Keys that need no test at the trigger that is under way."""
        self._weighing_one: Set[bytes] = declared
        """Keys whose unit is 1 at the last trigger, where they have no other."""
        self._evidence: EvidenceOf | None = None
        """Of the windows before, while the last trigger is under way."""
        self._noise = noise
        self._triggers = strategy.plan.triggers
        self._tables = [
            (table + ordered(window), table + ordered(WindowIndex(window + 1)))
            for table in (_UNPUBLISHED, _DUE, _PUBLISHED, _UNITS)
        ]
        self._unpublished, self._due, self._published, self._units = (start for start, _ in self._tables)

    def trigger(
        self,
        trigger: Trigger,
        news: Gathered,
        commit: Commit,
        *,
        entering: Set[bytes] = _NONE,
        weighing_one: Set[bytes] = _NONE,
        evidence: EvidenceOf | None = None,
    ) -> Rows:
        """What the trigger publishes. The commit gets what changes in the tables.

        entering: keys that are public from this trigger on, published or not. weighing_one: keys that were public when the users'
        lists look back, and had no row yet; at the last trigger only. evidence: of the windows before, at the last trigger only; it
        takes in what this one measures.
        """
        self._evidence = evidence
        # The commit of the last trigger drops the tables.
        goes_on = trigger < self._triggers
        # A list of declared keys may be long, and is not copied at every trigger.
        self._public = self._declared | entering if entering else self._declared
        self._weighing_one = self._declared | weighing_one if weighing_one else self._declared
        rows = Rows(self._strategy.plan.width)
        entering = set(entering)
        # Keys of this trigger that are not published yet.
        pending = dict.fromkeys(news.keys)
        # Published keys come first: the store has them in key order, so they are read in chunks, with or without news.
        for keys, states in self._read_published():
            for key in filter(news.index.__contains__, keys):
                del pending[key]
            if entering:
                entering = entering.difference(keys)
            step = self._step(trigger, keys, states, news)
            rows.add(keys, step)
            if goes_on:
                self._put_published(keys, step, commit)
        if trigger == 1:
            pending |= dict.fromkeys(self._declared)
        pending |= dict.fromkeys(entering)
        # After a trigger, every key is due later. So nothing is left of earlier ones but deleted places, which a scan would pass.
        for key, _ in self._store.scan(self._due_at(trigger), self._due_at(Trigger(trigger + 1))):
            pending.setdefault(key[len(self._due) + _TRIGGER_BYTES :])
        for keys, states, due in self._read_unpublished(self._with_evidence(sorted(pending), rows)):
            step = self._step(trigger, keys, states, news)
            rows.add(keys, step, first=True)
            if goes_on:
                self._put_unpublished(keys, step, due, commit)
        return rows

    def _with_evidence(self, keys: list[bytes], rows: Rows) -> Iterable[bytes]:
        """These keys, and those that are tested because of earlier windows; in order. rows: of keys that are public."""
        if self._evidence is None:
            return keys
        public = set(rows.keys)
        # There may be many more of them than keys with news, so they are not collected.
        others = (key for key in self._evidence.opened() if key not in public)
        return (key for key, _ in groupby(merge(keys, others)))

    def keep_units(self, units: dict[bytes, int], commit: Commit) -> None:
        """Keep the units of the public keys for the last trigger."""
        commit.puts += [(self._units + key, unit.to_bytes(4, "little")) for key, unit in units.items()]

    def drop(self, commit: Commit) -> None:
        """Delete the window from all tables, together with what this commit has put there."""
        for start, end in self._tables:
            commit.drop(start, end)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def _step(self, trigger: Trigger, keys: list[bytes], states: States, news: Gathered) -> Step[States]:
        measures_lists = trigger == self._triggers and self._strategy.measures_lists
        increments = news.increments(keys, self._read_units(keys) if measures_lists else None)
        declared = np.zeros(len(keys), np.bool_)
        if self._public:
            declared = np.fromiter(map(self._public.__contains__, keys), np.bool_, len(keys))
        evidence, lists = self._evidence, increments.lists
        if evidence is None or lists is None:
            return self._strategy.step(trigger, keys, states, increments, self._noise, declared)
        opened = ~(states.selected | declared) & (lists.users > self._strategy.plan.minimum_users)
        increments = replace(increments, past=evidence.past(keys, opened))
        step = self._strategy.step(trigger, keys, states, increments, self._noise, declared)
        evidence.take(keys, step, self._declared)
        return step

    # ---- tables ------------------------------------------------------------------------------------------------------

    def _read_published(self) -> Iterator[tuple[list[bytes], States]]:
        """(keys, states) in chunks."""
        for items in self._store.scan_chunks(self._published, prefix_end(self._published), _CHUNK):
            yield [key[len(self._published) :] for key, _ in items], self._strategy.unpack([row for _, row in items])

    def _read_unpublished(self, keys: Iterable[bytes]) -> Iterator[tuple[list[bytes], States, Int32s]]:
        """(keys, states, due) in chunks. due: int32[n], the trigger where the index has each key; 0 for keys never seen."""
        left = iter(keys)
        while chunk := list(islice(left, _CHUNK)):
            found = self._store.get([self._unpublished + key for key in chunk])
            never_seen = [key for key, row in zip(chunk, found, strict=True) if row is None]
            rows = [row for row in found if row is not None]
            if rows:
                known = [key for key, row in zip(chunk, found, strict=True) if row is not None] if never_seen else chunk
                due = np.frombuffer(b"".join([row[:_TRIGGER_BYTES] for row in rows]), ">u4").astype(np.int32)
                yield known, self._strategy.unpack([row[_TRIGGER_BYTES:] for row in rows]), due
            if never_seen:
                yield never_seen, self._strategy.empty(len(never_seen)), np.zeros(len(never_seen), np.int32)

    def _read_units(self, keys: list[bytes]) -> npt.NDArray[np.int64]:
        """int64[n]: the units of `keep_units`; 0 for keys that were not public then."""
        stored = self._store.get([self._units + key for key in keys])
        unit = [
            int.from_bytes(row, "little") if row is not None else WEIGHT_ONE if key in self._weighing_one else 0
            for key, row in zip(keys, stored, strict=True)
        ]
        return np.array(unit, np.int64)

    def _put_published(self, keys: list[bytes], step: Step[States], commit: Commit) -> None:
        changed = np.flatnonzero(step.changed)
        if len(changed):
            packed = self._strategy.pack(step.states.take(changed))
            places = [self._published + keys[i] for i in changed.tolist()]
            commit.puts += zip(places, packed, strict=True)

    def _put_unpublished(self, keys: list[bytes], step: Step[States], due: Int32s, commit: Commit) -> None:
        """Store the states, move keys in the index, and move keys that are published now. due: see `_read_unpublished`."""
        written = step.changed | (due != step.due) | (step.due == 0)
        index = np.flatnonzero(written)
        if not len(index):
            return
        packed_rows = self._strategy.pack(step.states.take(index))
        places = {trigger: _trigger_bytes(trigger) for trigger in {*due[index].tolist(), *step.due[index].tolist()}}
        rows = zip(compress(keys, written), packed_rows, due[index].tolist(), step.due[index].tolist(), strict=True)
        puts, deletes, unpublished = commit.puts, commit.deletes, self._unpublished
        for key, packed, before, after in rows:
            if before != after:
                if 0 < before <= self._triggers:
                    deletes.append(self._due + places[before] + key)
                if 0 < after <= self._triggers:
                    puts.append((self._due + places[after] + key, b""))
            if after:
                puts.append((unpublished + key, places[after] + packed))
                continue
            puts.append((self._published + key, packed))
            if before > 0:
                deletes.append(unpublished + key)

    def _due_at(self, trigger: Trigger) -> bytes:
        """Where the index begins for a trigger."""
        return self._due + _trigger_bytes(trigger)


def _trigger_bytes(trigger: int) -> bytes:
    return trigger.to_bytes(_TRIGGER_BYTES, "big")
