"""The source of the compiled decoders (topics/raw_batches.py, topics/values_batches.py), where record batches can be decoded whole.

`[input]`, format ──source_of──▶ JsonSource, or FramedSource with the programs of the format ──▶ decoder of record batches

A schema that a fetch names for the first time is asked for before the fetch is read. The format reads records one by one whose
schema cannot be had: they are bad input if they are overdue. A fetch in which a record has to wait is read in waiting.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from susurrus.agents.formats import is_bare
from susurrus.agents.formats.format import Format, Programs
from susurrus.agents.formats.reader import RecordReader
from susurrus.agents.formats.reading import RecordSection, is_plain
from susurrus.topics.compiled import compiled
from susurrus.topics.records.fields import BESIDE, Path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.scanning import JsonSource, Over, Scanned, UnknownNumbers, ValueSource, over_by_row


def source_of(source: RecordSection, form: Format | None, paths: Sequence[Path]) -> ValueSource | None:
    """What reads the fields at ``paths`` of a raw topic in compiled code; None where only its format can.

    form: the format, made for these paths; None where none was made, and then only plain JSON is read.
    """
    if compiled is None or source.lists or any(path[:1] == (BESIDE,) for path in paths):
        return None
    if is_plain(source, paths):
        return JsonSource(paths)
    if form is None or not is_bare(source):
        return None
    distinct = list(dict.fromkeys(paths))
    programs = form.programs(distinct)
    return None if programs is None else FramedSource(form, programs, len(distinct))


class ComputedSource:
    """Values of ``source``, of which some are filtered or scalars computed.

    reader, applied: how the rows left are read and computed, as everywhere else (computation.py).
    """

    def __init__(
        self, source: ValueSource, reader: RecordReader, applied: Callable[[Iterable[Chunk]], Iterator[Chunk]]
    ) -> None:
        self._source, self._reader, self._applied = source, reader, applied
        self.framed, self.learn = source.framed, source.learn

    def read(self, scanned: Scanned, over: Over) -> Iterator[Chunk]:
        """Reads as `ValueSource.read` does."""
        return self._applied(self._read(scanned, over))

    def _read(self, scanned: Scanned, over: Over) -> Iterator[Chunk]:
        records, read = scanned.rest(), 0
        for chunk in self._reader.read(records, over_by_row(records, over)):
            read += chunk.payloads
            yield chunk
        if read < len(records):
            raise UnknownNumbers


class FramedSource:
    """Values of a format that has programs, which know ``paths`` distinct paths by their numbers. The format reads the rest."""

    def __init__(self, form: Format, programs: Programs, paths: int) -> None:
        self._form, self._programs = form, programs
        prefix, size, numbers = programs.prefix
        self.framed: Any = compiled.Framed(prefix, size, (numbers.start, numbers.stop - 1), paths)
        for number, program in programs.known():
            self.framed.add(number, program)

    def learn(self, numbers: Sequence[int]) -> bool:
        """Learns as `ValueSource.learn` says."""
        found = list(self._programs.of(sorted(numbers)))
        for number, program in found:
            self.framed.add(number, program)
        return bool(found)

    def read(self, scanned: Scanned, over: Over) -> Iterator[Chunk]:
        """Reads as `ValueSource.read` does."""
        records, form, read = scanned.rest(), self._form, 0
        headers = [record.headers for record in records] if form.reads_headers else None
        for chunk in form.read([record.value for record in records], over_by_row(records, over), headers):
            read += chunk.rows
            yield chunk
        if read < len(records):
            raise UnknownNumbers
