"""The charge for one look at the raw data by a command: written to the log of charges before anything of it is shown.

Whatever the command then shows is paid for, and counts against `[budget]` like a window (runtime/budget.py). A run that ends
between its charge and its answer has paid for nothing: that errs on the safe side. Where the budget renews, the charge counts
in every period that touches its extent: the event times that the records may have, in ms, [begin, end)."""

import os
import time
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Final

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.kafka.requests import no_topic, write_one
from susurrus.agents.runtime.budget import Charges, budget_of, guarantee_of, periods_of, spans_of, spend_of
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import BudgetExhausted, SusurrusError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import ChargedSpan, Rolling
from susurrus.mechanisms.spend import Spend
from susurrus.topics import charges as codec
from susurrus.topics.wire.timestamps import EARLIEST, LATEST

_SECONDS = 30.0

Extent = tuple[int, int]
ALL_OF_TIME: Final = (EARLIEST, LATEST)
"""Of records of which nobody knows when they happened."""


class ChargingAccount:
    """The log of charges on one pipeline's raw topics, for a command. Raises what `Clients.read` raises."""

    def __init__(self, settings: Settings, clients: Clients, command: str) -> None:
        self._settings, self._clients = settings, clients
        self._name = codec.name_of_command(settings.application, command)
        self._charges = Charges(settings, clients, lambda: self.topics)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The raw topics that are charged, asked for once. No other may be read: one that is added later is not paid for."""
        return raw_topics(self._settings, self._clients)

    def spent(self) -> Spend:
        """What all pipelines and commands on the raw topic have spent. Raises RetryableRefusal where the log does not exist."""
        if not self._clients.partitions(self._charges.topic):
            raise no_topic(self._charges.topic)
        return spend_of(self._charges.read(complete=True))

    def windows_left(
        self, window: Guarantee, *, after: Guarantee | None = None, extent: Extent = ALL_OF_TIME
    ) -> int | None:
        """How many windows of this guarantee the budget has room for, after a charge; None without `[budget]`. Where it renews: of
        those from the present one on, before one is skipped, and at most as many as a period touches."""
        total, spent = budget_of(self._settings), self.spent()
        if (periods := periods_of(self._settings)) is None:
            return None if total is None else total.windows_left(spent if after is None else spent.plus(after), window)
        more = [] if after is None else [ChargedSpan(*extent, after)]
        rolling = Rolling(periods, [*spans_of(self._charges.known), *more])
        calendar, first = self._settings.calendar.windows, self._present()
        starts = [calendar.later(first, n) for n in range(periods.touched(calendar.usual) + 1)]
        windows = (ChargedSpan(begin, end, window) for begin, end in pairwise(starts) if begin < end)
        return sum(1 for _ in takewhile(rolling.begins, windows))

    def _present(self) -> int:
        """The start of the window of the present time; of an archive, of its first one."""
        settings, calendar = self._settings, self._settings.calendar
        moment = int(time.time() * 1000) if settings.clock.until is None else settings.start.first_window or 0
        return calendar.window_start(calendar.window_at(moment))

    def check(self, guarantee: Guarantee, extent: Extent = ALL_OF_TIME) -> None:
        """Raise BudgetExhausted where the budget has no room for a charge."""
        self.spent()
        self._fits(self._charges.known, ChargedSpan(*extent, guarantee), charged=False)

    def charge(self, window: WindowStart, guarantee: Guarantee, extent: Extent = ALL_OF_TIME) -> str:
        """Charge, and return the id of the run. Raises BudgetExhausted where the budget has no room for it.

        The order of the log decides, as between pipelines, by the last of several topics: a charge that finds no room when it is
        read back still counts.
        """
        run = os.urandom(16).hex()
        self.check(guarantee, extent)
        for topic in self.topics:
            charge = codec.Charge(
                raw_topic=topic,
                window=window,
                pipeline=self._name,
                epoch=run,
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                mu=guarantee.mu,
                delta_selection=guarantee.delta_selection,
                begin=extent[0],
                end=extent[1],
            )
            self._write(*codec.encode(charge))
        self._charges.read(complete=True)
        before = self._charges.known_before(window, run, self._name)
        if before is None:
            raise SusurrusError(
                f"topic={self._charges.topic}: the charge was written and cannot be read back, so nothing is shown; look at the "
                "brokers, and run this again, which charges again"
            )
        earlier, ours = before
        self._fits(earlier, ChargedSpan(*extent, guarantee_of(ours)), charged=True)
        return run

    def _write(self, key: bytes, value: bytes) -> None:
        if not write_one(self._clients.producer(), self._charges.topic, key, value, _SECONDS):
            raise SusurrusError(
                f"topic={self._charges.topic}: the brokers did not take the charge within {_SECONDS:.0f} s, so nothing is shown; "
                "it may still arrive and count: look at the brokers, and run this again"
            )

    def _fits(self, before: Iterable[codec.Charge], run: ChargedSpan, *, charged: bool) -> None:
        total, periods = budget_of(self._settings), periods_of(self._settings)
        if total is None:
            return
        if periods is None:
            fits, per = total.allows(spend_of(before).plus(run.guarantee)), ""
        else:
            fits, per = periods.allows(spans_of(before), run), f", per={format_duration(periods.length)}"
        if fits:
            return
        what = "another charge came first; this one counts, and nothing was shown" if charged else "nothing was charged"
        raise BudgetExhausted(
            f"budget: epsilon={total.epsilon:g}, delta={total.delta:g}{per} has no room for this run, which costs "
            f"epsilon={run.guarantee.epsilon:g}; {what}",
            "ask for a smaller --epsilon, or raise [budget] in the open",
        )
