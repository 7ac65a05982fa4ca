"""The schema of a public topic's values as data: what JSON Schema, Avro and Protobuf are derived from.

A value is JSON first. The other formats hold the same members: ``converted`` turns the objects of a JSON value into those of
another format, and ``restored`` turns them back. Each format says how it writes instants and keys (``Leaves``); all else is the
same everywhere.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

Convert = Callable[[Any], Any]


class Leaf(Enum):
    """A value without members."""

    TEXT = "text"
    INTEGER = "integer"
    """An integer of 64 bits, with a sign."""
    NUMBER = "number"
    """A double. JSON may write it without a fraction."""
    INSTANT = "instant"
    """Milliseconds since 1970; RFC 3339 in JSON."""
    SCALAR = "scalar"
    """Any JSON scalar, null among them: a part of a key."""


@dataclass(frozen=True, slots=True)
class Field:
    """A member of an object. presence: "nullable" is null where there is nothing, "optional" is left out in JSON."""

    name: str
    type: "Type"
    meaning: str
    presence: Literal["always", "nullable", "optional"] = "always"

    @property
    def label(self) -> str:
        """The name in formats whose names are letters, digits and underscores."""
        return identifier(self.name)


@dataclass(frozen=True, slots=True)
class Members:
    """An object. name: of its type, where types have names; one name has one shape in a schema."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """A key. In JSON a key of one part is that scalar, and a key of several parts is their array."""

    fields: tuple[Field, ...]
    name: str = "Key"


@dataclass(frozen=True, slots=True)
class Several:
    """A list of objects."""

    member: Members


Type: TypeAlias = "Leaf | Members | Parts | Several"
Leaves = Mapping[Leaf, Convert]
"""How a format's own values are made, or unmade; what it does not name stays as it is."""

MEASURED = Members(
    "Measured",
    (
        Field("estimate", Leaf.NUMBER, "the published estimate"),
        Field("std_error", Leaf.NUMBER, "its standard error; the 95 % interval is 1.96 of it to both sides"),
    ),
)


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The values of one public topic.

    version: the member ``schema`` of each value. always_json: whether the topic stays JSON in every output format.
    """

    members: Members
    meaning: str
    version: int = 1
    always_json: bool = False

    def clashes(self) -> Iterator[str]:
        """Names that other formats cannot tell apart, each with what it becomes."""
        pending: list[Type] = [self.members]
        while pending:
            found = pending.pop()
            if isinstance(found, Leaf):
                continue
            if isinstance(found, Several):
                pending.append(found.member)
                continue
            labels: dict[str, str] = {}
            for field in found.fields:
                other = labels.setdefault(field.label, field.name)
                if other != field.name:
                    yield f'"{other}" and "{field.name}" are both "{field.label}"'
                pending.append(field.type)


def identifier(name: str) -> str:
    """A name of ASCII letters, digits and underscores that does not begin with a digit."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain


def converted(kind: Type, leaves: Leaves) -> Convert:
    """A function from a decoded JSON value to a format's objects. Members that are null or left out are left out."""
    if isinstance(kind, Leaf):
        return leaves.get(kind, _as_it_is)
    if isinstance(kind, Several):
        convert_one = converted(kind.member, leaves)
        return lambda several: list(map(convert_one, several))
    if isinstance(kind, Parts):
        parts = [(field.label, converted(field.type, leaves)) for field in kind.fields]
        if len(parts) == 1:
            [(label, convert)] = parts
            return lambda key: {label: convert(key)}
        return lambda key: {label: convert(part) for (label, convert), part in zip(parts, key, strict=True)}
    members = [(field.name, field.label, converted(field.type, leaves)) for field in kind.fields]
    may_lack = {field.label for field in kind.fields if field.presence != "always"}
    if not may_lack:
        return lambda value: {label: convert(value[name]) for name, label, convert in members}

    def convert_some(value: Any) -> Any:
        some = ((label, convert, value.get(name)) for name, label, convert in members)
        return {
            label: convert(member) for label, convert, member in some if member is not None or label not in may_lack
        }

    return convert_some


def restored(kind: Type, leaves: Leaves) -> Convert:
    """The inverse of ``converted``: from a format's objects to a JSON value, with its members in their order."""
    if isinstance(kind, Leaf):
        return leaves.get(kind, _as_it_is)
    if isinstance(kind, Several):
        restore_one = restored(kind.member, leaves)
        return lambda several: list(map(restore_one, several or ()))  # Protobuf knows no empty list
    if isinstance(kind, Parts):
        parts = [(field.label, restored(field.type, leaves)) for field in kind.fields]
        if len(parts) == 1:
            [(label, convert)] = parts
            return lambda key: convert(key.get(label))
        return lambda key: [convert(key.get(label)) for label, convert in parts]
    members = [(field, restored(field.type, leaves)) for field in kind.fields]

    def restore(value: Any) -> Any:
        found = {}
        for field, convert in members:
            member = value.get(field.label)
            if member is not None or field.presence == "always":
                found[field.name] = convert(member)
            elif field.presence != "optional":
                found[field.name] = None
        return found

    return restore


def _as_it_is(value: Any) -> Any:
    return value
