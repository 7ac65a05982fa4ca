"""What every stage and task of a worker shares: configuration, clients, ledger, topic names.

Made once, in agents/runtime/worker.py.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.ledger import Ledger
from susurrus.mechanisms.histogram.calendar import Calendar

if TYPE_CHECKING:
    from susurrus.agents.histogram.feedback import PublishedKeys, PublishedKeysReader
    from susurrus.agents.histogram.public_progress import PublicProgress


@dataclass(frozen=True, slots=True)
class Services:
    """Read-only collaborators of the tasks."""

    settings: Settings
    clients: Clients
    ledger: Ledger
    calendar: Calendar
    config_digest: bytes
    secret: bytes
    strategy: Any
    published_keys: "PublishedKeys | None" = None
    """The keys that are published already, for strategies that need them."""
    published_keys_reader: "PublishedKeysReader | None" = None
    public_progress: "PublicProgress | None" = None
    """What has been published, for histograms: no state may be older."""

    def topic(self, name: str) -> str:
        """Full name of one of the pipeline's topics."""
        return self.settings.topic(name)

    @property
    def max_record_bytes(self) -> int:
        """Largest value put into one record of an internal topic; agents/kafka/topics.py sets the topics' limit above it."""
        return 900_000
