"""Rows as Protobuf messages, by a descriptor that is built without protoc."""

import base64
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

from susurrus.agents.formats.outputs.protobuf_columns import ProtobufColumns
from susurrus.agents.formats.outputs.registered import END_OF_LONG, RegisteredRows, instant_text, serializer_properties
from susurrus.topics.wire.row_schema import Leaf, Members, Parts, RowSchema, Several, Type
from susurrus.topics.wire.timestamps import parse_time

_TIMESTAMP, _TIMESTAMP_FILE = "google.protobuf.Timestamp", "google/protobuf/timestamp.proto"
_SCALAR = "Scalar"
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "text"}
"""The member of a Scalar for each type of a JSON scalar. A null sets none of them."""
_MEMBERS = {"boolean": "bool", "integer": "int64", "unsigned": "uint64", "number": "double", "text": "string"}
_LEAVES = {
    Leaf.TEXT: "string",
    Leaf.INTEGER: "int64",
    Leaf.NUMBER: "double",
    Leaf.INSTANT: _TIMESTAMP,
    Leaf.SCALAR: _SCALAR,
}


_Field = tuple[str, str, str]
"""Name, type, and the word before it: "optional" where presence is marked, of a number or text that may lack, which Protobuf
would read as 0 or empty; "repeated" of a list; or nothing."""


def _scalar(part: Any) -> dict[str, Any]:
    if part is None:
        return {}
    return {"unsigned" if type(part) is int and part >= END_OF_LONG else _KINDS[type(part)]: part}


def _plain(scalar: dict[str, Any] | None) -> Any:
    return next(iter((scalar or {}).values()), None)


def _timestamp(text: str) -> dict[str, int]:
    seconds, milliseconds = divmod(parse_time(text), 1000)
    return {"seconds": seconds, "nanos": milliseconds * 1_000_000}


class ProtobufRows(RegisteredRows):
    """One message per row; instants are google.protobuf.Timestamp, a part of a key is a message with one of five members."""

    name = "protobuf"
    meaning = "in Confluent's wire format; needs the extra `registry`"
    packages = ("confluent_kafka.schema_registry.protobuf", "google.protobuf.descriptor_pool")
    written = MappingProxyType({Leaf.INSTANT: _timestamp, Leaf.SCALAR: _scalar})
    read = MappingProxyType({Leaf.INSTANT: instant_text, Leaf.SCALAR: _plain})
    columns = ProtobufColumns
    place = b"\0"  # the row is the first message of its file

    @classmethod
    def text(cls, schema: RowSchema, namespace: str) -> str:
        """The .proto file."""
        lines = ['syntax = "proto3";', "", f"package {namespace};", "", f'import "{_TIMESTAMP_FILE}";']
        for number, (name, fields) in enumerate(_messages(schema)):
            lines += ["", *([f"// {schema.meaning}"] if number == 0 else []), f"message {name} {{"]
            if name == _SCALAR:
                members = [f"    {kind} {label} = {at};" for at, (label, kind, _) in enumerate(fields, start=1)]
                lines += ["  // None of them is set for null.", "  oneof kind {", *members, "  }"]
            else:
                for at, (label, kind, word) in enumerate(fields, start=1):
                    lines.append(f"  {word and f'{word} '}{kind} {label} = {at};")
            lines.append("}")
        return "\n".join(lines)

    def registered_schema(self, schema: RowSchema, namespace: str) -> Any:
        """The schema that `RegisteredRows.registered_schema` asks for."""
        from confluent_kafka.schema_registry import Schema

        text = base64.standard_b64encode(_file(schema, namespace).SerializeToString()).decode()
        return Schema(text, "PROTOBUF", [])

    def serializer(self, client: Any, schema: RowSchema, namespace: str) -> Callable[[Any, Any], bytes]:
        """The serialiser that `RegisteredRows.serializer` asks for."""
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        message = _class(schema, namespace)
        serialize = ProtobufSerializer(message, client, serializer_properties())

        def written(row: Any, context: Any) -> bytes:
            found: bytes = serialize(message(**row), context)
            return found

        return written

    def parser(self, schema: RowSchema, namespace: str) -> Callable[[int, bytes], Any]:
        """Parses by the configuration's own schema, without the registry: Protobuf's fields are numbered."""
        from susurrus.agents.formats.message_fields import message_fields
        from susurrus.agents.formats.message_types import read_indexes

        message = _class(schema, namespace)
        return lambda schema_id, data: message_fields(message.FromString(data[read_indexes(data)[1] :]))


def _messages(schema: RowSchema) -> Iterator[tuple[str, list[_Field]]]:
    """(name, fields) of each message, the row's first. Numbers follow the order."""
    seen: dict[str, list[_Field]] = {}

    def add(kind: Members | Parts) -> None:
        if kind.name in seen:
            return
        seen[kind.name] = fields = []
        for field in kind.fields:
            kind_name = _type(field.type)
            marked = kind_name in _MEMBERS.values() and field.presence != "always"
            word = "repeated" if isinstance(field.type, Several) else "optional" if marked else ""
            fields.append((field.label, kind_name, word))
        for field in kind.fields:
            if isinstance(field.type, Several):
                add(field.type.member)
            elif not isinstance(field.type, Leaf):
                add(field.type)

    add(schema.members)
    if any(kind == _SCALAR for fields in seen.values() for _, kind, _ in fields):
        seen[_SCALAR] = [(label, kind, "") for label, kind in _MEMBERS.items()]
    yield from seen.items()


def _type(kind: Type) -> str:
    if isinstance(kind, Several):
        return kind.member.name
    return _LEAVES[kind] if isinstance(kind, Leaf) else kind.name


def _file(schema: RowSchema, namespace: str) -> Any:
    """The descriptor of the .proto file."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    numbers = {kind: getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}") for kind in _MEMBERS.values()}
    file = FileDescriptorProto(
        name=f"{namespace}.{schema.members.name}.proto",
        package=namespace,
        syntax="proto3",
        dependency=[_TIMESTAMP_FILE],
    )
    for name, fields in _messages(schema):
        message = file.message_type.add(name=name)
        if name == _SCALAR:
            message.oneof_decl.add(name="kind")
        for at, (label, kind, word) in enumerate(fields, start=1):
            several = word == "repeated"
            count = FieldDescriptorProto.LABEL_REPEATED if several else FieldDescriptorProto.LABEL_OPTIONAL
            field = message.field.add(name=label, number=at, label=count)
            if kind in numbers:
                field.type = numbers[kind]
            else:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{kind if kind == _TIMESTAMP else f'{namespace}.{kind}'}"
            if name == _SCALAR:
                field.oneof_index = 0
            elif word == "optional":
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{label}")
    return file


def _class(schema: RowSchema, namespace: str) -> Any:
    """The message's class, in a pool of its own: one process may read several pipelines."""
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(_file(schema, namespace))
    return GetMessageClass(pool.FindMessageTypeByName(f"{namespace}.{schema.members.name}"))
