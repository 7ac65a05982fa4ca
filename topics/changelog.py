"""The changelogs: what each commit of a stage did to the state of one partition, one packed record per commit.

The record also carries the authority on the input position. It is cut into chunks below the topic's max.message.bytes;
the chunks of a commit lie next to each other in the log, because one transaction of one producer wrote them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from susurrus.topics.wire.blocks import BlockRecord, Bytes, Codec, HeaderCount, Items, Rest, Scalar
from susurrus.topics.wire.packing import Kind, MalformedRecord


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """One commit.

    next_position: the input offset to read next. topic_id: the input topic's id, so that a recreated topic is seen.
    meta: the stage's own small facts (msgpack). puts: (key, value) in order. deletes: keys, applied before the puts.
    """

    next_position: int
    topic_id: str
    meta: bytes = b""
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    deletes: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Body(BlockRecord):
    """The pieces of a commit, joined."""

    topic_id: Annotated[bytes, Bytes("topic_id")]
    meta: Annotated[bytes, Bytes("meta")]
    keys: Annotated[list[bytes], Items("puts")]
    values: Annotated[list[bytes], Items("puts", empty=True)]
    deletes: Annotated[list[bytes], Items("deletes")]


@dataclass(frozen=True, slots=True)
class _Chunk(BlockRecord):
    """One of ``count`` pieces of a body of ``total`` bytes."""

    position: Annotated[int, Scalar()]
    total: Annotated[int, Scalar()]
    index: Annotated[int, Scalar()]
    count: Annotated[int, Scalar()]
    piece: Annotated[bytes, Rest()]


_CHUNK = Codec(_Chunk, Kind.COMMIT)
_CHUNK_OVERHEAD = _CHUNK.size(_Chunk(0, 0, 0, 0, b""))
_BODY = Codec(_Body, Kind.COMMIT, [HeaderCount(name) for name in ("topic_id", "meta", "puts", "deletes")])


def encode(record: ChangelogRecord, max_bytes: int = 900_000) -> list[bytes]:
    """One or more chunks of at most max_bytes each. Raises ValueError for an empty key or too small max_bytes."""
    room = max_bytes - _CHUNK_OVERHEAD
    if room < 1:
        raise ValueError(f"max_bytes={max_bytes} leaves no room for a chunk: raise max.message.bytes")
    keys, values = [key for key, _ in record.puts], [value for _, value in record.puts]
    body = _BODY.encode(_Body(record.topic_id.encode(), record.meta, keys, values, record.deletes))
    pieces = [body[start : start + room] for start in range(0, len(body), room)]
    chunks = [_Chunk(record.next_position, len(body), i, len(pieces), piece) for i, piece in enumerate(pieces)]
    return [_CHUNK.encode(chunk) for chunk in chunks]


def decode(chunks: Sequence[bytes]) -> ChangelogRecord:
    """The commit of all its chunks, in order. Raises MalformedRecord."""
    assembler = Assembler()
    record = None
    for chunk in chunks:
        if record is not None:
            raise MalformedRecord("chunks follow the end of a commit")
        record = assembler.feed(chunk)
    if record is None:
        raise MalformedRecord(f"{len(chunks)} chunks are no whole commit")
    return record


class Assembler:
    """Puts the chunks of a changelog partition together while it is read from any commit's start to its end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._expected: tuple[int, int, int] | None = None

    @property
    def pending(self) -> bool:
        """True inside a commit: at the end of a read_committed log this means that chunks are missing."""
        return bool(self._pieces)

    def feed(self, chunk: bytes) -> ChangelogRecord | None:
        """The commit, when this chunk is its last. Raises MalformedRecord, also for a gap between chunks."""
        found = _CHUNK.decode(chunk)
        expected = self._expected or (found.position, found.total, found.count)
        number = len(self._pieces)
        if (found.position, found.total, found.count) != expected or not found.index == number < found.count:
            raise MalformedRecord(f"chunk index={found.index} of {found.count} where {number} was expected")
        self._pieces.append(found.piece)
        if number + 1 < found.count:
            self._expected = expected
            return None
        body = b"".join(self._pieces)
        self._pieces, self._expected = [], None
        if len(body) != found.total:
            raise MalformedRecord(f"commit of {len(body)} bytes where {found.total} were written")
        return _decode_body(found.position, body)


def _decode_body(position: int, body: bytes) -> ChangelogRecord:
    found = _BODY.decode(body)
    try:
        topic_id = found.topic_id.decode()
    except UnicodeDecodeError:
        raise MalformedRecord("topic id is not UTF-8") from None
    puts = list(zip(found.keys, found.values, strict=True))
    return ChangelogRecord(position, topic_id, found.meta, puts, found.deletes)
