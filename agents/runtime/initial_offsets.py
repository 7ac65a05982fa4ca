"""Where an epoch begins in the raw topics: for the initializer of a pipeline (ledger.py), and for a new epoch
(agents/operations/new_epoch.py)."""

import logging
import time
from collections.abc import Sequence
from typing import Any, Literal

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.raw_topics import first_topics
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.ledger import Start
from susurrus.topics.sources import SourceMap

log = logging.getLogger(__name__)

Origin = Literal["earliest", "latest"] | int
"""Where the first record to read is; an int is an instant in ms, looked up by Kafka's stamps."""


def first_start(settings: Settings, clients: Clients, calendar: Calendar) -> Start:
    """The start of a new pipeline, as ``[start]`` says. Raises Refusal as `check_raw` does."""
    origin, first = settings.start.from_, settings.start.first_window
    topics = first_topics(settings, clients)
    topic_ids = {topic: clients.topic_id(topic) for topic in topics}
    check_start(settings, clients, topics)
    if first is None:
        first = int(time.time() * 1000) if isinstance(origin, str) else origin
    return Start(
        first_window=calendar.window_start(calendar.window_at(first)),
        origin=str(origin),
        topic_ids=topic_ids,
        **sources_from(clients, topics, origin),
    )


def check_raw(settings: Settings, clients: Clients, topic: str) -> None:
    """Raise Refusal where a raw topic can carry no guarantee, or all would be lost: before anything is charged."""
    found = clients.settings_of(topic)
    if "compact" in found.get("cleanup.policy", ""):
        raise Refusal(
            f"topic={topic} has cleanup.policy=compact, so one user's record can delete another's, and no bound on "
            "one user's influence holds",
            "feed the pipeline from a topic with cleanup.policy=delete",
        )
    for misfit in settings.raw_topic_findings(topic, found):
        raise Refusal(f"topic={topic} has {misfit.text}, so no epoch has begun and nothing is charged", misfit.action)


def check_start(
    settings: Settings,
    clients: Clients,
    topics: Sequence[str],
    *,
    now: int | None = None,
    first_window: int | None = None,
) -> None:
    """Raise Refusal where an epoch would publish nothing for its charges: as `check_raw`, and where its rows or its archive are
    deleted. topics: the raw ones. now: ms; None for the clock's. first_window: its start in ms; None for that of the settings."""
    for topic in topics:
        check_raw(settings, clients, topic)
    for misfit in settings.start_findings(int(time.time() * 1000) if now is None else now, first_window):
        raise Refusal(f"{misfit.text}, so no epoch has begun and nothing is charged", misfit.action)
    if not settings.reads_raw or settings.clock.until is None:  # live: old records go, and new ones come
        return
    _check_archive(clients, topics)


def _check_archive(clients: Clients, topics: Sequence[str]) -> None:
    places = [(topic, partition) for topic in topics for partition in range(clients.partitions(topic))]
    marks, named = [clients.watermarks(*place) for place in places], ", ".join(topics)
    if not any(end for _, end in marks):
        # No refusal: all records may be of one user, and whether a pipeline begins must not depend on them.
        log.warning(
            "topic=%s holds no record: nothing was ever written to it, and what is written from now on does not belong to the "
            "archive; if it should hold one, write it, and give the pipeline a new name",
            named,
        )
        return
    if all(low == end for low, end in marks):
        raise Refusal(
            f"topic={named} holds no record of the archive: there were some, up to "
            f"offset={max(end for _, end in marks)}, and they are deleted, by the topic's retention or by hand; so "
            "no epoch has begun and nothing is charged",
            "write the archive again, to a topic with retention.ms=-1",
        )
    if gone := [n for n, (low, _) in enumerate(marks) if low]:
        log.warning(
            "topic=%s: the first records of partition %d%s are deleted, up to offset %d; if they belong to the windows from "
            "start.first_window on, these windows lack them: write the archive again, to a topic with retention.ms=-1",
            *places[gone[0]], f" and {len(gone) - 1} more" if len(gone) > 1 else "", marks[gone[0]][0],
        )  # fmt: skip


def sources_from(clients: Clients, topics: Sequence[str], origin: Origin) -> dict[str, Any]:
    """The fields ``sources`` and ``offsets`` of a start: the partitions of the first topic come first, and so on."""
    sources, offsets = SourceMap(), dict[int, int]()
    for topic in topics:
        before, found = len(sources), raw_offsets(clients, topic, origin)
        sources = sources.grown(topic, len(found))
        offsets |= {before + partition: offset for partition, offset in found.items()}
    return {"sources": sources.runs, "offsets": offsets}


def raw_offsets(clients: Clients, topic: str, origin: Origin) -> dict[int, int]:
    """The first offset to read, by partition."""
    offsets: dict[int, int] = {}
    for partition in range(clients.partitions(topic)):
        low, high = clients.watermarks(topic, partition)
        if origin == "earliest":
            offsets[partition] = low
        elif origin == "latest":
            offsets[partition] = high
        else:
            offsets[partition] = clients.offset_at(topic, partition, int(origin))
    return offsets
