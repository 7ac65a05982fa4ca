"""The clock of one source: which interval a raw record belongs to, and when the source has passed a boundary.

Three kinds (configuration ``clock.kind``), one per way a raw topic is stamped; each is checked against every batch's time stamp
type. A record's interval depends on its own stamp and on public instants only. The source has passed boundary g
- ``broker`` (LogAppendTime): when a record stamped >= boundary + grace is read, or by the cut;
- ``producer`` (CreateTime, which anyone can forge): by the cut only; a record's interval = max(interval(stamp), first open);
- ``replay`` (archives, sorted by time): when a record stamped >= boundary is read; the end of the input closes everything.

The cut (runtime/cuts.py) is asked for after boundary + idle_grace. A fetch that spans one is split there. Several may lie ahead of
a source that has much to read: each closes its intervals where it stands, and says what "now" was for the records before it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.cuts import Cuts
from susurrus.mechanisms.calendar import Calendar, Interval
from susurrus.mechanisms.errors import Refusal

Int64 = npt.NDArray[np.int64]

CREATE_TIME, LOG_APPEND_TIME = 0, 1
_ACCEPTED = {"broker": (LOG_APPEND_TIME,), "producer": (CREATE_TIME,), "replay": (CREATE_TIME, LOG_APPEND_TIME)}
_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Placed:
    """Intervals of a batch. interval: int64[n], at least the first open one at each record. clamped: records of a closed interval.
    too_far: bool[n], stamps further ahead than the clock allows."""

    interval: Int64
    clamped: int
    too_far: npt.NDArray[np.bool_]
    closed: Interval


class Clock:
    """Follows one source. ``closed`` is the last interval it has passed."""

    def __init__(self, settings: Settings, calendar: Calendar, *, closed: Interval, end: int | None = None) -> None:
        self.kind = settings.clock.kind
        self.closed = closed
        self.end = end
        """Replay only: the offset at which the archive ends."""
        self.cuts = Cuts()
        self.accepted_type = _ACCEPTED[self.kind][0]
        """The time stamp type of the usual batch; others go through ``check_type``."""
        self._calendar = calendar
        self._grace = settings.clock.grace if self.kind == "broker" else 0
        self._idle_grace = settings.clock.idle_grace
        self.margin = self._grace if self.kind == "broker" else self._idle_grace
        """How long after a boundary, in ms, a source passes it at the earliest."""
        every = calendar.trigger_every
        self._ahead = -(-(settings.clock.max_ahead + self._idle_grace) // every) + 1
        self.last_stamp = _NEVER
        until = settings.clock.until
        self.last_interval = (
            None
            if until is None
            else Interval(calendar.interval_at(until - 1) + -(-calendar.allowed_lateness // every))
        )
        """Replay only: the interval that the end of the input closes."""

    def check_type(self, timestamp_type: int, *, topic: str, partition: int, offset: int) -> None:
        """Raise Refusal where the topic stamps its records otherwise than the configuration says."""
        if timestamp_type not in _ACCEPTED[self.kind]:
            names = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}
            fits = "producer" if timestamp_type == CREATE_TIME else "broker"
            raise Refusal(
                f"topic={topic} partition={partition} offset={offset} is stamped by {names.get(timestamp_type, 'nobody')}, but "
                f'clock.kind="{self.kind}": set clock.kind="{fits}" in a pipeline of a new name, or restore the topic\'s '
                "message.timestamp.type"
            )

    def place(self, stamps: Int64, offsets: Int64, *, topic: str, partition: int) -> Placed:
        """Intervals of the records of one batch, in log order; moves ``closed`` as the records themselves close intervals."""
        interval = self._calendar.interval(stamps)
        n = len(stamps)
        too_far = np.zeros(n, np.bool_)
        if not n:
            return Placed(interval, 0, too_far, self.closed)
        closing = np.full(n, _NEVER, np.int64)
        if self.kind == "broker":
            closing = self._calendar.interval(stamps - self._grace) - 1
        elif self.kind == "replay":
            # Running maximum of what came before: an archive that goes back in time is no archive.
            before = np.maximum.accumulate(np.concatenate(([self.last_stamp], stamps[:-1])))
            if (stamps < before).any():
                at = int(offsets[int(np.argmax(stamps < before))])
                raise Refusal(
                    f"topic={topic} partition={partition} offset={at} is older than the record before it, but "
                    'clock.kind="replay" needs every partition sorted by time: sort the archive, or use another clock'
                )
            closing = interval - 1
            if self.last_interval is not None:
                closing = np.minimum(closing, self.last_interval)
            self.last_stamp = int(stamps[-1])
        first_behind = [int(np.searchsorted(offsets, cut.offset)) for cut in self.cuts.ahead]
        for cut, at in zip(self.cuts.ahead, first_behind, strict=True):
            closing[at:] = np.maximum(closing[at:], cut.interval)
        # A record can close intervals for those behind it and, being itself beyond the boundary, is not touched by its own close.
        passed = np.maximum.accumulate(np.maximum(closing, self.closed))
        if self.kind == "producer":
            # What is before a cut had been appended when that cut was asked for; the caller asks for one before it places.
            known = passed.copy()
            for cut, at in zip(reversed(self.cuts.ahead), reversed(first_behind), strict=True):
                known[:at] = np.maximum(passed[:at], cut.interval)
            too_far = interval > known + 1 + self._ahead
        clamped = interval <= passed
        interval = np.where(clamped, passed + 1, interval)
        self.closed = Interval(int(passed[-1]))
        return Placed(interval, int(clamped.sum()), too_far, self.closed)

    def moved(self, position: Offset) -> None:
        """The position has reached ``position``: a cut may be passed, an archive may be at its end."""
        self.closed = self.cuts.passed(position, self.closed)
        if self.kind == "replay" and self.end is not None and self.last_interval is not None and position >= self.end:
            self.closed = max(self.closed, self.last_interval)

    def wants_cut(self, now: int) -> Interval | None:
        """The interval for which the log's end should be asked now, if any: boundary + idle_grace is over, and no cut covers it."""
        if self.kind == "replay":
            return None
        over = Interval(self._calendar.interval_at(now - self._idle_grace) - 1)
        return over if self.cuts.wanted(over, self.closed) else None
