"""The rows of windows' last triggers before their calibration, as each release partition told the others: a part of feedback.py.

A window's rows are pooled when every bounded partition has told all of its own. They are kept until every partition has closed the
window's last interval.
"""

from dataclasses import dataclass, field

from susurrus.agents.histogram.table import joined_evidence
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import Interval, WindowStart
from susurrus.topics.evidence import EvidenceBlock


@dataclass(slots=True)
class _Window:
    """interval: the window's last. offset: of the first record. pieces: of partitions whose last record has not come."""

    interval: Interval
    offset: int
    pieces: dict[int, list[Int64s]] = field(default_factory=dict)
    complete: dict[int, Int64s] = field(default_factory=dict)
    lacking: set[int] = field(default_factory=set)


class PooledEvidence:
    """The rows' evidence, int64[n, e], by window and bounded partition. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._windows: dict[WindowStart, _Window] = {}

    def take(self, block: EvidenceBlock, offset: int) -> None:
        """One record, in the order of the log. What a partition has told in full counts; a repetition does not."""
        window = self._windows.setdefault(WindowStart(block.window), _Window(Interval(block.interval), offset))
        if block.partition in window.complete:
            return
        pieces = window.pieces.setdefault(block.partition, [])
        pieces.append(block.evidence)
        if not block.last:
            return
        del window.pieces[block.partition]
        if sum(map(len, pieces)) == block.total:
            window.complete[block.partition] = joined_evidence(pieces)
            window.lacking.discard(block.partition)
        else:
            window.lacking.add(block.partition)

    def known(self, window: WindowStart) -> dict[int, Int64s]:
        """The evidence of each partition that has told all of its rows."""
        found = self._windows.get(window)
        return {} if found is None else dict(found.complete)

    def lacks(self, window: WindowStart, closed: list[int]) -> bool:
        """Whether records are missing that will not come. closed: the partitions that have closed the window's last interval."""
        found = self._windows.get(window)
        if found is None:
            return bool(closed)
        return bool(found.lacking) or any(partition not in found.complete for partition in closed)

    def forget(self, closed: Interval) -> None:
        """Drop windows whose last interval every partition has closed."""
        self._windows = {start: window for start, window in self._windows.items() if window.interval > closed}

    def first_offset(self) -> int | None:
        """The first offset of the records that some partition may still need."""
        return min((window.offset for window in self._windows.values()), default=None)
