"""Checks of `[kafka.properties]`: what Susurrus, aiokafka or librdkafka refuses, one line each, with the fix and without a value.

Each property is offered to librdkafka alone, without connecting, so the line names it. agents/kafka/profiles.py makes the clients
that a worker makes, with all properties together.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, libversion

from susurrus.agents.config import kafka_tokens
from susurrus.agents.config.kafka_names import CHOICES, CONSUMERS, EVERY_CLIENT, KNOWN, SORTED
from susurrus.agents.config.kafka_owned import JAVA, OWNED, PROGRAMS, WITHOUT_EFFECT
from susurrus.agents.config.kafka_properties import INTEGERS, TRANSLATED, is_true, mechanism_of, protocol_of, whole
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.finding import Finding
from susurrus.agents.logs import SILENT
from susurrus.agents.types.one_of import nearest

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", *kafka_tokens.MECHANISMS)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NOT_HERE: Final = "belongs to programs, not to a configuration; leave it out"


def problems(kafka: ClusterSettings) -> list[str]:
    """What is wrong with each property of a cluster alone, one line each; never a value, which may be a password.

    An empty text stands for a secret that is on other machines.
    """
    found = [f"{place(name)}{problem}" for name, problem in _refused(kafka.properties, kafka.bootstrap_servers)] or [
        f"{place(name)}: {problem}"
        for name, value in kafka.properties.items()
        if value != "" and (problem := librdkafka_refuses(name, value)) is not None
    ]
    return [kafka.named(line) for line in found]


def place(name: str) -> str:
    """A property as messages name it."""
    return f'kafka.properties."{name}"'


def of_section(kafka: ClusterSettings, found: Finding) -> Finding:
    """A finding about a cluster's settings, with the section that they are in."""
    subject, text, action = map(kafka.named, (found.subject, found.text, found.action))
    return replace(found, subject=subject, text=text, action=action)


def _refused(properties: Mapping[str, Any], servers: str) -> Iterator[tuple[str, str]]:
    """Names of properties, and what we refuse about them."""
    protocol, mechanism = protocol_of(properties), mechanism_of(properties)
    for name in properties:
        if name in OWNED:
            yield name, f": leave it out; {OWNED[name]}"
        elif name in PROGRAMS:
            yield name, f": {_NOT_HERE}"
        elif name in JAVA:
            yield name, f": {JAVA[name]}"
    if not is_true(properties.get("api.version.request", True)):
        yield "api.version.request", ": leave it out; without the brokers' versions there are no transactions"
    for name in INTEGERS:
        if properties.get(name, "") != "" and whole(properties[name]) is None:
            yield name, ": write a whole number"
    if protocol not in _PROTOCOLS:
        yield "security.protocol", f' = "{protocol}": use one of {", ".join(_PROTOCOLS)}'
    if not protocol.startswith("SASL"):
        if any(name.startswith("sasl.") for name in properties):
            yield "security.protocol", ": is missing; set SASL_SSL (or SASL_PLAINTEXT) for sasl.* to count"
    elif mechanism not in _MECHANISMS:
        use = f"use one of {', '.join(_MECHANISMS)}, or mutual TLS (security.protocol=SSL)"
        yield "sasl.mechanism", f' = "{mechanism}": {use}'
    elif mechanism in kafka_tokens.MECHANISMS:
        yield from kafka_tokens.problems(mechanism, properties, servers)
    elif mechanism != "GSSAPI":
        for name in ("sasl.username", "sasl.password"):
            if name not in properties:
                yield name, f": is missing; {mechanism} needs it"


def librdkafka_refuses(name: str, value: Any) -> str | None:
    """Why librdkafka does not take the property, with the fix; None where it does. A file that it names is not read."""
    try:
        Producer({name: value}, logger=SILENT)  # without servers: it connects to nothing
    except (TypeError, ValueError, AttributeError):  # names of confluent-kafka's own, for functions
        return _NOT_HERE
    except KafkaException as error:
        text = str(error.args[0].str())
        if text.startswith("No such configuration property"):
            return f"librdkafka has no such property; {nearest(name, KNOWN)}"
        if "must be set through dedicated" in text or "requires a callable" in text:
            return _NOT_HERE
        if text.startswith("dlopen()"):
            return "librdkafka cannot load this library; correct its path, or leave it out"
        if limits := re.search(r"outside allowed range (\S+?)\.\.(\S+)", text):
            return f"librdkafka takes {limits[1]} to {limits[2]}; correct the value"
        if text.startswith("Expected bool value"):
            return "write true or false"
        if text.startswith("Invalid value for"):
            return "librdkafka does not take this value; write a number"
        if text.startswith(("Invalid value", "Configuration property")) and "needs" not in text:
            use = f"use one of {CHOICES[name]}" if name in CHOICES else "correct it"
            return f"librdkafka does not take this value; {use}"
    return None


def without_effect(properties: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Properties that change nothing, why, and what to do; also those that librdkafka takes and Susurrus does not know."""
    for name in properties:
        if name in WITHOUT_EFFECT:
            yield name, f"has no effect; {WITHOUT_EFFECT[name]}", "leave it out"
        elif name not in SORTED:
            yield (
                name,
                f"is passed on to librdkafka {libversion()[0]}, but Susurrus does not know what it does there",
                "try it first",
            )


def not_translated(properties: Mapping[str, Any]) -> list[str]:
    """Properties of consumers that the consumer of the raw topic has no setting for; all other consumers follow them."""
    return sorted(name for name in properties if name in EVERY_CLIENT | CONSUMERS and name not in TRANSLATED)
