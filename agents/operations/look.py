"""A look at the newest records of a raw topic: how they are written, which fields they have, and who stamps them.

newest records ──how they are written (sniffing.py)──▶ values, keys, headers ──▶ names and types of fields

`susurrus config init` asks with what it finds, `susurrus try` shows it. A look at data is outside the guarantee. So names and types
come out of it; one value of each field only for who asks for raw data.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaException, Message
from msgspec import UNSET

from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.keys import TEXT
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.messages import ReadRecord, record_of
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.key_layouts import keys_of
from susurrus.agents.operations.sniffing import values_of
from susurrus.agents.operations.whole_values import Layout
from susurrus.agents.planning.raw_topic import newest, records_of, stamp_type
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import BESIDE, ENVELOPE, Path, written
from susurrus.topics.records.reason import Reason

RECORDS: Final = 10
MEMBERS: Final = "[]"
"""Ends the name of a list whose members' fields are shown below it."""
_DEPTH: Final = 4
"""Objects inside objects, as deep as a person would name a field."""
_LEAVES: Final = 1_000
"""Fields of one record that are looked at."""
_NAMES: Final = 2_000
"""Fields that are told apart. A producer that uses data as names has more."""
_TYPES: Final = {
    str: "text",
    bool: "true or false",
    int: "number",
    float: "number",
    Decimal: "number",
    type(None): "null",
    list: "list",
    dict: "object",
    bytes: "bytes",
    datetime: "time",
}
_SINCE, _UNTIL = 946_684_800, 4_102_444_800
"""The years 2000 to 2099, in s."""
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([.,]\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_TIMES: Final = re.compile(r"(^|[._-])(ts|at|when|date|time)|time|stamp|created|occurred|updated|_at$|At$", re.I)


@dataclass(slots=True)
class FieldSeen:
    """One field. present: rows that have it, null or not. types: of what is not null. value: the first, for those who ask."""

    present: int = 0
    nulls: int = 0
    types: Counter[str] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    """What they would be as times: a name of _UNITS, "iso", "iso without a zone", or empty."""
    value: Any = None

    @property
    def type(self) -> str:
        """What it mostly is, and what else."""
        return " or ".join(name for name, _ in self.types.most_common(3)) or "null"

    def add(self, value: Any) -> None:
        """Note one more."""
        self.present += 1
        if value is None:
            self.nulls += 1
            return
        if not self.types:
            self.value = value
        self.types[_type_of(value)] += 1
        self.times[_time_of(value)] += 1


@dataclass(slots=True)
class Found:
    """What some records showed.

    rows: records, or the items of those that are lists. fields: by path, those of the value first, then what is beside it. layout,
    notes, sniffed: as SniffedValues has them. stamped: the type of the newest time stamp, as `Clock.accepts` has it; None without
    records. unread: values that the layout does not read. key_format: of keys, where there are any.
    """

    records: int = 0
    rows: int = 0
    tombstones: int = 0
    layout: Layout = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    fields: dict[Path, FieldSeen] = field(default_factory=dict)
    unread: Counter[Reason] = field(default_factory=Counter)
    key_format: str = TEXT.name
    sniffed: bool = True
    stamped: int | None = None

    @property
    def needs_registry(self) -> bool:
        """Whether the records name a registered schema whose fields are not known."""
        return "framing" in self.layout and "format" not in self.layout and bool(self.notes)

    def named(self) -> dict[str, FieldSeen]:
        """The fields as a file names them."""
        return {name_of(path): seen for path, seen in self.fields.items()}


def name_of(path: Path) -> str:
    """A path as a file writes it; of a member of a list with `[]` behind the list's name."""
    return written(path)


def newest_messages(clients: Clients, topic: str, records: int) -> list[Message]:
    """The last records of a topic. Raises ConfigurationError where it does not exist, KafkaException."""
    chosen = newest(clients, [topic], records)
    found: list[Message] = [message for some in records_of(clients, chosen, records) for message in some]
    return found[-records:]


def look(settings: Settings, records: int = RECORDS) -> Found:
    """Looks at the newest records of the raw topic. Takes some seconds at most.

    Raises ConfigurationError where the brokers cannot be reached, or there is no such topic.
    """
    reach_both(settings)
    clients = clients_of(settings, quiet=True)
    try:
        messages = newest_messages(clients, settings.input.topic, records)
    except KafkaException as error:
        raise ConfigurationError(
            f"input.topic: its records cannot be read ({error.args[0].name()})",
            "see to the rights, or name the fields yourself",
        ) from None
    finally:
        clients.close()
    found = seen_in([record_of(message) for message in messages], settings.input.registry)
    if messages:
        found.stamped = stamp_type(max(messages, key=lambda message: message.timestamp()[1]))
    return found


def seen_in(
    records: Sequence[ReadRecord], registry: RegistrySettings | None, given: InputSettings | None = None
) -> Found:
    """What records show. registry: where their schemas are, if anywhere. given: `[input]` of a file, as `values_of` takes it. Never
    raises for what a record holds."""
    values = values_of(records, registry, given)
    found = Found(records=len(records), layout=values.layout, notes=values.notes, sniffed=values.sniffed)
    found.tombstones = sum(record.value is None for record in records)
    for value, around in zip(values.values, values.around, strict=True):
        if isinstance(value, Reason):
            found.unread[value] += 1
            continue
        for item in value if "each" in values.layout and isinstance(value, list) else [value]:
            if isinstance(item, Reason):
                found.unread[item] += 1
                continue
            found.rows += 1
            _note(found, paths_in(item))
        # An envelope may have the value itself among what is around it.
        beside = {name: inner for name, inner in around.items() if inner is not None and inner is not value}
        if beside:
            _note(found, paths_in(beside, ENVELOPE))
    found.key_format, keys = keys_of(records, registry, None if given is None else given.key_format)
    for key in keys:
        if key is not None and key is not UNSET:
            _note(found, paths_in(key, (BESIDE, "key")))
    for record in records:
        _note(found, (((BESIDE, "headers", name), _text(value)) for name, value in dict(record.headers).items()))
    found.fields = dict(sorted(found.fields.items(), key=lambda entry: entry[0][:1] == (BESIDE,)))
    return found


def _note(found: Found, paths: Iterator[tuple[Path, Any]]) -> None:
    for path, value in islice(paths, _LEAVES):
        if path in found.fields or len(found.fields) < _NAMES:
            found.fields.setdefault(path, FieldSeen()).add(value)


def paths_in(value: Any, prefix: Path = (), depth: int = _DEPTH) -> Iterator[tuple[Path, Any]]:
    """The paths of what is no object, and what is there. A value that is none has the path of the whole value."""
    if not isinstance(value, Mapping) or not value or not depth:
        yield prefix or (BESIDE, "value"), value
        return
    for name, inner in value.items():
        if not isinstance(name, str) or not name:
            continue
        path = (*prefix, name)
        if isinstance(inner, list) and inner and isinstance(inner[0], Mapping) and depth > 1:
            yield path, inner
            yield from paths_in(inner[0], (*path[:-1], name + MEMBERS), depth - 1)
        else:
            yield from paths_in(inner, path, depth - 1)


def _text(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _type_of(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "list of objects"
    return _TYPES.get(type(value), "other")


def _time_of(value: Any) -> str:
    if isinstance(value, str):
        match = _ISO.fullmatch(value[:64])
        return "" if match is None else "iso" if match["zone"] else "iso without a zone"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return next((unit for unit, per in _UNITS.items() if _SINCE * per <= value < _UNTIL * per), "")
    return ""


def times_in(found: Found) -> dict[str, Layout]:
    """Fields that seem to hold the event time, and the entries of `[input]` with which they are read."""
    times: dict[str, Layout] = {}
    for path, seen in found.fields.items():
        kinds = list(seen.times)
        if len(kinds) != 1 or not kinds[0] or path[-1].endswith(MEMBERS):
            continue
        [kind] = kinds
        if kind in _UNITS and not _TIMES.search(path[-1]):
            continue  # a number of that size may be anything
        layout: Layout = {"time_unit": "iso" if kind not in _UNITS else kind}
        if kind == "iso without a zone":
            layout["time_zone"] = "UTC"
        times[name_of(path)] = layout
    return times
