"""The records of a fetch as columns: values are had as one list, and an object is made only of a record that is asked for.

record batches ──record_batch.lay_out──▶ places ──RecordTable.of──▶ offsets, time stamps, values
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.layout import RecordLayout
from susurrus.topics.records.scanning import DecompressedBatch, InputRecord
from susurrus.topics.wire.batch_reader import Headers, unpack_headers
from susurrus.topics.wire.packing import Int64s

_KEY, _VALUE, _HEADERS = 0, 2, 4
"""Where these begin among the places of a `RecordLayout`."""
_NO_HEADERS = b"\0"
"""Their number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTable(Sequence[InputRecord]):
    """Records in the order of the log.

    sections: the record batches; owner: int64[n], each record's among them, which rises. places: int64[6, n], as of
    `RecordLayout`. offset, timestamp: int64[n]. timestamp_type: uint8[n].
    """

    sections: Sequence[DecompressedBatch]
    owner: Int64s
    places: Int64s
    offset: Int64s
    timestamp: Int64s
    timestamp_type: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, sections: Sequence[DecompressedBatch], layouts: Sequence[RecordLayout]) -> Self:
        """All records of some record batches, and the layout of each."""
        nothing = np.zeros(0, np.int64)
        counts = [len(layout.offset) for layout in layouts]
        return cls(
            sections=sections,
            owner=np.repeat(np.arange(len(sections)), counts),
            places=np.concatenate([np.zeros((6, 0), np.int64), *(layout.places for layout in layouts)], axis=1),
            offset=np.concatenate([nothing, *(layout.offset for layout in layouts)]),
            timestamp=np.concatenate([nothing, *(layout.timestamp for layout in layouts)]),
            timestamp_type=np.repeat(np.array([section.append_time for section in sections], np.uint8), counts),
        )

    def __len__(self) -> int:
        return len(self.offset)

    @overload
    def __getitem__(self, row: int) -> InputRecord: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> InputRecord | Self:
        """A copy of one record, or the table of some."""
        if not isinstance(row, slice):
            row = range(len(self))[row]
            [record] = self[row : row + 1]
            return record
        return type(self)(
            sections=self.sections,
            owner=self.owner[row],
            places=self.places[:, row],
            offset=self.offset[row],
            timestamp=self.timestamp[row],
            timestamp_type=self.timestamp_type[row],
        )

    def __iter__(self) -> Iterator[InputRecord]:
        columns = (self.offset, self.timestamp, self.timestamp_type)
        texts = (self._texts(part) for part in (_KEY, _VALUE, _HEADERS))
        return starmap(InputRecord, zip(*(column.tolist() for column in columns), *texts, strict=True))

    def values(self) -> list[bytes | None]:
        """The value of each record."""
        return self._texts(_VALUE)

    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return self._texts(_KEY)

    def headers(self) -> list[Headers]:
        """The headers of each record, in their order."""
        return [
            [] if packed is None or packed == _NO_HEADERS else unpack_headers(packed)
            for packed in self._texts(_HEADERS)
        ]

    def from_offset(self, offset: int) -> Self:
        """The records from an offset on."""
        return self[int(np.searchsorted(self.offset, offset)) :]

    def below(self, offset: int) -> Self:
        """The records before an offset."""
        return self[: int(np.searchsorted(self.offset, offset))]

    def _texts(self, part: int) -> list[bytes | None]:
        begin, end = self.places[part], self.places[part + 1]
        found: list[bytes | None] = []
        cuts = np.searchsorted(self.owner, np.arange(len(self.sections) + 1)).tolist()
        for section, (first, last) in zip(self.sections, pairwise(cuts), strict=True):
            data, places = section.data, zip(begin[first:last].tolist(), end[first:last].tolist(), strict=True)
            found += [data[start:stop] for start, stop in places]
        for row in np.flatnonzero(begin < 0).tolist():
            found[row] = None
        return found


def keys_of(records: Sequence[Any]) -> list[bytes | None]:
    """The key of each record, of a table or of single ones."""
    return records.keys() if isinstance(records, RecordTable) else [record.key for record in records]


def values_of(records: Sequence[Any]) -> list[bytes | None]:
    """The value of each record, of a table or of single ones."""
    return records.values() if isinstance(records, RecordTable) else [record.value for record in records]


def headers_of(records: Sequence[Any]) -> Sequence[Headers]:
    """The headers of each record, of a table or of single ones."""
    return records.headers() if isinstance(records, RecordTable) else [record.headers for record in records]


def timestamps_of(records: Sequence[Any]) -> Int64s:
    """int64[n]: the time stamp of each record, of a table or of single ones."""
    if isinstance(records, RecordTable):
        return records.timestamp
    return np.fromiter((record.timestamp for record in records), np.int64, len(records))
