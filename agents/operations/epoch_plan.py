"""What a new epoch would be and what it would cost, from what was published and charged. new_epoch.py begins it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from susurrus.agents.kafka.requests import group_of, no_topic
from susurrus.agents.kafka.topics import partitions_of
from susurrus.agents.runtime.budget import (
    budget_of,
    charge_of,
    charged_once,
    guarantee_of,
    periods_of,
    spend_of,
)
from susurrus.agents.runtime.initial_offsets import Origin, check_start
from susurrus.agents.runtime.new_beginning import NewBeginning
from susurrus.agents.runtime.pipeline import StageSpec
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Spend
from susurrus.topics import charges as charge_codec
from susurrus.topics import ledger as codec
from susurrus.topics.progress import Progress
from susurrus.topics.sources import SourceMap
from susurrus.topics.spec import LEDGER, PROGRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A window that is published a second time. spend: of a user in it, in this pipeline, with the new epoch; delta:
    the sum over the epochs."""

    window: int
    trigger: int
    of_triggers: int
    epochs: int
    spend: Spend
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """What a new epoch would be, and what it costs.

    before: number of the epoch that ends; 0 where the ledger has lost it. origin, first_window: where it begins, in ms.
    again: windows that are published a second time. unfinished: the last record of windows before the first that have not had
    their last trigger. forgotten: charges that the log has lost, though progress shows their windows.
    """

    before: str
    number: int
    origin: Origin
    first_window: int
    guarantee: Guarantee
    again: tuple[Again, ...]
    unfinished: tuple[Progress, ...]
    forgotten: tuple[charge_codec.Charge, ...]
    windows_left: int | None
    """How many more windows [budget] allows after that; None without one, and where it renews."""
    renews: bool = False
    """Whether [budget] renews: windows that have no room are skipped."""


class EpochPlanner:
    """Reads what is there of a pipeline, and says what a new epoch of it would be. Changes nothing."""

    def __init__(self, begins: NewBeginning, stages: tuple[StageSpec, ...], services: Services) -> None:
        self._begins = begins
        self._stages = stages
        self._services = services
        self._settings = services.settings
        self._clients = services.clients

    def plan(self, now: int) -> EpochPlan:
        """Read the ledger, progress and charges. Raises Refusal while workers run and as `check_start`, BudgetExhausted where
        [budget] forbids it."""
        self.check_alone()
        self._check_topics()
        ledger, settings = self._services.ledger, self._settings
        ledger.refresh()
        topics = self.topics()
        published = self._published()
        first_window, origin = self._begins.at(now, max(published, default=None))
        check_start(settings, self._clients, topics, now=now, first_window=first_window)
        records = ledger.records()
        before = records.get("epoch")
        number = before.number if isinstance(before, codec.Epoch) else 0
        number = max([number, *(epoch for epochs in published.values() for epoch in epochs)]) + 1
        guarantee = self._begins.guarantee
        charged = ledger.charges.read(complete=True)
        ours = [charge for charge in charged if charge.pipeline == settings.application]
        known = {(charge.window, charge.epoch) for charge in ours}
        paid = {charge.epoch: guarantee_of(charge) for charge in ours}
        forgotten = tuple(
            self._lost_charge(topic, said, paid.get(said.epoch, guarantee))
            for window, epochs in sorted(published.items())
            for said in epochs.values()
            for topic in topics
            if (window, said.epoch) not in known
        )
        charged = charged_once([*charged, *forgotten], topics)
        again = tuple(
            self._again(window, epochs, charged, guarantee)
            for window, epochs in sorted(published.items())
            if window >= first_window
        )
        newest = {window: epochs[max(epochs)] for window, epochs in published.items()}
        left = None
        if (total := budget_of(settings)) is not None and periods_of(settings) is None:
            spent = spend_of(charged)
            if again:
                spent = total.charge(spent, guarantee, len(again))
            left = total.windows_left(spent, guarantee)
        return EpochPlan(
            before=before.epoch if isinstance(before, codec.Epoch) else "",
            number=number,
            origin=origin,
            first_window=first_window,
            guarantee=guarantee,
            again=again,
            unfinished=tuple(
                said
                for window, said in sorted(newest.items())
                if window < first_window and said.trigger < said.of_triggers
            ),
            forgotten=forgotten,
            windows_left=left,
            renews=periods_of(settings) is not None,
        )

    def topics(self) -> tuple[str, ...]:
        """The raw topics of the new epoch: those that the file names, and those that were added to the old one by a command. With a
        pattern, those of the old one."""
        listed, known = self._settings.input.listed, self._services.ledger.to_read()
        if not listed:
            return known
        start = self._services.ledger.records().get("start")
        began = SourceMap(start.sources).topics if isinstance(start, codec.Start) else ()
        return tuple(dict.fromkeys((*listed, *(topic for topic in known if topic not in began))))

    def internal(self) -> tuple[str, ...]:
        """The topics of the stages' state and of what they hand to each other, by full name."""
        settings = self._settings
        handed = (
            settings.topic(spec.name)
            for spec in settings.topic_specs
            if spec.readers != "public" and spec.retention == "forever" and spec is not LEDGER
        )
        return tuple(dict.fromkeys([*(settings.topic(stage.changelog) for stage in self._stages), *handed]))

    def check_alone(self) -> None:
        """Raises Refusal while the consumer group has members."""
        group = self._clients.application
        found = group_of(self._clients.admin(), group)
        if found is not None and found.members:
            hosts = ", ".join(sorted({str(member.host).lstrip("/") for member in found.members}))
            raise Refusal(
                f"group={group} has members={len(found.members)} at {hosts}, but no worker may run while an epoch ends",
                "stop every worker, and wait until the session of a dead one, or of a stopped one with "
                "worker.instance, is over (worker.session_timeout)",
            )

    def _check_topics(self) -> None:
        settings, clients = self._settings, self._clients
        between = {stage.input_topic for stage in self._stages if stage.purge and stage.input_topic is not None}
        wanted = {
            topic: partitions_of(settings, spec, raw=0)
            for spec in settings.topic_specs
            if (topic := settings.topic(spec.name)) in between
        }
        known = (self._services.ledger.topic, settings.topic(PROGRESS.name), self._services.ledger.charges.topic)
        for topic in (*known, *self.internal()):
            found = clients.partitions(topic)
            if not found:
                raise no_topic(topic)
            if found != wanted.get(topic, found):
                raise Refusal(
                    f"topic={topic} has partitions={found}, the configuration says {wanted[topic]}",
                    "change [topics] back",
                )

    def _published(self) -> dict[int, dict[int, Progress]]:
        """Window start in ms -> number of the epoch -> the newest trigger that any partition has published."""
        found: dict[int, dict[int, Progress]] = {}
        for said in self._begins.announced(self._clients):
            if said.skips:
                continue
            epochs = found.setdefault(said.window, {})
            if said.epoch_number not in epochs or epochs[said.epoch_number].trigger < said.trigger:
                epochs[said.epoch_number] = said
        return found

    def _lost_charge(self, topic: str, said: Progress, paid: Guarantee) -> charge_codec.Charge:
        """What a window was charged, as far as anybody still knows. Its epoch may have had other windows than the file has now.
        Then nobody knows how long it was, and the charge is for all of time.

        paid: what other windows of its epoch were charged, which is the same for all; or else what the file gives now.
        """
        charge = charge_of(self._settings, topic, said.window, said.epoch, paid)
        if self._has_windows_of(said):
            return charge
        return msgspec.structs.replace(charge, begin=None, end=None)

    def _has_windows_of(self, said: Progress) -> bool:
        """Whether the file's calendar is that of an epoch: by the ledger where it still has it, and by what a trigger says of its
        window."""
        calendar, ledger = self._settings.calendar, self._services.ledger
        window = calendar.window_at(said.window)
        if calendar.window_start(window) != said.window or calendar.triggers_of(window) != said.of_triggers:
            return False
        records = ledger.records()
        epoch, config = records.get("epoch"), records.get("config")
        if not (isinstance(epoch, codec.Epoch) and epoch.epoch == said.epoch and isinstance(config, codec.Config)):
            return True
        fields = self._settings.published_fields()
        changed = codec.changed_fields(config, fields, self._settings.digest_of_default)
        return not any(name.startswith("window.") for name in changed)

    def _again(
        self, window: int, epochs: Mapping[int, Progress], charged: Iterable[charge_codec.Charge], guarantee: Guarantee
    ) -> Again:
        ours = [c for c in charged if c.window == window and c.pipeline == self._settings.application]
        last = epochs[max(epochs)]
        return Again(
            window=window,
            trigger=last.trigger,
            of_triggers=last.of_triggers,
            epochs=len(ours) + 1,
            spend=spend_of(ours).plus(guarantee),
            delta=sum(charge.delta for charge in ours) + guarantee.delta,
        )
