"""Record batches as a broker stores them, for tests without one."""

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from susurrus.topics.records.scanning import DecompressedBatch

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


def section_of(batch: bytes) -> DecompressedBatch:
    """The section of an uncompressed batch; the data have other bytes around it."""
    base_offset, attributes, delta, first, largest, count = struct.unpack(">q13xhiqq14xi", batch[:61])
    padding = b"\xffpadding"
    return DecompressedBatch(
        padding + batch + padding,
        len(padding) + 61,
        len(padding) + len(batch),
        base_offset,
        first,
        largest,
        bool(attributes & 8),
        count,
        delta + 1,
    )


def odd_batches(
    stamp: int, values: Sequence[bytes] = (b'{"u":1}', b'{"u":2}', b'{"u":3}')
) -> dict[str, tuple[bytes, list[tuple[int, bytes | None, bytes | None]]]]:
    """Batches of three records as no careful client writes them and as brokers take them; and each record's time stamp, key and
    value. The checksum is right. values: below 60 bytes each, of one length."""
    usual: list[tuple[int, bytes | None, bytes | None]] = [(stamp + row, b"k", values[row]) for row in range(3)]
    plain = record_batch(values, stamp=stamp)
    named = record_batch(values, stamp=stamp, headers=[("name", b"v")])
    size = len(plain[61:]) // 3
    found = {
        "a header's name is no text": (named.replace(b"name", b"n\xff\xfee", 1), usual),
        "names of three headers are no text": (named.replace(b"name", b"\x00\xff\xc3("), usual),
    }
    for name, deltas in {"same": (0, 0, 0), "falling": (4, 2, 0), "beyond": (0, 100, 4), "negative": (1, 3, 5)}.items():
        data = bytearray(plain)
        for row, delta in enumerate(deltas):
            data[61 + row * size + 3] = delta
        found[f"offsets: {name}"] = bytes(data), usual
    for attributes in (0x7F, 0x80, 0xFF):
        data = bytearray(plain)
        data[62 + size] = attributes
        found[f"attributes: {attributes:#x}"] = bytes(data), usual
    # A length of -2 is none to brokers, as -1 is. The key's byte goes to the value.
    data = bytearray(plain)
    at = 61 + size + 4
    assert data[at : at + 2] == b"\2k"
    value = values[1]
    data[at : at + 3 + len(value)] = b"\3" + bytes([2 * len(value) + 2]) + value + b" "
    found["a negative length of a key"] = bytes(data), [usual[0], (usual[1][0], None, value + b" "), usual[2]]
    return {name: (checked(bytes(data)), records) for name, (data, records) in found.items()}


def checked(batch: bytes) -> bytes:
    """The batch with its right checksum."""
    return batch[:17] + struct.pack(">I", calc_crc32c(batch[21:])) + batch[21:]


def zigzag(number: int, *, longer: int = 0) -> bytes:
    """A signed number of 64 bits as Kafka and Avro write it, in so many bytes more than it needs."""
    word = (number << 1 ^ number >> 63) & 2**64 - 1
    groups = [word >> 7 * place & 0x7F for place in range(max(1, -(-word.bit_length() // 7)) + longer)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])
