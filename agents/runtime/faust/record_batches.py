"""What one fetch brought of a partition, as the record batches that the broker sent: parsed only where somebody asks for records.

The transport makes them once aiokafka has decided which of them are to be read and has checked their checksums. A stage with a
compiled decoder takes the bytes (`Fetched.sections`), and a reader that looks at nothing but values their places (`Fetched.table`).
Every other one takes the records (`Fetched.records`), which aiokafka parses. topics/record_batch.py does where aiokafka refuses
what brokers take, or may read it otherwise.
"""

import contextlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.record.memory_records import MemoryRecords

from susurrus.agents.formats.waiting import UnreadableBatch
from susurrus.topics.record_batch import lay_out, parse, usual
from susurrus.topics.records.layout import RecordLayout
from susurrus.topics.records.scanning import DecompressedBatch
from susurrus.topics.records.table import RecordTable
from susurrus.topics.wire.batch_reader import MalformedBatch

_HEADER: Final = struct.Struct(">q13xhiqq14xi")
"""Base offset, attributes, the last record's offset less that, first and largest time stamp, number of records."""
_LENGTH: Final = 8
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22
"""Where these are; of the attributes, the second byte."""
_CODEC, _APPEND_TIME = 0x07, 0x08
_DECODE: Final[dict[int, Callable[[Any], bytes]]] = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}


class KeptRecords(MemoryRecords):
    """aiokafka's record batches of one fetch, and the bytes that they are in, which its own class keeps to itself."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """A record batch of message format 2, as it was stored: ``data[first:last]``. Its checksum is right.

    offset: of its last record, or of one behind it that was compacted away; aiokafka takes the batch for a single record.
    """

    data: bytes
    first: int
    last: int
    offset: int

    def records(self) -> list[Any]:
        """aiokafka's records, or the same as Record. Raises UnreadableBatch."""
        section = self.section()
        if usual(section):
            with contextlib.suppress(Exception):  # of a header's name that is no UTF-8, for example
                found = list(MemoryRecords(self._plain(section)).next_batch())
                begin = section.base_offset
                if [record.offset for record in found] == list(range(begin, begin + section.number)):
                    return found
        try:
            return parse(section)
        except MalformedBatch as error:
            raise self._unreadable(error) from None

    def _plain(self, section: DecompressedBatch) -> bytes:
        """The same batch, not compressed; its checksum is the old one."""
        if section.data is self.data:
            return self.data[self.first : self.last]
        header = bytearray(self.data[self.first : self.first + _HEADER.size])
        struct.pack_into(">i", header, _LENGTH, _HEADER.size - _LENGTH - 4 + len(section.data))
        header[_ATTRIBUTES] &= ~_CODEC & 0xFF
        return bytes(header) + section.data

    def section(self) -> DecompressedBatch:
        """The same for a decoder of its own, decompressed. Raises UnreadableBatch."""
        base_offset, attributes, delta, first, largest, number = _HEADER.unpack_from(self.data, self.first)
        data, start, end = self.data, self.first + _HEADER.size, self.last
        if codec := attributes & _CODEC:
            try:
                data = _DECODE[codec](memoryview(data)[start:end])
            except Exception as error:  # decompressors of damaged bytes may raise anything
                raise self._unreadable(error) from None
            start, end = 0, len(data)
        stamped = bool(attributes & _APPEND_TIME)
        return DecompressedBatch(data, start, end, base_offset, first, largest, stamped, number, delta + 1)

    def laid_out(self) -> tuple[DecompressedBatch, RecordLayout]:
        """The same, and where the parts of its records are. Raises UnreadableBatch."""
        section = self.section()
        try:
            return section, lay_out(section)
        except MalformedBatch as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> UnreadableBatch:
        [base_offset] = struct.unpack_from(">q", self.data, self.first)
        return UnreadableBatch(base_offset, type(error).__name__)


def batch_at(data: bytes, at: int) -> tuple[RecordBatch | None, int]:
    """The record batch that begins at a place, None where it is of an older message format or empty; and where it ends."""
    [length] = struct.unpack_from(">i", data, at + 8)
    end = at + 12 + length
    if data[at + _MAGIC] < 2 or length < _HEADER.size - 12:
        return None, end
    base_offset, _, delta, _, _, number = _HEADER.unpack_from(data, at)
    return (RecordBatch(data, at, end, base_offset + delta) if number > 0 else None), end


class Fetched:
    """The records from the offset ``start`` on of consecutive batches. batches: of older formats, lists of parsed records."""

    def __init__(self, batches: Sequence[RecordBatch | list[Any]], start: int) -> None:
        self._batches, self.start = batches, start

    def sections(self) -> list[DecompressedBatch] | None:
        """All batches for a decoder of its own, which leaves out what is before ``start``; None where some are parsed already.

        Raises UnreadableBatch.
        """
        if any(isinstance(batch, list) for batch in self._batches):
            return None
        return [batch.section() for batch in self._batches if isinstance(batch, RecordBatch)]

    def table(self) -> RecordTable | None:
        """The records as columns; None where some batches are parsed already. Raises UnreadableBatch."""
        if any(isinstance(batch, list) for batch in self._batches):
            return None
        found = [batch.laid_out() for batch in self._batches if isinstance(batch, RecordBatch)]
        table = RecordTable.of([section for section, _ in found], [layout for _, layout in found])
        return table.from_offset(self.start)

    def records(self) -> list[Any]:
        """The records. Raises UnreadableBatch."""
        batches = (batch if isinstance(batch, list) else batch.records() for batch in self._batches)
        records = list(chain.from_iterable(batches))
        if (
            records and records[0].offset < self.start
        ):  # a record batch comes whole, also where its middle was asked for
            return [record for record in records if record.offset >= self.start]
        return records

    def since(self, start: int) -> "Fetched":
        """The records from an offset on."""
        return Fetched(self._batches, max(start, self.start))
