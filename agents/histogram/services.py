"""What the stages of a histogram share beyond what all stages share."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.feedback_reader import PublishedKeysReader
from susurrus.agents.histogram.public_progress import PublicProgress
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.runtime.commit import ReleasedRows
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import built
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics.histogram import TriggerHeader
from susurrus.topics.wire.timestamps import format_time


@functools.lru_cache(maxsize=64)
def _plan_of(plan: Plan, persistence: int, triggers: int) -> Plan:
    """Kept, because stages ask for it at every step, and a plan checks its constants when it is made."""
    return replace(plan.at_persistence(persistence), triggers=triggers)


@dataclass(frozen=True, slots=True)
class HistogramServices(Services[HistogramSettings]):
    """Read-only collaborators of route, bound and release."""

    strategy: Strategy[Any]
    """Of windows of the usual length. Only the strategy knows the type of its key states. Its class, and what no T changes, are
    those of all windows; whatever depends on T is asked of `strategy_of`."""
    computation: SharedComputation
    """What filters and computes the records of all sources."""
    public_progress: PublicProgress | None = None
    """What has been published: no state may be older."""
    published_keys: PublishedKeys | None = None
    """Where the strategy takes feedback on what is published already."""
    published_keys_reader: PublishedKeysReader | None = None

    def strategy_of(self, window: WindowIndex, persistence: int = 0) -> Strategy[Any]:
        """The mechanism of one window: for as many triggers as that window has.

        persistence: kappa in tenths, where a window's shares follow what lasted before it. Bounding and the guarantee are the same
        for each; release, whose noise is not, asks `WindowPlans`.
        """
        plan = self.plan_of(window, persistence)
        return self.strategy if plan == self.strategy.plan else built(plan)

    def plan_of(self, window: WindowIndex, persistence: int = 0) -> Plan:
        """The plan of `strategy_of`."""
        return _plan_of(self.strategy.plan, persistence, self.calendar.triggers_of(window))

    def header_of(self, window: WindowIndex, trigger: Trigger) -> TriggerHeader:
        """What all rows of one trigger share."""
        calendar = self.calendar
        start = calendar.window_start(window)
        return TriggerHeader(
            window_start=start,
            window_end=calendar.window_end(window),
            trigger=trigger,
            of_triggers=calendar.triggers_of(window),
            strategy=self.strategy.plan.strategy,
            epoch=self.ledger.epoch,
            window_date=self.settings.window.date_of(start),
        )

    def released(self, window: WindowIndex, trigger: Trigger, rows: int, what: str = "window") -> ReleasedRows:
        """What the log says of a trigger; all of it is public, too. what: is released."""
        start, triggers = self.calendar.window_start(window), self.calendar.triggers_of(window)
        return ReleasedRows(
            what=f"{what} {self.settings.window.instant_text(start)}, trigger {trigger} of {triggers}",
            rows=rows,
            facts={"window": format_time(start), "trigger": int(trigger), "of_triggers": triggers},
        )

    def guarantee_of(self, window: WindowIndex) -> Guarantee:
        """What one window promises: the same epsilon and delta for every T, and the same mu for every kappa."""
        return self.strategy_of(window).guarantee

    def read_published_keys(self) -> None:
        """Read them from now on, from where the epoch begins, if the strategy needs them and they are not read yet."""
        if self.published_keys_reader is not None:
            begins = self.ledger.begins(self.topic("published-keys"), 0)
            first = self.ledger.first_window if self.settings.remember else None
            self.published_keys_reader.ensure_started(bytes.fromhex(self.ledger.epoch), begins, first_window=first)

    def superseded(self) -> Iterator[tuple[str, int, int]]:
        """Published keys that no window needs any more."""
        if self.published_keys is not None and (offset := self.published_keys.purge_before()) > 0:
            yield self.published_keys.topic, 0, offset

    def close(self) -> None:
        """End the engines of expressions, and the thread that reads published keys."""
        self.computation.close()
        if self.published_keys_reader is not None:
            self.published_keys_reader.close()
