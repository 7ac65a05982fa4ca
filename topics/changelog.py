"""The changelogs: what each commit of a stage did to the state of one partition, one packed record per commit.

The record also carries the authority on the input position. It is cut into chunks below the topic's max.message.bytes;
the chunks of a commit lie next to each other in the log, because one transaction of one producer wrote them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from susurrus.topics.packing import Kind, MalformedRecord, Reader, Writer

VERSION = 1
_CHUNK_OVERHEAD = 2 + 8 * 4


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


def encode(record: ChangelogRecord, max_bytes: int = 900_000) -> list[bytes]:
    """One or more chunks of at most max_bytes each. Raises ValueError for an empty key or too small max_bytes."""
    room = max_bytes - _CHUNK_OVERHEAD
    if room < 1:
        raise ValueError(f"max_bytes={max_bytes} leaves no room for a chunk: raise max.message.bytes")
    keys = [key for key, _ in record.puts]
    if b"" in keys or b"" in record.deletes:
        raise ValueError("a state key is empty")
    writer = Writer(Kind.COMMIT, VERSION)
    topic_id = record.topic_id.encode()
    for scalar in (len(topic_id), len(record.meta), len(record.puts), len(record.deletes)):
        writer.scalar(scalar)
    writer.raw(topic_id)
    writer.raw(record.meta)
    writer.blobs(keys)
    writer.blobs([value for _, value in record.puts])
    writer.blobs(record.deletes)
    body = writer.finish()
    pieces = [body[start : start + room] for start in range(0, len(body), room)]
    return [_chunk(record.next_position, len(body), i, len(pieces), piece) for i, piece in enumerate(pieces)]


def _chunk(position: int, total: int, index: int, count: int, piece: bytes) -> bytes:
    writer = Writer(Kind.COMMIT, VERSION)
    for scalar in (position, total, index, count):
        writer.scalar(scalar)
    writer.raw(piece)
    return writer.finish()


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
        reader = Reader(chunk, Kind.COMMIT, VERSION)
        position, total, index, count = reader.scalar(), reader.scalar(), reader.scalar(), reader.scalar()
        expected = self._expected or (position, total, count)
        if (position, total, count) != expected or index != len(self._pieces) or not 0 <= index < count:
            raise MalformedRecord(f"chunk index={index} of {count} where {len(self._pieces)} was expected")
        self._pieces.append(reader.raw(len(chunk) - _CHUNK_OVERHEAD))
        if index + 1 < count:
            self._expected = expected
            return None
        body = b"".join(self._pieces)
        self._pieces, self._expected = [], None
        if len(body) != total:
            raise MalformedRecord(f"commit of {len(body)} bytes where {total} were written")
        return _decode_body(position, body)


def _decode_body(position: int, body: bytes) -> ChangelogRecord:
    reader = Reader(body, Kind.COMMIT, VERSION)
    id_size, meta_size = reader.count(bytes_each=1), reader.count(bytes_each=1)
    n_puts, n_deletes = reader.count(), reader.count()  # keys are at least one byte
    try:
        topic_id = reader.raw(id_size).decode()
    except UnicodeDecodeError:
        raise MalformedRecord("topic id is not UTF-8") from None
    meta = reader.raw(meta_size)
    keys, values = reader.blobs(n_puts), reader.blobs(n_puts)
    deletes = reader.blobs(n_deletes)
    reader.finish()
    return ChangelogRecord(position, topic_id, meta, list(zip(keys, values, strict=True)), deletes)
