"""What a topic is: name, partitions, cleanup policy, retention, and who may read it.

agents/kafka/topics.py creates and checks topics from these; docs/topics.md has their keys and values, too. Full names are
`<prefix>.<pipeline>.<topic>`, so one prefix ACL covers a pipeline and a second one its internal topics.
"""

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["delete", "compact", "compact,delete"]
Readers = Literal["public", "internal", "raw"]
Partitions = Literal["raw", "by-user", "bounded", "one"]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic's contract.

    partitions: whose partition count it takes: "raw" = as many as the raw topic, "by-user" / "bounded" = the setting
    of that name, "one" = a single partition. retention: "forever" (retention.ms=-1; internal stream topics are purged
    below the committed position instead), "default" (the broker's or the operator's choice). readers: "public" =
    private results, anyone; "internal" = exact figures, operators and workers only; "raw" = the protection class of
    the raw topic.
    """

    name: str
    partitions: Partitions
    cleanup: Cleanup
    retention: Literal["forever", "default"]
    readers: Readers


def topic_name(prefix: str, pipeline: str, topic: str) -> str:
    """Full name of a topic."""
    return f"{prefix}.{pipeline}.{topic}"


BY_USER = TopicSpec("by-user", "by-user", "delete", "forever", "raw")
BOUNDED = TopicSpec("bounded", "bounded", "delete", "forever", "internal")
ROUTE_CHANGELOG = TopicSpec("route-changelog", "raw", "delete", "forever", "internal")
BOUND_CHANGELOG = TopicSpec("bound-changelog", "by-user", "delete", "forever", "raw")
RELEASE_CHANGELOG = TopicSpec("release-changelog", "bounded", "delete", "forever", "internal")
LEDGER = TopicSpec("ledger", "one", "compact", "forever", "internal")
DEAD_LETTER = TopicSpec("dead-letter", "raw", "delete", "default", "raw")
HISTOGRAM = TopicSpec("histogram", "bounded", "delete", "default", "public")
LATEST = TopicSpec("latest", "bounded", "compact", "forever", "public")
PROGRESS = TopicSpec("progress", "one", "compact,delete", "default", "public")
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
# Keys first published at an interval, for strategies adaptive and closing.
PUBLISHED_KEYS = TopicSpec("published-keys", "one", "delete", "forever", "internal")

PRIVATE_STREAM = TopicSpec("private-stream", "raw", "delete", "forever", "public")
STREAM_CHANGELOG = TopicSpec("stream-changelog", "raw", "delete", "forever", "raw")
STREAM_TOPICS = (PRIVATE_STREAM, STREAM_CHANGELOG, LEDGER, DEAD_LETTER)

REPORTS = TopicSpec("reports", "by-user", "delete", "default", "internal")
THRESHOLD = TopicSpec("threshold", "one", "compact", "forever", "public")
ESTIMATE = TopicSpec("estimate", "one", "delete", "forever", "public")
REPORT_TOTALS = TopicSpec("report-totals", "one", "delete", "forever", "internal")
COLLECT_CHANGELOG = TopicSpec("collect-changelog", "by-user", "delete", "forever", "internal")
SERVER_CHANGELOG = TopicSpec("server-changelog", "one", "delete", "forever", "internal")
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
