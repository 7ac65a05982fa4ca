"""Record batches as a fetch keeps them: the same records by either way, and an error with a place where there are none."""

import struct
from typing import Any

import pytest
from aiokafka.codec import lz4_encode
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from susurrus.agents.finding import Finding
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.reading import of_values
from susurrus.agents.formats.waiting import Intake, UnreadableBatch
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.record_batches import Fetched, KeptRecords, RecordBatch, batch_at
from susurrus.topics.compiled import compiled
from susurrus.topics.raw_batches import RawBatchDecoder
from susurrus.topics.record_batch import parse
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.table import RecordTable
from susurrus.topics.wire.batch_reader import MalformedBatch
from tests.record_batches import GZIP, LZ4, SNAPPY, ZSTD, odd_batches, record_batch, zigzag

VALUES = [b"a", None, b"", b"long " * 200]


def kept(data: bytes) -> list[RecordBatch]:
    found, at = [], 0
    while at < len(data):
        batch, at = batch_at(data, at)
        if batch is not None:
            found.append(batch)
    return found


def facts(records: list[Any]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in records]


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_section_holds_what_aiokafka_parses(codec: int, append_time: bool) -> None:
    data = record_batch(VALUES, first=100, offsets=[0, 3, 4, 9], codec=codec, append_time=append_time)
    [batch] = kept(b"".join([record_batch([], first=90), data]))
    assert batch.offset == 109
    parsed = batch.records()
    assert facts(parsed) == facts(list(MemoryRecords(data).next_batch()))
    section = batch.section()
    plain = record_batch(VALUES, first=100, offsets=[0, 3, 4, 9], append_time=append_time)
    assert section.data[section.first : section.last] == plain[61:]
    assert (section.base_offset, section.number, section.append_time) == (100, 4, append_time)
    assert (section.first_timestamp, section.max_timestamp) == (1_100, 1_109)


@pytest.mark.parametrize("start", range(99, 112))
def test_records_before_the_start_are_left_out(start: int) -> None:
    data = record_batch(VALUES, first=100) + record_batch(VALUES, first=106, codec=LZ4)
    offsets = [*range(100, 104), *range(106, 110)]
    fetched = Fetched(kept(data), 100)
    assert [r.offset for r in fetched.since(start).records()] == [o for o in offsets if o >= start]
    table = fetched.since(start).table()
    assert table is not None
    assert facts(list(table)) == facts(fetched.since(start).records())
    assert fetched.since(start).since(0).start == max(100, start)
    batch = Batch(100, 110, fetched, 1)  # type: ignore[arg-type]
    batch.cut(start)  # type: ignore[arg-type]
    assert [r.offset for r in batch.records] == [o for o in offsets if o >= start]
    parsed = Batch(100, 110, Fetched(kept(data), 100).records(), 1)  # type: ignore[arg-type]
    parsed.cut(start)  # type: ignore[arg-type]
    assert facts(parsed.records) == facts(batch.records)


def test_older_message_formats_are_parsed() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, timestamp=5, key=b"k", value=b"v")
    data = builder.build() + record_batch([b"w"], first=1)
    old, at = batch_at(bytes(data), 0)
    assert old is None
    new, end = batch_at(bytes(data), at)
    assert (new is not None and new.offset, end) == (1, len(data))
    assert Fetched([[object()], new], 0).sections() is None  # type: ignore[list-item]
    assert Fetched([[object()], new], 0).table() is None  # type: ignore[list-item]


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_what_cannot_be_read_says_where_it_begins(codec: int) -> None:
    """With a right checksum, as this is asked only behind the check."""
    data = record_batch(VALUES, first=1_000, codec=codec)
    broken = bytearray(data)
    broken[61:] = bytes(255 - byte for byte in data[61:])
    [batch] = kept(bytes(broken))
    for read in (batch.records, batch.laid_out):
        with pytest.raises(UnreadableBatch) as met:
            read()
        assert met.value.offset == 1_000
        assert met.value.what in {"MalformedBatch", "BadGzipFile", "DecompressionError"}
    if codec:
        with pytest.raises(UnreadableBatch):
            batch.section()
    unknown = bytearray(data)
    unknown[22] = unknown[22] & ~7 | 5
    for of_unknown in (RecordBatch.records, RecordBatch.section, RecordBatch.laid_out):
        with pytest.raises(UnreadableBatch):
            of_unknown(kept(bytes(unknown))[0])


def test_the_kept_bytes_are_those_that_aiokafka_reads() -> None:
    data = b"".join(record_batch(VALUES[:n], first=10 * n) for n in range(1, 5)) + b"\0" * 11
    records, at, number = KeptRecords(data), 0, 0
    while records.has_next():
        theirs, number = records.next_batch(), number + 1
        ours, at = batch_at(records.data, at)
        assert ours is not None
        assert facts(ours.records()) == facts(list(theirs))
        assert struct.unpack_from(">q", data, ours.first) == (theirs.base_offset,)
    assert number == 4
    assert records.size_in_bytes() == len(data)


def table_of(batch: RecordBatch) -> list[Any]:
    section, layout = batch.laid_out()
    return list(RecordTable.of([section], [layout]))


def outcomes(batch: RecordBatch) -> list[list[tuple[Any, ...]] | None]:
    """What a stage gets of a batch, and what the definition says of it; None where it cannot be read."""
    found: list[list[tuple[Any, ...]] | None] = []
    for read in (batch.records, lambda: table_of(batch), lambda: parse(batch.section())):
        try:
            found.append(facts(read()))
        except (UnreadableBatch, MalformedBatch):
            found.append(None)
    return found


@pytest.mark.parametrize("codec", [0, LZ4])
def test_whoever_parses_a_batch_the_records_are_the_same(codec: int) -> None:
    """Every bit of one changed, its end cut off, and batches that only brokers take: with the right checksum, as it were."""
    data = record_batch(
        [b"{}", None, b'{"u":1}', b"x" * 130], first=7, keys=[b"k", None, b"", b"l"], headers=[("h", b"v")]
    )
    changed = [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(57, len(data)) for bit in range(8)
    ]
    read = 0
    for stored in [
        data,
        *changed,
        *(data[:at] for at in range(61, len(data))),
        *(b for b, _ in odd_batches(5).values()),
    ]:
        if codec:
            stored = bytearray(stored[:61] + lz4_encode(stored[61:]))  # type: ignore[assignment]
            stored[22] |= codec  # type: ignore[index]
        found, table, wanted = outcomes(RecordBatch(bytes(stored), 0, len(stored), 0))
        assert found == table == wanted
        read += found is not None
    assert read > 900


@pytest.mark.parametrize("late", [2**40, -(2**40), 2**62 - 1, -(2**62), 2**62, 2**63 - 1, -(2**63)])
def test_a_record_may_be_written_any_time_after_its_batchs_first(late: int) -> None:
    body = b"\0" + zigzag(late) + b"\2" + b"\1\1\0"
    text = b"\x0c\0\0\0\1\1\0" + bytes([2 * len(body)]) + body
    header = bytearray(record_batch([b"", b""], stamp=0)[:61])
    header[8:12] = struct.pack(">i", 49 + len(text))
    stored = bytes(header) + text
    found, table, wanted = outcomes(RecordBatch(stored, 0, len(stored), 0))
    assert found == table == wanted
    assert found is not None
    assert [stamp for _, stamp, *_ in found] == [0, late]


@pytest.mark.parametrize("codec", [0, LZ4])
def test_offsets_are_places_in_the_batch_whatever_records_say(codec: int) -> None:
    """Brokers do not compare them where the batch is not compressed. As it was: offsets 7, 8, 7, and the next batch began at 10."""
    data = bytearray(record_batch([b'{"u":1,"k":"a"}', b'{"u":2,"k":"b"}', b'{"u":1,"k":"c"}'], first=7, codec=0))
    at = data.rindex(b'{"u":1,"k":"c"}') - 4
    assert data[at] == 2 * 2  # the offset, less the first
    data[at] = 0
    if codec:
        data[61:] = lz4_encode(bytes(data[61:]))
        data[8:12], data[22] = struct.pack(">i", len(data) - 12), LZ4
    schema = RawSchema(user=("u",), key=("k",))
    found = []
    for whole, tabled in [(True, True)] * (compiled is not None) + [(False, True), (False, False)]:
        decoder = RawDecoder(schema)
        reader = of_values(Json(decoder.paths, None))
        intake = Intake(
            reader,
            lambda chunks, records, decoder=decoder: decoder.decode(chunks),
            position=7,
            stage="s",
            topic="t",
            partition=0,
            watermarks=lambda topic, partition: (0, 0),
            whole=RawBatchDecoder(schema) if whole else None,
        )
        fetched = Fetched(kept(bytes(data)), 7)
        intake.take(fetched if whole or tabled else fetched.records(), 10)
        assert intake.pending
        assert intake.position == 7
        records, columns, beyond = intake.decode(0)
        assert not intake.pending
        assert intake.position == 10
        found.append((facts(list(records)), columns.user.tolist(), columns.users, columns.keys, beyond))
    assert all(one == found[0] for one in found)
    assert [offset for offset, *_ in found[0][0]] == [7, 8, 9]


def test_fetches_that_come_before_the_last_one_is_decoded_are_decoded_with_it() -> None:
    schema = RawSchema(user=("u",), key=("k",))
    decoder = RawDecoder(schema)
    intake = Intake(
        of_values(Json(decoder.paths, None)),
        lambda chunks, records: decoder.decode(chunks),
        position=0,
        stage="s",
        topic="t",
        partition=0,
        watermarks=lambda topic, partition: (0, 0),
        whole=RawBatchDecoder(schema) if compiled is not None else None,
    )
    for first in (0, 3, 6):
        intake.take(Fetched(kept(record_batch([b'{"u":%d,"k":1}' % first] * 3, first=first)), first), first + 3)
        assert intake.position == 0
    records, columns, _ = intake.decode(0, below=8)
    assert [record.offset for record in records] == list(range(8))
    assert columns.users == [b"0", b"3", b"6"]
    assert not intake.due


@pytest.mark.parametrize("below", [None, 3, 5, 8, 20])
def test_records_of_a_table_may_wait(below: int | None) -> None:
    """A format that reads some records at a time, and stops: the rest is held, and is there again, before what comes later."""
    decoder = RawDecoder(RawSchema(user=("u",), key=("k",)))

    class Slow(Json):
        known = 0

        def read(self, payloads: Any, overdue: Any, headers: Any = None) -> Any:
            some = payloads[: self.known]
            self.waits = None if len(some) == len(payloads) else Finding("schema", "warning", "it is not known")
            return super().read(some, overdue, headers)

    form = Slow(decoder.paths, None)
    intake = Intake(
        of_values(form),
        lambda chunks, records: decoder.decode(chunks),
        position=0,
        stage="s",
        topic="t",
        partition=0,
        watermarks=lambda topic, partition: (0, 0),
    )
    values = [b'{"u":%d,"k":%d}' % (row % 3, row) for row in range(14)]
    intake.take(Fetched(kept(record_batch(values[:10])), 0), 10)
    assert len(intake.decode(0, below)[0]) == 0
    found: list[Any] = []
    for known in (4, 2, 20):
        form.known = known
        records, columns, _ = intake.decode(0, below)
        assert columns.keys == [record.value.split(b":")[-1][:-1] for record in records]
        found += records
        if known == 2:
            intake.take(Fetched(kept(record_batch(values[10:], first=10)), 10), 14)
    end = 14 if below is None else min(below, 14)
    assert [(record.offset, record.value) for record in found] == list(enumerate(values[:end]))
