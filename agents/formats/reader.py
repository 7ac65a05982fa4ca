"""From Kafka's records to rows with a column for each wanted path: what stands between the log and the expressions.

records ──value's format───────┐
records ──key's format, headers┴▶ table ──input.each──▶ rows ──▶ expressions (computation.py) ──▶ decoder (topics/records/raw.py)

Each record is decided alone. A record whose value, key or header cannot be read is refused. Where a condition (`input.where`) can
be asked of it, its refusal is pending, so that a record that nobody wants is no bad input.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from susurrus.agents.finding import Finding
from susurrus.agents.formats.beside import Beside, Record
from susurrus.agents.formats.format import Format, Overdue
from susurrus.agents.formats.items import ListStep, RowTable
from susurrus.topics.records.fields import BESIDE, Path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.table import headers_of, values_of

VALUE: Final = (BESIDE, "value")
OF_VALUE: Final = ("value", "envelope")
"""What is beside the fields of a value, and read with them."""


def value_paths(paths: Sequence[Path]) -> list[Path]:
    """Of the wanted paths, those that the value's format reads, as it takes them: fields, the whole value as the empty path, and
    what is in the value's envelope, as it is."""
    return [() if path == VALUE else path for path in paths if path[:1] != (BESIDE,) or path[1] in OF_VALUE]


class RecordReader:
    """Reads records as far as ``paths`` need it.

    form: of the value, made for what `value_paths` says of ``wanted``. beside: made for the others. wanted: what must be known of a
    record before it is taken apart. steps: of `input.each`, from the outside in. asked: the paths of the condition; None where
    there is none.
    """

    def __init__(
        self,
        form: Format,
        beside: Beside,
        *,
        paths: Sequence[Path],
        wanted: Sequence[Path],
        steps: Sequence[ListStep] = (),
        asked: Sequence[Path] | None = None,
    ) -> None:
        self.form = form
        """What reads the values."""
        self._form, self._beside, self._paths, self._steps = form, beside, list(paths), steps
        self._asks, self._asked = asked is not None, frozenset(asked or ())
        self._wanted = list(wanted)
        self._asked_of_value = [path for path in value_paths(self._wanted) if (path or VALUE) in self._asked]
        # A list that an expression looks at is wanted as it is.
        others = {*paths, *(path for step in steps if not isinstance(step.of, tuple) for path in step.outer)}
        lists = value_paths([step.of for step in steps if isinstance(step.of, tuple) and step.of not in others])
        form.prepare(self._asked_of_value, [path for path in lists if path in form.paths])
        self._plain = not steps and not self._asks and value_paths(self._wanted) == self._paths
        self.patience = max(form.patience, beside.patience)
        self.waits: Finding | None = None
        """What the first record that was not read waits for; None where the caller may offer it again at once."""

    def read(self, records: Sequence[Record], overdue: Overdue) -> Iterator[Chunk]:
        """Chunk by chunk, up to the first record that must wait, as `Format.read`."""
        form = self._form
        headers = headers_of(records) if form.reads_headers else None
        chunks = form.read(values_of(records), overdue, headers)
        if self._plain:
            yield from chunks
            self.waits = form.waits
            return
        start = 0
        for chunk in chunks:
            some = records[start : start + chunk.rows]
            table = self._table(chunk, some, lambda row, first=start: overdue(first + row))  # type: ignore[misc]
            rows = table.rows
            start += rows
            for step in self._steps:
                table = step.apart(table)
            yield table.chunk(self._paths, rows, asks=self._asks)
            if rows < chunk.rows:
                self.waits = self._beside.waits
                return
        self.waits = form.waits

    def close(self) -> None:
        """Close connections."""
        self._form.close()
        self._beside.close()
        for step in self._steps:
            step.close()

    def _table(self, chunk: Chunk, records: Sequence[Record], overdue: Overdue) -> RowTable:
        """All rows of a chunk, also the bad ones; fewer where a key must wait."""
        beside, failed = self._beside.columns(records, overdue)
        rows = min([chunk.rows, *map(len, beside.values())])
        columns = {path: column[:rows] for path, column in beside.items()}
        for path, column in zip(value_paths(self._wanted), chunk.columns, strict=True):
            columns[path or VALUE] = chunk.spread(column)[:rows]
        table = RowTable(rows=rows, columns=columns, reason=[0] * rows)
        for row, why in {**chunk.pending, **chunk.refused}.items():
            if row < rows:
                table.refuse(row, why, unasked=row in chunk.refused and bool(self._asked_of_value))
        for path, bad in failed.items():
            for row, why in bad.items():
                if row < rows:
                    table.refuse(row, why, unasked=path in self._asked)
        return table
