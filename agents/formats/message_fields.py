"""A Protobuf message as nested dicts by field name, as far as some paths need it.

A field with presence that is not set is absent; a scalar without presence has Protobuf's default. Repeated fields are lists, maps
are dicts by the text of their key. Enum values are their names, and numbers where they have none. Of the well-known types,
Timestamp is a datetime, Duration a number of seconds, a wrapper (StringValue, …) its value or absent, and Struct, Value and
ListValue are what they stand for in JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from susurrus.topics.records.fields import BESIDE, Path

Tree = Mapping[str, Any]
"""Names of fields, and the same below each; None where all of it is wanted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS: Final = 1_000_000_000


def tree_of(paths: Sequence[Path]) -> Tree | None:
    """What `message_fields` must read for paths; None for all."""
    tree: dict[str, Any] = {}
    for path in paths:
        if not path:
            return None
        if path[0] == BESIDE:
            continue
        node: dict[str, Any] | None = tree
        for name in path[:-1]:
            node = None if node is None else node.setdefault(name, {})
        if node is not None:
            node[path[-1]] = None
    return tree


def message_fields(message: Any, wanted: Tree | None = None) -> dict[str, Any]:
    """The fields of a message. Raises ValueError where a value is in no range of its type."""
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        below = None
        if wanted is not None:
            if field.name not in wanted:
                continue
            below = wanted[field.name]
        if not field.is_repeated:
            if not field.has_presence or message.HasField(field.name):
                fields[field.name] = _value(field, getattr(message, field.name), below)
        elif is_map(field):
            of = field.message_type.fields_by_name["value"]
            entries = getattr(message, field.name).items()
            fields[field.name] = {
                _text(key): _value(of, value, None if below is None else below[_text(key)])
                for key, value in entries
                if below is None or _text(key) in below
            }
        else:
            fields[field.name] = [_value(field, value, None) for value in getattr(message, field.name)]
    return fields


def fields_reader(descriptor: Any, wanted: Tree | None) -> Callable[[Any], dict[str, Any]]:
    """Reads messages of one type as `message_fields` does. Where only plain scalars are wanted, it asks what they are once."""
    if wanted is None:
        return message_fields
    fields = [field for field in descriptor.fields if field.name in wanted]
    if any(field.is_repeated or field.message_type is not None or field.enum_type is not None for field in fields):
        return lambda message: message_fields(message, wanted)
    plain = [(field.name, field.has_presence) for field in fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: getattr(message, name) for name, has_presence in plain if not has_presence or message.HasField(name)
        }

    return read


def is_map(field: Any) -> bool:
    """Whether a field's descriptor is a map's."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_scalar(descriptor: Any) -> bool:
    """Whether a message is read as one value: an instant, a duration, or a wrapper such as StringValue."""
    name = descriptor.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return True
    wraps = name.startswith("google.protobuf.") and name.endswith("Value")
    return wraps and "value" in descriptor.fields_by_name


def is_open(descriptor: Any) -> bool:
    """Whether a message may have any fields, as an object of JSON."""
    return descriptor.full_name in ("google.protobuf.Struct", "google.protobuf.Value")


def is_list(descriptor: Any) -> bool:
    """Whether a message is read as a list."""
    return bool(descriptor.full_name == "google.protobuf.ListValue")


def _value(field: Any, value: Any, wanted: Tree | None) -> Any:
    if field.message_type is not None:
        known = _KNOWN.get(field.message_type.full_name)
        if known is not None:
            return known(value)
        return value.value if is_scalar(field.message_type) else message_fields(value, wanted)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _text(key: Any) -> str:
    """As Protobuf's JSON writes a key of a map."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _instant(message: Any) -> datetime:
    if not 0 <= message.nanos < _NANOS:
        raise ValueError("no instant")
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError as error:
        raise ValueError("no instant of the years 1 to 9999") from error


def _seconds(message: Any) -> int | float:
    if abs(message.nanos) >= _NANOS or message.seconds * message.nanos < 0:
        raise ValueError("no duration")
    # One rounding of the exact quotient.
    return (message.seconds * _NANOS + message.nanos) / _NANOS if message.nanos else int(message.seconds)


def _json_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(message, kind)
    return _KNOWN[found.DESCRIPTOR.full_name](found) if kind in ("struct_value", "list_value") else found


_KNOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": _instant,
    "google.protobuf.Duration": _seconds,
    "google.protobuf.Struct": lambda message: {name: _json_value(one) for name, one in message.fields.items()},
    "google.protobuf.Value": _json_value,
    "google.protobuf.ListValue": lambda message: [_json_value(one) for one in message.values],
}
