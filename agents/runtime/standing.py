"""Whether a window begins: charged for good by a total for life, or begun or skipped by a total that renews.

    log of charges ──▶ Standing ──charge, or decision──▶ release-0's commit ──▶ ledger ──▶ every partition of release, route

By a total for life, the charge is all: a window whose charge is in the log begins, or the pipeline stops (`Charges.include`).

By a total for every period (`budget.per`), release-0 charges a window that has room, and reads the log up to its own charge.
What the charges before it leave room for begins; anything else is skipped, and its charge is withdrawn. The decision is a
record of the ledger, and what it says holds: nobody decides a second time, because the log may look otherwise by then.
Argument: docs/guarantees/composition.md."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from susurrus.agents.config.settings import Settings
from susurrus.agents.runtime.budget import guarantee_of, periods_of, spans_of
from susurrus.agents.runtime.commit import Output
from susurrus.agents.runtime.ledger import Ledger
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import Calendar, WindowIndex, WindowStart
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import ChargedSpan, Periods
from susurrus.topics import ledger as codec
from susurrus.topics.sources import SourceMap

Costs = Callable[[WindowIndex], Guarantee]
_FAR: Final = 1 << 17
"""Windows: further ahead nobody looks."""
_DECISIONS_KEPT_WINDOWS: Final = 64
"""The ledger keeps the decisions of at least so many windows before the newest, and of all that may be open. What was skipped it
keeps, as the log of charges keeps what was not: who reads on from long ago must know."""


class Standing(ABC):
    """Which windows of one pipeline begin. guarantee_of: what a window costs."""

    def __init__(self, ledger: Ledger, calendar: Calendar, guarantee_of: Costs) -> None:
        self._ledger, self._calendar, self._guarantee_of = ledger, calendar, guarantee_of

    @abstractmethod
    def begins(self, window: WindowIndex) -> bool | None:
        """Whether a window begins; None while nobody knows. Raises BudgetExhausted where that stops the pipeline."""

    @abstractmethod
    def decide(self, window: WindowIndex, *, charged: bool) -> tuple[list[Output], bool | None] | None:
        """What release-0 commits next for a window that nobody knows of, and what `begins` says with that commit.

        charged: whether it has committed its charge. Returns None where that charge does not show in the log yet.
        """

    def _charge(self, window: WindowIndex) -> Output:
        return self._ledger.charge_output(self._calendar.window_start(window), self._guarantee_of(window))


class ForLife(Standing):
    """A total for the pipeline's whole life, or none: every window begins, until one has no room."""

    def begins(self, window: WindowIndex) -> bool | None:
        """See `Standing`. What was decided under a budget that renewed holds on."""
        start = self._calendar.window_start(window)
        if (decided := self._ledger.decision(start)) is not None:
            return decided
        return self._ledger.is_charged(start) or None

    def decide(self, window: WindowIndex, *, charged: bool) -> tuple[list[Output], bool | None] | None:
        """See `Standing`. A second charge would count twice."""
        return None if charged else ([self._charge(window)], None)


class Renewing(Standing):
    """A total for every period: a window that has no room is skipped."""

    def __init__(self, ledger: Ledger, calendar: Calendar, guarantee_of: Costs, periods: Periods) -> None:
        super().__init__(ledger, calendar, guarantee_of)
        self._periods = periods

    def begins(self, window: WindowIndex) -> bool | None:
        """See `Standing`: what the ledger says."""
        return self._ledger.decision(self._calendar.window_start(window))

    def decide(self, window: WindowIndex, *, charged: bool) -> tuple[list[Output], bool | None] | None:
        """See `Standing`. The charge is written only where there seems to be room; what comes before it in the log decides.

        A window whose charge is there and was not sent as such began under a total for life, and may be published already.
        """
        start = self._calendar.window_start(window)
        before = self._ledger.charges.before(start, self._ledger.epoch)
        if not charged and self._began_for_life(start):
            return self._decision(window, begun=True, charged=True), True
        if before is None:
            if charged:
                return None
            # A raw topic that was added has charged the window already: it is the same release, and counts once.
            place = self._ledger.charges.place(start, self._ledger.epoch)
            known = self._ledger.charges.known
            others = [one for one in known if (one.pipeline, one.epoch, one.window) != place]
            if self._periods.allows(spans_of(others), self._span(window)):
                return [self._charge(window)], None
            # Such an early charge stays. That it is there does not say that nothing of the window is published.
            return self._decision(window, begun=False, charged=False), False
        earlier, own = before
        begun = self._periods.allows(spans_of(earlier), ChargedSpan(*own.extent, guarantee_of(own)))
        return self._decision(window, begun=begun, charged=True), begun

    def _began_for_life(self, start: WindowStart) -> bool:
        """Whether release-0 charged it before the total renewed. Route charges a window, too, but only on topics that are added."""
        ledger = self._ledger
        return not ledger.charges.charged_topics(start, ledger.epoch).isdisjoint(SourceMap(ledger.start.sources).topics)

    def _span(self, window: WindowIndex) -> ChargedSpan:
        calendar = self._calendar
        return ChargedSpan(calendar.window_start(window), calendar.window_end(window), self._guarantee_of(window))

    def _decision(self, window: WindowIndex, *, begun: bool, charged: bool) -> list[Output]:
        ledger, calendar = self._ledger, self._calendar
        start = calendar.window_start(window)
        outputs = [ledger.output(codec.WindowDecision(window=start, begun=begun, epoch=ledger.epoch))]
        oldest = calendar.oldest_open(calendar.first_interval(window))
        old = WindowIndex(min(window - _DECISIONS_KEPT_WINDOWS, oldest - 1))
        if old >= ledger.first_window and calendar.window_start(old) not in ledger.skipped():
            outputs.append(ledger.withdrawn([codec.decision_key(calendar.window_start(old))]))
        if charged and not begun:
            outputs.append(ledger.charges.withdrawal(start, ledger.epoch))
        return outputs

    @property
    def total(self) -> str:
        """The total in words, for messages."""
        budget = self._periods.budget
        return (
            f"budget: epsilon={budget.epsilon:g}, delta={budget.delta:g}, per={format_duration(self._periods.length)}"
        )

    def room_again(self, window: WindowIndex) -> int:
        """The start (ms) of the first later window that has room with what is charged now."""
        spans, calendar = spans_of(self._ledger.charges.known), self._calendar
        start = calendar.window_start(window)

        def later(number: int) -> WindowIndex:
            return calendar.window_at(calendar.windows.later(start, number))

        low, high = 0, 1
        while high < _FAR and not self._periods.allows(spans, self._span(later(high))):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._periods.allows(spans, self._span(later(middle)))
            low, high = (low, middle) if fits else (middle, high)
        return calendar.window_start(later(high))


def standing_of(settings: Settings, ledger: Ledger, calendar: Calendar, guarantee_of: Costs) -> Standing:
    """What the section `[budget]` says."""
    if (periods := periods_of(settings)) is None:
        return ForLife(ledger, calendar, guarantee_of)
    return Renewing(ledger, calendar, guarantee_of, periods)
