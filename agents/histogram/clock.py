"""The kinds of clocks, one class each. A clock follows one source of the raw topic: it says which interval a record belongs to,
and when the source has passed a boundary.

A record's interval depends on its own stamp and on public instants only. A kind says
- how the raw topic is stamped (``accepts``); a record of a batch with another time stamp type is bad input, and is not placed
- what of the settings does not fit it (``problems``)
- which intervals the stamps themselves close (``_closing``), and which stamps are too far ahead (``_too_far``)
- whether it wants a cut (``wants_cut``) and how long after a boundary a source passes it at the earliest (``margin``).

The cut (runtime/cuts.py) is asked for after boundary + idle_grace. A fetch that spans one is split there. Several may lie ahead of
a source that has much to read: each closes its intervals where it stands, and says what "now" was for the records before it.

A new kind is one class and its place in ``CLOCKS``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from susurrus.agents.config import sections
from susurrus.agents.config.idle import Idle
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.cuts import Cuts
from susurrus.agents.types.durations import format_duration
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.calendar import Calendar, Interval
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.wire.timestamps import format_time

CREATE_TIME, LOG_APPEND_TIME = 0, 1
_STAMPED: Final = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}
"""The topic's message.timestamp.type, by the type in its batches."""
_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Placed:
    """Intervals of a batch. interval: int64[n], at least the first open one at each record. clamped: records of a closed interval.
    too_far: bool[n], stamps further ahead than the clock allows."""

    interval: Int64s
    clamped: int
    too_far: Bools


class Clock:
    """Follows one source. The defaults are those of a live topic whose intervals are closed by the cut alone."""

    kind: ClassVar[str]
    meaning: ClassVar[str]
    """The clock's description in the reference of settings."""
    accepts: ClassVar[tuple[int, ...]]
    """The time stamp types of batches; the first is that of the usual batch."""
    follows: ClassVar[tuple[str, ...]] = ("grace", "idle_grace", "max_ahead")
    """Which of these fields of the section mean something to the clock; all clocks follow the other fields."""
    live: ClassVar[bool] = True
    """Whether records arrive while they happen. Otherwise the topic is an archive, which ends and may not grow."""
    forgeable: ClassVar[bool] = False
    """Whether producers choose the stamps. Then no stamp may decide where the records of all users begin."""
    cut_first: ClassVar[bool] = False
    """Whether a cut that is due must be asked for before records are placed, because it says what "now" is."""

    def __init__(
        self,
        settings: sections.ClockSettings,
        calendar: Calendar,
        *,
        closed: Interval,
        end: int | None = None,
        oldest: int | None = None,
    ) -> None:
        self.closed = closed
        """The last interval that the source has passed."""
        self.end = end
        """The offset at which an archive ends."""
        self.oldest = _NEVER if oldest is None else oldest
        """The oldest stamp that the next record of an archive may have."""
        self.cuts = Cuts()
        self._settings = settings
        self._calendar = calendar

    @classmethod
    def problems(cls, clock: sections.ClockSettings, start: sections.StartSettings) -> Iterator[str]:
        """What of the settings does not fit the clock, one line each that ends with the fix."""
        if clock.until is not None:
            yield f'clock.until: has no meaning for clock.kind = "{cls.kind}"; leave it out'
        if cls.forgeable and isinstance(start.from_, int):
            yield (
                f'start.from = "{format_time(start.from_)}": is looked up by time stamps, and producers choose these with '
                f'clock.kind = "{cls.kind}", so one forged stamp could decide which records of all users count; use "latest", '
                'or "earliest" with start.first_window'
            )

    @classmethod
    def idle(cls) -> Iterator[Idle]:
        """Fields of the section that this clock does not follow, and other clocks do."""
        for name in Clock.follows:
            kinds = [kind for kind, clock in CLOCKS.items() if name in clock.follows]
            if name not in cls.follows:
                yield Idle(f"clock.{name}", f'clock.kind = "{cls.kind}"', f'clock.kind = "{kinds[0]}"')

    @classmethod
    def topic_type(cls) -> str | None:
        """The message.timestamp.type that the raw topic needs; None where any will do."""
        return _STAMPED[cls.accepts[0]] if len(cls.accepts) == 1 else None

    @classmethod
    def misfit(cls, stamped: str) -> tuple[str, str]:
        """What is wrong with a raw topic of another message.timestamp.type, and the two ways out."""
        needed = cls.topic_type()
        fits = next((kind for kind, clock in CLOCKS.items() if clock.topic_type() == stamped), ReplayClock.kind)
        return (
            f'message.timestamp.type={stamped}, but clock.kind="{cls.kind}" needs {needed}',
            f'set clock.kind = "{fits}" in the file, or let the topic\'s owner set message.timestamp.type={needed} on it '
            "(kafka-configs.sh --alter --entity-type topics --add-config), which changes no record that is there already",
        )

    @classmethod
    def closes(cls, clock: sections.ClockSettings) -> str:
        """What closes a trigger interval, as a sentence for operators."""
        return f"A partition closes an interval {format_duration(clock.idle_grace)} (clock.idle_grace) after its end."

    @property
    def margin(self) -> int:
        """How long after a boundary, in ms, a source passes it at the earliest."""
        return self._settings.idle_grace

    @classmethod
    def stamped_otherwise(cls, timestamp_types: npt.NDArray[np.integer[Any]]) -> Bools:
        """bool[n]: records in batches of another time stamp type, written while the topic was set otherwise: bad input,
        and nothing may follow from their stamps."""
        return ~np.isin(timestamp_types, cls.accepts)

    def place(self, stamps: Int64s, offsets: Int64s, *, topic: str, partition: int) -> Placed:
        """Intervals of the records of one batch, in log order; moves ``closed`` as the records themselves close intervals."""
        interval = self._calendar.interval(stamps)
        if not len(stamps):
            return Placed(interval, 0, np.zeros(0, np.bool_))
        closing = self._closing(stamps, offsets, place=f"topic={topic} partition={partition}")
        cuts = [(int(np.searchsorted(offsets, cut.offset)), cut.interval) for cut in self.cuts.ahead]
        for behind, cut_interval in cuts:
            closing[behind:] = np.maximum(closing[behind:], cut_interval)
        # A record can close intervals for those behind it and, being itself beyond the boundary, is not touched by its own close.
        passed = np.maximum.accumulate(np.maximum(closing, self.closed))
        too_far = self._too_far(interval, passed, cuts)
        clamped = interval <= passed
        interval = np.where(clamped, passed + 1, interval)
        self.closed = Interval(int(passed[-1]))
        return Placed(interval, int(clamped.sum()), too_far)

    def _closing(self, stamps: Int64s, offsets: Int64s, *, place: str) -> Int64s:
        """int64[n]: the last interval that each record closes by its stamp. place: the partition, for messages."""
        return np.full(len(stamps), _NEVER, np.int64)

    def _too_far(self, interval: Int64s, passed: Int64s, cuts: Sequence[tuple[int, Interval]]) -> Bools:
        """bool[n]: stamps too far ahead. passed: int64[n], closed at each record. cuts: (first record behind it, interval) of those
        ahead."""
        return np.zeros(len(interval), np.bool_)

    def moved(self, position: Offset) -> None:
        """The position has reached ``position``: a cut may be passed, an archive may be at its end."""
        self.closed = self.cuts.passed(position, self.closed)

    def wants_cut(self, now: int) -> Interval | None:
        """The interval for which the log's end should be asked now, if any: boundary + idle_grace is over, and no cut covers it."""
        over = Interval(self._calendar.interval_at(now - self._settings.idle_grace) - 1)
        return over if self.cuts.wanted(over, self.closed) else None


class BrokerClock(Clock):
    """A source passes a boundary when a record stamped >= boundary + grace is read, or by the cut."""

    kind = "broker"
    meaning = "the raw topic is stamped by the broker (LogAppendTime)"
    accepts = (LOG_APPEND_TIME,)
    follows = ("grace", "idle_grace")

    @classmethod
    def closes(cls, clock: sections.ClockSettings) -> str:
        """Closes intervals by a record, or by silence."""
        return (
            f"A partition closes an interval when it reads a record stamped {format_duration(clock.grace)} (clock.grace) after its "
            f"end; one that is idle, {format_duration(clock.idle_grace)} (clock.idle_grace) after it."
        )

    @property
    def margin(self) -> int:
        """The grace."""
        return self._settings.grace

    def _closing(self, stamps: Int64s, offsets: Int64s, *, place: str) -> Int64s:
        return self._calendar.interval(stamps - self.margin) - 1


class ProducerClock(Clock):
    """Anyone can forge a stamp, so a source passes a boundary by the cut only; interval = max(interval(stamp), first open)."""

    kind = "producer"
    meaning = "the producers stamp the records (CreateTime), and their stamps are not trusted"
    accepts = (CREATE_TIME,)
    follows = ("idle_grace", "max_ahead")
    forgeable = True
    cut_first = True

    def _too_far(self, interval: Int64s, passed: Int64s, cuts: Sequence[tuple[int, Interval]]) -> Bools:
        # What is before a cut had been appended when that cut was asked for; the caller asks for one before it places.
        known = passed.copy()
        for behind, cut_interval in reversed(cuts):
            known[:behind] = np.maximum(passed[:behind], cut_interval)
        ahead = -(-(self._settings.max_ahead + self._settings.idle_grace) // self._calendar.trigger_every) + 1
        return interval > known + 1 + ahead


class ReplayClock(Clock):
    """A source passes a boundary when a record stamped >= boundary + grace is read. The archive's end closes every interval before
    ``until``, and those of the allowed lateness. Producers' stamps are out of order by a little, so a record may be older than one
    before it, by the grace at most. Then its own stamp says its interval, whatever was read before."""

    kind = "replay"
    meaning = (
        "an archive, in each partition sorted by time up to the grace; its end closes everything. Its topic needs "
        "retention.ms = -1, because records with old stamps would expire at once"
    )
    accepts = (CREATE_TIME, LOG_APPEND_TIME)
    follows = ("grace",)
    live = False

    @classmethod
    def problems(cls, clock: sections.ClockSettings, start: sections.StartSettings) -> Iterator[str]:
        """An archive must say where it begins and ends."""
        if clock.until is None:
            yield (
                f'clock.until: is missing; with clock.kind = "{cls.kind}" say where the archive ends, so that no record '
                "decides which triggers are published"
            )
        elif start.first_window is not None and clock.until <= start.first_window:
            yield f'clock.until = "{format_time(clock.until)}": is not after start.first_window; correct one of them'
        if start.first_window is None and start.from_ != "earliest":  # which needs a first window with every clock
            yield f'start.first_window: is missing; with clock.kind = "{cls.kind}" say where the archive begins'

    @classmethod
    def closes(cls, clock: sections.ClockSettings) -> str:
        """Closes intervals by records, and by the archive's end."""
        until = "clock.until" if clock.until is None else f"clock.until = {format_time(clock.until)}"
        return (
            f"A partition closes an interval when it reads a record stamped {format_duration(clock.grace)} (clock.grace) after its "
            f"end, and at its last record all intervals before {until}."
        )

    @property
    def last_interval(self) -> Interval:
        """The interval that the end of the archive closes."""
        assert self._settings.until is not None  # see ``problems``
        return Interval(self._calendar.interval_at(self._settings.until - 1) + self._calendar.late_intervals)

    def _closing(self, stamps: Int64s, offsets: Int64s, *, place: str) -> Int64s:
        # What a record closes, the grace before its stamp, is over for those behind it: none of them may belong there.
        over = stamps - self._settings.grace
        oldest = np.maximum.accumulate(np.concatenate(([self.oldest], over)))
        if (late := stamps < oldest[:-1]).any():
            at = int(offsets[int(np.argmax(late))])
            raise Refusal(
                f"{place} offset={at} is older than a record before it by more than "
                f'clock.grace="{format_duration(self._settings.grace)}", but clock.kind="{self.kind}" needs every partition sorted '
                "by time up to that",
                "sort the archive, use another clock, or start a new pipeline with a clock.grace above how far it is out of order",
            )
        self.oldest = int(oldest[-1])
        return np.minimum(self._calendar.interval(over) - 1, self.last_interval)

    def moved(self, position: Offset) -> None:
        """Closes everything at the end of the archive."""
        super().moved(position)
        if self.end is not None and position >= self.end:
            self.closed = max(self.closed, self.last_interval)

    def wants_cut(self, now: int) -> Interval | None:
        """No wall clock closes an archive's intervals."""
        return None


CLOCKS: Final[dict[str, type[Clock]]] = {clock.kind: clock for clock in (BrokerClock, ProducerClock, ReplayClock)}
"""Every kind by its name in the configuration."""


class HistogramClockSettings(sections.ClockSettings):
    """Which clock decides that a trigger interval is over."""

    kind: Annotated[str, OneOf(CLOCKS)] = Field(default=BrokerClock.kind, description=meanings(CLOCKS))

    @property
    def chosen(self) -> type[Clock]:
        """The class of this kind."""
        return CLOCKS[self.kind]
