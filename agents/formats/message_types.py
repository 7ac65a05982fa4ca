"""Which message of its .proto file a Protobuf record is: the indexes in Confluent's wire format, and the type they must name.

The indexes lead from the file's messages inwards: [1, 0] is the first message inside the second one. Zigzag varints say how many
there are, and then each; the number 0 stands for [0]. What cannot be such a list, or leads to another message, is a record of
another type: bytes of an unknown type would else be read as fields that they are not. Apicurio writes a name instead.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from susurrus.agents.finding import Finding
from susurrus.agents.formats.format import RefusedPayload
from susurrus.agents.formats.message_fields import is_list, is_map, is_open, is_scalar
from susurrus.agents.formats.proto_files import Message, ProtoFile, file_of_descriptor
from susurrus.agents.types.one_of import nearest
from susurrus.topics.records.fields import Path, escaped
from susurrus.topics.records.reason import Reason

_NESTED_MESSAGES: Final = 100  # protobuf's own limit of nesting
_VARINT_BYTES: Final = 5
"""The most bytes of an int32, which is what the reader in Confluent's Java client takes."""

_STARTS: Final = 1_000
"""The most messages of a file that are told apart by what stands before them without reading it as a list."""

Indexes = tuple[int, ...]


def class_of(module: Any, name: str) -> Any:
    """The generated class with a name such as ``Event.Inner``. Raises AttributeError where the module has no such message."""
    from google.protobuf.message import Message  # optional

    found = attrgetter(name)(module)
    if not (isinstance(found, type) and issubclass(found, Message)):
        raise AttributeError(f"{name} is no message")
    return found


def own_file(descriptor: Any) -> ProtoFile:
    """The messages of the file that a class is from."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # optional

    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    return file_of_descriptor(file)


def read_indexes(data: bytes) -> tuple[Indexes, int]:
    """The indexes at the beginning, and where the message starts. Raises RefusedPayload where there is no list of indexes."""
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _NESTED_MESSAGES:
        raise RefusedPayload(Reason.OTHER_TYPE)
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    if min(indexes) < 0:
        raise RefusedPayload(Reason.OTHER_TYPE)
    return tuple(indexes), at


def read_reference(data: bytes) -> tuple[str, int]:
    """The name that Apicurio writes before a message, without its package, and where the message starts. Raises RefusedPayload.

    It is a message with one text field of number 1, behind its length.
    """
    length, at = _unsigned(data, 0)
    end = at + length
    if end > len(data) or data[at : at + 1] != b"\x0a":
        raise RefusedPayload(Reason.OTHER_TYPE)
    size, at = _unsigned(data, at + 1)
    try:
        name = data[at:end].decode()
    except UnicodeDecodeError as error:
        raise RefusedPayload(Reason.OTHER_TYPE) from error
    if at + size != end or not name:
        raise RefusedPayload(Reason.OTHER_TYPE)
    return name, end


def starts(file: ProtoFile, *, refers: bool) -> Iterator[tuple[bytes, str]]:
    """What serializers write before the messages of a file, and their full names, as far as there are a thousand. refers: whether
    that is a name, and no indexes."""
    if refers:
        for short in islice(dict.fromkeys(one.name for one in _all(file.messages) if not one.entry), _STARTS):
            name = file.named(short)
            if name is not None and short:
                text = short.encode()
                text = b"\x0a" + _written(len(text)) + text
                yield _written(len(text)) + text, name
        return
    for place in islice(dict.fromkeys([*_places(file.messages, True), *_places(file.messages, False)]), _STARTS):
        name = file.name_at(place)
        if name is not None:
            if place == (0,):
                yield b"\0", name
            yield b"".join(_written(2 * number) for number in (len(place), *place)), name


def _all(messages: Sequence[Message]) -> Iterator[Message]:
    for message in messages:
        yield message
        yield from _all(message.nested)


def _places(messages: Sequence[Message], entries: bool, outer: Indexes = ()) -> Iterator[Indexes]:
    """The indexes of all messages. entries: whether those of maps count."""
    for index, message in enumerate(one for one in messages if entries or not one.entry):
        yield (*outer, index)
        yield from _places(message.nested, entries, (*outer, index))


def _written(number: int) -> bytes:
    """A varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _varint(data: bytes, start: int) -> tuple[int, int]:
    value, at = _unsigned(data, start)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, start: int) -> tuple[int, int]:
    value = 0
    for at, byte in enumerate(data[start : start + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80 and value < 1 << 32:
            return value, start + at + 1
    raise RefusedPayload(Reason.OTHER_TYPE)


def unknown_fields(descriptor: Any, paths: Sequence[Path]) -> Iterator[Finding]:
    """What no record of a class can have at some paths: a failure each."""
    for path in paths:
        if (said := _unknown(descriptor, path)) is not None:
            text, action = said
            yield Finding("fields", "failure", f'input: field "{".".join(map(escaped, path))}": {text}', action)


def _unknown(descriptor: Any, path: Path) -> tuple[str, str] | None:
    """Text and action; None where a record can have the field."""
    field: Any = None
    for depth, name in enumerate(path):
        if field is not None:
            if is_map(field):  # whose keys are names
                field = field.message_type.fields_by_name["value"]
                continue
            said = f'"{path[depth - 1]}"'
            if field.is_repeated or (field.message_type is not None and is_list(field.message_type)):
                return f"{said} is repeated", "name the field itself, and take it apart by input.each"
            descriptor = field.message_type
            if descriptor is None or is_scalar(descriptor):
                return f"{said} is no message with fields", f'name "{".".join(path[:depth])}" itself'
            if is_open(descriptor):
                return None
        field = descriptor.fields_by_name.get(name)
        if field is None:
            known = list(descriptor.fields_by_name)
            return f'{descriptor.full_name} has no field "{name}"', nearest(name, known)
    return None
