"""Classes of Protobuf messages that are made of descriptors, while the pipeline runs: no generated code is needed.

The descriptors are a registry's, or protoc's (`--descriptor_set_out --include_imports`). Files that all installations have
(`google/protobuf/…`) need not be among them.
"""

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from susurrus.agents.formats.proto_files import descriptor_in
from susurrus.agents.formats.proto_texts import descriptor_of_text

_KNOWN_FILES: Final = (
    (re.compile(r"google/protobuf/([a-z_]+)\.proto"), r"google.protobuf.\1_pb2"),
    (
        re.compile(r"google/type/([a-z_]+)\.proto"),
        r"google.type.\1_pb2",
    ),  # of googleapis-common-protos, where it is there
    (re.compile(r"confluent/meta\.proto"), "confluent_kafka.schema_registry.confluent.meta_pb2"),
    (re.compile(r"confluent/type/decimal\.proto"), "confluent_kafka.schema_registry.confluent.types.decimal_pb2"),
)
"""Files that schemas import without a reference to them, and the modules that have them."""


def file_of(text: str) -> Any:
    """The FileDescriptorProto of a schema as registries write it: in base64, or the text of a .proto file. Raises ValueError."""
    descriptor = descriptor_in(text)
    return descriptor_of_text(text) if descriptor is None else descriptor


def files_of_set(data: bytes) -> list[Any]:
    """The files of a FileDescriptorSet. Raises ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # optional
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(data).file)
    except DecodeError as error:
        raise ValueError("no set of descriptors") from error
    if not files:
        raise ValueError("a set of no descriptors")
    return files


def pool_of(files: Iterable[Any]) -> Any:
    """A pool of its own with files and what they import. Raises ValueError where something is missing or wrong."""
    from google.protobuf.descriptor_pool import DescriptorPool  # optional

    pool, given = DescriptorPool(), {file.name: file for file in files}
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for name in file.dependency:
            add(given[name] if name in given else _known(name))
        pool.Add(file)

    try:
        for file in given.values():
            add(file)
    except (TypeError, RecursionError) as error:  # what the pool raises for a file that cannot be
        raise ValueError("descriptors that do not fit together") from error
    return pool


def class_named(pool: Any, name: str) -> Any:
    """The class of the message with a full name; None where the pool has none."""
    from google.protobuf.message_factory import GetMessageClass  # optional

    try:
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        return None


def _known(name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # optional

    for pattern, module in _KNOWN_FILES:
        if (found := pattern.fullmatch(name)) is not None:
            try:
                descriptor = import_module(found.expand(module)).DESCRIPTOR
            except ImportError as error:
                raise ValueError("a file that is imported is not installed") from error
            file = FileDescriptorProto()
            descriptor.CopyToProto(file)
            file.name = name
            return file
    raise ValueError("a file that is imported is missing")
