"""The feedback from release to bound: which keys are published already, for strategies that need it.

    release ──published-keys──▶ one reader per worker (feedback_reader.py)
                 ──▶ bound: ranks and weights of the next intervals
                 ──▶ release: the rows that are calibrated together (pooled_evidence.py), and how much of a window had lasted
                     (lasting_counts.py)

A record's rank depends on all that was published up to `lag` triggers before its own, and on nothing else. So the reader knows how
far it is complete, over all bounded partitions, and bound waits for that, unless what is known decides already: a key that was
published stays published. What was published later does not count.

The index is in memory, made from the topic alone, and made again from the topic's start after any doubt. A lost record would change
ranks. So every interval says how many keys there are, and a window that has fewer is refused.
"""

import threading
from itertools import repeat
from typing import NoReturn
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from susurrus.agents.finding import Finding
from susurrus.agents.histogram.lasting_counts import LastingCounts
from susurrus.agents.histogram.new_beginning import NEW_EPOCH
from susurrus.agents.histogram.pooled_evidence import PooledEvidence
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.stage import NotYet
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import Calendar, Interval, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import evidence as evidence_codec
from susurrus.topics import lasting_rows as lasting_codec
from susurrus.topics import published_keys as codec
from susurrus.topics.wire.packing import Kind, MalformedRecord, kind_of
from susurrus.topics.wire.partitioner import partition as partition_of

_NEVER = 1 << 62


class PublishedKeys:
    """Thread-safe index of the keys published in the open windows. partitions: of bounded, all of which publish."""

    def __init__(self, topic: str, *, partitions: int, calendar: Calendar, config_digest: bytes) -> None:
        self.topic = topic
        self._partitions = partitions
        self._calendar = calendar
        self._digest = config_digest
        self._lock = threading.Lock()
        self._waiting: WeakSet[Inbox] = WeakSet()
        self._refusal: Refusal | None = None
        self.epoch = b""
        """The life of the pipeline whose records are ours; known before the first is read."""
        self.first_window: WindowIndex | None = None
        """That life's first window, where each later one is handed a list by the window before; None where none is. Known as
        early."""
        self.unreadable: Finding | None = None
        """Why the topic cannot be read at present, for the operator."""
        self.version = 0
        """Changes with what is known: until then, every question has the answer that it had."""
        self._clear()

    def _clear(self) -> None:
        self._closed: dict[int, Interval] = {}
        self._since: dict[WindowStart, dict[bytes, Interval]] = {}
        self._units: dict[WindowStart, dict[bytes, int]] = {}
        self._counted: dict[tuple[WindowStart, int], int] = {}
        self._incomplete: set[WindowStart] = set()
        self._offsets: dict[Interval, int] = {}
        self._pooled = PooledEvidence()
        self._lasting = LastingCounts()
        self.version += 1

    # ---- who waits ---------------------------------------------------------------------------------------------------

    def wakes(self, inbox: Inbox) -> None:
        """Lets `tell` wake the inbox's task from now on, for as long as the inbox lives."""
        with self._lock:
            self._waiting.add(inbox)

    def tell(self) -> None:
        """Wake the tasks: more is known. Without it, each would find that out when it looks again."""
        with self._lock:
            inboxes = list(self._waiting)
        for inbox in inboxes:
            inbox.wake()

    # ---- questions ---------------------------------------------------------------------------------------------------

    def complete(self, interval: Interval) -> bool:
        """Whether everything published up to this interval is known. Raises Refusal where it never will be."""
        with self._lock:
            return self._complete(interval)

    def _complete(self, interval: Interval) -> bool:
        if self._refusal:
            raise Refusal(self._refusal.text, self._refusal.action)
        return len(self._closed) == self._partitions and min(self._closed.values()) >= interval

    def behind(self, interval: Interval) -> list[int]:
        """The bounded partitions that have not completed this interval, as far as is known."""
        with self._lock:
            return [number for number in range(self._partitions) if self._closed.get(number, -_NEVER) < interval]

    def decides(self, window: WindowStart, interval: Interval, keys: list[bytes]) -> bool:
        """Whether `known` has the answer for these keys, though perhaps not for all. Raises Refusal as `complete` does."""
        with self._lock:
            return self._complete(interval) or self._decides(interval, keys, self._known(window, interval, keys))

    def known(self, window: WindowStart, interval: Interval, keys: list[bytes]) -> npt.NDArray[np.bool_]:
        """bool[n]: which keys were published in the window that starts at ``window``, at an interval up to ``interval``.

        Raises NotYet while that is not known of all of them: half an answer would give other ranks. That can follow a complete
        answer, when the topic is being read again. Raises Refusal where records of the topic are missing.
        """
        with self._lock:
            complete = self._complete(interval)
            if window in self._incomplete:
                self._lack(window)
            found = self._known(window, interval, keys)
            if not complete and not self._decides(interval, keys, found):
                raise NotYet("the published keys are being read again")
            return found

    def _known(self, window: WindowStart, interval: Interval, keys: list[bytes]) -> npt.NDArray[np.bool_]:
        """bool[n]: which keys are known to have been published by then."""
        since = self._since.get(window, {})
        return np.fromiter(map(since.get, keys, repeat(_NEVER)), np.int64, len(keys)) <= interval

    def _decides(self, interval: Interval, keys: list[bytes], found: npt.NDArray[np.bool_]) -> bool:
        """Whether nothing that is still to be read can add to what was found.

        A key that was published stays so. Any other is published by its own partition, which has completed the interval.
        """
        others = [keys[i] for i in np.flatnonzero(~found).tolist()]
        waited_for = partition_of(others, self._partitions)
        return all(self._closed.get(number, -_NEVER) >= interval for number in np.unique(waited_for).tolist())

    def units(self, window: WindowStart, interval: Interval, keys: list[bytes]) -> npt.NDArray[np.int64]:
        """int64[n]: what a record of each key weighs at the last trigger, as release wrote at ``interval``; 0: not public then.

        Raises as `known` does.
        """
        with self._lock:
            since, units = self._published_in(window, interval), self._units.get(window, {})
            if len(units) != sum(first <= interval for first in since.values()):
                self._lack(window)
            return np.array([units.get(key, 0) for key in keys], np.int64)

    def pooled(self, window: WindowStart, interval: Interval, asking: int) -> dict[int, Int64s] | None:
        """Evidence of the rows of ``interval``, the window's last, by partition; None until every partition has told its own.

        asking: a partition that has not closed the interval. If it is known to have, another owner is at work: None, too. Raises
        Refusal where records of the topic are missing.
        """
        with self._lock:
            if self._refusal:
                raise Refusal(self._refusal.text, self._refusal.action)
            closed = [number for number, reached in self._closed.items() if reached >= interval]
            if asking in closed:
                return None
            if self._pooled.lacks(window, closed):
                raise Refusal(
                    f"topic={self.topic} lacks rows of the last trigger of window={window}, with which the others "
                    "are calibrated",
                    f"restore the topic as it was at the last commit, or {NEW_EPOCH}",
                )
            found = self._pooled.known(window)
            return found if len(found) == self._partitions else None

    def lasted(self, interval: Interval) -> tuple[int, int] | None:
        """(known, rows) of all partitions, of the window that ends with this interval; None until every partition has closed it.

        Raises Refusal where records of the topic are missing.
        """
        with self._lock:
            if not self._complete(interval):
                return None
            found = self._lasting.known(interval)
            if len(found) != self._partitions:
                raise Refusal(
                    f"topic={self.topic} lacks how much had lasted of the window that ends with interval={interval}, on which the "
                    "shares of the next one depend",
                    f"restore the topic as it was at the last commit, or {NEW_EPOCH}",
                )
            known, rows = (sum(numbers) for numbers in zip(*found.values(), strict=True))
            return known, rows

    def untold(self, window: WindowStart) -> list[int]:
        """The bounded partitions that have not told their rows of the window's last trigger, as far as is known."""
        with self._lock:
            known = self._pooled.known(window)
            return [number for number in range(self._partitions) if number not in known]

    def _published_in(self, window: WindowStart, interval: Interval) -> dict[bytes, Interval]:
        if not self._complete(interval):
            raise NotYet("the published keys are being read again")
        if window in self._incomplete:
            self._lack(window)
        return self._since.get(window, {})

    def _lack(self, window: WindowStart) -> NoReturn:
        raise Refusal(
            f"topic={self.topic} lacks keys that were published in window={window}, on which its users' ranks depend",
            f"restore the topic as it was at the last commit, or {NEW_EPOCH}",
        )

    def purge_before(self) -> int:
        """Nobody needs the topic's records below this offset; -1 while that is unknown.

        Release closes an interval only after every bound has. So no bound asks for windows that were over by then. Release asks for
        the rows of a window's last trigger until all of its partitions have closed it, and for how much of it had lasted until
        they have closed the first interval of the window that follows.
        """
        with self._lock:
            needed = [*self._offsets.values(), self._pooled.first_offset(), self._lasting.first_offset()]
            return min((offset for offset in needed if offset is not None), default=-1)

    # ---- records -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything: the topic is about to be read from its start."""
        with self._lock:
            self._clear()

    def take(self, value: bytes, offset: int) -> None:
        """One record, in the order of the log. Raises Refusal for what release of this configuration did not write."""
        block: codec.PublishedKeysBlock | evidence_codec.EvidenceBlock | lasting_codec.LastingRows
        try:
            match kind_of(value):
                case Kind.EVIDENCE:
                    block = evidence_codec.decode(value)
                case Kind.LASTING:
                    block = lasting_codec.decode(value)
                case _:
                    block = codec.decode(value)
        except MalformedRecord as error:
            raise Refusal(f"topic={self.topic} offset={offset}: {error}", "find out who else writes to it") from error
        if block.config_digest != self._digest:
            raise Refusal(
                f"topic={self.topic} offset={offset} is of another configuration",
                "run every worker with the same configuration",
            )
        if block.epoch != self.epoch:
            raise Refusal(
                f"topic={self.topic} offset={offset} is of another epoch of the pipeline",
                f"restore the topic as it was at the last commit, or {NEW_EPOCH}",
            )
        with self._lock:
            if block.interval <= self._closed.get(block.partition, -_NEVER):
                return
            self.version += 1
            if isinstance(block, evidence_codec.EvidenceBlock):
                self._pooled.take(block, offset)
            elif isinstance(block, lasting_codec.LastingRows):
                self._lasting.take(block, offset)
            else:
                self._take(block, offset)

    def _take(self, block: codec.PublishedKeysBlock, offset: int) -> None:
        partition, interval = block.partition, Interval(block.interval)
        self._offsets.setdefault(interval, offset)
        units = [0] * len(block) if block.units is None else block.units.tolist()
        windows = map(WindowStart, block.window.tolist())
        for window, key, unit in zip(windows, block.keys, units, strict=True):
            if unit:
                self._units.setdefault(window, {})[key] = unit
            since = self._since.setdefault(window, {})
            if since.setdefault(key, interval) == interval:
                self._counted[window, partition] = self._counted.get((window, partition), 0) + 1
        if not block.last:
            return
        # The record with the units repeats every key. It would hide that an earlier record of them is lost.
        before = self._closed.get(partition)
        gap = block.units is not None and before != interval - 1
        self._closed[partition] = interval
        for start, total in block.totals.items():
            window = WindowStart(start)
            index = self._calendar.window_at(window)
            begun = self._calendar.first_interval(index) < interval
            # The window before tells what it hands on at its last interval.
            told = self._calendar.last_interval(self._calendar.preceding(index))
            # The topic may begin behind that, if older windows alone need what is gone: nobody asks for these.
            passed = self._is_handed_on(index) if before is None else before < told
            lacks_list = passed and told < interval
            if (gap and begun) or lacks_list or self._counted.get((window, partition), 0) != total:
                self._incomplete.add(window)
        self._forget()

    def _is_handed_on(self, window: WindowIndex) -> bool:
        """Whether the window before has handed a list on to it."""
        return self.first_window is not None and self._calendar.preceding(window) >= self.first_window

    def _forget(self) -> None:
        """Drop windows that every bound has closed, and offsets that no bound needs."""
        newest = max(self._closed.values())
        oldest_open = self._calendar.window_start(self._calendar.oldest_open(Interval(newest + 1)))
        for window in [window for window in self._since if window < oldest_open]:
            del self._since[window]
            self._units.pop(window, None)
        self._counted = {place: n for place, n in self._counted.items() if place[0] >= oldest_open}
        self._incomplete = {window for window in self._incomplete if window >= oldest_open}
        if len(self._closed) == self._partitions:
            self._pooled.forget(min(self._closed.values()))
            self._lasting.forget(Interval(min(self._closed.values())))
        oldest = newest - self._calendar.triggers
        self._offsets = {interval: offset for interval, offset in self._offsets.items() if interval > oldest}

    def refuse(self, refusal: Refusal) -> None:
        """Answer every question with this Refusal from now on."""
        with self._lock:
            self._refusal = refusal
