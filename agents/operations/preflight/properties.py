"""The properties of Kafka's clients: can the clients be made, on this machine?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from susurrus.agents.finding import Finding
from susurrus.agents.kafka import profiles
from susurrus.agents.runtime.pipeline import Pipeline


def check_properties(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Do librdkafka and aiokafka take the properties together? Nothing connects."""
    settings = pipeline.settings
    refused = profiles.refusals(settings)
    if not refused and (files := profiles.files_refused(settings)) is not None:
        refused = [files]
    yield from stops(refused)
    yield from profiles.findings(settings)
    if not refused:
        yield Finding("kafka.properties", "ok", "every client can be made with them")


def stops(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The same of the machine where workers run: what another machine may have is a failure here."""
    return (replace(one, level="failure") for one in findings)
