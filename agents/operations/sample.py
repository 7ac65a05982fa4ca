"""A look at a few records of a raw topic: which fields they have, and who stamps them. Values stay where they are.

`susurrus config init` asks with what it finds. A look at data is outside the guarantee, so only names and types come out of it.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, TopicPartition

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.framing import MAGIC, PREFIX
from susurrus.agents.histogram.clock import CREATE_TIME, LOG_APPEND_TIME
from susurrus.agents.kafka.clients import Clients, clients_of
from susurrus.agents.operations.brokers import reach
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import escaped

RECORDS: Final = 10
_SECONDS: Final = 5.0
_STAMPED: Final = {TIMESTAMP_LOG_APPEND_TIME: LOG_APPEND_TIME}
_DEPTH: Final = 4
"""Objects inside objects, as deep as a person would name a field."""
_TYPES: Final = {str: "text", bool: "true or false", int: "number", float: "number", type(None): "null", list: "list"}


@dataclass(slots=True)
class Found:
    """What some records showed.

    fields: types by dotted path. seen: how many records had the path. values: the first of each path, for those who ask for them.
    stamped: the type of the newest time stamp, as `Clock.accepts` has it; None without records. coded: records in Confluent's wire
    format.
    """

    records: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    values: dict[str, Any] = field(default_factory=dict)
    stamped: int | None = None
    coded: int = 0


def look(settings: Settings) -> Found:
    """The fields of the newest records of the raw topic, at most ten. Takes some seconds at most.

    Raises ConfigurationError where the brokers or the registry cannot be reached, or there is no such topic.
    """
    reach(settings)
    clients = clients_of(settings, quiet=True)
    found = Found()
    try:
        for value, stamped in _newest(clients, settings.input.topic):
            found.records += 1
            found.stamped = stamped
            if value[:1] == MAGIC and len(value) >= PREFIX:
                found.coded += 1
                _registered(settings, int.from_bytes(value[1:PREFIX], "big"), found)
                continue
            with contextlib.suppress(ValueError):
                record = json.loads(value)
                for path, one in _paths(record):
                    found.fields.setdefault(path, _TYPES.get(type(one), "other"))
                    if found.fields[path] == "null":
                        found.fields[path] = _TYPES.get(type(one), "other")
                    found.values.setdefault(path, one)
                    found.seen[path] += 1
    except KafkaException as error:
        raise ConfigurationError(
            f"input.topic: its records cannot be read ({error.args[0].name()})",
            "see to the rights, or name the fields yourself",
        ) from None
    finally:
        clients.close()
    return found


def _newest(clients: Clients, topic: str) -> Iterator[tuple[bytes, int]]:
    """(value, type of time stamp) of the last records of each partition, until there are ten."""
    partitions = clients.partitions(topic)
    if not partitions:
        raise ConfigurationError(f'input.topic = "{topic}": there is no such topic', "correct the name, or create it")
    ends = {p: clients.watermarks(topic, p) for p in range(partitions)}
    places = [TopicPartition(topic, p, max(low, high - RECORDS)) for p, (low, high) in ends.items() if high > low]
    left, until, given = len(places), time.monotonic() + _SECONDS, 0
    if not places:
        return
    with contextlib.closing(clients.reader("look")) as consumer:
        consumer.assign(places)
        while left and given < RECORDS and time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                left -= 1  # the end of a partition
            elif message.value():
                given += 1
                yield message.value(), _STAMPED.get(message.timestamp()[0], CREATE_TIME)


def _paths(value: Any, prefix: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Dotted paths of what is no object, and what is there."""
    if not isinstance(value, Mapping):
        return
    for name, inner in value.items():
        path = prefix + escaped(name)
        if isinstance(inner, Mapping) and depth > 1:
            yield from _paths(inner, f"{path}.", depth - 1)
        else:
            yield path, inner


_AVRO: Final = {
    "string": "text",
    "int": "number",
    "long": "number",
    "float": "number",
    "double": "number",
    "boolean": "true or false",
}


def _registered(settings: Settings, schema_id: int, found: Found) -> None:
    """The fields of a record's schema, where there is a registry and the schema is Avro's."""
    registry = settings.input.registry
    if registry is None:
        return
    try:
        with registry.client("input.registry") as client:
            registered = client.get_schema(schema_id)
            if registered.schema_type != "AVRO":
                raise ConfigurationError(
                    f"input.format: the schema of the topic's records is {registered.schema_type}",
                    "name the fields yourself, and set input.format and its setting in the file (docs/topics.md)",
                )
            schema = json.loads(registered.schema_str)
    except ConfigurationError:
        raise
    except (
        Exception
    ) as error:  # the HTTP client, TLS and proxies raise many types; the text may hold an address with a password
        raise ConfigurationError(
            f"input.registry: has no Avro schema for the topic's records ({type(error).__name__})",
            "correct input.registry.url, or name the fields yourself",
        ) from None
    for path, kind in _schema_fields(schema):
        found.fields[path] = kind
        found.seen[path] += 1


def _schema_fields(schema: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for one in schema.get("fields", ()) if isinstance(schema, Mapping) else ():
        kind = one["type"]
        if isinstance(kind, list):  # a union with null
            kind = next((part for part in kind if part != "null"), "null")
        path = prefix + one["name"]
        if isinstance(kind, Mapping) and kind.get("type") == "record":
            yield from _schema_fields(kind, f"{path}.")
        else:
            name = kind.get("type") if isinstance(kind, Mapping) else kind
            yield path, _AVRO.get(str(name), "other")
