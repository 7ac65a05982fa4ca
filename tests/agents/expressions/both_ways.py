"""A schema with expressions, decoded by the definition and in compiled code, from records of any format."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.typed import TypedComputation
from susurrus.agents.formats.beside import Beside
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.reader import RecordReader
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.formats.whole import ComputedSource, source_of
from susurrus.topics.raw_batches import RawBatchDecoder
from susurrus.topics.records.fields import Path
from susurrus.topics.records.raw import RawColumns, RawDecoder, RawSchema
from susurrus.topics.records.scanning import InputRecord, Scanned
from susurrus.topics.wire.partitioner import placements
from tests.record_batches import record_batch, section_of
from tests.topics.test_raw_batches import difference


class Both:
    """Both ways, only where ``compiled`` is there. form: makes what reads the values at some paths; by default plain JSON. Raises
    ValueError where one field's path leads through another's."""

    def __init__(
        self,
        schema: RawSchema,
        where: str | None,
        tables: Any = None,
        form: Callable[[Sequence[Path]], Format] | None = None,
    ) -> None:
        self.schema, self._decoder = schema, RawDecoder(schema)
        self.computation = Computation(schema.scalars, where, tables)
        paths, asked = self.computation.paths, self.computation.asked
        if form is None:
            settings = InputSettings(topic="t")
            self._reader = reader_of(settings, paths, asked=asked, topic="t", partition=0)
        else:
            settings = InputSettings(topic="t", format="avro")  # any that is not plain JSON
            beside = Beside((), "none", topic="t", partition=0)
            self._reader = RecordReader(form(paths), beside, paths=paths, wanted=paths, asked=asked)
        values = source_of(settings, self._reader.form, paths)
        assert values is not None
        source = ComputedSource(values, self._reader, self.computation.applied)
        self.whole = RawBatchDecoder(schema, source, TypedComputation(self.computation))

    def close(self) -> None:
        self._reader.close()
        self.computation.close()

    def defined(self, payloads: Sequence[bytes | None]) -> RawColumns:
        records = [InputRecord(row, 1_000 + row, 0, b"k", value) for row, value in enumerate(payloads)]
        chunks = self._reader.read(records, lambda _: False)
        return self._decoder.decode(self.computation.applied(chunks))

    def found(self, payloads: Sequence[bytes | None], batches: int = 3) -> tuple[Scanned, RawColumns]:
        cuts = np.linspace(0, len(payloads), batches + 1).astype(int).tolist()
        sections = [section_of(record_batch(payloads[a:b], first=a)) for a, b in itertools.pairwise(cuts) if b > a]
        return self.whole.decode(sections, 0)

    def compared(self, payloads: Sequence[bytes | None], batches: int = 3) -> tuple[Scanned, RawColumns]:
        """Both are the same. What was left to the definition, and the columns."""
        records, columns = self.found(payloads, batches)
        assert difference(columns, self.defined(payloads)) == "", (self.schema, self.computation.where)
        assert columns.placements is not None
        assert columns.placements.tolist() == placements(columns.users).tolist()
        return records, columns
