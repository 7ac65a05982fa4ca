"""The properties of Kafka's clients: can the clients be made, on this machine?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from susurrus.agents.config import kafka_properties
from susurrus.agents.finding import Finding
from susurrus.agents.kafka import profiles
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError


def check_properties(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Do librdkafka and aiokafka take the properties together? Nothing connects."""
    settings = pipeline.settings
    refused = list(stops(profiles.refusals(settings)))
    if not refused:
        try:
            for kafka in settings.clusters:
                kafka_properties.load_files(kafka)
        except ConfigurationError as error:
            refused.append(Finding.of(error, "kafka.properties"))
    yield from refused
    yield from profiles.findings(settings)
    if not refused:
        yield Finding("kafka.properties", "ok", "every client can be made with them")


def stops(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The same of the machine where workers run: what another machine may have is a failure here."""
    return (replace(one, level="failure") for one in findings)
