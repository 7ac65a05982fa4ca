"""Released results as files: JSON lines, CSV that spreadsheets can open (csv_rows.py), Parquet with pyarrow where it is installed.

Of a histogram, one row per key at the newest complete trigger (`Release.exported`). ``key`` is canonical JSON, which is lossless;
the fields it is made of follow under their own names. Of the other kinds, one row per published row (view.py of the kind).
Every column has the number that is shown and its standard error, and each other number that rows have, with its
own (`Estimates.named`). Instants are RFC 3339 texts, and real timestamps in Parquet.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from susurrus.agents.cli.csv_rows import csv_rows
from susurrus.agents.display.view import Record
from susurrus.agents.frames import arrow_array
from susurrus.mechanisms.errors import SusurrusError
from susurrus.topics.wire.timestamps import parse_time

Format = Literal["parquet", "csv", "jsonl"]


def export(rows: list[Record], form: Format, output: Path, *, instants: Sequence[str] = ()) -> int:
    """Write the rows to ``output`` (``-`` is standard output, not for Parquet), whole or not at all; returns how many.

    instants: the columns that are instants. Raises SusurrusError when the file cannot be written, or Parquet is asked for without
    pyarrow.
    """
    if form == "parquet":
        data = _parquet(rows, instants)
    else:
        data = csv_rows(rows) if form == "csv" else _jsonl(rows)
    if str(output) == "-":
        if form == "parquet":
            raise SusurrusError("--output -: Parquet is binary; name a file, or choose --export csv")
        sys.stdout.write(data.decode())
        return len(rows)
    try:
        # Beside the target and renamed, so that a reader never finds half a file.
        descriptor, name = tempfile.mkstemp(dir=output.parent or Path(), prefix=f".{output.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, output)
    except OSError as error:
        raise SusurrusError(
            f'--output="{output}": cannot be written ({error.strerror}); choose another place'
        ) from None
    return len(rows)


def _jsonl(rows: list[Record]) -> bytes:
    return "".join(json.dumps(_nested(row), ensure_ascii=False) + "\n" for row in rows).encode()


def _nested(row: Record) -> Record:
    """The key as JSON, where there is one."""
    return {**row, "key": json.loads(row["key"])} if "key" in row else row


def _parquet(rows: list[Record], instants: Sequence[str]) -> bytes:
    try:
        import pyarrow as arrow  # optional
        from pyarrow import parquet
    except ImportError:
        raise SusurrusError(
            '--export parquet: pyarrow is not installed; `pip install "susurrus[parquet]"`, or choose --export csv'
        ) from None
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else (*instants, "key"))}
    arrays = {
        name: arrow.array([parse_time(value) for value in values], arrow.timestamp("ms", "UTC"))
        if name in instants
        else arrow_array(arrow, values)
        for name, values in columns.items()
    }
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(arrays), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data
