"""The input partition of a task, held against the position that its changelog keeps: never skip, never start over."""

import time

from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import Refusal


class InputLog:
    """One input partition. Used by the task's thread only; every method raises KafkaException where Kafka does not answer."""

    def __init__(self, services: Services, topic: str, partition: int) -> None:
        self._services = services
        self._topic = topic
        self._partition = partition
        self._looked_at = 0.0
        self.topic_id = ""
        """Which life of the topic the task reads, once `open` was called."""

    def open(self) -> None:
        """Learn which life of the topic there is."""
        self.topic_id = self._services.clients.topic_id(self._topic)

    def start(self) -> int:
        """The first offset that is still there."""
        return self._services.clients.watermarks(self._topic, self._partition)[0]

    def look(self, position: int, after: float) -> None:
        """Do `check` with the topic as it is now, if the last look was more than ``after`` seconds ago."""
        if time.monotonic() > self._looked_at + after:
            self._looked_at = time.monotonic()
            self.check(position, self._services.clients.topic_id(self._topic))

    def check(self, position: int, topic_id: str) -> None:
        """Raise Refusal where the position does not exist in this very log."""
        topic, partition, ledger = self._topic, self._partition, self._services.ledger
        if topic_id != self.topic_id:
            raise Refusal(
                f"topic={topic} was recreated (topic_id={self.topic_id}, the changelog knows {topic_id}): "
                f"restore the old topic as it was, or {ledger.way_out}"
            )
        start, end = self._services.clients.watermarks(topic, partition)
        if position < start:
            raise Refusal(
                f"topic={topic} partition={partition} starts at offset={start}, but position={position} is "
                f"still to be read, since retention ate unread records: raise its retention, and {ledger.way_out}"
            )
        if position > end:
            raise Refusal(
                f"topic={topic} partition={partition} ends at offset={end} before position={position}, so "
                f"the log was truncated: restore it as it was at the last commit, or {ledger.way_out}"
            )
