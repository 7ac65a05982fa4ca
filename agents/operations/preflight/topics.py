"""The topics: as their contracts say, the raw one too; and whether an open transaction hides the end of the raw one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding, Level
from susurrus.agents.kafka.requests import REQUEST_SECONDS, answer_of, settings_of
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.types.durations import format_duration


def partitions_of(admin: AdminClient, topic: str) -> list[int]:
    """Numbers of a topic's partitions. Raises KafkaException where it does not exist, and without the right to ask."""
    found = admin.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return list(found.partitions)


def check_topics(
    pipeline: Pipeline[Any], admin: AdminClient, raw_topics: Sequence[str], raw_admin: AdminClient
) -> Iterator[Finding]:
    """Partitions, replicas and settings of every topic, as `susurrus topics check` sees them. raw_admin: of the raw topics'
    cluster."""
    wrong: dict[Finding, list[str]] = {}
    for found in pipeline.check_topics(admin, raw_topics, raw_admin):
        if found.level == "ok":
            yield Finding("topic", "ok", found.subject + found.text)
        else:
            wrong.setdefault(replace(found, subject="topic"), []).append(found.subject)
    for found, topics in wrong.items():
        few = ", ".join(topics[:2]) + (f" and {len(topics) - 2} more" if len(topics) > 2 else "")
        yield replace(found, text=f"{few}: {found.text}")


def check_retention(pipeline: Pipeline[Any], admin: AdminClient, raw_topics: Sequence[str]) -> Iterator[Finding]:
    """For how long may the workers be away before raw records are deleted unread?"""
    for topic in raw_topics:
        yield _retention(pipeline.settings, admin, topic)


def _retention(settings: Settings, admin: AdminClient, topic: str) -> Finding:
    config = settings_of(admin, topic)
    retention, size = int(config["retention.ms"]), int(config["retention.bytes"])
    said = "for ever" if retention < 0 else f"for {format_duration(retention)}"
    limit = "" if size < 0 else f", and up to {size / 1e9:,.1f} GB a partition"
    level: Level = "ok"
    action = ""
    if 0 <= retention < settings.calendar.windows.lengths[-1]:
        level = "warning"
        limit += f", less than window.length={settings.window.length_text}, so no new epoch could read a window"
        action = "raise retention.ms"
    return Finding("retention", level, f"{topic} keeps records {said}{limit}", action)


def check_isolation(admin: AdminClient, raw_topics: Sequence[str]) -> Iterator[Finding]:
    """Workers read committed records only, so a producer's open transaction delays the next release."""
    for topic in raw_topics:
        yield _isolation(admin, topic)


def _isolation(admin: AdminClient, topic: str) -> Finding:
    partitions = partitions_of(admin, topic)
    ends = [
        {
            place.partition: answer_of(future).offset
            for place, future in admin.list_offsets(
                {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions},
                isolation_level=isolation,
                request_timeout=REQUEST_SECONDS,
            ).items()
        }
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    ]
    held = [partition for partition in partitions if ends[0][partition] < ends[1][partition]]
    if held:
        return Finding(
            "isolation",
            "warning",
            f"a producer's transaction is open on {topic}, partition "
            f"{held[0]}{f' and {len(held) - 1} more' if len(held) > 1 else ''}: releases wait for it",
            "look again, and if it stays, end it (kafka-transactions.sh find-hanging)",
        )
    return Finding("isolation", "ok", f"no open transaction on {topic}")
