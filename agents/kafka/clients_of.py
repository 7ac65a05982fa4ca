"""Makes the clients of a pipeline: of its cluster, and of the one with its raw topics, where that is another (`[input.kafka]`)."""

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.requests import no_raw_topic
from susurrus.agents.kafka.two_clusters import TwoClusters


def clients_of(settings: Settings, *, quiet: bool = False) -> Clients:
    """The clients of a pipeline. quiet: as for `Clients`. Raises ConfigurationError as `librdkafka` does."""
    application, timeout = settings.application, settings.worker.transaction_timeout
    listed = {topic: no_raw_topic(settings, topic) for topic in settings.input.listed if settings.reads_raw}
    if settings.input.kafka is None:
        return Clients(
            librdkafka(settings.kafka),
            application=application,
            embedded=settings.kafka.embedded,
            transaction_timeout=timeout,
            quiet=quiet,
            raw=listed,
        )
    elsewhere = Clients(librdkafka(settings.input.kafka), application=application, quiet=quiet, raw=listed)
    return TwoClusters(
        librdkafka(settings.kafka),
        elsewhere=elsewhere,
        is_own=settings.is_own,
        application=application,
        transaction_timeout=timeout,
        quiet=quiet,
    )
