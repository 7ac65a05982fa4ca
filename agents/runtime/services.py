"""What every stage and task of a worker shares: configuration, clients, ledger, topic names.

Made once, by Pipeline.services.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic

from typing_extensions import TypeVar  # with a default, which typing has since Python 3.13

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.ledger import Ledger
from susurrus.agents.runtime.publisher import Publisher
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.noise import NoiseSource

S = TypeVar("S", bound=Settings, default=Settings, covariant=True)


@dataclass(frozen=True, slots=True)
class Services(Generic[S]):
    """Read-only collaborators of the tasks. A kind whose stages share more extends it."""

    settings: S
    clients: Clients
    ledger: Ledger
    calendar: Calendar
    config_digest: bytes
    secret: bytes
    publisher: Publisher = field(default_factory=Publisher, kw_only=True)
    """Writes the rows of public topics; without one of its own, as plain JSON. Only a worker has one."""

    def noise_source(self) -> NoiseSource:
        """The noise of this pipeline in this epoch, under this configuration."""
        return NoiseSource(
            self.secret,
            epoch=bytes.fromhex(self.ledger.epoch),
            config=self.config_digest,
            pipeline=self.settings.pipeline.name,
        )

    def topic(self, name: str) -> str:
        """Full name of one of the pipeline's topics."""
        return self.settings.topic(name)

    @property
    def max_record_bytes(self) -> int:
        """Largest value put into one record of an internal topic; agents/kafka/topics.py sets the topics' limit above it."""
        return 900_000

    def superseded(self) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, offset): records below it may be deleted. Inputs and changelogs of stages are not among them."""
        return iter(())

    def close(self) -> None:
        """Close what the services hold beyond the ledger and the clients."""
