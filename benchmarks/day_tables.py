"""The tables of docs/results-days.md, of what benchmarks/days.py measured."""

from collections.abc import Callable, Iterator
from typing import Any

from tables import large, load, table

QUARTERS = ("¼", "½", "¾", "the window")
CLASSES = ("all", "persisting", "changed", "gone", "small", "large")
SETS = (
    ("synthetic-10m-drift-0.1", "10M users, drift 0.1"),
    ("synthetic-1m-drift-0", "1M users, drift 0"),
    ("synthetic-1m-drift-0.1", "1M users, drift 0.1"),
    ("synthetic-1m-drift-0.5", "1M users, drift 0.5"),
    ("synthetic-1m-drift-0.9", "1M users, drift 0.9"),
    ("synthetic-100k-drift-0", "100k users, drift 0"),
    ("synthetic-100k-drift-0.1", "100k users, drift 0.1"),
    ("synthetic-100k-drift-0.5", "100k users, drift 0.5"),
    ("synthetic-100k-drift-0.9", "100k users, drift 0.9"),
    ("retail", "retail"),
    ("nasa", "web log"),
)
"""(file, what it is called); what was not measured has no row."""

Row = dict[str, Any]


def _rows(name: str) -> list[Row]:
    return load(f"days/{name}.jsonl")


def _last(rows: list[Row]) -> list[Row]:
    day = max(row["day"] for row in rows)
    return [row for row in rows if row["day"] == day]


def _cells(row: Row) -> list[str]:
    return [f"{large(at['usable'])} / {large(at['l1'])} / {large(at['l2'])}" for at in row["checkpoints"]]


def last_day(name: str) -> Iterator[str]:
    """Every variant on the last day."""
    rows = _last(_rows(name))
    heads = [f"day {rows[0]['day']}: usable / ℓ1 / ℓ2 after", *QUARTERS]
    yield from table(heads, [[row["variant"], *_cells(row)] for row in rows])


def drifts() -> Iterator[str]:
    """The last day of every synthetic set, forgetting and remembering."""
    body = []
    for name, called in SETS:
        rows = _rows(name) if name.startswith("synthetic") else []
        for row in _last(rows) if rows else []:
            if row["variant"] in ("forgets", "and moves shares"):
                variant = "remembers" if row["variant"] == "and moves shares" else "forgets"
                body.append([f"{called}, day {row['day']}", variant, *_cells(row)])
    yield from table(["usable / ℓ1 / ℓ2 after", "", *QUARTERS], body)


def day_by_day(name: str) -> Iterator[str]:
    """How long it takes until memory is worth what it will be."""
    rows = _rows(name)
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    body = []
    for day in sorted({row["day"] for row in rows}):
        for place, when in ((0, "¼"), (-1, "end")):
            here = {row["variant"]: row["checkpoints"][place] for row in rows if row["day"] == day}
            body.append([f"{day}, {when}", *(f"{large(here[v]['usable'])} / {large(here[v]['l1'])}" for v in variants)])
    yield from table(["day: usable / ℓ1", *variants], body)


def averages(name: str) -> Iterator[str]:
    """Of a data set whose windows differ: means over all windows but the first; ℓ1 as a share of the records so far."""
    rows = [row for row in _rows(name) if row["day"] > 1]
    body = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row["checkpoints"] for row in rows if row["variant"] == variant]
        cells = []
        for quarter in range(len(QUARTERS)):
            at = [each[quarter] for each in mine]
            usable, l2 = (sum(one[of] for one in at) / len(at) for of in ("usable", "l2"))
            share = sum(one["l1"] for one in at) / sum(one["records"] for one in at)
            cells.append(f"{usable:,.0f} / {share:.3f} / {l2:,.0f}")
        body.append([variant, *cells])
    yield from table(["usable / ℓ1 by records / ℓ2 after", *QUARTERS], body)


def coverage(of: str) -> Iterator[str]:
    """Pooled over all days but the first and all quarters. of: "smoothed" or "direct"."""
    body = []
    for name, called in SETS:
        rows = [row for row in _rows(name) if row["day"] > 1 and row["variant"] == "and moves shares"]
        cells = []
        for kind in CLASSES:
            found = [at[of][kind] for row in rows for at in row["checkpoints"]]
            size, held = (sum(each) for each in zip(*found, strict=True)) if found else (0, 0)
            cells.append(f"{held / size:.1%} of {large(size)}" if size else "")
        if any(cells):
            body.append([called, *cells])
    yield from table([f"{of} rows", *CLASSES], body)


def quarters_coverage() -> Iterator[str]:
    """Of smoothed rows, by quarter."""
    body = []
    for name, called in SETS:
        rows = [row for row in _rows(name) if row["day"] > 1 and row["variant"] == "and moves shares"]
        cells = []
        for quarter in range(len(QUARTERS)):
            found = [row["checkpoints"][quarter]["smoothed"]["all"] for row in rows]
            size, held = (sum(each) for each in zip(*found, strict=True)) if found else (0, 0)
            cells.append(f"{held / size:.1%}" if size else "")
        if any(cells):
            body.append([called, *cells])
    yield from table(["smoothed rows after", *QUARTERS], body)


def partitions() -> Iterator[str]:
    """Fits over all rows, and one for each of eight partitions."""
    body = []
    for name, called in (("synthetic-100k-drift-0.1", "100k users, drift 0.1"), ("retail", "retail")):
        for file, count in ((name, 8), (f"{name}-1-partition", 1)):
            rows = [row for row in _rows(file) if row["variant"] == "and moves shares"]
            for row in _last(rows) if rows else []:
                body.append([f"{called}, day {row['day']}", str(count), *_cells(row)])
    yield from table(["usable / ℓ1 / ℓ2 after", "partitions", *QUARTERS], body)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "days-1m": lambda: last_day("synthetic-1m-drift-0.1"),
    "days-100k": lambda: last_day("synthetic-100k-drift-0.1"),
    "days-1m-each": lambda: day_by_day("synthetic-1m-drift-0.1"),
    "days-drifts": drifts,
    "days-retail": lambda: averages("retail"),
    "days-nasa": lambda: averages("nasa"),
    "days-coverage": lambda: coverage("smoothed"),
    "days-coverage-direct": lambda: coverage("direct"),
    "days-coverage-quarters": quarters_coverage,
    "days-partitions": partitions,
}
