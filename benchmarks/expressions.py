"""What filters and computed scalars cost the stage route, from record batches to columns: microseconds of processor time a record.

    python benchmarks/expressions.py [--records 200000] [--batch 20000]

Each line is one pipeline, compiled and in pure Python, with its time relative to the plain pipeline in the same path, all in one
process, the fastest of several rounds. --batch is how many records one fetch has: with 10 it shows what a query costs. The whole
pipeline spends several times as much on a record (benchmarks/throughput.py).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.input_formats import best, sections
from susurrus.agents.config.input import InputSettings
from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.typed import TypedComputation
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.formats.whole import ComputedSource, source_of
from susurrus.topics.compiled import compiled
from susurrus.topics.raw_batches import RawBatchDecoder
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import ComputedField, RawDecoder, RawSchema, ValueField

ROUNDS = 5
PATH, METHOD = ComputedField("split_part(url, '?', 1)"), ComputedField("lower(method)")
BYTES, KILOBYTES = ValueField("bytes", 10.0, 0.01), ValueField(ComputedField("bytes / 1000"), 10.0, 0.01)
CASES = {
    "plain": (RawSchema(user=("host",), key=("url", "method"), values=(BYTES,)), None),
    "a condition that all records meet": (
        RawSchema(user=("host",), key=("url", "method"), values=(BYTES,)),
        "status = 200",
    ),
    "a condition that half of them meet": (
        RawSchema(user=("host",), key=("url", "method"), values=(BYTES,)),
        "bytes > 3000",
    ),
    "a computed key": (RawSchema(user=("host",), key=(PATH, "method"), values=(BYTES,)), None),
    "a computed value": (RawSchema(user=("host",), key=("url", "method"), values=(KILOBYTES,)), None),
    "a condition, two keys and a value": (
        RawSchema(user=("host",), key=(PATH, METHOD), values=(KILOBYTES,)),
        "status = 200",
    ),
}


def payloads(records: int) -> list[bytes]:
    """The shipped web log as often as needed."""
    visits = list(WebLog().visits)
    return [
        json.dumps({"host": visit.host, "url": visit.url, "bytes": visit.size, "status": 200, "method": "GET"}).encode()
        for visit in (visits * (records // len(visits) + 1))[:records]
    ]


def seconds(schema: RawSchema, where: str | None, lines: Sequence[bytes], batch: int) -> tuple[float, float | None]:
    """The fastest of some rounds, in pure Python and compiled; None where nothing is compiled."""
    decoder, computation = RawDecoder(schema), Computation(schema.scalars, where)
    reader, pieces = JsonReader(computation.paths), [lines[at : at + batch] for at in range(0, len(lines), batch)]

    def in_python() -> None:
        for piece in pieces:
            decoder.decode(computation.applied(reader.read(piece)))

    python = best(in_python, ROUNDS)
    settings = InputSettings(topic="raw")
    records = reader_of(settings, computation.paths, asked=computation.asked, topic="raw", partition=0)
    source = source_of(settings, records.form, computation.paths)
    if compiled is None or source is None:
        return python, None
    if computation.engine is None:
        whole = RawBatchDecoder(schema, source)
    else:
        applied = ComputedSource(source, records, computation.applied)
        whole = RawBatchDecoder(schema, applied, TypedComputation(computation))
    fetches = list(map(sections, pieces))
    assert sum(len(whole.decode(fetch, 0)[0].left) for fetch in fetches) < len(lines) / 100

    def in_rust() -> None:
        for fetch in fetches:
            whole.decode(fetch, 0)

    return python, best(in_rust, ROUNDS)


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=20_000)
    arguments = parser.parse_args()
    lines = payloads(arguments.records)
    plain: tuple[float, float | None] | None = None
    for name, (schema, where) in CASES.items():
        python, fast = seconds(schema, where, lines, arguments.batch)
        plain = plain or (python, fast)
        line = f"{name:36} Python {python / len(lines) * 1e6:7.2f} us {python / plain[0]:5.2f}"
        if fast is not None and plain[1] is not None:
            line += f"   compiled {fast / len(lines) * 1e6:7.3f} us {fast / plain[1]:5.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
