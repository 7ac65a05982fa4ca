"""The budget as a dashboard shows it: what was charged, what is left, and when it ends; from the log of charges alone.

The log says which pipelines read the raw topic and what their windows cost. It is no secret, but a reader of results does not need
it, so a dashboard without the right to read it goes on without this part.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import Follower
from susurrus.agents.operations.account import Account, account_of
from susurrus.agents.runtime.budget import charged_once, guarantee_of, periods_of, spans_of
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import Periods
from susurrus.mechanisms.spend import Spend
from susurrus.topics import charges as codec
from susurrus.topics.charges import Charge

log = logging.getLogger(__name__)

_POINTS: Final = 120
"""The number of points of the burn-down; each costs about a millisecond."""
_RIGHTS: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A charge was withdrawn, by its key in the log: of a window that was skipped."""

    key: bytes


class BudgetFeed:
    """Follows the charges on the pipeline's raw topics. guarantee: what the next window costs."""

    def __init__(self, settings: Settings, guarantee: Guarantee) -> None:
        self._settings, self._guarantee = settings, guarantee
        self._charges: dict[bytes, Charge] = {}
        self._changes = 0
        self._follower: Follower | None = None
        self._points: tuple[int, list[list[float | None]]] = (0, [])
        self._account: tuple[tuple[int, int], dict[str, Any]] | None = None

    def open(self, clients: Clients, opened: contextlib.ExitStack) -> None:
        """Begin to read, if there is such a topic and this user may read it."""
        topic = self._settings.topics.charges
        self._follower = None
        try:
            if not clients.partitions(topic):
                return
        except KafkaException as error:
            log.warning("%s: %s; the page shows no budget (`susurrus acls --dashboard`)", topic, error.args[0].name())
            return
        consumer = clients.reader("dashboard", lost="earliest")
        opened.callback(consumer.close)
        self._follower = Follower(consumer, {(topic, 0): 0})

    def poll(self) -> list[Charge | Withdrawn]:
        """What was charged or withdrawn since the last call, on any raw topic. Raises KafkaException."""
        if self._follower is None:
            return []
        try:
            rows = [(message.key(), message.value()) for message in self._follower.read(0.02)]
        except KafkaException as error:
            if error.args[0].code() not in _RIGHTS:
                raise
            log.warning("charges: %s; the page shows no budget (`susurrus acls --dashboard`)", error.args[0].name())
            self._follower = None
            return []
        return [Withdrawn(bytes(key)) if value is None else codec.decode(bytes(value)) for key, value in rows if key]

    def _topics(self) -> list[str]:
        """The pipeline's raw topics, as far as a reader knows: those that are named, and those that it was charged on."""
        name = self._settings.application
        charged = (charge.raw_topic for charge in self._charges.values() if charge.pipeline == name)
        return list(dict.fromkeys((*self._settings.input.listed, *charged)))

    def _on_our_topics(self) -> list[Charge]:
        return charged_once(self._charges.values(), self._topics())

    def take(self, charges: Sequence[Charge | Withdrawn]) -> bool:
        """Keep charges; the first with a key counts, until it is withdrawn. Whether anything changed."""
        before = self._changes
        for charge in charges:
            if isinstance(charge, Withdrawn):
                self._changes += self._charges.pop(charge.key, None) is not None
            elif (key := codec.encode(charge)[0]) not in self._charges:
                self._charges[key] = charge
                self._changes += 1
        return self._changes > before

    def state(self, now: int) -> dict[str, Any] | None:
        """The account as the page shows it; None where nothing was charged, or the charges cannot be read. Kept for a minute."""
        if not self._on_our_topics():
            return None
        known = (self._changes, now // 60_000)
        if self._account is None or self._account[0] != known:
            topics, charges = self._topics(), self._on_our_topics()
            account = account_of(charges, self._settings, now, guarantee=self._guarantee, raw_topics=topics)
            if self._points[0] != self._changes:
                periods = periods_of(self._settings)
                points = burn_down(charges, account.delta) if periods is None else _in_periods(charges, periods)
                self._points = self._changes, points
            self._account = known, {**_shown(account), "points": self._points[1]}
        return self._account[1]


def burn_down(charges: Sequence[Charge], delta: float) -> list[list[float | None]]:
    """[start of a window in ms, epsilon at delta] of all charges for windows up to it, oldest first; at most 120 points. None where
    the selection failures alone exceed delta."""
    sums, spent = list[tuple[int, Spend]](), Spend()
    for charge in sorted(charges, key=lambda charge: charge.window):
        spent = spent.plus(guarantee_of(charge))
        if sums and sums[-1][0] == charge.window:
            sums.pop()
        sums.append((charge.window, spent))
    step = -(-len(sums) // _POINTS)
    chosen = sums[::-step][::-1]
    return [[window, _finite(spend.epsilon_total(delta))] for window, spend in chosen]


def _in_periods(charges: Sequence[Charge], periods: Periods) -> list[list[float | None]]:
    """The same for a budget that renews: epsilon at its delta of the period that ends as the window begins."""
    windows, spans = sorted({charge.window for charge in charges}), spans_of(charges)
    chosen = windows[:: -max(1, -(-len(windows) // _POINTS))][::-1]
    return [[window, _finite(periods.until(spans, window).epsilon_total(periods.budget.delta))] for window in chosen]


def _shown(account: Account) -> dict[str, Any]:
    budget = account.budget
    return {
        "epsilon": _finite(account.epsilon),
        "delta": account.delta,
        "mu": account.spent.mu,
        "total": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
        "period": None
        if account.period is None
        else {
            "text": format_duration(account.period.per),
            "epsilon": _finite(account.period.epsilon),
            "until": account.period.last,
            "skipping": account.period.skipping,
            "resumes": account.period.resumes,
        },
        "share": account.share,
        "windows_left": account.windows_left_at_pace
        if account.windows_left_at_pace is not None
        else account.windows_left,
        "stop": account.stop,
        "live": account.live,
        "per_window": None
        if account.per_window is None
        else {"epsilon": account.per_window.epsilon, "delta": account.per_window.delta},
        "pipelines": [
            {"name": row.pipeline, "windows": row.windows, "charges": row.charges} for row in account.pipelines
        ],
    }


def _finite(number: float) -> float | None:
    return number if number < float("inf") else None
