"""Values from record batches to columns at once: the compiled form of payloads.py and values.py.

`ValuesDecoder` is the definition. It decodes what the scanner leaves, and these rows are put between those that were taken: columns
are, in every field, those of `ValuesDecoder` for all records in order (tests/topics/test_values_batches.py).
"""

from collections.abc import Sequence

import numpy as np

from susurrus.topics.raw_batches import with_rest
from susurrus.topics.records.fields import Path
from susurrus.topics.records.numbers import on_grid
from susurrus.topics.records.scanning import (
    DecompressedBatch,
    JsonSource,
    Over,
    Scanned,
    Scanner,
    ValueSource,
    never,
)
from susurrus.topics.records.values import ValuesColumns, ValuesDecoder, ValuesSchema


class ValuesBatchDecoder:
    """Turns record batches into columns, for one schema; only where ``compiled`` is there. source: as of `RawBatchDecoder`."""

    def __init__(self, schema: ValuesSchema, source: ValueSource | None = None) -> None:
        self._schema, self._decoder = schema, ValuesDecoder(schema)
        self._by_key = schema.stream is None
        paths = self._decoder.paths
        self._source = source = JsonSource(paths) if source is None else source
        distinct: list[Path] = list(dict.fromkeys(paths))
        number = [distinct.index(path) for path in paths]
        stream = (number[: not self._by_key], self._by_key, True, schema.max_key_bytes)
        time = None if schema.time is None else (number[-1], schema.time_reader().scanned)
        self._scanner = Scanner(source, distinct, [stream], [number[int(not self._by_key)]], time)

    def decode(
        self, sections: Sequence[DecompressedBatch], start: int, below: int | None = None, over: Over = never
    ) -> tuple[Scanned, ValuesColumns]:
        """The records with start <= offset < below. over: which of them may no longer wait. Never raises for what a record holds;
        raises MalformedBatch and UnknownNumbers."""
        schema, found = self._schema, self._scanner.scan(sections, start, below)
        left, [stream], [numbers] = found.left, found.groups, found.numbers
        reason = np.zeros(len(found), np.uint8)
        value = on_grid(numbers, schema.grid, 0, schema.steps)
        times = None if schema.time is None else found.times.copy()
        if left.size:
            keys = [found[row].key for row in left.tolist()] if self._by_key else ()
            rest = self._decoder.decode(self._source.read(found, over), keys)
            reason[left], value[left] = rest.reason, rest.value
            stream = with_rest(stream, left, rest.stream, rest.streams, reason == 0)
            if times is not None and rest.event_time is not None:
                times[left] = rest.event_time
        columns = ValuesColumns(reason=reason, stream=stream.codes, streams=stream.items, value=value, event_time=times)
        return found, columns
