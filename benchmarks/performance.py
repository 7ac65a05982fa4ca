#!/usr/bin/env python3
"""All figures of docs/performance.md: runs the benchmarks one after the other, and renders the tables from what they print.

    python benchmarks/performance.py                              hours, on a quiet machine
    python benchmarks/performance.py --only latency,recovery      some of them; the other tables stay as they are
    python benchmarks/performance.py --quick                      minutes: that everything runs, not figures

A benchmark's lines replace docs/results/performance/NAME.jsonl when it has ended without an error. What is longer or shorter can be
run by hand: ``benchmarks/NAME.py --json > docs/results/performance/NAME.jsonl``, then ``benchmarks/results.py``. The figures of
throughput_rows are those of throughput.py with all of its rows.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results" / "performance"
ROWS = ["--only", "susurrus,pure,tuned"]
FULL: dict[str, list[str]] = {
    "throughput": ["--rows", "plain"],
    "throughput_rows": ["--records", "3000000", *ROWS],
    "latency": ["--faults", "--floor"],
    "recovery": [],
    "trigger": ["--keys", "10000,1000000,10000000"],
    "replay": [],
    "output_formats": [],
}
QUICK: dict[str, list[str]] = {
    "throughput": ["--rows", "plain", "--records", "50000", "--runs", "1"],
    "throughput_rows": ["--records", "50000", "--runs", "1", *ROWS],
    "latency": ["--faults", "--floor", "--rates", "2000", "--triggers", "4", "--every-ms", "3000"],
    "recovery": ["--users", "20000", "--runs", "1"],
    "trigger": ["--keys", "5000,20000", "--touched", "1000", "--triggers", "24,96"],
    "replay": ["--records", "5000", "--triggers", "24"],
    "output_formats": ["--rows", "20000"],
}
SCRIPTS = {"throughput_rows": "throughput"}
"""The benchmarks that are not called as their results are."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FULL), help=f"comma-separated, of: {', '.join(FULL)}")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = parser.parse_args(argv)
    names = options.only.split(",")
    if unknown := set(names) - set(FULL):
        parser.error(f"--only: unknown {sorted(unknown)}; known: {', '.join(FULL)}")
    failed = []
    for name in names:
        arguments = (QUICK if options.quick else FULL)[name]
        print(f"{name} {' '.join(arguments)}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, str(HERE / f"{SCRIPTS.get(name, name)}.py"), "--json", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            (RESULTS / f"{name}.jsonl").write_text(done.stdout)
        else:
            failed.append(name)
            print(
                f"{name} FAILED with status {done.returncode}; its table stays as it was", file=sys.stderr, flush=True
            )
    subprocess.run([sys.executable, str(HERE / "results.py")], check=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
