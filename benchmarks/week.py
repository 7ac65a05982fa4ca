#!/usr/bin/env python3
"""Draws the week of README.md from docs/results/days: usable rows and ℓ1 hour by hour, with memory and without.

    python benchmarks/days.py --hours --variants "forgets,and moves shares" --out docs/results/days/synthetic-1m-drift-0.1.jsonl
    python benchmarks/week.py docs/images/week.png

Flow: rows of benchmarks/days.py with `hours` → two panels. It needs pip install '.[benchmarks]'.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import plots
from tables import load

DATA = "days/synthetic-1m-drift-0.1.jsonl"
CURVES = {
    "and moves shares": ("remembers the day before (keys.remember = 6)", "#1f6feb", 2.0),
    "forgets": ("begins every day from nothing (keys.remember = 0)", "#9a6700", 1.4),
}
HOURS = 24


def curve(rows: list[dict[str, Any]], variant: str) -> tuple[list[float], list[float], list[float]]:
    """(days, usable rows, ℓ1 over the records of the day so far) at the end of every hour."""
    at: list[float] = []
    usable: list[float] = []
    error: list[float] = []
    for row in sorted((row for row in rows if row["variant"] == variant), key=lambda row: row["day"]):
        for hour, seen in enumerate(row["hours"], 1):
            at.append(row["day"] - 1 + hour / HOURS)
            usable.append(seen["usable"])
            error.append(seen["l1"] / seen["records"])
        for values in (at, usable, error):
            values.append(math.nan)  # the line ends with the day
    return at, usable, error


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    pyplot = plots.pyplot()
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 5.6), sharex=True)
    for variant, (called, colour, width) in CURVES.items():
        at, usable, error = curve(rows, variant)
        above.plot(at, usable, color=colour, linewidth=width, label=called)
        below.plot(at, error, color=colour, linewidth=width)
    last = max(row["day"] for row in rows)
    for axis, title in ((above, "rows within ± 50 % of the truth"), (below, "ℓ1 error / records of the day so far")):
        axis.set_title(title, loc="left", fontsize=10)
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0)
        axis.set_xlim(0, last)
        for day in range(1, last):
            axis.axvline(day, color="#888", linewidth=0.6, linestyle=":")
    above.set_ylim(top=1.35 * above.get_ylim()[1])
    above.legend(fontsize=8.5, loc="upper left", ncols=2)
    below.set_xticks([day + 0.5 for day in range(last)], [f"day {day + 1}" for day in range(last)])
    below.tick_params(axis="x", length=0)
    one = rows[0]
    figure.suptitle(
        f"Simulated: the DP-SQLP paper's law, {one['users']:,} other users every day, 10 % of the keys swap places daily;\n"
        f"ε = {one['epsilon']:g}, δ = {one['delta']:g} per user and day, {one['micro_batches']} releases a day, "
        f"seed {one['seed']}, one run",
        fontsize=9.5,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plot", type=Path, help="image to write")
    options = plots.parse(parser, argv)
    draw(load(DATA), options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
