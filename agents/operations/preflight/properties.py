"""The properties of Kafka's clients: can the clients be made, on this machine?"""

from collections.abc import Iterator
from typing import Any

from susurrus.agents.config import kafka_properties
from susurrus.agents.finding import Finding
from susurrus.agents.kafka import profiles
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError


def check_properties(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Do librdkafka and aiokafka take the properties together? Nothing connects."""
    settings = pipeline.settings
    refused = [one.text for one in profiles.refusals(settings)]
    if not refused:
        try:
            kafka_properties.load_files(settings.kafka)
        except ConfigurationError as error:
            refused.append(str(error))
    for text in refused:
        yield Finding("kafka.properties", "failure", text)
    for note in profiles.notes(settings):
        yield Finding("kafka.properties", "warning", note)
    if not refused:
        yield Finding("kafka.properties", "ok", "every client can be made with them")
