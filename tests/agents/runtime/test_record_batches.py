"""Record batches as a fetch keeps them: the same records by either way, and an error with a place where there are none."""

import struct
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from susurrus.agents.formats.waiting import UnreadableBatch
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.record_batches import Fetched, KeptRecords, RecordBatch, batch_at
from tests.record_batches import GZIP, LZ4, SNAPPY, ZSTD, record_batch

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


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_what_cannot_be_read_says_where_it_begins(codec: int) -> None:
    """With a right checksum, as this is asked only behind the check."""
    data = record_batch(VALUES, first=1_000, codec=codec)
    broken = bytearray(data)
    broken[61:] = bytes(255 - byte for byte in data[61:])
    [batch] = kept(bytes(broken))
    with pytest.raises(UnreadableBatch) as met:
        batch.records()
    assert met.value.offset == 1_000
    assert met.value.what in {"CorruptRecordException", "BadGzipFile", "DecompressionError"}
    if codec:
        with pytest.raises(UnreadableBatch):
            batch.section()
    unknown = bytearray(data)
    unknown[22] = unknown[22] & ~7 | 5
    for read in (RecordBatch.records, RecordBatch.section):
        with pytest.raises(UnreadableBatch):
            read(kept(bytes(unknown))[0])


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
