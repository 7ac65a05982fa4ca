"""Where an epoch begins in the raw topic: for the initializer of a pipeline (ledger.py), and for a new epoch
(agents/operations/new_epoch.py)."""

import time
from typing import Literal

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.ledger import Start

Origin = Literal["earliest", "latest"] | int
"""Of the first record to read; an int is an instant in ms, looked up by Kafka's stamps."""


def first_start(settings: Settings, clients: Clients, calendar: Calendar) -> Start:
    """The start of a new pipeline, as ``[start]`` says. Raises Refusal as `check_raw` does."""
    raw, origin, first = settings.input.topic, settings.start.from_, settings.start.first_window
    topic_id = clients.topic_id(raw)
    check_raw(settings, clients)
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
            f"topic={topic} has cleanup.policy=compact, so one user's record can delete another's, and no bound on one user's "
            "influence holds: feed the pipeline from a topic with cleanup.policy=delete"
        )
    for what, advice in settings.raw_topic_problems(found):
        raise Refusal(f"topic={topic} has {what}, so no epoch has begun and nothing is charged: {advice}")


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
