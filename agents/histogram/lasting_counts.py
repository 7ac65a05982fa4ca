"""How much of each window had lasted, as each release partition told the others: a part of feedback.py.

The plan of a window follows the numbers of the newest window that was complete before it began. So they are kept until every
partition has begun all windows that may need them.
"""

from dataclasses import dataclass, field

from susurrus.mechanisms.calendar import Interval
from susurrus.topics.lasting_rows import LastingRows


@dataclass(slots=True)
class _Ended:
    """offset: of the first record. counts: (known, rows) by partition."""

    offset: int
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)


class LastingCounts:
    """(known, rows) by the last interval of a window and by bounded partition. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._ended: dict[Interval, _Ended] = {}

    def take(self, record: LastingRows, offset: int) -> None:
        """One record, in the order of the log."""
        ended = self._ended.setdefault(Interval(record.interval), _Ended(offset))
        ended.counts[record.partition] = record.known, record.rows

    def known(self, interval: Interval) -> dict[int, tuple[int, int]]:
        """The numbers of each partition that has told those of the window that ends with this interval."""
        ended = self._ended.get(interval)
        return {} if ended is None else dict(ended.counts)

    def forget(self, closed: Interval) -> None:
        """Drop what is older than the newest window that every partition has ended. closed: by all of them.

        The next interval of the slowest partition may be a window's first, which follows the newest window that ends by `closed`.
        """
        newest = max((interval for interval in self._ended if interval <= closed), default=closed)
        self._ended = {interval: ended for interval, ended in self._ended.items() if interval >= newest}

    def first_offset(self) -> int | None:
        """The first offset of the records that some partition may still need."""
        return min((ended.offset for ended in self._ended.values()), default=None)
