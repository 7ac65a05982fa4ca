"""The formats of Kafka's key: `input.key_format` says which one `$key` is read in."""

from typing import Final, NamedTuple


class KeyFormat(NamedTuple):
    """One format. name: in the configuration. meaning: its description in the reference of settings."""

    name: str
    meaning: str


TEXT: Final = KeyFormat("text", "text in UTF-8")
KEY_FORMATS: Final[dict[str, KeyFormat]] = {
    form.name: form
    for form in (
        TEXT,
        KeyFormat("json", "one JSON value; `$key.id` is a field of an object"),
        KeyFormat("avro", "in Avro, as `avro` reads values, with the schemas of `input.registry`"),
        KeyFormat("protobuf", "in Protobuf, by the schemas of `input.registry`"),
        KeyFormat("int32", "a big-endian integer of 4 bytes"),
        KeyFormat("int64", "a big-endian integer of 8 bytes"),
        KeyFormat("uuid", "a UUID of 16 bytes, as the usual text"),
        KeyFormat("none", "bytes of no format, as lower-case hexadecimal text"),
    )
}
"""Every format by its name in the configuration."""
