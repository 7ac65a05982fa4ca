#!/usr/bin/env python3
"""Trigger intervals per second while an archive is replayed, by strategy: how fast a history can be published.

An archive has few records for each interval here, so that what an interval costs shows and not what a record does. `closing`
needs what was published before; an interval that waits for it costs a round trip through the broker.

    benchmarks/replay.py [--strategies toeplitz,closing] [--triggers 24,288,1000] [--records 100000] [--workers 1] [--json]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.inputs import DAY_MS, fill, say
from benchmarks.usage import Meter
from benchmarks.workers import new_name, pipeline_toml, published
from susurrus.agents.broker.cluster import KafkaCluster


def measure(
    cluster: KafkaCluster, strategies: Sequence[str], triggers: Sequence[int], records: int, workers: int
) -> Iterator[dict[str, Any]]:
    """One row for each strategy and number of triggers."""
    for count in triggers:
        feed = fill(cluster.bootstrap_servers, records, count)
        for strategy in strategies:
            toml = pipeline_toml(feed, new_name(), strategy=strategy)
            with tempfile.TemporaryDirectory(prefix="susurrus-replay-") as directory, Meter(cluster) as meter:
                part = published(feed, workers, Path(directory), meter, toml=toml)
            say(f"{strategy}, {count} triggers: {count / part.seconds:.1f} intervals a second")
            yield {
                "what": "replay",
                "strategy": strategy,
                "triggers": count,
                "records": records,
                "workers": workers,
                "seconds": round(part.seconds, 2),
                "intervals_per_second": round(count / part.seconds, 2),
                "ms_per_interval": round(part.seconds / count * 1e3, 1),
                "cpu_ms_per_interval": {
                    name: round(spent / count * 1e3, 2) for name, spent in part.cpu.items() if spent
                },
            }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default="toeplitz,closing")
    parser.add_argument("--triggers", default="24,288,1000", help="of the day, one run each")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    triggers = [int(count) for count in options.triggers.split(",")]
    if wrong := [count for count in triggers if count < 1 or DAY_MS % count]:
        parser.error(f"--triggers: {wrong} do not divide a day of {DAY_MS} ms")
    with KafkaCluster(heap="1g", properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        for row in measure(cluster, options.strategies.split(","), triggers, options.records, options.workers):
            print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
