"""Checks that the input partition of a task still holds the position in the changelog: no record is skipped, none read twice."""

import time
from dataclasses import dataclass, field

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import Refusal


@dataclass(eq=False)
class InputLog:
    """One input partition. Used by the task's thread only; every method raises KafkaException where Kafka does not answer."""

    services: Services
    topic: str
    partition: int
    topic_id: str = field(default="", init=False)
    """Which life of the topic the task reads, once `open` was called."""
    end: Offset = field(default=Offset(0), init=False)
    """The end of the log at the last look, records of open transactions included."""
    _looked_at: float = field(default=0.0, init=False)

    def open(self) -> None:
        """Learn which life of the topic there is."""
        self.topic_id = self.services.clients.topic_id(self.topic)

    def start(self) -> Offset:
        """The first offset that is still there."""
        return self.services.clients.watermarks(self.topic, self.partition)[0]

    def look(self, position: int, after: float) -> None:
        """Call `check` with the present topic id, if the last look was more than ``after`` seconds ago."""
        if time.monotonic() > self._looked_at + after:
            self._looked_at = time.monotonic()
            self.check(position, self.services.clients.topic_id(self.topic))

    def check(self, position: int, topic_id: str) -> None:
        """Raise Refusal if the position does not exist in this life of the topic."""
        topic, partition, ledger = self.topic, self.partition, self.services.ledger
        if topic_id != self.topic_id:
            raise Refusal(
                f"topic={topic} was recreated (topic_id={self.topic_id}, the changelog knows {topic_id})",
                f"restore the old topic as it was, or {ledger.way_out}",
            )
        start, end = self.services.clients.watermarks(topic, partition)
        self.end = end
        if position < start:
            raise Refusal(
                f"topic={topic} partition={partition} starts at offset={start}, but position={position} is still to "
                "be read, since retention ate unread records",
                f"raise its retention, and {ledger.way_out}",
            )
        if position > end:
            raise Refusal(
                f"topic={topic} partition={partition} ends at offset={end} before position={position}, so the log "
                "was truncated",
                f"restore it as it was at the last commit, or {ledger.way_out}",
            )
