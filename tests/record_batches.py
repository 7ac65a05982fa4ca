"""Record batches as a broker stores them, for tests without one."""

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from susurrus.topics.scanning import Section

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def record_batch(
    values: Sequence[bytes | None],
    *,
    first: int = 0,
    keys: Sequence[bytes | None] | None = None,
    offsets: Sequence[int] | None = None,
    codec: int = 0,
    append_time: bool = False,
    headers: Sequence[tuple[str, bytes | None]] = (),
    stamp: int = 1_000,
) -> bytes:
    """Message format 2. offsets: from the first record on; compaction removed others. A time stamp is ``stamp`` + offset."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    offsets = range(len(values)) if offsets is None else offsets
    keys = [b"k"] * len(values) if keys is None else keys
    for offset, key, value in zip(offsets, keys, values, strict=True):
        when = stamp + first + offset
        assert builder.append(offset, timestamp=when, key=key, value=value, headers=list(headers)) is not None
    data = bytearray(builder.build())
    data[:8] = struct.pack(">q", first)
    if append_time:
        data[22] |= 0x08
    return bytes(data)


def section_of(batch: bytes) -> Section:
    """The section of an uncompressed batch; the data have other bytes around it."""
    base_offset, attributes, first, largest, count = struct.unpack(">q13xhxxxxqq14xi", batch[:61])
    padding = b"\xffpadding"
    return Section(
        padding + batch + padding,
        len(padding) + 61,
        len(padding) + len(batch),
        base_offset,
        first,
        largest,
        bool(attributes & 8),
        count,
    )
