"""Where an epoch begins in the raw topic: for the initializer of a pipeline (ledger.py), and for a new epoch
(agents/operations/new_epoch.py)."""

import logging
import time
from typing import Literal

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.ledger import Start

log = logging.getLogger(__name__)

Origin = Literal["earliest", "latest"] | int
"""Where the first record to read is; an int is an instant in ms, looked up by Kafka's stamps."""


def first_start(settings: Settings, clients: Clients, calendar: Calendar) -> Start:
    """The start of a new pipeline, as ``[start]`` says. Raises Refusal as `check_raw` does."""
    raw, origin, first = settings.input.topic, settings.start.from_, settings.start.first_window
    topic_id = clients.topic_id(raw)
    check_start(settings, clients)
    if first is None:
        first = int(time.time() * 1000) if isinstance(origin, str) else origin
    return Start(
        first_window=calendar.window_start(calendar.window_at(first)),
        origin=str(origin),
        topic_id=topic_id,
        offsets=raw_offsets(clients, raw, origin),
    )


def check_raw(settings: Settings, clients: Clients) -> None:
    """Raise Refusal where the raw topic can carry no guarantee, or all would be lost: before anything is charged."""
    topic = settings.input.topic
    found = clients.settings_of(topic)
    if "compact" in found.get("cleanup.policy", ""):
        raise Refusal(
            f"topic={topic} has cleanup.policy=compact, so one user's record can delete another's, and no bound on "
            "one user's influence holds",
            "feed the pipeline from a topic with cleanup.policy=delete",
        )
    for misfit in settings.raw_topic_findings(found):
        raise Refusal(f"topic={topic} has {misfit.text}, so no epoch has begun and nothing is charged", misfit.action)


def check_start(
    settings: Settings, clients: Clients, *, now: int | None = None, first_window: int | None = None
) -> None:
    """Raise Refusal where an epoch would publish nothing for its charges: as `check_raw`, and where its rows or its archive are
    deleted. now: ms; None for the clock's. first_window: its start in ms; None for that of the settings."""
    check_raw(settings, clients)
    for misfit in settings.start_findings(int(time.time() * 1000) if now is None else now, first_window):
        raise Refusal(f"{misfit.text}, so no epoch has begun and nothing is charged", misfit.action)
    if not settings.reads_raw or settings.clock.until is None:  # live: old records go, and new ones come
        return
    topic = settings.input.topic
    marks = [clients.watermarks(topic, partition) for partition in range(clients.partitions(topic))]
    if not any(end for _, end in marks):
        # No refusal: all records may be of one user, and whether a pipeline begins must not depend on them.
        log.warning(
            "topic=%s holds no record: nothing was ever written to it, and what is written from now on does not belong to the "
            "archive; if it should hold one, write it, and give the pipeline a new name",
            topic,
        )
        return
    if all(low == end for low, end in marks):
        raise Refusal(
            f"topic={topic} holds no record of the archive: there were some, up to "
            f"offset={max(end for _, end in marks)}, and they are deleted, by the topic's retention or by hand; so "
            "no epoch has begun and nothing is charged",
            "write the archive again, to a topic with retention.ms=-1",
        )
    if gone := [partition for partition, (low, _) in enumerate(marks) if low]:
        log.warning(
            "topic=%s: the first records of partition %d%s are deleted, up to offset %d; if they belong to the windows from "
            "start.first_window on, these windows lack them: write the archive again, to a topic with retention.ms=-1",
            topic, gone[0], f" and {len(gone) - 1} more" if len(gone) > 1 else "", marks[gone[0]][0],
        )  # fmt: skip


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
