"""Types of Protobuf messages as programs of the compiled reader (topics/rust/src/protobuf_types.rs).

A program takes a message only if protobuf must parse it, and `message_fields` must find the same in it. What it does not know is a
field that takes nothing, or no program: then protobuf reads the messages.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from susurrus.agents.formats.format import Programs
from susurrus.agents.formats.message_fields import is_list, is_open, is_scalar
from susurrus.topics.compiled import compiled
from susurrus.topics.records.fields import Path, numbered

_MOST_MESSAGES: Final = 1_000
_MOST_FIELDS: Final = 10_000
_MOST_BITS: Final = 64

Types = Sequence[tuple[bytes, Any]]
"""What stands before a message behind the schema's number, and the message's descriptor."""
_Wanted = int | dict[str, Any] | None
"""Of a field: the number of its path, what is wanted of its fields, or nothing."""

_MESSAGE: Final = "message"
_LEAVE: Final = "leave"
_KINDS: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: _LEAVE,  # a group
    11: _MESSAGE,
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""Kinds of fields by protobuf's numbers of types, as protobuf_types.rs calls them."""
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"


class _NoProgram(Exception):
    """Says of a type that it has no program."""


class ProtobufPrograms(Programs):
    """Programs for the fields at distinct ``paths``.

    own: the types of all records; None where each names its schema. found: the types of schemas by their numbers, as far as they
    can be had now.
    """

    def __init__(
        self,
        prefix: tuple[bytes, int, range],
        paths: Sequence[Path],
        own: Types | None,
        found: Callable[[Sequence[int]], Iterator[tuple[int, Types]]],
    ) -> None:
        super().__init__(prefix)
        self._paths, self._own, self._found = paths, own, found

    def known(self) -> Iterator[tuple[int | None, Any]]:
        """Answers `Programs.known`."""
        if self._own is not None:
            yield None, program_of(self._own, self._paths)

    def of(self, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Answers `Programs.of`."""
        for number, types in self._found(numbers):
            yield number, program_of(types, self._paths)


def program_of(types: Types, paths: Sequence[Path]) -> Any:
    """The program of some types of one pool; None where there is none. One that has none leaves its records, and no others'."""
    compiler, starts = _Compiler(), []
    for start, descriptor in types:
        try:
            starts.append((start, compiler.root(descriptor, paths)))
        except _NoProgram:
            continue
    return compiled.protobuf_program(compiler.messages, starts, len(paths)) if starts else None


class _Compiler:
    """Makes a list of messages, which refer to each other by their places in it."""

    def __init__(self) -> None:
        self.messages: list[tuple[list[tuple[Any, ...]], bool]] = []
        self._places: dict[str, int] = {}
        """Of the messages of which nothing is wanted, by their full names. All of them are of one pool."""
        self._roots: dict[str, int] = {}
        self._open: list[tuple[int, Any, dict[str, Any]]] = []
        self._fields = 0

    def root(self, descriptor: Any, paths: Sequence[Path]) -> int:
        """The place of a type of which fields at paths are wanted. Raises _NoProgram."""
        if descriptor.full_name in self._roots:
            return self._roots[descriptor.full_name]
        place = self._place(descriptor, numbered(paths))
        try:
            while self._open:  # no recursion: schemas are what others wrote
                at, one, below = self._open.pop()
                self.messages[at] = (self._fields_of(one, below), one.is_extendable)
        except _NoProgram:
            # What is not finished is not referred to by what is.
            self._open.clear()
            self._places = {name: at for name, at in self._places.items() if at < place}
            del self.messages[place:]
            raise
        self._roots[descriptor.full_name] = place
        return place

    def _place(self, descriptor: Any, wanted: dict[str, Any]) -> int:
        if not wanted and descriptor.full_name in self._places:
            return self._places[descriptor.full_name]
        place = len(self.messages)
        if place == _MOST_MESSAGES:
            raise _NoProgram
        self.messages.append(([], False))
        if not wanted:
            self._places[descriptor.full_name] = place
        self._open.append((place, descriptor, wanted))
        return place

    def _fields_of(self, descriptor: Any, wanted: dict[str, Any]) -> list[tuple[Any, ...]]:
        fields, bits, oneofs = [], 0, dict[str, int]()
        for field in sorted(descriptor.fields, key=lambda one: one.number):
            self._fields += 1
            kind, inner, slot = self._value(field, wanted.get(field.name))
            once = 0
            oneof = _chosen(field, wanted)
            if oneof in oneofs:
                once = oneofs[oneof]
            elif oneof is not None or (field.name in wanted and field.message_type is not None):
                once = 1 << bits
                bits += 1
                if oneof is not None:
                    oneofs[oneof] = once
            names: list[tuple[int, str]] = []
            if kind == "enum" and slot is not None:
                names = [(number, one.name) for number, one in field.enum_type.values_by_number.items()]
            closed = field.enum_type is not None and field.enum_type.is_closed
            # What has no presence has a default where it is not set.
            default = slot is not None and not field.has_presence
            fields.append((field.number, kind, inner, field.is_repeated, default, slot, once, names, closed))
        if bits > _MOST_BITS or self._fields > _MOST_FIELDS:
            raise _NoProgram
        return fields

    def _value(self, field: Any, wanted: _Wanted) -> tuple[str, int, int | None]:
        """The kind of a field, the place of the message in it (0 where there is none), and its slot."""
        kind, message = _KINDS[field.type], field.message_type
        if wanted is None:
            return kind, self._place(message, {}) if kind == _MESSAGE else 0, None
        if field.is_repeated:
            raise _NoProgram  # a list or an object is there in any case
        if kind == _LEAVE:
            return _LEAVE, 0, None
        if message is None:
            if isinstance(wanted, int):
                return kind, 0, wanted
            if not field.has_presence:
                raise _NoProgram  # it is no object
            return _LEAVE, 0, None
        return self._inside(message, wanted)

    def _inside(self, message: Any, wanted: int | dict[str, Any]) -> tuple[str, int, int | None]:
        """The same of a message."""
        if isinstance(wanted, dict):
            plain = not (is_scalar(message) or is_open(message) or is_list(message))
            return (_MESSAGE, self._place(message, wanted), None) if plain else (_LEAVE, 0, None)
        if message.full_name == _TIMESTAMP:
            usual = [(one.number, one.name, _KINDS[one.type], one.is_repeated) for one in message.fields]
            wished = [(1, "seconds", "int64", False), (2, "nanos", "int32", False)]
            return ("instant", 0, wanted) if sorted(usual) == wished else (_LEAVE, 0, None)
        if is_scalar(message) and message.full_name != _DURATION:
            value = message.fields_by_name["value"]
            if not (value.is_repeated or value.has_presence):
                return _MESSAGE, self._place(message, {"value": wanted}), None
        return _LEAVE, 0, None


def _chosen(field: Any, wanted: dict[str, Any]) -> str | None:
    """The oneof of a field that takes away what is wanted of another; None where there is none."""
    oneof = field.containing_oneof
    if oneof is None or len(oneof.fields) == 1 or not any(one.name in wanted for one in oneof.fields):
        return None
    return str(oneof.name)
