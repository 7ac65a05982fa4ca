"""What collect would make of records in the topic of reports (collect.py): their format, and what a report must be (judging.py)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import ClassVar, Final

import numpy as np

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.reading import of_values
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.local.judging import ReportJudge
from susurrus.agents.local.reports import PATHS, ReportFormat, joined
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.local.stage import TimeIntervals
from susurrus.agents.local.thresholds import Thresholds
from susurrus.agents.runtime.begun import Begun
from susurrus.agents.runtime.decisions import Decided, Decisions, RecordPart, stamps_of
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import Interval
from susurrus.topics.records.reason import Reason
from susurrus.topics.reports import is_packed
from susurrus.topics.spec import THRESHOLD

_NEVER: Final = -(1 << 62)
"""An interval before all others."""


class ThresholdsSoFar(Thresholds):
    """Before a pipeline has begun, there may be no topic of thresholds."""

    def _read(self) -> None:
        if self._clients.partitions(self._topic):
            super()._read()


class LocalDecisions(Decisions):
    """Of the kind's first stage."""

    blamed_by: ClassVar[Mapping[Reason, str]] = {Reason.IN_FUTURE: "clock.max_ahead", Reason.LATE: "local.lateness"}
    of_time = frozenset((Reason.IN_FUTURE, Reason.LATE, Reason.WRONG_THRESHOLD))
    never_told = frozenset((Reason.LATE,))

    def __init__(self, settings: LocalSettings, clients: Clients) -> None:
        self._settings = settings
        self._judge = ReportJudge(settings, ThresholdsSoFar(clients, settings.topic(THRESHOLD.name)))
        self._intervals = TimeIntervals(settings.local.interval)

    def decide(
        self, source: InputSettings, records: Sequence[ReadRecord], types: Int64s, *, now: int, begun: Begun | None
    ) -> Decided:
        """See `Decisions`. Raises Refusal where a published threshold cannot be read."""
        with closing(of_values(ReportFormat(decoder_of(source, PATHS)))) as reader:
            payloads = joined(reader.read(records, lambda row: True))
            waiting = reader.waits
        some = records[: len(payloads)]
        closed = np.fromiter((self._closed(record, begun) for record in some), np.int64, len(some))
        _, reason = self._judge.judged(payloads, stamps_of(some), now=now, closed=closed)
        return Decided(reason=reason.astype(np.uint8), read=len(payloads), waiting=waiting)

    def _closed(self, record: ReadRecord, begun: Begun | None) -> int:
        """An interval of reports that is closed for certain when a worker takes the record."""
        first, length = self._settings.start.first_window, self._intervals
        if first is None and begun is not None:
            first = begun.created
        beginning = _NEVER if first is None else length.at(first) - 1
        last: Interval | None = None
        if begun is not None:
            last = begun.closed_at(record.topic, record.partition, record.offset)
        # Reported is the trigger interval before the one that holds the end of the last closed interval.
        return beginning if last is None else max(beginning, length.at(self._settings.calendar.boundary(last)) - 1)

    def whole(self, source: InputSettings, records: Sequence[ReadRecord]) -> Decided:
        """Nothing is refused of which nothing is asked."""
        return Decided(reason=np.zeros(len(records), np.uint8), read=len(records))

    def parts(self) -> Sequence[RecordPart]:
        """A report's fields have fixed names, so no setting names one."""
        return ()

    def undecided(self, begun: Begun | None) -> Iterator[str]:
        """Which intervals were published when a report came."""
        if begun is None:
            yield f"whether the interval of a report is published already ({Reason.LATE.name}): the pipeline has not begun"
        else:
            yield f"of reports that workers have taken already: whether their intervals were published ({Reason.LATE.name})"

    def written_by_others(self, records: Sequence[ReadRecord]) -> Sequence[ReadRecord]:
        """Susurrus' own clients pack their reports."""
        return [record for record in records if not is_packed(record.value)]
