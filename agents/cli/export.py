"""Released histograms as files: JSON lines and CSV with the standard library, Parquet with pyarrow where it is
installed.

One row per key, at the newest complete trigger. ``key`` is canonical JSON, which is lossless; the fields it is made
of follow under their own names, as text. Every estimate is followed by its standard error, and by its direct estimate and that
one's standard error where rows have them: at a window's last trigger.
"""

import csv
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from susurrus.agents.histogram.reader import Snapshot
from susurrus.mechanisms.errors import SusurrusError

Format = Literal["parquet", "csv", "jsonl"]


def records(snapshot: Snapshot, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    """One flat record per row, all with the same names in the same order."""
    fixed = ("window_start", "window_end", "trigger", "of_triggers", "key")
    found = []
    for row in snapshot.rows:
        record: dict[str, Any] = {
            "window_start": row.window_start,
            "window_end": row.window_end,
            "trigger": snapshot.trigger,
            "of_triggers": snapshot.of_triggers,
            "key": json.dumps(row.key, ensure_ascii=False, separators=(",", ":")),
        }
        parts = row.key if isinstance(row.key, list) else [row.key]
        for name, part in zip(fields, parts, strict=False):
            if name not in fixed and name not in row.values:
                record[name] = part if isinstance(part, str) else json.dumps(part)
        for name, measured in row.values.items():
            record[name] = measured.estimate
            record[f"{name}_std_error"] = measured.std_error
            if measured.direct is not None:
                record[f"{name}_direct"] = measured.direct.estimate
                record[f"{name}_direct_std_error"] = measured.direct.std_error
        record |= {"strategy": row.strategy, "epoch": row.epoch}
        found.append(record)
    return found


def export(snapshot: Snapshot, form: Format, output: Path, fields: tuple[str, ...]) -> int:
    """Write the rows to ``output`` (``-`` is standard output, not for Parquet), whole or not at all; returns how many.

    Raises SusurrusError when the file cannot be written, or Parquet is asked for without pyarrow.
    """
    rows = records(snapshot, fields)
    data = {"parquet": _parquet, "csv": _csv, "jsonl": _jsonl}[form](rows)
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


def _jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(
        json.dumps({**row, "key": json.loads(row["key"])}, ensure_ascii=False) + "\n" for row in rows
    ).encode()


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["key"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    try:
        import pyarrow as arrow  # optional
        from pyarrow import parquet
    except ImportError:
        raise SusurrusError(
            '--export parquet: pyarrow is not installed; `pip install "susurrus[parquet]"`, or choose --export csv'
        ) from None
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist(rows), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data
