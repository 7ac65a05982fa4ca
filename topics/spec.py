"""What a topic is: name, key, value, partitions, cleanup policy, version, and who may read it.

agents/kafka/topics.py creates and checks topics from these; docs/topics.md prints them for people. Full names are
`<prefix>.<pipeline>.<topic>`, so one prefix ACL covers a pipeline and a second one its internal topics.
"""

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["delete", "compact", "compact,delete"]
Readers = Literal["public", "internal", "raw"]
Partitions = Literal["raw", "by-user", "bounded", "one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic's contract.

    partitions: whose partition count it takes: "raw" = as many as the raw topic, "by-user" / "bounded" = the setting
    of that name, "one" = a single partition. retention: "forever" (retention.ms=-1; internal stream topics are purged
    below the committed position instead), "default" (the broker's or the operator's choice). readers: "public" =
    private results, anyone; "internal" = exact figures, operators and workers only; "raw" = the protection class of
    the raw topic.
    """

    name: str
    key: str
    value: str
    partitions: Partitions
    cleanup: Cleanup
    retention: Literal["forever", "default"]
    readers: Readers
    version: int = 1


def topic_name(prefix: str, pipeline: str, topic: str) -> str:
    """Full name of a topic."""
    return f"{prefix}.{pipeline}.{topic}"


BY_USER = TopicSpec(
    name="by-user",
    key="none; the partition is partition(user)",
    value="packed block of events, or tick (binary)",
    partitions="by-user",
    cleanup="delete",
    retention="forever",
    readers="raw",
)
BOUNDED = TopicSpec(
    name="bounded",
    key="none; the partition is partition(key)",
    value="packed block of exact per-key increments, or tick (binary)",
    partitions="bounded",
    cleanup="delete",
    retention="forever",
    readers="internal",
)
ROUTE_CHANGELOG = TopicSpec(
    name="route-changelog",
    key="none",
    value="one commit of route's state (binary)",
    partitions="raw",
    cleanup="delete",
    retention="forever",
    readers="internal",
)
BOUND_CHANGELOG = TopicSpec(
    name="bound-changelog",
    key="none",
    value="one commit of bound's state (binary): who brought which keys",
    partitions="by-user",
    cleanup="delete",
    retention="forever",
    readers="raw",
)
RELEASE_CHANGELOG = TopicSpec(
    name="release-changelog",
    key="none",
    value="one commit of release's state (binary): exact totals",
    partitions="bounded",
    cleanup="delete",
    retention="forever",
    readers="internal",
)
LEDGER = TopicSpec(
    name="ledger",
    key="record name, such as epoch, started/bound/3 or digest/…",
    value="JSON, one schema per kind of name",
    partitions="one",
    cleanup="compact",
    retention="forever",
    readers="internal",
)
DEAD_LETTER = TopicSpec(
    name="dead-letter",
    key="none (the raw record's key when values are kept)",
    value="empty (the raw record's value when values are kept); the reason and the reference are headers",
    partitions="raw",
    cleanup="delete",
    retention="default",
    readers="raw",
)
HISTOGRAM = TopicSpec(
    name="histogram",
    key='JSON {"window", "key"}',
    value="JSON row: estimates and standard errors of one key at one trigger",
    partitions="bounded",
    cleanup="delete",
    retention="default",
    readers="public",
)
LATEST = TopicSpec(
    name="latest",
    key=HISTOGRAM.key,
    value=HISTOGRAM.value,
    partitions="bounded",
    cleanup="compact",
    retention="forever",
    readers="public",
)
PROGRESS = TopicSpec(
    name="progress",
    key='JSON {"epoch", "window", "partition"}',
    value="JSON: the trigger this partition has completed, and its rows",
    partitions="one",
    cleanup="compact,delete",
    retention="default",
    readers="public",
)

HISTOGRAM_TOPICS = (
    BY_USER,
    BOUNDED,
    ROUTE_CHANGELOG,
    BOUND_CHANGELOG,
    RELEASE_CHANGELOG,
    LEDGER,
    DEAD_LETTER,
    HISTOGRAM,
    LATEST,
    PROGRESS,
)

PUBLISHED_KEYS = TopicSpec(
    name="published-keys",
    key="none",
    value="packed block of the keys first published at one interval (binary); for strategies that need it",
    partitions="one",
    cleanup="delete",
    retention="forever",
    readers="internal",
)

PRIVATE_STREAM = TopicSpec(
    name="private-stream",
    key='JSON {"stream"}',
    value="JSON row: a released piece of a stream, its running sum and standard errors",
    partitions="raw",
    cleanup="delete",
    retention="forever",
    readers="public",
)
STREAM_CHANGELOG = TopicSpec(
    name="stream-changelog",
    key="none",
    value="one commit of the streams' state (binary): exact sums of open pieces",
    partitions="raw",
    cleanup="delete",
    retention="forever",
    readers="raw",
)

STREAM_TOPICS = (PRIVATE_STREAM, STREAM_CHANGELOG, LEDGER, DEAD_LETTER)

REPORTS = TopicSpec(
    name="reports",
    key="none: no client is named",
    value="perturbed report, 23 bytes (binary)",
    partitions="by-user",
    cleanup="delete",
    retention="default",
    readers="internal",
)
THRESHOLD = TopicSpec(
    name="threshold",
    key="version/<number>, or current",
    value="JSON: theta, what phase 2 reports need, and where it comes from",
    partitions="one",
    cleanup="compact",
    retention="forever",
    readers="public",
)
ESTIMATE = TopicSpec(
    name="estimate",
    key='JSON {"slot"}',
    value="JSON row: count, sum and mean of a time interval with standard errors",
    partitions="one",
    cleanup="delete",
    retention="forever",
    readers="public",
)
REPORT_TOTALS = TopicSpec(
    name="report-totals",
    key="none",
    value="exact totals of reports per interval and threshold, or tick (binary)",
    partitions="one",
    cleanup="delete",
    retention="forever",
    readers="internal",
)
COLLECT_CHANGELOG = TopicSpec(
    name="collect-changelog",
    key="none",
    value="one commit of collect's state (binary): the last closed interval",
    partitions="by-user",
    cleanup="delete",
    retention="forever",
    readers="internal",
)
SERVER_CHANGELOG = TopicSpec(
    name="server-changelog",
    key="none",
    value="one commit of the server's state (binary): totals of open intervals, thresholds",
    partitions="one",
    cleanup="delete",
    retention="forever",
    readers="internal",
)

LOCAL_TOPICS = (
    REPORTS,
    REPORT_TOTALS,
    THRESHOLD,
    ESTIMATE,
    COLLECT_CHANGELOG,
    SERVER_CHANGELOG,
    LEDGER,
    DEAD_LETTER,
)
