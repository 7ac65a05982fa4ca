"""The admin client of the commands."""

from confluent_kafka.admin import AdminClient

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings


def admin(settings: Settings) -> AdminClient:
    """An admin client for the pipeline's cluster. Raises ConfigurationError, soon, where that cannot be reached.

    Asking for a topic must not create it, as brokers with auto.create.topics.enable would; librdkafka's own log lines stay
    off the terminal but for failures.
    """
    from susurrus.agents.operations.probe import reach  # slow to load

    reach(settings)
    return AdminClient({**librdkafka(settings.kafka), "allow.auto.create.topics": False, "log_level": 3})
