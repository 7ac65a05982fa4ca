"""What filters and computed keys cost: decoding of JSON records with and without them, in one run, best of several.

    python benchmarks/expressions.py [--records 200000]

Each line gives microseconds a record for what the stage route does from payloads to columns, and the ratio to the plain pipeline.
The whole pipeline spends several times as much on a record (benchmarks/throughput.py).
"""

import argparse
import json
import time

from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.expressions.computation import Computation
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import ComputedField, RawDecoder, RawSchema

ROUNDS = 5
PATH = ComputedField("split_part(url, '?', 1)")
CASES = {
    "plain": (RawSchema(user=("host",), key=("url",)), None),
    "a condition that all records meet": (RawSchema(user=("host",), key=("url",)), "status = 200"),
    "a condition that half of them meet": (RawSchema(user=("host",), key=("url",)), "bytes > 3000"),
    "a computed key": (RawSchema(user=("host",), key=(PATH,)), None),
    "a condition and a computed key": (RawSchema(user=("host",), key=(PATH,)), "status = 200"),
}


def payloads(records: int) -> list[bytes]:
    """The shipped web log as often as needed."""
    visits = list(WebLog().visits)
    return [
        json.dumps({"host": visit.host, "url": visit.url, "bytes": visit.size, "status": 200, "method": "GET"}).encode()
        for visit in (visits * (records // len(visits) + 1))[:records]
    ]


def seconds(schema: RawSchema, where: str | None, lines: list[bytes]) -> float:
    """The fastest of some rounds, in batches as route has them."""
    decoder, computation = RawDecoder(schema), Computation(schema.scalars, where)
    reader = JsonReader(computation.paths)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        decoder.decode(computation.applied(reader.read(lines)))
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    lines = payloads(parser.parse_args().records)
    plain = None
    for name, (schema, where) in CASES.items():
        took = seconds(schema, where, lines)
        plain = plain or took
        print(f"{name:36} {took / len(lines) * 1e6:6.2f} us   {took / plain:5.2f}")


if __name__ == "__main__":
    main()
