"""The tables of benchmarks/tops.py, from docs/results/streams/tops-*.jsonl."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from tables import load, table

Row = dict[str, Any]
Found = dict[str, Row]
"""Rows by method, of one series and epsilon."""


def _found(name: str) -> Iterator[tuple[str, dict[float, Found]]]:
    """By series, in the order of the file: by epsilon the rows of each method."""
    for series, rows in groupby(load(f"streams/tops-{name}.jsonl"), lambda row: row["series"]):
        found: dict[float, Found] = {}
        for row in rows:
            found.setdefault(row["epsilon"], {})[row["method"]] = row
        yield series, found


def errors(name: str, other: str) -> Iterator[str]:
    """The error of `tops` over that of another method, with the standard errors of both."""
    rows = [[series, *(_ratio(of["tops"], of[other]) for of in found.values())] for series, found in _found(name)]
    return table(["series", *_columns(name)], rows)


def coverage(name: str) -> Iterator[str]:
    """Of `tops`: nominal 95 %, with its standard error; in brackets of those ranges whose models fit, with their share."""
    rows = [[series, *(_covered(of["tops"]) for of in found.values())] for series, found in _found(name)]
    return table(["series", *_columns(name)], rows)


def _columns(name: str) -> list[str]:
    _, found = next(_found(name))
    return [f"epsilon {epsilon:g}" for epsilon in found]


def _ratio(row: Row, other: Row) -> str:
    ratio = row["mse"] / other["mse"]
    error = ratio * sum((each["mse_standard_error"] / each["mse"]) ** 2 for each in (row, other)) ** 0.5
    digits = 2 if ratio >= 0.095 else 3
    return f"{ratio:.{digits}f} ± {error:.{digits}f}"


def _covered(row: Row) -> str:
    text = f"{row['coverage']:.1%} ± {100 * row['coverage_standard_error']:.1f}"
    return text if row["fitting"] == 1 else f"{text} ({row['coverage_fitting']:.1%} of {row['fitting']:.0%})"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "tops-structured": lambda: errors("structured", "tops-recent"),
    "tops-structured-coverage": lambda: coverage("structured"),
    "tops-real": lambda: errors("real", "tops-authors"),
    "tops-real-coverage": lambda: coverage("real"),
}
