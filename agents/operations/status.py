"""What every partition of a pipeline is doing, what holds it back, and what to do: read from the ledger, for operators.

Nothing here is for the public: positions and lags are exact figures. Rows come from the status and refusal records that
the tasks write, compared with the ends of their input topics and with what the consumer group has assigned; a partition
that nobody has is a row too.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, Literal

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.kafka.clients import told
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import charges, ledger
from susurrus.topics.packing import MalformedRecord

REQUEST_SECONDS: Final = 15.0

State = Literal["running", "starting", "stalled", "refused", "moved", "stopped", "missing"]
HEALTHY: Final = ("running", "starting")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One stage of one partition. position, end: offsets of its input, -1 unknown. interval: last closed trigger
    interval."""

    stage: str
    partition: int
    state: State
    worker: str = ""
    position: int = -1
    end: int = -1
    interval: int | None = None
    reason: str = ""
    action: str = ""
    at: int = 0

    @property
    def lag(self) -> int | None:
        """Records of the input not yet committed; None while either offset is unknown."""
        return None if self.position < 0 or self.end < 0 else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """Everything ``susurrus status`` shows. charged: windows of this pipeline and of all on the same raw topic. changed: fields
    of the settings in which the pipeline runs with other values; a worker with these settings would refuse. workers: members of
    the consumer group, None where it cannot tell."""

    epoch: str
    first_window: int | None
    partitions: tuple[PartitionStatus, ...]
    rebalancing: bool = False
    charged: int = 0
    charged_all: int = 0
    changed: tuple[str, ...] = ()
    workers: int | None = None
    epoch_number: int = 1

    @property
    def problems(self) -> tuple[PartitionStatus, ...]:
        """The partitions that need somebody."""
        return tuple(row for row in self.partitions if row.state not in HEALTHY)


def judge(
    records: Iterable[ledger.LedgerRecord],
    ends: Mapping[tuple[str, int], int],
    owned: Set[tuple[str, int]] | None,
) -> tuple[PartitionStatus, ...]:
    """One row per (stage, partition) of ``ends`` (the input's end offsets), and per refusal beyond them.

    owned: what the consumer group has assigned; None where it cannot tell. A partition reports only what changes, so an
    old report alone means nothing.
    """
    records = list(records)
    reports = {(r.stage, r.partition): r for r in records if isinstance(r, ledger.Status)}
    refusals = {(r.stage, r.partition): r for r in records if isinstance(r, ledger.Refusal)}
    places = dict.fromkeys([*ends, *sorted(set(refusals) - set(ends))])
    return tuple(
        _row(
            place,
            reports.get(place),
            refusals.get(place),
            ends.get(place, -1),
            None if owned is None else place in owned,
        )
        for place in places
    )


def _row(
    place: tuple[str, int], report: ledger.Status | None, refusal: ledger.Refusal | None, end: int, owned: bool | None
) -> PartitionStatus:
    stage, partition = place
    state: State = "missing"
    reason, action = "no worker has this partition", "start a worker, or look at the worker's log"
    if report is not None and owned and report.state == "stopped":
        state, reason, action = "starting", "", ""  # the report is its last owner's
    elif report is not None and owned is not False:
        state, reason, action = _state(report)
    elif report is not None and report.state == "stopped":
        reason = "its worker was stopped"
    if refusal is not None:
        state, reason, action = "refused", refusal.cause, refusal.action
    return PartitionStatus(
        stage=stage,
        partition=partition,
        state=state,
        worker=report.worker if report else "",
        position=report.position if report else -1,
        end=end,
        interval=report.interval if report else None,
        reason=reason,
        action=action,
        at=report.at if report else (refusal.at if refusal else 0),
    )


def _state(report: ledger.Status) -> tuple[State, str, str]:
    known: dict[str, State] = {
        "running": "running", "starting": "starting", "refused": "refused", "moved": "moved", "stopped": "stopped"
    }  # fmt: skip
    state = known.get(report.state, "stalled")
    if state == "stopped":
        return state, "its worker was stopped", "start a worker"
    if state == "moved":
        return state, report.stalled or "another worker has it", "nothing, unless this stays"
    if report.stalled:
        cause, _, action = report.stalled.rpartition(": ")
        # A start is a problem only when an attempt has failed in a way that somebody can do something about.
        held = state == "running" or bool(cause)
        return ("stalled" if held else state), cause or report.stalled, action if cause else ""
    return state, "", ""


def collect(pipeline: Pipeline[Any]) -> PipelineStatus:
    """Read ledger, charges and the ends of all input topics. Raises ConfigurationError for topics that do not exist."""
    settings = pipeline.settings
    consumer = Consumer(
        {
            "enable.auto.commit": False,
            **librdkafka(settings.kafka),
            "group.id": f"{settings.application}.status-{uuid.uuid4().hex[:8]}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": settings.kafka.embedded,
            "log_level": 3,
        }
    )
    try:
        ends = _ends(pipeline, consumer)
        records = _ledger(consumer, settings.topic("ledger"))
        charged = [
            charges.decode(value) for _, value in _read(consumer, charges.topic_name(settings.pipeline.prefix)) if value
        ]
    finally:
        consumer.close()
    owned, rebalancing, workers = _assigned(pipeline)
    epoch = next((r for r in records if isinstance(r, ledger.Epoch)), None)
    config = next((r for r in records if isinstance(r, ledger.Config)), None)
    start = next((r.first_window for r in records if isinstance(r, ledger.Start)), None)
    ours = [c for c in charged if c.raw_topic == settings.input.topic]
    return PipelineStatus(
        epoch="" if epoch is None else epoch.epoch,
        epoch_number=1 if epoch is None else epoch.number,
        first_window=start,
        partitions=judge(records, ends, owned),
        rebalancing=rebalancing,
        workers=workers,
        charged=sum(c.pipeline == settings.pipeline.name for c in ours),
        charged_all=len(ours),
        changed=() if config is None else tuple(ledger.changed_fields(config, settings.published_fields())),
    )


def _assigned(pipeline: Pipeline[Any]) -> tuple[Set[tuple[str, int]] | None, bool, int | None]:
    """(stage, partition) of everything the group's members have, whether the group is rebalancing just now, and how many they
    are."""
    settings = pipeline.settings
    if settings.kafka.embedded:
        return None, False, None  # the embedded broker cannot be asked
    group = settings.application
    admin = AdminClient({**librdkafka(settings.kafka), "log_level": 3})
    found = admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group].result()
    if found.state in (ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING):
        return None, True, len(found.members)
    stages = {stage.input_topic: stage.name for stage in pipeline.stages}
    parts = [part for member in found.members for part in member.assignment.topic_partitions]
    return {(stages[part.topic], part.partition) for part in parts if part.topic in stages}, False, len(found.members)


def _partitions(consumer: Consumer, topic: str) -> int:
    found = consumer.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
    if found.error is not None:
        raise ConfigurationError(
            f'topic="{topic}": {found.error.str()}; create it with `susurrus topics create`, '
            "or correct input.topic, pipeline.name and pipeline.prefix"
        )
    return len(found.partitions)


def _ends(pipeline: Pipeline[Any], consumer: Consumer) -> dict[tuple[str, int], int]:
    """Ends of all inputs, read_uncommitted: what an open transaction holds back is behind, too."""
    settings = pipeline.settings
    places = {
        (stage.name, partition): TopicPartition(stage.input_topic, partition)
        for stage in pipeline.stages
        for partition in range(_partitions(consumer, stage.input_topic))
    }
    if settings.kafka.embedded:
        found = {place: consumer.get_watermark_offsets(tp, timeout=REQUEST_SECONDS) for place, tp in places.items()}
        return {place: int(bounds[1]) if bounds else -1 for place, bounds in found.items()}
    admin = AdminClient({**librdkafka(settings.kafka), "log_level": 3})
    futures = admin.list_offsets({tp: OffsetSpec.latest() for tp in places.values()}, request_timeout=REQUEST_SECONDS)
    return {place: told(futures[tp].result().offset) for place, tp in places.items()}


def _ledger(consumer: Consumer, topic: str) -> list[ledger.LedgerRecord]:
    records: dict[bytes, ledger.LedgerRecord] = {}
    for key, value in _read(consumer, topic):
        try:
            record = ledger.decode(key, value)
        except MalformedRecord:
            continue  # a newer version's record: the others still tell
        records.pop(key, None)
        if record is not None:
            records[key] = record
    return list(records.values())


def _read(consumer: Consumer, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of partition 0 of a compacted topic, up to its present end; empty when there is no such topic."""
    found = consumer.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
    if found.error is not None:
        return []
    rows: list[tuple[bytes, bytes | None]] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + REQUEST_SECONDS
    while time.monotonic() < deadline:
        # Short waits: consume() sits its timeout out even when all it has left is the end of the partition.
        for message in consumer.consume(5_000, timeout=0.05):
            error = message.error()
            if error is None:
                key: Any = message.key()
                value: Any = message.value()
                rows.append((bytes(key or b""), value))
            elif error.code() == KafkaError._PARTITION_EOF:
                return rows
            elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"reading topic {topic}"))
