#!/usr/bin/env python3
"""How long a worker takes to have its state back: with the disk that it left, and with an empty one, from the changelog.

A window stays open with some records of each user in it, so `bound` holds a row of every one. Then the worker is ended and
started again: orderly with its disk, after kill -9 with its disk, and after kill -9 with an empty disk. Seconds count from the
start of the process until all partitions of `bound` run; ``recovering_seconds`` is what the slowest of them took by its own log,
without the start of Python and joining the group. The worker has a name (``worker.instance``), so it gets its partitions back at
once. ``changelog_bytes`` is what the changelog of `bound` holds on the broker, which an empty disk has to read; ``disk_bytes`` is
what lay on the worker's disk when it started.

    benchmarks/recovery.py [--users 1000000] [--records-per-user 4] [--runs 3] [--json]
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.inputs import DAY_MS, PARTITIONS, fill, say
from benchmarks.usage import peak_memory_mb
from benchmarks.workers import SECONDS, Fleet, new_name, pipeline_toml, wait_for_trigger
from susurrus.agents.broker.cluster import KafkaCluster

CASES = ("stopped, with its disk", "killed, with its disk", "killed, empty disk")
_READY = re.compile(r"bound-(\d+) runs from offset \d+, ready in ([0-9.]+) s")


def size_of(directory: Path, pattern: str = "**/*") -> int:
    """Bytes of the files below a directory that match."""
    return sum(path.stat().st_size for path in directory.glob(pattern) if path.is_file())


def wait_for_bound(fleet: Fleet, began: float) -> tuple[float, float]:
    """Seconds since ``began`` (monotonic) when all partitions run, and what the slowest took by its own account."""
    while True:
        fleet.check()
        ready = {match[1]: float(match[2]) for match in _READY.finditer(fleet.log(0))}
        if len(ready) == PARTITIONS:
            return time.monotonic() - began, max(ready.values())
        if time.monotonic() > began + SECONDS:
            raise RuntimeError(f"only {len(ready)} of {PARTITIONS} partitions of bound run after {SECONDS} s")
        time.sleep(0.05)


def measure(cluster: KafkaCluster, users: int, each: int, runs: int) -> Iterator[dict[str, Any]]:
    """A row for each case and run."""
    data = cluster.directory / "broker-1" / "data"
    # The records lie in the first half of the day, and so do the triggers: the window of the day stays open.
    feed = fill(cluster.bootstrap_servers, users * each, 24, users, DAY_MS // 2)
    with tempfile.TemporaryDirectory(prefix="susurrus-recovery-") as directory:
        toml = pipeline_toml(feed, new_name(), hours=12)
        with Fleet(toml, Path(directory), loglevel="info", named=True) as fleet:
            fleet.create_topics()
            fleet.start(0)
            say(f"loading the state of {users:,} users from {feed.records:,} records")
            wait_for_trigger(
                cluster.bootstrap_servers, fleet.settings.topic("progress"), fleet.check, feed.triggers // 2
            )
            changelog = fleet.settings.topic("bound-changelog")
            state = fleet.home(0) / "state"
            for run in range(runs):
                for case in CASES:
                    (fleet.stop if case.startswith("stopped") else fleet.kill)(0)
                    if "empty" in case:
                        shutil.rmtree(state)
                    disk = size_of(state, "**/bound-*/**/*") if state.exists() else 0
                    began = time.monotonic()
                    fleet.start(0)
                    seconds, recovering = wait_for_bound(fleet, began)
                    say(f"run {run + 1}: {case}: {seconds:.1f} s")
                    yield {
                        "what": "recovery",
                        "case": case,
                        "users": users,
                        "records": feed.records,
                        "seconds": round(seconds, 2),
                        "recovering_seconds": round(recovering, 2),
                        "disk_bytes": disk,
                        "changelog_bytes": size_of(data, f"{changelog}-*/*.log"),
                        "memory_mb": round(max(map(peak_memory_mb, fleet.pids()))),
                    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--records-per-user", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3, help="of each case (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    with KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        for row in measure(cluster, options.users, options.records_per_user, options.runs):
            print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
