"""Which window and interval a raw record belongs to, or why it is bad input: by its own stamp and event time and public settings.

stamps, event times, the clock's word on each record ──Membership.decide──▶ window, interval, late; reasons

route decides by it (route.py), and `susurrus try` says what route would decide (decisions.py). Why that depends
on no other record is in docs/guarantees/membership.md.
"""

from typing import NamedTuple

import numpy as np

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.topics.records.numbers import Reasons
from susurrus.topics.records.reason import Reason


class RecordMembers(NamedTuple):
    """window: int64[n], indexes. interval: int64[n], of the trigger that a record counts for. late: bool[n], good records behind
    their window's last trigger."""

    window: Int64s
    interval: Int64s
    late: Bools


class Membership:
    """The rules of one pipeline. first_window: None where the pipeline has not begun and the settings do not name it."""

    def __init__(self, settings: HistogramSettings, first_window: WindowIndex | None) -> None:
        self._calendar, self._first_window = settings.calendar, first_window
        self._max_future, self._until = settings.max_future, settings.clock.until

    def decide(
        self,
        reason: Reasons,
        event_time: Int64s | None,
        *,
        stamps: Int64s,
        interval: Int64s,
        otherwise: Bools,
        too_far: Bools,
    ) -> RecordMembers:
        """Where the records of a batch belong; writes into ``reason`` why some of the good ones belong nowhere.

        event_time: int64[n] ms; None where it is the stamp. stamps: int64[n] ms, of Kafka. interval: int64[n], in which the clock
        places them. otherwise: bool[n], of a stamp type that the clock does not accept. too_far: bool[n], stamps further ahead than
        it allows.
        """
        time = stamps if event_time is None else event_time

        def refuse(rows: Bools, why: Reason) -> None:
            reason[rows & (reason == Reason.OK)] = why

        refuse(otherwise, Reason.WRONG_STAMP)
        refuse(too_far | (time > stamps + self._max_future), Reason.IN_FUTURE)
        if self._until is not None:
            refuse((stamps >= self._until) | (time >= self._until), Reason.IN_FUTURE)
        window = self._calendar.window_of(time)
        if self._first_window is not None:
            refuse(window < self._first_window, Reason.BEFORE_FIRST_WINDOW)
        interval = np.maximum(interval, self._calendar.first_intervals(window))
        late = (reason == Reason.OK) & (interval > self._calendar.last_intervals(window))
        return RecordMembers(window, interval, late)
