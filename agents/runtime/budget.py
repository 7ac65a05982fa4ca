"""What pipelines have paid for the windows of raw topics, and whether the configured total allows one more.

Every pipeline of a cluster writes its charges to one compacted topic. The first record with a key counts. Where the total
renews, standing.py says what begins.
"""

import threading
from collections.abc import Callable, Collection, Iterable

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.commit import Output
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import ChargedSpan, Periods
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.topics import charges as codec


def charge_of(settings: Settings, raw_topic: str, window: int, epoch: str, guarantee: Guarantee) -> codec.Charge:
    """What a pipeline pays for a window (start in ms) in an epoch, as one of its raw topics has it."""
    return codec.Charge(
        begin=window,
        end=settings.calendar.end_of(WindowStart(window)),
        raw_topic=raw_topic,
        window=window,
        pipeline=settings.application,
        epoch=epoch,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=guarantee.mu,
        delta_selection=guarantee.delta_selection,
    )


def charged_once(charges: Iterable[codec.Charge], raw_topics: Collection[str]) -> list[codec.Charge]:
    """The charges on any of these topics, in their order. A window that was charged on several of them is there once, where it
    comes first: a user who is in all of the topics pays for it once."""
    found: dict[tuple[str, str, int], codec.Charge] = {}
    for charge in charges:
        if charge.raw_topic in raw_topics:
            found.setdefault((charge.pipeline, charge.epoch, charge.window), charge)
    return list(found.values())


def spend_of(charges: Iterable[codec.Charge]) -> Spend:
    """What the charges paid for together."""
    spend = Spend()
    for charge in charges:
        spend = spend.plus(guarantee_of(charge))
    return spend


def budget_of(settings: Settings) -> Budget | None:
    """The total of ``[budget]``; None without one."""
    total = settings.budget
    return None if total is None else Budget(epsilon=total.epsilon, delta=total.delta)


def periods_of(settings: Settings) -> Periods | None:
    """The total of ``[budget]`` for every period; None without one, or where the total is for life."""
    total, budget = settings.budget, budget_of(settings)
    return None if total is None or total.per is None or budget is None else Periods(budget, total.per)


def spans_of(charges: Iterable[codec.Charge]) -> list[ChargedSpan]:
    """What the charges paid for, each with the event times of the records."""
    return [ChargedSpan(*charge.extent, guarantee_of(charge)) for charge in charges]


class Charges:
    """Thread-safe view of the charges on one pipeline's raw topics, its own and those of others.

    A pipeline is charged on each of its topics, so that a user of any of them is covered. What it allows itself is counted for a
    user who is in all of them: all that is charged on any of them, each window of each pipeline once.

    raw_topics: asks which they are, since topics may be added; by default those that the settings name. topics_in: those of them
    whose records may count in a window (start in ms); by default all.
    """

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        raw_topics: Callable[[], Collection[str]] | None = None,
        topics_in: Callable[[int], Collection[str]] | None = None,
    ) -> None:
        self.topic = settings.topics.charges
        self._settings = settings
        self._clients = clients
        self._raw_topics = raw_topics or (lambda: settings.input.listed)
        self._topics_in = topics_in or (lambda _window: self._raw_topics())
        self._lock = threading.Lock()
        self._next = 0
        self._charges: dict[bytes, codec.Charge] = {}
        self.known: tuple[codec.Charge, ...] = ()
        """What `read` has last returned; any thread may look at it."""

    def read(self, *, complete: bool) -> list[codec.Charge]:
        """All charges on the raw topics, in the order of the log (`charged_once`). complete: see `Clients.read`."""
        topics = self._raw_topics()
        with self._lock:
            for key, value, offset in self._clients.read(self.topic, self._next, group="ledger", complete=complete):
                if value is None:
                    self._charges.pop(key, None)  # withdrawn: of a window that was skipped
                else:
                    self._charges.setdefault(key, codec.decode(value))
                self._next = offset + 1
            ours = charged_once(self._charges.values(), topics)
            self.known = tuple(ours)
            return ours

    def output(self, window: int, epoch: str, guarantee: Guarantee, raw_topics: Iterable[str] | None = None) -> Output:
        """The records that charge a window (start in ms), as part of a commit: one for each raw topic."""
        messages = []
        for topic in self._raw_topics() if raw_topics is None else raw_topics:
            key, value = codec.encode(charge_of(self._settings, topic, window, epoch, guarantee))
            messages.append({"key": key, "value": value})
        return Output(self.topic, 0, messages)

    def withdrawal(self, window: int, epoch: str) -> Output:
        """Tombstones for this pipeline's charges for a window (start in ms) of which nothing is published, as part of a commit."""
        name, topics = self._settings.application, self._raw_topics()
        keys = [codec.key(topic, window, name, epoch) for topic in topics]
        return Output(self.topic, 0, [{"key": key, "value": None} for key in keys])

    def place(self, window: int, epoch: str) -> tuple[str, str, int]:
        """(pipeline, epoch, window), which this pipeline's charges for a window (start in ms) have in common."""
        return self._settings.application, epoch, window

    def charged_topics(self, window: int, epoch: str) -> set[str]:
        """The raw topics on which `read` has found this pipeline's charge for a window (start in ms)."""
        place = self.place(window, epoch)
        with self._lock:
            return {
                charge.raw_topic
                for charge in self._charges.values()
                if (charge.pipeline, charge.epoch, charge.window) == place
            }

    def before(self, window: int, epoch: str) -> tuple[list[codec.Charge], codec.Charge] | None:
        """(what all pipelines charged before this one, this pipeline's charge) for a window (start in ms); None while its charge
        does not show on each of its raw topics.

        Before means before the last of its records: of two pipelines over several topics, one at least sees the other.
        """
        self.read(complete=False)
        return self.known_before(window, epoch, self._settings.application)

    def known_before(self, window: int, epoch: str, pipeline: str) -> tuple[list[codec.Charge], codec.Charge] | None:
        """`before` by what `read` has found. pipeline: whose charge it is, or which command's."""
        keys = {codec.key(topic, window, pipeline, epoch) for topic in self._topics_in(window)}
        with self._lock:
            if not keys or not keys <= self._charges.keys():
                return None
            log = list(self._charges.items())
        last = max(place for place, (key, _) in enumerate(log) if key in keys)
        earlier = [charge for key, charge in log[:last] if key not in keys]
        return charged_once(earlier, self._raw_topics()), log[last][1]

    def include(self, window: int, epoch: str) -> bool:
        """Whether this pipeline's charges for a window (start in ms) are in the log, as `before` has it.

        Raises BudgetExhausted where they are, but with what is before them exceed the configured total.
        """
        if (before := self.before(window, epoch)) is None:
            return False
        earlier, ours = before
        if (total := budget_of(self._settings)) is not None:
            # Charges count whether or not their pipeline was allowed to go on: that errs on the safe side.
            total.charge(spend_of(earlier), guarantee_of(ours))
        return True


def guarantee_of(charge: codec.Charge) -> Guarantee:
    """The promise that a charge pays for."""
    return Guarantee(
        epsilon=charge.epsilon,
        delta=charge.delta,
        mu=charge.mu,
        delta_gaussian=charge.delta - charge.delta_selection,
        delta_selection=charge.delta_selection,
    )
