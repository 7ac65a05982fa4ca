"""What collect and server share: public time intervals, the Square Wave of phase 1, how far a partition has come."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics.report_totals import BUCKETS

BEFORE = Interval(-(1 << 62))
"""An interval before every interval that a source can tick."""


@dataclass(frozen=True, slots=True)
class TimeIntervals:
    """Public time intervals of `length` ms since the Unix epoch."""

    length: int

    def at(self, moment: int) -> Interval:
        """The interval of a moment in ms."""
        return Interval(moment // self.length)

    def start(self, interval: Interval) -> int:
        """The first ms of the interval."""
        return interval * self.length

    def end(self, interval: Interval) -> int:
        """The first ms after it."""
        return self.start(interval) + self.length


class LocalStage(Stage):
    """A stage that counts phase 1 reports by output bucket and closes intervals."""

    services: Services[LocalSettings]

    def __init__(
        self, services: Services[LocalSettings], partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        super().__init__(services, partition, store, meta, position)
        local = services.settings.local
        self._intervals = TimeIntervals(local.interval)
        self._wave = SquareWave(local.epsilon, local.bound, local.scale)
        self._committed = position
        self._closed = BEFORE if meta["closed"] is None else Interval(int(meta["closed"]))
        self._first_phase = np.array(meta.get("first_phase", np.zeros(BUCKETS)), np.int64)

    def report(self) -> dict[str, Any]:
        """Counters, and the last of the pipeline's trigger intervals that has closed as a whole, once there is one."""
        facts = super().report()
        if self._closed > BEFORE:
            facts["interval"] = self.services.calendar.interval_at(self._intervals.end(self._closed)) - 1
        return facts
