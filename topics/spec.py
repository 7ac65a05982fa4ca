"""What a topic is: name, partitions, cleanup policy, retention, and who may read it.

agents/kafka/topics.py creates and checks topics by these specifications; docs/topics.md also has their keys and values. Full
names are `<prefix>.<pipeline>.<topic>`, so one prefix ACL covers a pipeline.
"""

from dataclasses import dataclass
from typing import Literal

Cleanup = Literal["delete", "compact", "compact,delete"]
Readers = Literal["public", "internal", "raw"]
Partitions = Literal["raw", "by-user", "bounded", "one"]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic's contract.

    partitions: "raw" = as many as the raw topic, "by-user" / "bounded" = the setting of that name, "one" = a single
    partition. retention: "forever" = retention.ms=-1 (internal stream topics are purged below the committed position
    instead), "default" = the broker's or the operator's choice. readers: "public" = private results, for anyone;
    "internal" = exact figures, for operators and workers only; "raw" = the protection class of the raw topic.
    """

    name: str
    partitions: Partitions
    cleanup: Cleanup
    retention: Literal["forever", "default"]
    readers: Readers


def topic_name(prefix: str, pipeline: str, topic: str) -> str:
    """Full name of a topic."""
    return f"{prefix}.{pipeline}.{topic}"


SOURCES = TopicSpec("sources", "raw", "delete", "forever", "internal")
"""One more topic of a pipeline whose raw topics are on another cluster. Its partitions stand for the sources, and are empty."""
LEDGER = TopicSpec("ledger", "one", "compact", "forever", "internal")
DEAD_LETTER = TopicSpec("dead-letter", "raw", "delete", "default", "raw")

HISTOGRAM_TOPICS = (
    BY_USER := TopicSpec("by-user", "by-user", "delete", "forever", "raw"),
    BOUNDED := TopicSpec("bounded", "bounded", "delete", "forever", "internal"),
    ROUTE_CHANGELOG := TopicSpec("route-changelog", "raw", "delete", "forever", "internal"),
    BOUND_CHANGELOG := TopicSpec("bound-changelog", "by-user", "delete", "forever", "raw"),
    RELEASE_CHANGELOG := TopicSpec("release-changelog", "bounded", "delete", "forever", "internal"),
    LEDGER,
    DEAD_LETTER,
    HISTOGRAM := TopicSpec("histogram", "bounded", "delete", "default", "public"),
    LATEST := TopicSpec("latest", "bounded", "compact", "forever", "public"),
    PROGRESS := TopicSpec("progress", "one", "compact,delete", "default", "public"),
)
PUBLISHED_KEYS = TopicSpec("published-keys", "one", "delete", "forever", "internal")
"""One more topic of a histogram, for strategies that need the published keys."""
TOP_TOPICS = (
    CANDIDATES := TopicSpec("candidates", "one", "delete", "forever", "internal"),
    RANK_CHANGELOG := TopicSpec("rank-changelog", "one", "delete", "forever", "internal"),
    TOP := TopicSpec("top", "one", "delete", "default", "public"),
)
"""More topics of a histogram with a ranking."""
ROLLING = TopicSpec("rolling", "bounded", "delete", "default", "public")
"""One more topic of a histogram with a rolling view."""
STREAM_TOPICS = (
    PRIVATE_STREAM := TopicSpec("private-stream", "raw", "delete", "forever", "public"),
    STREAM_CHANGELOG := TopicSpec("stream-changelog", "raw", "delete", "forever", "raw"),
    LEDGER,
    DEAD_LETTER,
)
LOCAL_TOPICS = (
    REPORTS := TopicSpec("reports", "by-user", "delete", "default", "internal"),
    REPORT_TOTALS := TopicSpec("report-totals", "one", "delete", "forever", "internal"),
    THRESHOLD := TopicSpec("threshold", "one", "compact", "forever", "public"),
    ESTIMATE := TopicSpec("estimate", "one", "delete", "forever", "public"),
    COLLECT_CHANGELOG := TopicSpec("collect-changelog", "by-user", "delete", "forever", "internal"),
    SERVER_CHANGELOG := TopicSpec("server-changelog", "one", "delete", "forever", "internal"),
    LEDGER,
    DEAD_LETTER,
)
