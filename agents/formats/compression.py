"""Payloads that their producers compressed, one by one: Kafka's own compression is none of this.

Few bytes may stand for very many. So what a payload becomes has a bound, which is asked while it is decompressed. A payload is one
member of gzip (RFC 1952) or one frame of zstd (RFC 8878): several would make the work of many small ones hard to bound.
"""

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam

from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import GZIP, ZSTD

_GZIP_BITS: Final = 31  # zlib's number for the header and trailer of gzip
_BLOCK: Final = 1 << 17
"""The most bytes that a block of zstd stands for."""
_RAW, _RLE, _COMPRESSED = range(3)


class Compression(NamedTuple):
    """One way. read: what a payload is, within a bound of its bytes, or why it cannot be had; None where it is as it is."""

    meaning: str
    read: Callable[[bytes, int], bytes | Reason] | None


def gunzip(payload: bytes, limit: int) -> bytes | Reason:
    """One member of gzip, and nothing behind it."""
    reader = zlib.decompressobj(_GZIP_BITS)
    try:
        found = reader.decompress(payload, limit + 1)
    except zlib.error:
        return Reason.NOT_DECOMPRESSED
    whole = reader.eof and not reader.unused_data and len(found) <= limit
    return found if whole else Reason.NOT_DECOMPRESSED


def unzstd(payload: bytes, limit: int) -> bytes | Reason:
    """One frame of zstd, and nothing behind it."""
    size = _most_bytes(payload)
    if size is None:
        return Reason.NOT_DECOMPRESSED
    room = bytearray(min(size, limit))
    try:
        taken = cramjam.zstd.decompress_into(payload, room) if room else len(cramjam.zstd.decompress(payload))
    except cramjam.DecompressionError:  # also where the room is too small
        return Reason.NOT_DECOMPRESSED
    return bytes(memoryview(room)[:taken])


def _most_bytes(payload: bytes) -> int | None:
    """What a frame can become at most, by its blocks' heads; None where it is not one whole frame."""
    if len(payload) < 6 or not payload.startswith(ZSTD):
        return None
    head, at = payload[4], 5
    single = bool(head & 0x20)
    at += (0 if single else 1) + (0, 1, 2, 4)[head & 3]
    at += (1 if single else 0, 2, 4, 8)[head >> 6]
    size = 0
    while at + 3 <= len(payload):
        block = int.from_bytes(payload[at : at + 3], "little")
        last, kind, length = block & 1, block >> 1 & 3, block >> 3
        at += 3 + (1 if kind == _RLE else length)
        size += _BLOCK if kind == _COMPRESSED else length
        if last:
            at += 4 if head & 4 else 0  # a checksum
            return size if at == len(payload) else None
    return None


def either(payload: bytes, limit: int) -> bytes | Reason:
    """Whichever of these it begins as."""
    if payload.startswith(GZIP):
        return gunzip(payload, limit)
    return unzstd(payload, limit) if payload.startswith(ZSTD) else payload


def within(read: Callable[[bytes, int], bytes | Reason], limit: int) -> Callable[[bytes], bytes | Reason]:
    """One way under a bound."""
    return lambda payload: read(payload, limit)


MAX_VALUE_BYTES: Final = 16 << 20
"""The default of `input.max_value_bytes`."""
NONE: Final = "none"
COMPRESSIONS: Final = {
    NONE: Compression("values are not compressed", None),
    "gzip": Compression("all values are one member of gzip", gunzip),
    "zstd": Compression("all values are one frame of zstd", unzstd),
    "auto": Compression("each value is read by its first bytes: gzip, zstd, or as it is", either),
}
"""By their names in the configuration."""
