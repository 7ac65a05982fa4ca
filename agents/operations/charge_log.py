"""Reads the log of charges for commands: the charges on a pipeline's raw topics, or a sentence that says why there are none."""

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import error_of
from susurrus.agents.kafka.access import Right
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.operations.rights import missing_right
from susurrus.agents.runtime.budget import Charges
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.charges import Charge
from susurrus.topics.wire.packing import MalformedRecord


def read_charges(settings: Settings, clients: Clients, raw_topics: Sequence[str]) -> list[Charge] | None:
    """What all pipelines of the cluster charged to the raw topics, in the order of the log; None where there is no such log yet.

    Raises ConfigurationError where it cannot be read.
    """
    charges = Charges(settings, clients, lambda: raw_topics)
    try:
        return charges.read(complete=False) if clients.partitions(charges.topic) else None
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        right = Right("topic", charges.topic, (AclOperation.READ, AclOperation.DESCRIBE))
        missing = missing_right(settings, "Read", f'topic="{charges.topic}"', right)
        raise error_of([missing]) from None
    except MalformedRecord as error:
        raise ConfigurationError(
            f'topic="{charges.topic}": holds a record that is no charge ({error}), and a record of a newer version is one of them',
            "use the version that wrote it, or find out who else writes to this topic",
        ) from None
