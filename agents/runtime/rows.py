"""Follow the rows of a public topic whose rows are complete one by one: streams, and estimates of local reports.

A histogram's release has many rows, and is complete when all are there: agents/histogram/releases.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from confluent_kafka import TopicPartition

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.frames import Tabular
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.follow import Follower
from susurrus.agents.kafka.requests import REQUEST_SECONDS
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.wire.packing import MalformedRecord

Start = Literal["start", "now"]
Row = TypeVar("Row")
Made = TypeVar("Made", bound=Tabular)


class ReleaseSource(Protocol):
    """What a pipeline publishes, release by release."""

    @property
    def caught_up(self) -> bool:
        """Whether all that was there has been returned."""

    def poll(self, timeout: float) -> Sequence[Tabular]:
        """What has come since the last call; waits up to ``timeout`` seconds for something."""

    def skips(self, window: int) -> bool:
        """Whether a window (start in ms) is skipped, as far as that is read: nothing of it is published."""

    def close(self) -> None:
        """Leave the brokers."""


class RowReader(Generic[Row, Made]):
    """Follows one topic, read_committed, without a group. Use as a context manager; not thread-safe.

    decode: from a row's JSON; raises MalformedRecord. make: from the rows that came together. start: "start" reads what the topic
    holds, "now" what becomes visible from here on. Raises ConfigurationError where the topic is missing.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        decode: Callable[[bytes], Row],
        make: Callable[[tuple[Row, ...]], Made],
        start: Start,
    ) -> None:
        self._decode, self._make = decode, make
        self._json = reader_of(settings.output, settings.schemas[topic], settings.namespace)
        self._clients = clients_of(settings, quiet=True)
        self._consumer = self._clients.reader("releases", lost="earliest")
        try:
            places = [(topic, partition) for partition in range(self._clients.partitions_to_read(topic))]
            self._follower = Follower(
                self._consumer, {place: self._end(*place) if start == "now" else 0 for place in places}
            )
        except BaseException:
            self.close()
            raise

    def _end(self, topic: str, partition: int) -> int:
        """The end of a partition as read_committed readers see it."""
        place = TopicPartition(topic, partition)
        return int(self._consumer.get_watermark_offsets(place, timeout=REQUEST_SECONDS)[1])

    @property
    def caught_up(self) -> bool:
        """Whether each partition was read to its end."""
        return self._follower.caught_up

    def skips(self, window: int) -> bool:
        """Never: rows are of no window."""
        return False

    def poll(self, timeout: float) -> list[Made]:
        """The rows that came, as one release, or none.

        Raises KafkaException for what the client does not recover from by itself, Refusal for a record that is none of ours.
        """
        rows = []
        for message in self._follower.read(timeout):
            value: Any = message.value()
            try:
                rows.append(self._decode(self._json(value or b"")))
            except MalformedRecord as error:
                place = f"topic={message.topic()} partition={message.partition()} offset={message.offset()}"
                raise Refusal(f"{place}: {error}", "find out who else writes to it") from error
        return [self._make(tuple(rows))] if rows else []

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()
        self._clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
