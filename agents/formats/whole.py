"""The source of the compiled decoders (topics/raw_batches.py, topics/values_batches.py), where record batches can be decoded whole.

`[input]`, format ──source_of──▶ JsonSource, or FramedSource with the programs of the format ──▶ decoder of record batches

Whether a record waits for its schema is decided where records are read one by one (waiting.py). So a program is made only of what
the format has already found. A fetch that names anything else is read there as a whole, and is found for the next one.
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
from susurrus.topics.records.scanning import JsonSource, Scanned, UnknownNumbers, ValueSource


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

    def read(self, scanned: Scanned) -> Iterator[Chunk]:
        """Reads as `ValueSource.read` does. Raises UnknownNumbers where a record would have to wait."""
        return self._applied(self._read(scanned))

    def _read(self, scanned: Scanned) -> Iterator[Chunk]:
        records, read = scanned.rest(), 0
        for chunk in self._reader.read(records, lambda _: False):
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
        """Learns as `ValueSource.learn` says, and nothing where it cannot learn all."""
        found = [self._programs.of(number) for number in numbers]
        for number, one in zip(numbers, found, strict=True):
            if one is not None:
                self.framed.add(number, *one)
        return None not in found

    def read(self, scanned: Scanned) -> Iterator[Chunk]:
        """Reads as `ValueSource.read` does. Raises UnknownNumbers where a record would have to wait."""
        records, form, read = scanned.rest(), self._form, 0
        headers = [record.headers for record in records] if form.reads_headers else None
        for chunk in form.read([record.value for record in records], lambda _: False, headers):
            read += chunk.rows
            yield chunk
        if read < len(records):
            raise UnknownNumbers
