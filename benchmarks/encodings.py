"""How the records of the benchmarks are written: the same observations in every format, and several of them in one record.

An observation is a key, a user and a value. ``json`` is plain. ``avro``, ``protobuf`` and ``json-schema`` have Confluent's framing,
with an id that a schema registry gives. The schemas are those of which the Java peer's classes are generated. ``arrays`` has five
observations of one user in a record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SCHEMAS = Path(__file__).with_name("peers") / "kafka_streams" / "src" / "main"
VALUES = 1_000
"""The value of observation n is n modulo this."""
ITEMS = 5

Encode = Callable[[Sequence[int], int, int], bytes]
"""From the codes of keys, one for each observation of a record, the user's code and the first one's number to a record's value."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """One format. make: the encoder, given what stands before each record. schema: its kind in a registry, and its file."""

    make: Callable[[bytes], Encode]
    items: int = 1
    """Observations in a record."""
    schema: tuple[str, Path] | None = None


def _json(prefix: bytes) -> Encode:
    def encode(keys: Sequence[int], user: int, number: int) -> bytes:
        return prefix + b'{"k":"key%d","u":"u%d","v":%d}' % (keys[0], user, number % VALUES)

    return encode


def _arrays(prefix: bytes) -> Encode:
    def encode(keys: Sequence[int], user: int, number: int) -> bytes:
        items = (b'{"k":"key%d","v":%d}' % (key, (number + at) % VALUES) for at, key in enumerate(keys))
        return prefix + b'{"u":"u%d","items":[%b]}' % (user, b",".join(items))

    return encode


def _avro(prefix: bytes) -> Encode:
    values = [_varint(2 * value) for value in range(VALUES)]  # zigzag
    lengths = [_varint(2 * length) for length in range(64)]

    def encode(keys: Sequence[int], user: int, number: int) -> bytes:
        key, name = b"key%d" % keys[0], b"u%d" % user
        return b"".join((prefix, lengths[len(key)], key, lengths[len(name)], name, values[number % VALUES]))

    return encode


def _protobuf(prefix: bytes) -> Encode:
    before = prefix + b"\0"  # the message is the first of its file
    values = [b"", *(b"\x18" + _varint(value) for value in range(1, VALUES))]  # a zero is not written
    lengths = [_varint(length) for length in range(64)]

    def encode(keys: Sequence[int], user: int, number: int) -> bytes:
        key, name = b"key%d" % keys[0], b"u%d" % user
        value = values[number % VALUES]
        return b"".join((before, b"\x0a", lengths[len(key)], key, b"\x12", lengths[len(name)], name, value))

    return encode


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


ENCODINGS = {
    "json": Encoding(_json),
    "arrays": Encoding(_arrays, ITEMS),
    "avro": Encoding(_avro, schema=("AVRO", SCHEMAS / "avro" / "Event.avsc")),
    "protobuf": Encoding(_protobuf, schema=("PROTOBUF", SCHEMAS / "proto" / "event.proto")),
    "json-schema": Encoding(_json, schema=("JSON", SCHEMAS / "resources" / "event.schema.json")),
}


def encoder(encoding: Encoding, topic: str, registry: str) -> Encode:
    """What writes the records of a topic; their schema is registered for it, if they have one. registry: its address."""
    if encoding.schema is None:
        return encoding.make(b"")
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    kind, path = encoding.schema
    with SchemaRegistryClient({"url": registry}) as client:
        number = client.register_schema(f"{topic}-value", Schema(path.read_text(), kind))
    return encoding.make(b"\0" + number.to_bytes(4, "big"))
