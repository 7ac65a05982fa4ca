"""The clients of a pipeline whose raw topics are on another cluster (`[input.kafka]`): every request goes where its topic is.

The topics of the pipeline, and the one with the charges, are on its own cluster, where everything is written. The other cluster is
only read. Which topic is where follows from its name alone: a raw topic never has the name of one of the pipeline's.
"""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from susurrus.agents.kafka.clients import Clients, TopicRecord
from susurrus.agents.kafka.offset import Offset


class TwoClusters(Clients):
    """Clients of the pipeline's own cluster, which pass requests about raw topics on to ``elsewhere``.

    is_own: whether a topic, by its full name, is on the own cluster. options: as for `Clients`.
    """

    def __init__(self, *args: Any, elsewhere: Clients, is_own: Callable[[str], bool], **options: Any) -> None:
        super().__init__(*args, **options)
        self._elsewhere = elsewhere
        self._is_own = is_own

    @property
    def raw(self) -> Clients:
        """Those of the other cluster."""
        return self._elsewhere

    def serve(self) -> None:
        """Serves both."""
        super().serve()
        self._elsewhere.serve()

    def close(self) -> None:
        """Closes both."""
        super().close()
        self._elsewhere.close()

    def topic_id(self, topic: str) -> str:
        """Answers as `Clients.topic_id`."""
        return super().topic_id(topic) if self._is_own(topic) else self._elsewhere.topic_id(topic)

    def settings_of(self, topic: str) -> dict[str, str]:
        """Answers as `Clients.settings_of`."""
        return super().settings_of(topic) if self._is_own(topic) else self._elsewhere.settings_of(topic)

    def partitions(self, topic: str) -> int:
        """Answers as `Clients.partitions`."""
        return super().partitions(topic) if self._is_own(topic) else self._elsewhere.partitions(topic)

    def partitions_to_read(self, topic: str) -> int:
        """Answers as `Clients.partitions_to_read`."""
        return super().partitions_to_read(topic) if self._is_own(topic) else self._elsewhere.partitions_to_read(topic)

    def watermarks(self, topic: str, partition: int) -> tuple[Offset, Offset]:
        """Answers as `Clients.watermarks`."""
        if self._is_own(topic):
            return super().watermarks(topic, partition)
        return self._elsewhere.watermarks(topic, partition)

    def ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Answers as `Clients.ends`, in one request for each cluster."""
        own, others = self._apart(places)
        return {**(super().ends(own) if own else {}), **(self._elsewhere.ends(others) if others else {})}

    def starts(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Answers as `Clients.starts`, in one request for each cluster."""
        own, others = self._apart(places)
        return {**(super().starts(own) if own else {}), **(self._elsewhere.starts(others) if others else {})}

    def newest(self, topic: str, partition: int) -> TopicRecord | None:
        """Answers as `Clients.newest`."""
        return super().newest(topic, partition) if self._is_own(topic) else self._elsewhere.newest(topic, partition)

    def offset_at(self, topic: str, partition: int, stamp: int) -> int:
        """Answers as `Clients.offset_at`."""
        if self._is_own(topic):
            return super().offset_at(topic, partition, stamp)
        return self._elsewhere.offset_at(topic, partition, stamp)

    def _apart(self, places: Sequence[TopicPartition]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        own = [place for place in places if self._is_own(place.topic)]
        return own, [place for place in places if not self._is_own(place.topic)]
