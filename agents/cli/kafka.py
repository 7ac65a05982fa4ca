"""The admin client of the commands."""

from confluent_kafka.admin import AdminClient
from susurrus.agents.settings import Settings


def admin(settings: Settings) -> AdminClient:
    """An admin client for the pipeline's cluster; librdkafka's own log lines stay off the terminal but for failures."""
    return AdminClient({**settings.librdkafka(), "log_level": 3})
