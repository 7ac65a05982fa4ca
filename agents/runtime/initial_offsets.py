"""The first offsets of an epoch in the raw topic: for the initializer of a pipeline (ledger.py), and for a new epoch
(agents/operations/new_epoch.py)."""

from typing import Literal

from susurrus.agents.kafka.clients import Clients
from susurrus.mechanisms.errors import Refusal

Origin = Literal["earliest", "latest"] | int
"""Of the first record to read; an int is an instant in ms, looked up by Kafka's stamps."""


def check_raw(clients: Clients, topic: str) -> None:
    """Raise Refusal where the raw topic cannot carry any guarantee."""
    if "compact" in clients.cleanup_policy(topic):
        raise Refusal(
            f"topic={topic} has cleanup.policy=compact, so one user's record can delete another's, and no bound on one user's "
            "influence holds: feed the pipeline from a topic with cleanup.policy=delete"
        )


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
