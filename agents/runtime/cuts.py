"""The cut: how a first stage, which no ticks reach, learns that it has read everything of an interval, for every kind.

Some time after an interval is over, the stage asks for the log's end (read_uncommitted, so that open transactions count). The
interval is closed when the stage has read up to there. So no record is late because a worker was away.
"""

from dataclasses import dataclass

from susurrus.agents.finding import Finding, waits
from susurrus.agents.kafka.offset import Offset
from susurrus.mechanisms.calendar import Interval


@dataclass(frozen=True, slots=True)
class Cut:
    """Everything below ``offset`` had been appended when ``interval`` was over: once it is read, the interval is closed."""

    interval: Interval
    offset: Offset


class Cuts:
    """The cuts ahead of a source's position, in order: intervals increase, offsets do not decrease."""

    def __init__(self) -> None:
        self.ahead: list[Cut] = []

    def wanted(self, over: Interval, closed: Interval) -> bool:
        """Whether to ask for the log's end, now that interval ``over`` has ended: it is open, and no cut covers it."""
        return over > max([closed, *(cut.interval for cut in self.ahead[-1:])])

    def asked(self, interval: Interval, offset: Offset) -> None:
        """The log ended at ``offset`` when ``interval`` was over."""
        self.ahead.append(Cut(interval, offset))

    def passed(self, position: Offset, closed: Interval) -> Interval:
        """The last interval that is closed once everything below ``position`` is read; ``closed`` or later."""
        while self.ahead and position >= self.ahead[0].offset:
            closed = max(closed, self.ahead.pop(0).interval)
        return closed

    def stall(self, position: Offset, place: str) -> Finding | None:
        """What holds the source back. place: topic and partition."""
        for cut in self.ahead[:1]:  # a copy: the task's thread goes on meanwhile
            return waits(
                "input",
                f"{place}, read up to offset={position}; interval={cut.interval} closes at offset={cut.offset}; a producer's "
                "transaction is open there, or there is much to read",
                "if it stays, end the transaction (kafka-transactions.sh find-hanging, then abort)",
            )
        return None
