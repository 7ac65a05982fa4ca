"""The tables of docs/performance.md, for results.py."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from tables import load, table

PEERS = {
    "bare consumer": "bare confluent-kafka consumer, msgspec, no state",
    "faust": "Faust agent with a RocksDB table, count",
    "quix": "Quix Streams, stateful count",
    "kafka-streams (1)": "Kafka Streams, quick start, 1 thread",
    "kafka-streams (2)": "Kafka Streams, quick start, 2 threads",
    "kafka-streams tuned (1)": "Kafka Streams, tuned, 1 thread",
    "kafka-streams tuned (2)": "Kafka Streams, tuned, 2 threads",
    "susurrus (1)": "Susurrus, raw → histogram, 1 process",
    "susurrus (2)": "Susurrus, raw → histogram, 2 processes",
    "susurrus pure (1)": "Susurrus without compiled loops, 1 process",
    "susurrus pure (2)": "Susurrus without compiled loops, 2 processes",
    "susurrus tops (1)": "Susurrus, private streams (ToPS), 1 process",
}
ROWS = {
    "plain": "JSON",
    "filter": "JSON, `where`",
    "sql": "JSON, in SQL",
    "avro": "Avro",
    "protobuf": "Protobuf",
    "json-schema": "JSON Schema",
    "arrays": "arrays in JSON",
}
"""The names of the rows of benchmarks/throughput_rows.py, as the table has them."""
SIDES = {
    "kafka-streams tuned (1)": "Kafka Streams, 1 thread",
    "kafka-streams tuned (2)": "Kafka Streams, 2 threads",
    "susurrus (1)": "Susurrus, 1 process",
    "susurrus (2)": "Susurrus, 2 processes",
    "susurrus pure (1)": "Susurrus, 1 process, not compiled",
    "susurrus pure (2)": "Susurrus, 2 processes, not compiled",
}
THREADS = ("route", "bound", "release", "stream", "aiokafka", "main", "librdkafka", "rocksdb", "other")


def _rows(what: str) -> list[dict[str, Any]]:
    return load(f"performance/{what}.jsonl")


def _peers() -> list[dict[str, Any]]:
    order = list(PEERS)
    plain = (row for row in _rows("throughput") if row["row"] == "plain")
    return sorted(plain, key=lambda row: order.index(row["what"]))


def _range(values: list[Any], shown: Callable[[Any], str] = "{:,}".format) -> str:
    """The lowest and the highest, or the only one."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = shown(min(known)), shown(max(known))
    return low if low == high else f"{low} to {high}"


def throughput() -> Iterator[str]:
    body = []
    for row in _peers():
        warm, ratio = row["steady_events_per_second"], row["steady_ratio"]
        body.append(
            [
                PEERS[row["what"]],
                f"{row['records']:,}",
                f"{row['events_per_second']:,}",
                "" if warm is None else f"{warm:,}",
                "" if ratio is None else f"{ratio:.2f}",
                _range([run["steady_events_per_second"] for run in row["runs"]]),
                str(len(row["runs"])),
            ]
        )
    yield from table(
        ["", "records", "events/s, whole", "events/s, warm", "× Kafka Streams", "warm, of each run", "runs"], body
    )


def throughput_rows() -> Iterator[str]:
    """Every row, and of each who has all of them."""
    found = {(row["row"], row["what"]): row for row in _rows("throughput_rows")}
    body = []
    for name, title in ROWS.items():
        for what, side in SIDES.items():
            row = found.get((name, what))
            if row is None or row["steady_events_per_second"] is None:
                continue
            ratios = (row["steady_ratio"], row["ratio_to_plain"])
            spent = row["cpu_us"]
            body.append(
                [
                    title,
                    side,
                    f"{row['steady_events_per_second']:,}",
                    *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                    _range([run["steady_events_per_second"] for run in row["runs"]]),
                    *(f"{spent.get(of, 0.0):.2f}" for of in ("worker", "broker")),
                    f"{row['records']:,}",
                ]
            )
    header = ["records", "", "events/s, warm", "× Kafka Streams", "× JSON", "of each run", "process, µs an event"]
    yield from table([*header, "broker", "events"], body)


def processors() -> Iterator[str]:
    body = []
    for row in _peers():
        spent = row["cpu_us"]
        figures = [spent.get("worker", 0.0), spent.get("broker", 0.0)]
        body.append([PEERS[row["what"]], *(f"{us:.2f}" for us in (*figures, sum(figures))), f"{row['memory_mb']:,}"])
    yield from table(["", "process, µs a record", "broker", "together", "peak memory of a process, MB"], body)


def threads() -> Iterator[str]:
    ours = [row for row in _peers() if row["what"].startswith("susurrus")]
    used = [name for name in THREADS if any(row["cpu_us"].get(f"worker: {name}") for row in ours)]
    body = [
        [PEERS[row["what"]], *(f"{row['cpu_us'].get(f'worker: {name}', 0.0):.2f}" for name in used)] for row in ours
    ]
    yield from table(["µs a record", *used], body)


def written() -> Iterator[str]:
    ours = [row for row in _peers() if row["what"].startswith(("susurrus", "kafka-streams"))]
    body = []
    for row in ours:
        sizes = {topic: size for topic, size in row["bytes_per_record"].items() if size >= 0.05}
        listed = ", ".join(f"{topic} {size:.1f}" for topic, size in sorted(sizes.items(), key=lambda item: -item[1]))
        body.append([PEERS[row["what"]], f"{sum(row['bytes_per_record'].values()):.1f}", listed])
    yield from table(["", "bytes a record", "of which"], body)


def latency() -> Iterator[str]:
    body = [
        [
            f"{row['clock']}{', a worker is killed' if row['killed'] else ''}",
            f"{row['events_per_second']:,}",
            *(f"{row[name]:,}" for name in ("p50_ms", "p99_ms", "worst_ms", "triggers", "memory_mb")),
        ]
        for row in _rows("latency")
    ]
    yield from table(
        ["clock", "events/s", "p50, ms", "p99, ms", "worst, ms", "triggers", "memory of a worker, MB"], body
    )


def floors() -> Iterator[str]:
    """The cases that have a floor: what it is, and what the stages did."""
    body = []
    for row in _rows("latency"):
        if "floor" not in row:
            continue
        floor, stages = row["floor"], row["by_stage"]
        body.append(
            [
                row["clock"],
                f"{row['events_per_second']:,}",
                *(f"{row[name]:,}" for name in ("p50_ms", "p99_ms")),
                *(f"{floor[what][name]:,.0f}" for what in ("hand_over", "commits") for name in ("p50_ms", "p99_ms")),
                *(f"{stages[stage]['commits']:.0f} × {stages[stage]['bytes'] / 1e3:,.0f}" for stage in stages),
            ]
        )
    header = ["clock", "events/s", "p50, ms", "p99, ms", "floor, p50", "floor, p99", "four commits, p50", "p99"]
    yield from table([*header, "route, commits × kB", "bound", "release"], body)


def recovery() -> Iterator[str]:
    rows = _rows("recovery")
    body = []
    for case in dict.fromkeys(row["case"] for row in rows):
        runs = [row for row in rows if row["case"] == case]
        body.append(
            [
                case,
                f"{runs[0]['users']:,}",
                _range([run["seconds"] for run in runs], "{:.1f}".format),
                _range([run["recovering_seconds"] for run in runs], "{:.1f}".format),
                f"{median(run['disk_bytes'] for run in runs) / 1e6:,.1f}",
                f"{median(run['changelog_bytes'] for run in runs) / 1e6:,.1f}",
                f"{max(run['memory_mb'] for run in runs):,}",
            ]
        )
    header = [
        "worker",
        "users",
        "s until bound runs",
        "s of recovery",
        "on the disk, MB",
        "changelog, MB",
        "memory, MB",
    ]
    yield from table(header, body)


def trigger() -> Iterator[str]:
    body = [
        [
            row["stage"],
            *(f"{row[name]:,}" for name in ("triggers", "stored_rows")),
            f"{row['fixed_ms']:.1f}",
            f"{row['row_us']:.1f}",
            f"{row['seconds'] * 1e3:,.0f} ({row['touched_rows']:,} rows)",
            f"{row['highest_mb']:,}",
            f"{row['recovery_seconds']:.1f}",
        ]
        for row in _rows("trigger")
    ]
    header = [
        "stage",
        "T",
        "stored rows",
        "ms beside the rows",
        "µs a row",
        "ms of a trigger",
        "memory, MB",
        "s to recover",
    ]
    yield from table(header, body)


def replay() -> Iterator[str]:
    rows = _rows("replay")
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    body = []
    for place in dict.fromkeys((row["triggers"], row["records"]) for row in rows):
        by = {row["strategy"]: row for row in rows if (row["triggers"], row["records"]) == place}
        rates = [f"{by[name]['intervals_per_second']:.1f}" if name in by else "" for name in strategies]
        body.append([*(f"{figure:,}" for figure in place), *rates])
    yield from table(["T", "records", *(f"{name}, intervals/s" for name in strategies)], body)


WRITTEN_BY = {
    "compiled": "columns, compiled",
    "python": "columns, Python",
    "serialiser": "row by row, the libraries' serialisers",
}


def output_formats() -> Iterator[str]:
    body = []
    for row in _rows("output_formats"):
        if row["format"] == "json" and row["path"] != "compiled":
            continue  # JSON has one path
        by = "columns" if row["format"] == "json" else WRITTEN_BY[row["path"]]
        memory = row["memory_mb"]
        figures = [f"{row['seconds_a_million']:.2f}", f"{row['of_json']:.2f}", f"{row['bytes_a_row']:,}"]
        body.append([row["rows_are"], row["format"], by, *figures, "" if memory is None else f"{memory:,}"])
    header = [
        "key and values",
        "format",
        "written by",
        "s a million rows",
        "speed, × JSON",
        "bytes a row",
        "memory, MB",
    ]
    yield from table(header, body)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "throughput": throughput,
    "throughput-rows": throughput_rows,
    "throughput-processors": processors,
    "throughput-threads": threads,
    "throughput-bytes": written,
    "latency": latency,
    "latency-floor": floors,
    "recovery": recovery,
    "trigger": trigger,
    "replay": replay,
    "output-formats": output_formats,
}
