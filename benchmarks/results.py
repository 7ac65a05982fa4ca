#!/usr/bin/env python3
"""Renders the tables of docs/results*.md, performance.md, scale.md and plan.md from the JSON in docs/results: no figure
is typed by hand.

    python benchmarks/results.py            rewrite them
    python benchmarks/results.py --check    fail if one of them does not match docs/results/

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; everything outside is prose.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import day_tables
import performance_tables
import scale_tables
import scenario_tables
import stream_tables
from tables import DOCS, large, load, spread, table

ORDER = ["baseline1", "baseline2", "dp-sqlp", "toeplitz", "closing, no last look", "closing"]
PAPER = {100: (28_338, 1_391, 17.74e6, 50_039), 1000: (22_280, 1_563, 19.40e6, 58_237)}
"""What DP-SQLP's Table 1 prints for its own algorithm: keys, ℓ∞, ℓ1, ℓ2."""


def table1(triggers: int) -> Iterator[str]:
    rows = load(f"table1/*-{triggers}-seed*.json")
    body = []
    if triggers in PAPER:
        body.append(["DP-SQLP, as printed in the paper", "", *(large(value) for value in PAPER[triggers]), ""])
    for strategy in ORDER:
        runs = [row for row in rows if row["strategy"] == strategy]
        if not runs:
            continue
        figures = [spread([run[name] for run in runs]) for name in ("keys", "linf", "l1", "l2")]
        # The machine was shared, so how long the runs took says nothing.
        memory = f"{max(run['peak_memory_bytes'] for run in runs) / 2**30:.1f} GiB"
        body.append([strategy, str(len(runs)), *figures, memory])
    yield from table(["strategy", "seeds", "keys", "ℓ∞", "ℓ1", "ℓ2", "memory"], body)


def quarters(triggers: int) -> Iterator[str]:
    rows = [row for row in load(f"table1/*-{triggers}-seed0.json") if row["strategy"] in ORDER]
    rows.sort(key=lambda row: ORDER.index(row["strategy"]))
    body = [
        [row["strategy"], *(f"{large(c['keys'])} / {large(c['l1'])} / {large(c['l2'])}" for c in row["checkpoints"])]
        for row in rows
    ]
    yield from table(["keys / ℓ1 / ℓ2 after", "¼", "½", "¾", "the window"], body)


def best_caps(name: str) -> Iterator[str]:
    body = []
    for strategy, runs in groupby(load(f"sweep/{name}.jsonl"), key=lambda row: row["strategy"]):
        best = min(runs, key=lambda row: row["l1"])
        caps = f"{best['max_records']}, {best['max_records_per_key']}"
        body.append([strategy, caps, *(large(best[n]) for n in ("keys", "linf", "l1", "l2"))])
    yield from table(["strategy", "C, m with least ℓ1", "keys", "ℓ∞", "ℓ1", "ℓ2"], body)


def sweep(name: str) -> Iterator[str]:
    rows = load(f"sweep/{name}.jsonl")
    body = [
        [row["strategy"], str(row["max_records"]), *(large(row[n]) for n in ("keys", "linf", "l1", "l2"))]
        for row in rows
    ]
    yield from table(["strategy", "C", "keys", "ℓ∞", "ℓ1", "ℓ2"], body)


def thresholds() -> Iterator[str]:
    body = []
    for row in load("thresholds.jsonl"):
        setting = f"{row['what']}, T = {row['triggers']}, ε = {row['epsilon']:g}"
        columns = ("tree_mean", "tree_last", "toeplitz_mean", "toeplitz_last", "toeplitz_steady_last")
        body.append([setting, str(row["paper"] or ""), *(f"{row[name]:.1f}" for name in columns)])
    header = ["users needed", "paper", "tree, mean", "tree, last", "toeplitz, mean", "toeplitz, last", "steady, last"]
    yield from table(header, body)


AUDITED = {
    **{strategy: ("mechanism", strategy) for strategy in ("toeplitz", "no last look", "closing", "dp-sqlp")},
    **{f"pipeline, {strategy}": ("pipeline", strategy) for strategy in ("toeplitz", "no last look", "closing")},
}


def audit() -> Iterator[str]:
    found: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in load("audit.jsonl"):
        if row["through"] in ("mechanism", "pipeline"):
            place = found.setdefault((row["scenario"], row["defect"]), {})
            place[row["through"], row["strategy"]] = row
    body = []
    for (scenario, defect), by in found.items():
        claim = next(iter(by.values()))["claimed_epsilon"]
        bounds = [_bound(by[run]) if run in by else "" for run in AUDITED.values()]
        body.append([scenario, _code(defect), f"{claim:g}", *bounds])
    yield from table(["scenario", "code", "claimed ε", *(f"{name}: ε ≥" for name in AUDITED)], body)


def audit_events() -> Iterator[str]:
    body = [
        [row["strategy"], row["scenario"], _code(row["defect"]), f"{row['claimed_epsilon']:g}", _bound(row)]
        for row in load("audit.jsonl")
        if row["through"] in ("stream", "report", "tune", "period", "windows")
    ]
    yield from table(["mechanism", "neighbours", "code", "claimed ε", "ε ≥"], body)


def _code(defect: str) -> str:
    return "the real thing" if defect == "none" else f"**{defect}**"


def _bound(row: dict[str, Any]) -> str:
    return "∞" if row["epsilon_lower_bound"] is None else f"{row['epsilon_lower_bound']:.2f}"


def end_to_end() -> Iterator[str]:
    body = [
        [
            row["strategy"],
            *(f"{row[name]:,}" for name in ("records", "partitions", "workers", "micro_batches", "rows", "differing")),
        ]
        for row in load("end_to_end.jsonl")
    ]
    header = [
        "strategy",
        "records",
        "partitions of each topic",
        "workers",
        "triggers",
        "rows published",
        "rows differing",
    ]
    yield from table(header, body)


def scale_stages() -> Iterator[str]:
    body = []
    for row in load("scale/stages.jsonl"):
        if row["what"] != "stage":
            continue
        figures = (row["us_per_event"], row["us_per_row_in"])
        sizes = (row["out_bytes_per_event"], row["changelog_bytes_per_event"])
        body.append(
            [
                row["stage"],
                f"{row['rows_in']:,}",
                *(f"{figure:.1f}" for figure in figures),
                f"{row['commits']:,}",
                f"{row['out_topic']}: {sizes[0]:.1f}",
                f"{sizes[1]:.1f}",
            ]
        )
    header = [
        "stage",
        "rows in",
        "µs per raw event",
        "µs per row in",
        "commits",
        "bytes out per raw event",
        "changelog",
    ]
    yield from table(header, body)


def scale_fan_out() -> Iterator[str]:
    body = [
        [
            f"{row['by_user_partitions']:,}",
            f"{row['events_per_fetch']:,}",
            f"{row['us_per_event']:.2f}",
            f"{row['out_records']:,}",
            f"{row['out_bytes_per_event']:.1f}",
        ]
        for row in load("scale/stages.jsonl")
        if row["what"] == "fan-out"
    ]
    yield from table(
        ["by-user partitions", "events per fetch", "route, µs per event", "Kafka records", "bytes per event"], body
    )


def scale_release() -> Iterator[str]:
    body = []
    for row in load("scale/release.jsonl"):
        touched = f"{row['touched_keys']:,}" + (" new" if row["fresh"] else "")
        dealt = row["touched_keys"] + row["published_rows"]
        milliseconds = (row["seconds"] * 1e3, row["first_seconds"] * 1e3)
        body.append(
            [
                f"{row['stored_keys']:,}",
                f"{row['published_keys']:,}",
                touched,
                *(f"{one:,.0f}" for one in milliseconds),
                f"{row['seconds'] / dealt * 1e6:.1f}",
            ]
        )
    header = [
        "stored keys",
        "published keys",
        "touched keys",
        "ms per trigger",
        "ms, first",
        "µs per touched or published",
    ]
    yield from table(header, body)


def scale_workers() -> Iterator[str]:
    body = [
        [
            str(row["workers"]),
            f"{row['records']:,}",
            f"{row['seconds']:.1f} s",
            f"{row['events_per_second']:,}",
            f"{row['load']:.1f}",
        ]
        for row in load("scale/workers.jsonl")
    ]
    yield from table(["worker processes", "records", "time", "events a second", "load of the 2 cores"], body)


def forecasts() -> Iterator[str]:
    """Forecast against outcome, by benchmarks/forecast.py."""
    rows = load("forecast.jsonl")
    body = []
    for case in dict.fromkeys(row["case"] for row in rows):
        for kind in ("whole", "half"):
            runs = [row for row in rows if row["case"] == case and row["sample"].startswith(kind)]
            if not runs:
                continue
            cells = []
            for name in ("keys", "l1"):
                off = [row[f"forecast_{name}"] / row[name] - 1 for row in runs]
                shown = f"{off[0]:+.1%}" if len(off) == 1 else f"{min(off):+.1%} to {max(off):+.1%}"
                cells += [spread([row[f"forecast_{name}"] for row in runs]), large(runs[0][name]), shown]
            sample = "all users" if kind == "whole" else f"{len(runs)} random halves"
            body.append([case, sample, *cells])
    yield from table(
        ["data", "sample", "keys, forecast", "published", "off by", "ℓ1, forecast", "outcome", "off by"], body
    )


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "table1-100": lambda: table1(100),
    "table1-1000": lambda: table1(1000),
    "quarters-100": lambda: quarters(100),
    "quarters-1000": lambda: quarters(1000),
    "sweep": lambda: sweep("zipf-mandelbrot"),
    "retail": lambda: best_caps("retail"),
    "nasa": lambda: best_caps("nasa"),
    "scenarios": scenario_tables.errors,
    "scenarios-coverage": lambda: scenario_tables.coverage("end"),
    "scenarios-coverage-middle": lambda: scenario_tables.coverage("middle"),
    "scenarios-coverage-new": lambda: scenario_tables.coverage("end", "new, "),
    "thresholds": thresholds,
    "forecast": forecasts,
    "audit": audit,
    "audit-events": audit_events,
    "end-to-end": end_to_end,
    "scale-stages": scale_stages,
    "scale-fan-out": scale_fan_out,
    "scale-release": scale_release,
    "scale-workers": scale_workers,
    **day_tables.TABLES,
    **performance_tables.TABLES,
    **scale_tables.TABLES,
    **stream_tables.TABLES,
}


def render(text: str) -> str:
    """The document with every table it names filled in; tables of others are left alone."""

    def fill(match: re.Match[str]) -> str:
        if match[1] not in TABLES:
            return match[0]
        return f"<!-- table: {match[1]} -->\n" + "\n".join(TABLES[match[1]]()) + "\n<!-- end -->"

    return re.sub(r"<!-- table: (\S+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    stale = False
    for path in (
        *sorted(DOCS.glob("results*.md")),
        *(DOCS / name for name in ("performance.md", "scale.md", "plan.md")),
    ):
        before = path.read_text()
        after = render(before)
        stale = stale or before != after
        if not options.check:
            path.write_text(after)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
