"""What the tables of results.py are made of: rows of JSON, Markdown, figures."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "results"


def load(pattern: str) -> list[dict[str, Any]]:
    """Rows of all matching files, a JSON object per line."""
    return [json.loads(line) for path in sorted(RESULTS.glob(pattern)) for line in path.read_text().splitlines()]


def table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def large(value: float) -> str:
    return f"{value / 1e6:,.2f}M" if value >= 1e6 else f"{value:,.0f}"


def spread(values: list[float]) -> str:
    """The median, and the range where runs differ."""
    middle = large(median(values))
    low, high = large(min(values)), large(max(values))
    return middle if low == high else f"{middle} ({low} to {high})"
