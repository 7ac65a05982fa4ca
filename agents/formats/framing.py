"""How a payload names its schema: framings, which any format with schemas may have (`input.framing`).

A framing takes a record apart into the name of its schema and what the schema describes. The name leads to a schema in a registry
(schemas.py), or is compared with a schema that the operator has (avro.py). Keys have the same framings as values, with headers of
their own. What has another framing than the configured one is refused by its name.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import framing_seen
from susurrus.topics.wire.batch_reader import Headers

ID, GUID, GLOBAL_ID, CONTENT_ID, FINGERPRINT = "id", "guid", "globalId", "contentId", "fingerprint"
"""The kinds of names of schemas: of Confluent's registry, of Apicurio's, and of none."""

MAGIC: Final = b"\0"
_ID_BYTES: Final = 4
PREFIX: Final = 1 + _ID_BYTES
"""Bytes before the record in Confluent's framing: the magic byte and the schema id, big-endian."""
_LONG_BYTES: Final = 8
_SINGLE: Final = b"\xc3\x01"
_IDS: Final = range(1, 1 << 31)
"""Registries count schemas from 1, by Java's int: their answer to another number is not about schemas. Apicurio has a long, but
no registry needs more of it; and a record in another framing has a large number there."""


class SchemaName(NamedTuple):
    """What a record calls its schema. kind: one of those above. value: a number, a GUID as text, or a fingerprint of Avro's."""

    kind: str
    value: int | str


class Framed(NamedTuple):
    """A record taken apart. schema: None where nothing names it. body: what the schema describes. place: of Protobuf, the message's
    place in its file, where that is not at the beginning of the body. message: its name, where a header has it."""

    schema: SchemaName | None
    body: bytes
    place: bytes | None = None
    message: str | None = None


class Framing(ABC):
    """One framing. The methods raise ValueError for a record that has another one, or none."""

    name: ClassVar[str]
    """Its name in the configuration."""
    meaning: ClassVar[str]
    """Its description in the reference of settings."""
    seen: ClassVar[Reason | None] = None
    """What records of this framing are refused for where another one is configured."""
    asks: ClassVar[bool] = True
    """Whether a registry knows the schemas."""
    reads_headers: ClassVar[bool] = False
    """Whether the headers say something about the schema."""
    refers: ClassVar[bool] = False
    """Whether the name of a Protobuf message stands before it, instead of its place in the file."""
    prefix: ClassVar[tuple[bytes, int, range] | None] = None
    """Where all that frames a record stands before it, as compiled readers need it (whole.py): the first bytes, how many bytes the
    number of the schema has behind them, and which numbers there are."""

    @abstractmethod
    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart. part: "value" or "key", which of the two the payload is."""

    def named(self, number: int) -> SchemaName | None:
        """What the number in ``prefix`` names."""
        return None


class Unframed(Framing):
    """Nothing but the record."""

    name = "none"
    meaning = "nothing but the record"
    asks = False
    prefix = (b"", 0, range(1))

    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart as `Framing.split` says."""
        return Framed(None, payload)


class Confluent(Framing):
    """Confluent's prefix."""

    name = "confluent"
    meaning = "Confluent's prefix, a zero byte and a schema id of four bytes"
    seen = Reason.FRAMING_CONFLUENT
    prefix = (MAGIC, _ID_BYTES, _IDS)

    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart as `Framing.split` says."""
        return Framed(*_numbered(payload, ID, _ID_BYTES))

    def named(self, number: int) -> SchemaName | None:
        """Names as `Framing.named` says."""
        return SchemaName(ID, number)


class ConfluentHeader(Framing):
    """The same in a header, where it may also be a GUID. A record without it has the prefix, as in Confluent's own clients."""

    name = "confluent-header"
    meaning = "the header `__value_schema_id` of newer Confluent clients; where a record has none, Confluent's prefix"
    seen = Reason.FRAMING_CONFLUENT_HEADER
    reads_headers = True

    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart as `Framing.split` says."""
        found = _last(headers, f"__{part}_schema_id")
        if found is None:
            return Framed(*_numbered(payload, ID, _ID_BYTES))
        if found[:1] == b"\x01" and len(found) >= 17:
            return Framed(SchemaName(GUID, str(UUID(bytes=found[1:17]))), payload, found[17:])
        schema, rest = _numbered(found, ID, _ID_BYTES)
        return Framed(schema, payload, rest)


class Apicurio(Framing):
    """Apicurio's prefix with its global id, as Apicurio Registry 2 writes it by default."""

    name = "apicurio"
    meaning = "Apicurio's prefix, a zero byte and a global id of eight bytes"
    seen = Reason.FRAMING_APICURIO
    refers = True
    prefix = (MAGIC, _LONG_BYTES, _IDS)
    kind: ClassVar[str] = GLOBAL_ID

    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart as `Framing.split` says."""
        return Framed(*_numbered(payload, self.kind, _LONG_BYTES))

    def named(self, number: int) -> SchemaName | None:
        """Names as `Framing.named` says."""
        return SchemaName(self.kind, number)


class ApicurioContentId(Apicurio):
    """The same with the id of a content, which its bytes do not tell from a global one."""

    name = "apicurio-content-id"
    meaning = "the same with a content id (`apicurio.registry.use-id = contentId`)"
    kind = CONTENT_ID


class ApicurioHeader(Framing):
    """Apicurio's headers."""

    name = "apicurio-header"
    meaning = "the header `apicurio.value.globalId` or `apicurio.value.contentId`"
    seen = Reason.FRAMING_APICURIO_HEADER
    reads_headers = True
    refers = True

    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart as `Framing.split` says."""
        encoding = _last(headers, f"apicurio.{part}.encoding")
        if encoding not in (None, b"BINARY"):
            raise ValueError("Avro in another encoding")
        called = _last(headers, "apicurio.protobuf.type")
        for kind in (GLOBAL_ID, CONTENT_ID):
            found = _last(headers, f"apicurio.{part}.{kind}")
            if found is not None:
                if len(found) != _LONG_BYTES:
                    raise ValueError("no id of eight bytes")
                return Framed(_known(kind, found), payload, message=None if called is None else called.decode())
        raise ValueError("no header with an id")


class SingleObject(Framing):
    """Avro's single-object encoding."""

    name = "single-object"
    meaning = "Avro's single-object encoding, the bytes C3 01 and a fingerprint"
    seen = Reason.FRAMING_SINGLE_OBJECT
    asks = False
    prefix = (_SINGLE, _LONG_BYTES, range(1 << 64))

    def split(self, payload: bytes, headers: Headers, part: str) -> Framed:
        """Takes a record apart as `Framing.split` says. The fingerprint is written as its eight bytes in hexadecimal digits."""
        start = len(_SINGLE)
        if payload[:start] != _SINGLE or len(payload) < start + _LONG_BYTES:
            raise ValueError("no fingerprint")
        return Framed(
            SchemaName(FINGERPRINT, payload[start : start + _LONG_BYTES].hex()), payload[start + _LONG_BYTES :]
        )

    def named(self, number: int) -> SchemaName | None:
        """Names as `Framing.named` says."""
        return SchemaName(FINGERPRINT, number.to_bytes(_LONG_BYTES, "big").hex())


FRAMINGS: Final[dict[str, Framing]] = {
    framing.name: framing
    for framing in (
        Unframed(), Confluent(), ConfluentHeader(), Apicurio(), ApicurioContentId(), ApicurioHeader(), SingleObject()
    )
}  # fmt: skip
"""Every framing by its name in the configuration."""


def other_framing(framing: Framing, payload: bytes, headers: Headers, part: str) -> Reason | None:
    """What a record that was refused seems to be framed by, unless that is the configured framing."""
    names = {name for name, _ in headers}
    found: Reason | None
    if f"__{part}_schema_id" in names:
        found = Reason.FRAMING_CONFLUENT_HEADER
    elif not {f"apicurio.{part}.{GLOBAL_ID}", f"apicurio.{part}.{CONTENT_ID}"}.isdisjoint(names):
        found = Reason.FRAMING_APICURIO_HEADER
    else:
        found = framing_seen(payload)
    own = {framing.seen, Confluent.seen} if isinstance(framing, ConfluentHeader) else {framing.seen}
    return None if found in own else found


def _last(headers: Headers, name: str) -> bytes | None:
    """The last header of a name, as Kafka's own clients take it. A header may be null, which is as none."""
    return next((value for one, value in reversed(headers) if one == name), None)


def _numbered(data: bytes, kind: str, size: int) -> tuple[SchemaName, bytes]:
    """The number behind a zero byte, and what follows."""
    if data[:1] != MAGIC or len(data) <= size:
        raise ValueError("no zero byte and id")
    return _known(kind, data[1 : 1 + size]), data[1 + size :]


def _known(kind: str, data: bytes) -> SchemaName:
    number = int.from_bytes(data, "big")
    if number not in _IDS:
        raise ValueError("no schema id")
    return SchemaName(kind, number)
