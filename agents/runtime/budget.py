"""What pipelines have paid for the windows of a raw topic, and whether the configured total allows one more.

Every pipeline with the same prefix writes its charges to one compacted topic. The first record with a key counts.
"""

import threading
from collections.abc import Iterable

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.commit import Output
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.topics import charges as codec


def charge_of(settings: Settings, window: int, epoch: str, guarantee: Guarantee) -> codec.Charge:
    """What a pipeline pays for a window (start in ms) in an epoch."""
    return codec.Charge(
        raw_topic=settings.input.topic,
        window=window,
        pipeline=settings.pipeline.name,
        epoch=epoch,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=guarantee.mu,
        delta_selection=guarantee.delta_selection,
    )


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


class Charges:
    """Thread-safe view of the charges on one pipeline's raw topic, its own and those of others."""

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self.topic = codec.topic_name(settings.pipeline.prefix)
        self._settings = settings
        self._clients = clients
        self._lock = threading.Lock()
        self._next = 0
        self._charges: dict[bytes, codec.Charge] = {}
        self.known: tuple[codec.Charge, ...] = ()
        """What `read` has last returned; any thread may look at it."""

    def read(self, *, complete: bool) -> list[codec.Charge]:
        """All charges on the raw topic, in the order of the log. complete: see `Clients.read`."""
        with self._lock:
            for key, value, offset in self._clients.read(self.topic, self._next, group="ledger", complete=complete):
                if value is not None:
                    self._charges.setdefault(key, codec.decode(value))
                self._next = offset + 1
            ours = [charge for charge in self._charges.values() if charge.raw_topic == self._settings.input.topic]
            self.known = tuple(ours)
            return ours

    def output(self, window: int, epoch: str, guarantee: Guarantee) -> Output:
        """The record that charges a window (start in ms), as part of a commit."""
        key, value = codec.encode(charge_of(self._settings, window, epoch, guarantee))
        return Output(self.topic, 0, [{"key": key, "value": value}])

    def include(self, window: int, epoch: str) -> bool:
        """Whether this pipeline's charge for a window (start in ms) is in the log.

        Raises BudgetExhausted where it is, but the charges up to it exceed the configured total for the raw topic.
        """
        charges = self.read(complete=False)
        place = (self._settings.pipeline.name, epoch, window)
        ours = next((n for n, c in enumerate(charges) if (c.pipeline, c.epoch, c.window) == place), None)
        if ours is None:
            return False
        if (total := budget_of(self._settings)) is not None:
            # Charges count whether or not their pipeline was allowed to go on: that errs on the safe side.
            total.charge(spend_of(charges[:ours]), guarantee_of(charges[ours]))
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
