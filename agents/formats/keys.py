"""The formats of Kafka's key: `input.key_format` says which one `$key` is read in."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID


class KeyFormat(NamedTuple):
    """One format. name: in the configuration. meaning: its description in the reference of settings. read: what reads a key that is
    one scalar, and raises ValueError for other bytes; None for a format of values (agents/formats/__init__.py)."""

    name: str
    meaning: str
    read: Callable[[bytes], Any] | None = None


def _integer(size: int) -> Callable[[bytes], int]:
    def read(key: bytes) -> int:
        if len(key) != size:
            raise ValueError("another length")
        return int.from_bytes(key, "big", signed=True)

    return read


TEXT: Final = KeyFormat("text", "text in UTF-8", bytes.decode)
KEY_FORMATS: Final[dict[str, KeyFormat]] = {
    form.name: form
    for form in (
        TEXT,
        KeyFormat("json", "one JSON value; `$key.id` is a field of an object"),
        KeyFormat("avro", "in Avro, as `avro` reads values, with the schemas of `input.registry`"),
        KeyFormat("protobuf", "in Protobuf, by the schemas of `input.registry`"),
        KeyFormat("int32", "a big-endian integer of 4 bytes", _integer(4)),
        KeyFormat("int64", "a big-endian integer of 8 bytes", _integer(8)),
        KeyFormat("uuid", "a UUID of 16 bytes, as the usual text", lambda key: str(UUID(bytes=key))),
        KeyFormat("none", "bytes of no format, as lower-case hexadecimal text", bytes),
    )
}
"""Every format by its name in the configuration."""
SCALAR_KEYS: Final = {form.name: form.read for form in KEY_FORMATS.values() if form.read is not None}
"""What reads a key that is one scalar, by the format's name."""
