#!/usr/bin/env python3
"""What it costs to write the rows of a release in each output format: from columns to values, by processor time.

    python benchmarks/output_formats.py                        one release of a million keys in each case
    python benchmarks/output_formats.py --rows 50000 --json    of fewer, one JSON object a line on stdout

A case is a kind of row on one path: with the compiled code, without it (SUSURRUS_COMPILED=0), or by the serialisers of the
libraries, row by row, as before rows were written column by column. Each is a process of its own, in which all formats take turns,
so that the ratios to JSON say something on a busy machine, too. Seconds are the least of some rounds. Memory is what a process
needs at most while it writes, beyond the columns; the rows that it writes are in it.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from trigger import memory_mb

from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.formats.outputs.format import Writer
from susurrus.topics import histogram
from susurrus.topics.compiled import compiled
from susurrus.topics.histogram import ColumnRows, TriggerHeader
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import RowSchema

ROUNDS = 3
BY_ROW = 20_000
"""Rows that the serialisers get: they take so long, and as long for each."""
HEADER = TriggerHeader(
    window_start=1_767_225_600_000,
    window_end=1_767_312_000_000,
    trigger=96,
    of_triggers=96,
    strategy="closing",
    epoch="6f0c5a1e9d3b4c7288aa01f2d4e6b8c0",
)


class KnownSchema:
    """Stands for the client of a registry that knows every schema, by the id 1."""

    def __enter__(self) -> "KnownSchema":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def lookup_schema(self, subject: str, schema: object, **_: object) -> Any:
        """As the client has it."""
        return SimpleNamespace(schema_id=1, guid=None, subject=subject, version=1, schema=schema)


def writer(form: str, schema: RowSchema) -> Writer:
    """The writer of a release partition."""
    registry: Any = SimpleNamespace(client=lambda name: KnownSchema())
    return OUTPUT_FORMATS[form](registry).writer("susurrus.page-views.histogram", schema, "susurrus.page_views")


def one_column(n: int) -> tuple[RowSchema, list[bytes], list[ColumnRows]]:
    """Keys of one text and one count."""
    generator = np.random.default_rng(1)
    keys = [b'"/articles/%d.html"' % number for number in range(n)]
    visits = ColumnRows(
        name="visits", estimate=generator.integers(10, 10_000, n), std_error=generator.uniform(5, 20, n)
    )
    return histogram.schema(["url"], ["visits"]), keys, [visits]


def four_columns(n: int) -> tuple[RowSchema, list[bytes], list[ColumnRows]]:
    """Keys of three parts, and at the last trigger a count, two means and a quantile, each with its direct numbers."""
    generator = np.random.default_rng(2)
    keys = [b'["DE","/articles/%d.html",%d]' % (number, number % 600) for number in range(n)]
    columns = [
        ColumnRows(
            name=name,
            estimate=generator.integers(0, 10_000, n) if name == "visits" else generator.normal(0, 100, n),
            std_error=generator.uniform(5, 20, n),
            direct=(generator.integers(0, 10_000, n), generator.uniform(5, 20, n)),
        )
        for name in ("visits", "bytes", "seconds")
    ]
    ends = generator.uniform(0, 50, n), generator.uniform(50, 100, n)
    columns.append(ColumnRows(name="p95", estimate=generator.uniform(0, 99, n), std_error=12.5, interval=ends))
    schema = histogram.schema(["country", "url", "bytes"], [column.name for column in columns], ["p95"])
    return schema, keys, columns


KINDS: dict[str, Callable[[int], tuple[RowSchema, list[bytes], list[ColumnRows]]]] = {
    "one text, one column": one_column,
    "three parts, four columns": four_columns,
}
PATHS = ("compiled", "python", "serialiser")


def measure(kind: str, path: str, n: int) -> Iterator[dict[str, object]]:
    """In this process: one row for each format."""
    counted = min(n, BY_ROW) if path == "serialiser" else n
    schema, keys, columns = KINDS[kind](counted)

    def made() -> PublicRows:
        return histogram.public_rows(HEADER, keys, columns)[1]

    written = PublicRows.of_json(made().json) if path == "serialiser" else None
    writes = {form: writer(form, schema).encode for form in OUTPUT_FORMATS}
    # Before anything is written: what a process has freed, its fork takes again.
    memory = {form: _memory(partial(_written, encode, made)) for form, encode in writes.items() if written is None}
    best = dict.fromkeys(writes, float("inf"))
    sizes = {}
    for _ in range(ROUNDS):
        for form, encode in writes.items():
            began = time.process_time()
            values = encode(made() if written is None or form == "json" else written)
            best[form] = min(best[form], time.process_time() - began)
            sizes[form] = sum(map(len, values)) / len(values)
            del values
    for form in writes:
        yield {
            "what": "output",
            "rows_are": kind,
            "path": path,
            "format": form,
            "rows": n,
            "seconds_a_million": round(best[form] / counted * 1e6, 3),
            "of_json": round(best["json"] / best[form], 3),
            "bytes_a_row": round(sizes[form]),
            "memory_mb": memory.get(form),
        }


def _written(encode: Callable[[PublicRows], Sequence[bytes]], made: Callable[[], PublicRows]) -> Sequence[bytes]:
    return encode(made())


def _memory(write: Callable[[], Sequence[bytes]]) -> int:
    """MB that a process needs at most beyond those that it has, in a fork of this one."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as marks:
            marks.write("5")  # the highest mark begins anew
        before = memory_mb("VmRSS")
        values = write()
        sender.send(memory_mb("VmHWM") - before)
        os._exit(0 if values else 1)
    os.waitpid(child, 0)
    return round(receiver.recv())


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each case and format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a release")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.case:
        kind, path = options.case
        for row in measure(kind, path, options.rows):
            print(json.dumps(row), flush=True)
        return 0
    for kind in KINDS:
        for path in PATHS if compiled is not None else PATHS[1:]:
            command = [sys.executable, __file__, "--rows", str(options.rows), "--case", kind, path]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "SUSURRUS_COMPILED": str(int(path == "compiled"))}
            printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            for line in printed.splitlines():
                print(line if options.json else "   ".join(f"{k}={v}" for k, v in json.loads(line).items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
