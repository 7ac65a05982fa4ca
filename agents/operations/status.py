"""What every partition of a pipeline is doing, what holds it back, and what to do: read from the ledger, for operators.

Nothing here is for the public: positions and lags are exact figures. Rows come from the status and refusal records that
the tasks write, compared with the ends of their input topics and with what the consumer group has assigned; a partition
without a worker is a row too.
"""

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from confluent_kafka import ConsumerGroupState, KafkaException, TopicPartition

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding, waits
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.raw_topics import read_ledger, topics_of
from susurrus.agents.kafka.requests import group_of
from susurrus.agents.operations.account import Account, account_of
from susurrus.agents.operations.charge_log import read_charges
from susurrus.agents.runtime.facts import NewestRelease
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import charges, ledger
from susurrus.topics.sources import SourceMap
from susurrus.topics.spec import SOURCES

State = Literal["running", "starting", "stalled", "refused", "fenced", "stopped", "missing"]
HEALTHY: Final = ("running", "starting")
_KNOWN: Final[Mapping[str, State]] = {"running": "running", "starting": "starting", "refused": "refused"}
"""The states that a task reports. An unknown one, of a newer version, counts as stalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One stage of one partition.

    topic, topic_partition: what it reads; empty and -1 where that is unknown. Of a source, its partition may have another number
    there. position, next, end: offsets of this input, committed, taken and written, -1 unknown. interval: last closed trigger
    interval. finding: what holds it back, or the step of its start. counters: what it has counted in its life, by name
    (``Stage.counted``).
    """

    stage: str
    partition: int
    state: State
    worker: str = ""
    topic: str = ""
    topic_partition: int = -1
    position: int = -1
    next: int = -1
    end: int = -1
    interval: int | None = None
    finding: Finding | None = None
    at: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Records of the input not yet committed; None while either offset is unknown."""
        return None if self.position < 0 or self.end < 0 else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """Everything ``susurrus status`` shows. charged: windows of this pipeline and of all on the same raw topic. changed: fields
    of the settings in which the pipeline runs with other values; a worker with these settings would refuse. workers: members of
    the consumer group, None where it does not know. account: of the raw topic; None where the promise is not about windows. start:
    where the epoch began, None before it has. skipped: records of the raw topic before that place, or before the one where a
    new pipeline would begin now; None where that is unknown or has no meaning. deleted: records of the first stage's input that the
    epoch could have read and that are deleted, by the log's start. newest: release, where the kind announces it in public."""

    epoch: str
    first_window: int | None
    partitions: tuple[PartitionStatus, ...]
    rebalancing: bool = False
    charged: int = 0
    charged_all: int = 0
    changed: tuple[str, ...] = ()
    workers: int | None = None
    epoch_number: int = 1
    account: Account | None = None
    start: ledger.Start | None = None
    skipped: int | None = None
    deleted: int = 0
    newest: NewestRelease | None = None

    @property
    def problems(self) -> tuple[PartitionStatus, ...]:
        """The partitions that need an operator."""
        return tuple(row for row in self.partitions if row.state not in HEALTHY)


def judge(
    records: Iterable[ledger.LedgerRecord],
    ends: Mapping[tuple[str, int], int],
    owned: Set[tuple[str, int]] | None,
    inputs: Mapping[tuple[str, int], tuple[str, int]] | None = None,
) -> tuple[PartitionStatus, ...]:
    """One row per (stage, partition) of ``ends`` (the input's end offsets), and per refusal beyond them.

    owned: what the consumer group has assigned; None where it does not know. inputs: (topic, partition) that each row reads. A
    partition reports only what changes, so an old report alone means nothing.
    """
    records = list(records)
    reports = {(r.stage, r.partition): r for r in records if isinstance(r, ledger.Status)}
    refusals = {(r.stage, r.partition): r for r in records if isinstance(r, ledger.RefusalRecord)}
    rows = []
    for place in dict.fromkeys([*ends, *sorted(set(refusals) - set(ends))]):
        report, refusal = reports.get(place), refusals.get(place)
        state, found = _state(f"{place[0]}-{place[1]}", report, refusal, None if owned is None else place in owned)
        last = report or refusal
        topic, topic_partition = (inputs or {}).get(place, ("", -1))
        rows.append(
            PartitionStatus(
                stage=place[0],
                partition=place[1],
                state=state,
                worker=report.worker if report else "",
                topic=topic,
                topic_partition=topic_partition,
                position=report.position if report else -1,
                next=report.next if report else -1,
                end=ends.get(place, -1),
                interval=report.interval if report else None,
                finding=found,
                at=last.at if last else 0,
                counters=report.counters if report else {},
            )
        )
    return tuple(rows)


def _state(
    name: str, report: ledger.Status | None, refusal: ledger.RefusalRecord | None, owned: bool | None
) -> tuple[State, Finding | None]:
    """The state of a partition, and why it is not simply running.

    name: of its task. owned: whether a worker has it, None where that is unknown.
    """
    stopped = report is not None and report.state == "stopped"
    if refusal is not None:
        return "refused", Finding(name, "failure", refusal.cause, refusal.action, waits=refusal.waits)
    if report is None or owned is False:
        reason = "its worker was stopped" if stopped else "no worker has this partition"
        return "missing", Finding(name, "failure", reason, "start a worker, or look at the worker's log")
    if stopped:  # the report of the last owner, where the partition has a new one
        if owned:
            return "starting", None
        return "stopped", Finding(name, "failure", "its worker was stopped", "start a worker")
    if report.state == "fenced":
        return "fenced", waits(name, report.stalled or "another worker has it", "nothing, unless this stays")
    state = _KNOWN.get(report.state, "stalled")
    if not report.stalled:
        return state, None
    if state == "starting" and not report.action:  # a start that takes long is no problem
        return state, Finding(name, "ok", report.stalled, waits=True)
    found = Finding(name, "warning", report.stalled, report.action, waits=report.waits)
    return ("refused" if state == "refused" else "stalled"), found


def collect(pipeline: Pipeline[Any]) -> PipelineStatus:
    """Read ledger, charges and the ends of all input topics. Raises ConfigurationError for topics that do not exist."""
    settings = pipeline.settings
    clients = clients_of(settings, quiet=True)
    try:
        records = read_ledger(settings, clients)
        raw = topics_of(settings, clients, records) if settings.reads_raw else settings.input.listed
        places = _places(pipeline, clients, raw, ledger.sources_of(records))
        ends = _ends(clients, places)
        charged = read_charges(settings, clients, raw) or []
        owned, rebalancing, workers = _assigned(clients, _shared_out(settings, places))
        raw_places = {place: of[1] for place, of in places.items() if of[0] == pipeline.stages[0].name}
        skipped, newest = _skipped(settings, clients, records, raw_places), _newest(pipeline, clients, records)
        deleted = _deleted(pipeline, clients, records, raw_places)
    finally:
        clients.close()
    epoch = next((r for r in records if isinstance(r, ledger.Epoch)), None)
    config = next((r for r in records if isinstance(r, ledger.Config)), None)
    start = next((r.first_window for r in records if isinstance(r, ledger.Start)), None)
    promise, now = pipeline.per_window(), int(time.time() * 1000)
    return PipelineStatus(
        epoch="" if epoch is None else epoch.epoch,
        epoch_number=1 if epoch is None else epoch.number,
        first_window=start,
        start=_start(records),
        skipped=skipped,
        deleted=deleted,
        newest=newest,
        partitions=judge(records, ends, owned, {of: (place.topic, place.partition) for place, of in places.items()}),
        rebalancing=rebalancing,
        workers=workers,
        charged=sum(charge.pipeline == settings.application for charge in charged),
        charged_all=sum(map(charges.pays_for_window, charged)),
        account=None if promise is None else account_of(charged, settings, now, guarantee=promise, raw_topics=raw),
        changed=()
        if config is None
        else tuple(ledger.changed_fields(config, settings.published_fields(), settings.digest_of_default)),
    )


def _places(
    pipeline: Pipeline[Any], clients: Clients, raw: Sequence[str], sources: SourceMap | None
) -> dict[TopicPartition, tuple[str, int]]:
    """The partitions of all inputs, and the (stage, number) of their tasks: a raw partition that is no source yet has none, unless
    no epoch has begun. raw: the raw topics."""
    found: dict[TopicPartition, tuple[str, int]] = {}
    for stage in pipeline.stages:
        expected = SourceMap()
        for topic in stage.inputs(raw):
            number = clients.partitions_to_read(topic)
            expected = expected.grown(topic, number)
            for place in (TopicPartition(topic, partition) for partition in range(number)):
                known = expected if stage.input_topic is not None or sources is None else sources
                task = known.number(topic, place.partition)
                if task is not None:
                    found[place] = stage.name, task
    return found


def _shared_out(
    settings: Settings, places: Mapping[TopicPartition, tuple[str, int]]
) -> Mapping[TopicPartition, tuple[str, int]]:
    """What the group shares out: partitions of inputs, or those that stand for them where raw topics are on another cluster."""
    if settings.input.kafka is None:
        return places
    topic = settings.topic(SOURCES.name)
    return {place if settings.is_own(place.topic) else TopicPartition(topic, of[1]): of for place, of in places.items()}


def _assigned(
    clients: Clients, places: Mapping[TopicPartition, tuple[str, int]]
) -> tuple[Set[tuple[str, int]] | None, bool, int | None]:
    """(stage, partition) of everything the group's members have, whether the group is rebalancing just now, and how many they
    are."""
    if clients.embedded:
        return None, False, None  # the embedded broker cannot be asked
    found = group_of(clients.admin(), clients.application)
    if found is None:
        return set(), False, 0
    if found.state in (ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING):
        return None, True, len(found.members)
    parts = [part for member in found.members for part in member.assignment.topic_partitions]
    owned = {places[place] for part in parts if (place := TopicPartition(part.topic, part.partition)) in places}
    return owned, False, len(found.members)


def _ends(clients: Clients, places: Mapping[TopicPartition, tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Ends of all inputs, read_uncommitted: records of an open transaction count as lag, too."""
    ends = clients.ends(list(places))
    return {of: ends[place] for place, of in places.items()}


def _start(records: Iterable[ledger.LedgerRecord]) -> ledger.Start | None:
    return next((record for record in records if isinstance(record, ledger.Start)), None)


def _skipped(
    settings: Settings,
    clients: Clients,
    records: Iterable[ledger.LedgerRecord],
    raw: Mapping[TopicPartition, int],
) -> int | None:
    """Offsets of the raw topics before the start: records, and the few that transactions take. Without a start, before the place
    where a new pipeline would begin now. raw: the number of each source."""
    if not settings.reads_raw:
        return None
    start = _start(records)
    if start is None and settings.start.from_ != "latest":
        return 0
    places = list(raw)
    lows, ends = clients.starts(places), clients.ends(places)
    begins = {p: ends[p] if start is None else start.offsets.get(raw[p], 0) for p in places}
    return sum(max(0, min(ends[p], begins[p]) - lows[p]) for p in places)


def _deleted(
    pipeline: Pipeline[Any],
    clients: Clients,
    records: Iterable[ledger.LedgerRecord],
    raw: Mapping[TopicPartition, int],
) -> int:
    """Offsets before the start of the first input's logs: records, and the few that transactions take. What was there before an
    epoch that begins with the latest record is not its concern. raw: the number of each source."""
    start = _start(records)
    origin = str(pipeline.settings.start.from_) if start is None else start.origin
    lows = clients.starts(list(raw))
    if origin != "latest":
        return sum(lows.values())
    return 0 if start is None else sum(max(0, lows[p] - start.offsets.get(number, 0)) for p, number in raw.items())


def _newest(pipeline: Pipeline[Any], clients: Clients, records: Iterable[ledger.LedgerRecord]) -> NewestRelease | None:
    """The newest release; None where its topic is missing or holds what is not ours, which its own tasks report."""
    epoch = next((record.epoch for record in records if isinstance(record, ledger.Epoch)), None)
    try:
        return None if epoch is None else pipeline.newest_release(clients, epoch)
    except (KafkaException, Refusal):
        return None
