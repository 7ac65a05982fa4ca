"""The embedded broker: librdkafka's own, inside this process, for ``susurrus demo`` and for tests without a cluster.

It speaks the real protocol over loopback and needs nothing installed, but it guarantees little. Topics appear when first named,
with four partitions each. Aborted records are not filtered, and old producers are not fenced. The broker never stamps its time.
Topic ids are unknown. The oldest data of a partition is dropped beyond 5 MiB or 100,000 records. It ends with the process. So it
shows what Susurrus does, and proves nothing about exactly-once.
"""

from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

from susurrus.mechanisms.errors import SusurrusError

PARTITIONS: Final = 4
"""Partitions of every topic; the broker's own default, which it does not let us choose."""
_START_SECONDS: Final = 10.0


class EmbeddedBroker:
    """A running broker, until ``close``. ``bootstrap_servers`` is its address on the loopback interface.

    Raises SusurrusError when it does not come up.
    """

    def __init__(self) -> None:
        # The producer is only the handle that keeps the broker's thread alive; the name given here is never resolved.
        # log_level 2 (critical): otherwise every client that disconnects is a line on the terminal.
        self._handle: Producer | None = Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "embedded", "log_level": 2}
        )
        try:
            brokers = self._handle.list_topics(timeout=_START_SECONDS).brokers.values()
        except KafkaException as error:
            raise SusurrusError(f"the embedded broker did not start ({error.args[0].name()}); try again") from None
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create(self, topic: str) -> int:
        """Make a topic appear, if it does not exist; returns the number of its partitions."""
        if self._handle is None:
            raise SusurrusError("the embedded broker is closed; start another one")
        return len(self._handle.list_topics(topic, timeout=_START_SECONDS).topics[topic].partitions)

    def close(self) -> None:
        """Stop the broker and forget everything it held."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
