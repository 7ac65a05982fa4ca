"""The brokers: how many there are, and whether what they keep for transactions and groups survives the loss of one."""

from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from susurrus.agents.finding import Finding
from susurrus.agents.kafka.requests import REQUEST_SECONDS, answer_of
from susurrus.agents.kafka.topics import few_brokers
from susurrus.agents.runtime.pipeline import Pipeline

_KAFKAS: Final = {
    "__transaction_state": "transaction.state.log.replication.factor",
    "__consumer_offsets": "offsets.topic.replication.factor",
}
"""Kafka's own topics on which commits depend, and the brokers' setting with which they were made."""


def check_brokers(pipeline: Pipeline[Any], *, brokers: int) -> Iterator[Finding]:
    """Are there as many brokers as replicas are wanted?"""
    yield few_brokers(pipeline.settings, brokers) or Finding("brokers", "ok", f"{brokers} reached")


def check_coordinators(pipeline: Pipeline[Any], admin: AdminClient) -> Iterator[Finding]:
    """Do Kafka's own topics, on which commits depend, have replicas?"""
    wanted = pipeline.settings.topics.replication_factor
    answers = admin.describe_topics(TopicCollection(list(_KAFKAS)), request_timeout=REQUEST_SECONDS)
    for topic, setting in _KAFKAS.items():
        try:
            found = answer_of(answers[topic])
        except KafkaException as error:
            text = f"{error.args[0].name()}; it appears with the first transaction"
            yield Finding(topic, "unknown", text, "give this user Describe on it, to see it")
            continue
        replicas = min((len(partition.replicas) for partition in found.partitions), default=0)
        if replicas < min(2, wanted):
            yield Finding(
                topic,
                "warning",
                f"replicas: {replicas}, so nothing can be committed while its broker is away, and a lost disk loses it",
                f"add some (kafka-reassign-partitions.sh), and set {setting} on the brokers before it is made",
            )
        else:
            yield Finding(topic, "ok", f"replicas: {replicas}")
