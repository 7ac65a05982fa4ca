"""The tables of benchmarks/scenarios.py, from docs/results/scenarios.jsonl."""

from collections.abc import Iterator
from itertools import groupby
from statistics import median
from typing import Any

from tables import large, load, table

ORDER = ("toeplitz", "closing, no last look", "closing")
CLASSES = (
    "all",
    "new, all",
    "old, all",
    "below 50",
    "50 to 500",
    "above 500",
    "short lists",
    "long lists",
    "longest tenth",
)
FEW, TOO_FEW = 200, 20
"""Shares of fewer rows than the first are in brackets; of fewer than the second they are left out."""

Row = dict[str, Any]


def runs() -> list[tuple[str, str, list[Row]]]:
    """(data, strategy, its runs by seed), in the order in which the file names the data; the last of equal runs counts."""
    last: dict[tuple[str, str, int], Row] = {}
    data: dict[str, None] = {}
    for row in load("scenarios.jsonl"):
        name = f"{row['scenario']}, {row['users']:,} users"
        data.setdefault(name)
        last[name, row["strategy"], row["seed"]] = row
    places = list(data)
    ordered = sorted(last, key=lambda run: (places.index(run[0]), ORDER.index(run[1]), run[2]))
    return [(*key, [last[run] for run in found]) for key, found in groupby(ordered, key=lambda run: run[:2])]


def errors() -> Iterator[str]:
    """Medians over the seeds."""
    body = []
    for data, strategy, rows in runs():
        quarters = zip(*(row["checkpoints"] for row in rows), strict=True)
        cells = [
            " / ".join(large(median(c[name] for c in found)) for name in ("keys", "l1", "l2")) for found in quarters
        ]
        linf = large(median(row["checkpoints"][-1]["linf"] for row in rows))
        body.append([data, strategy, str(len(rows)), *cells, linf])
    yield from table(["data", "keys / ℓ1 / ℓ2 after", "seeds", "¼", "½", "¾", "the window", "ℓ∞"], body)


def coverage(moment: str, prefix: str = "") -> Iterator[str]:
    """Shares of intervals that hold the kept and the true count, rows of all seeds together.

    moment: "middle" or "end". prefix: "new, " for the classes of new rows alone.
    """
    labels = [prefix + label for label in CLASSES if not (prefix and ", " in label)]
    body = []
    for data, strategy, rows in runs():
        kept = sum(row["kept_records"] for row in rows) / sum(row["records"] for row in rows)
        for pair, name in (("row", strategy), ("direct", f"{strategy}, direct")):
            found = classes_of(rows, moment, pair)
            if found:
                number = sum(one["rows"] for one in found.get(prefix + "all", []))
                cells = [shares(found.get(label, [])) for label in labels]
                body.append([data, name, f"{kept:.1%}", f"{number:,}", *cells])
    yield from table(["data", "in the interval: kept / true, %", "records kept", "rows", *labels], body)


def classes_of(rows: list[Row], moment: str, pair: str) -> dict[str, list[Row]]:
    """By class, its object in each run."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        trigger = row["micro_batches"] if moment == "end" else -(-row["micro_batches"] // 2)
        for one in row["coverage"]:
            if (one["trigger"], one["pair"]) == (trigger, pair):
                found.setdefault(one["class"], []).append(one)
    return found


def shares(found: list[Row]) -> str:
    number = sum(one["rows"] for one in found)
    if number < TOO_FEW:
        return ""
    kept, true = (100 * sum(one[name] * one["rows"] for one in found) / number for name in ("kept", "true"))
    cell = f"{kept:.1f} / {true:.1f}"
    return cell if number >= FEW else f"({cell})"
