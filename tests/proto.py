"""Classes of Protobuf messages without protoc."""

from collections.abc import Mapping
from typing import Any

TEXT, INTEGER, DOUBLE = 9, 3, 1
"""Types of fields, as descriptors number them: string, int64, double."""


def message_class(full_name: str, fields: Mapping[str, int]) -> Any:
    """The class of a message ``package.Name`` in proto3, with fields of these types, numbered in order; in a pool of its own."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package, _, name = full_name.rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields.items(), 1):
        message.field.add(name=field, number=number, label=1, type=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))
