"""Reports as clients write them: packed, as Susurrus' own clients do, or records in ``input.format`` by clients of others.

A packed report begins with a byte that neither JSON nor Confluent's wire format begins with. So both kinds may be in one log.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import msgspec

from susurrus.agents.formats.format import Format, Overdue
from susurrus.topics.records.fields import parse_paths
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.reports import encode_one, is_packed
from susurrus.topics.wire.batch_reader import Headers
from susurrus.topics.wire.timestamps import milliseconds_of

FIELDS: Final = ("phase", "threshold_version", "interval", "code")
PATHS: Final = parse_paths(FIELDS)
"""What a format reads of each record."""


class ReportFormat(Format):
    """Reads reports as packed bytes, whichever way they are written. own: the configured format, made for ``PATHS``.

    A chunk has one column, with a row for each payload: None for what is no report.
    """

    def __init__(self, own: Format) -> None:
        super().__init__(own.paths, None)
        self._own = own
        self.patience, self.reads_headers = own.patience, own.reads_headers

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` says."""
        self.waits, start = None, 0
        for packed, run in groupby(payloads, is_packed):
            some = list(run)
            if packed:
                yield Chunk(rows=len(some), columns=[some], refused={})
                start += len(some)
                continue
            end = start + len(some)
            their = None if headers is None else headers[start:end]
            for chunk in self._own.read(some, lambda row, first=start: overdue(first + row), their):  # type: ignore[misc]
                yield Chunk(rows=chunk.rows, columns=[list(_packed(chunk))], refused={})
                start += chunk.rows
            self.waits = self._own.waits
            if start < end:
                return

    def close(self) -> None:
        """Close connections."""
        self._own.close()


def joined(chunks: Iterable[Chunk]) -> list[bytes | None]:
    """The packed reports of all chunks of a `ReportFormat`, None for what is none."""
    return [report for chunk in chunks for report in chunk.columns[0]]


def _packed(chunk: Chunk) -> Iterator[bytes | None]:
    records = zip(*chunk.columns, strict=True)
    for row in range(chunk.rows):
        yield None if row in chunk.refused else _report(*next(records))


def _report(phase: Any, version: Any, interval: Any, code: Any) -> bytes | None:
    if version is None or version is msgspec.UNSET:
        version = 0  # phase 1 has none
    if isinstance(interval, datetime):  # of a schema's own type for instants; one without a zone is none
        interval = None if interval.tzinfo is None else milliseconds_of(interval)
    if any(type(field) is not int for field in (phase, version, interval, code)) or phase not in (1, 2):
        return None
    try:
        return encode_one(phase=phase, threshold_version=version, interval=interval, code=code)
    except OverflowError:
        return None
