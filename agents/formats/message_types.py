"""Which message of its .proto file a Protobuf record is: the indexes in Confluent's wire format, and the class they must name.

The indexes lead from the file's messages inwards: [1, 0] is the first message inside the second one. Zigzag varints say how many
there are, and then each; the number 0 stands for [0]. What cannot be such a list, or leads to another message, is a record of
another type: bytes of an unknown type would else be read as fields that they are not.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from susurrus.agents.finding import Finding
from susurrus.agents.formats.format import RefusedPayload
from susurrus.agents.formats.proto_files import ProtoFile, file_of_descriptor
from susurrus.agents.types.one_of import nearest
from susurrus.topics.records.fields import Path, escaped
from susurrus.topics.records.reason import Reason

_NESTED_MESSAGES: Final = 100  # protobuf's own limit of nesting
_VARINT_BYTES: Final = 5
"""The most bytes of an int32, which is what the reader in Confluent's Java client takes."""

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


def _varint(data: bytes, start: int) -> tuple[int, int]:
    value = 0
    for at, byte in enumerate(data[start : start + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80 and value < 1 << 32:
            return (value >> 1) ^ -(value & 1), start + at + 1
    raise RefusedPayload(Reason.OTHER_TYPE)


def unknown_fields(descriptor: Any, paths: Sequence[Path]) -> Iterator[Finding]:
    """What no record of a class can have at some paths: a failure each."""
    for path in paths:
        if (said := _unknown(descriptor, path)) is not None:
            text, action = said
            yield Finding("fields", "failure", f'input: field "{".".join(map(escaped, path))}": {text}', action)


def _unknown(descriptor: Any, path: Path) -> tuple[str, str] | None:
    """Text and action; None where a record can have the field."""
    for depth, name in enumerate(path):
        if descriptor is None or is_scalar(descriptor):
            return f'"{path[depth - 1]}" is no message with fields', f'name "{".".join(path[:depth])}" itself'
        field = descriptor.fields_by_name.get(name)
        if field is None:
            known = list(descriptor.fields_by_name)
            return f'{descriptor.full_name} has no field "{name}"', nearest(name, known)
        if field.is_repeated:
            return f'"{name}" is repeated or a map, which is not read', "name a field that occurs once"
        descriptor = field.message_type
    return None


def is_scalar(descriptor: Any) -> bool:
    """Whether a message is read as one value: an instant, or a wrapper such as StringValue."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return True
    wraps = name.startswith("google.protobuf.") and name.endswith("Value")
    return wraps and "value" in descriptor.fields_by_name
