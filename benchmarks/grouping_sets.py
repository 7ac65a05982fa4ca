"""One pipeline with grouping sets against a pipeline for each of them: processor time and bytes, on the same records.

    python benchmarks/grouping_sets.py [--records 300000] [--users 30000] [--json]

The agents' own stages run on one core, with the stores of a worker and topics in memory (audit_memory.Runner). So Kafka, its client
and the network are left out: they grow with the bytes, which are counted by topic as they are written. Every variant runs
``--runs`` times; a row is the run with the least processor time.

- one       grouping_sets = [["country"], ["country", "city"], []]
- three     a pipeline for each of them, with the same caps, added up
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from audit_memory import Clients, MemoryLedger, Runner

from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store

FIRST_WINDOW = 1_767_225_600_000
DAY = 86_400_000
SECRET = bytes.fromhex("5a" * 32)
FETCH = 20_000
CAPS = {"country": 2, "city": 8, "total": 1}
LEVELS: dict[str, list[str]] = {"country": ["country"], "city": ["country", "city"], "total": []}
TOPICS = ("by-user", "bounded", "published-keys", "histogram", "latest", "progress")


class Disk(Store):
    """A worker's store, as the runner uses one."""

    def restart(self) -> None:
        """Nothing is planted."""

    def write(self, commit: Commit) -> None:  # type: ignore[override]
        super().write(commit.puts, commit.deletes, commit.drops, meta=b"m")


class Timed(Runner):
    """Counts the processor time of each stage."""

    def __init__(self, directory: Path, *of: Any, **more: Any) -> None:
        super().__init__(*of, **more)
        self.directory, self.seconds = directory, Counter[str]()

    def pump(self, kind: type[Stage], partition: int, topic: str, now: int, limit: int = 1 << 60) -> None:
        if (kind, partition) not in self.tasks:
            store = Disk(self.directory / f"{kind.name}-{partition}")
            task = SimpleNamespace(store=store, meta=None, position=0, next=0, stage=None, counters=None)
            self.tasks[kind, partition] = task
        began = time.process_time()
        super().pump(kind, partition, topic, now, limit)
        self.seconds[kind.name] += time.process_time() - began

    def close(self) -> None:
        for task in self.tasks.values():
            task.store.close()


def raw_log(records: int, users: int) -> list[SimpleNamespace]:
    """A day of visits: users have a country, sometimes two, and several cities of it, both by Zipf's law."""
    rng = np.random.default_rng(1)
    home = np.minimum(rng.zipf(1.6, users), 60) - 1
    user = rng.integers(0, users, records)
    away = rng.random(records) < 0.03
    country = np.where(away, np.minimum(rng.zipf(1.6, records), 60) - 1, home[user])
    city = np.minimum(rng.zipf(1.5, records), 400) - 1
    stamps = (np.arange(records) * DAY // records + FIRST_WINDOW).tolist()
    return [
        SimpleNamespace(
            offset=at,
            timestamp=stamp,
            timestamp_type=0,
            key=None,
            headers=(),
            value=b'{"user":"u%07d","country":"c%d","city":"town-%d-%d"}' % (u, c, c, t),
        )
        for at, (stamp, u, c, t) in enumerate(zip(stamps, user.tolist(), country.tolist(), city.tolist(), strict=True))
    ]


def settings_of(name: str, sets: dict[str, list[str]]) -> HistogramSettings:
    """One grouping without grouping sets, several with them."""
    source: dict[str, Any] = {"topic": "raw", "user": "user"}
    more: dict[str, Any] = {}
    if len(sets) == 1:
        [(level, key)] = sets.items()
        source["key"] = key
        more["bounds"] = {"max_records_per_user": CAPS[level]}
    else:
        source |= {"key": ["country", "city"], "grouping_sets": list(sets.values())}
        more["levels"] = [{"key": key, "max_records_per_user": CAPS[level]} for level, key in sets.items()]
    found = settings_from(
        {
            "pipeline": {"name": name},
            "kafka": {"bootstrap_servers": "none:1"},
            "input": source,
            "start": {"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
            "clock": {"kind": "replay", "until": "2026-01-02T00:00:00Z"},
            "window": {"length": "1d", "trigger_every": "1h"},
            "privacy": {"epsilon": 6.0, "delta": 1e-9},
            "topics": {"by_user_partitions": 1, "bounded_partitions": 1},
            **more,
        },
        environ={"SUSURRUS_SECRET": SECRET.hex()},
    )
    return HistogramSettings.of(found)


def run(settings: HistogramSettings, raw: list[SimpleNamespace]) -> tuple[Counter[str], Counter[str]]:
    """(processor seconds by stage, bytes by topic) of one pipeline."""
    pipeline = HistogramPipeline(settings)
    clients: Any = Clients([raw])
    digest = pipeline.digest()
    ledger = MemoryLedger(
        settings,
        clients,
        settings.calendar,
        config_digest=digest,
        secret=SECRET,
        initializer=("release", 0),
        way_out="",
        published_before=str,
    )
    ledger.found()
    index = None
    if pipeline.strategy.lag is not None:
        topic = settings.topic("published-keys")
        index = PublishedKeys(topic, partitions=1, calendar=settings.calendar, config_digest=digest)
        index.epoch = bytes.fromhex(ledger.epoch)
    services = HistogramServices(
        settings,
        clients,
        ledger,
        settings.calendar,
        digest,
        SECRET,
        strategy=pipeline.strategy,
        published_keys=index,
        computation=SharedComputation(settings.raw_schema().scalars, settings.input.where, settings.lookup_tables),
    )
    with tempfile.TemporaryDirectory() as directory:
        runner = Timed(Path(directory), services, [raw], "none", fetch=FETCH, lasting=True)
        runner.run(FIRST_WINDOW)
        runner.close()
    sizes = Counter[str]()
    for (topic, _), log in runner.logs.items():
        short = topic.removeprefix(settings.topic(""))
        if short in TOPICS:
            sizes[short] += sum(len(record.value) for record in log)
    return runner.seconds, sizes


def best(variant: list[HistogramSettings], raw: list[SimpleNamespace], runs: int) -> tuple[Counter[str], Counter[str]]:
    """Of several runs of the same pipelines, the one with the least processor time, added up over them."""
    found = []
    for _ in range(runs):
        seconds, sizes = Counter[str](), Counter[str]()
        for settings in variant:
            of_one = run(settings, raw)
            seconds.update(of_one[0])
            sizes.update(of_one[1])
        found.append((seconds, sizes))
    return min(found, key=lambda each: sum(each[0].values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--users", type=int, default=30_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    raw = raw_log(options.records, options.users)
    variants = {
        "one": [settings_of("all", LEVELS)],
        "three": [settings_of(level, {level: key}) for level, key in LEVELS.items()],
    }
    rows = {}
    for name, variant in variants.items():
        seconds, sizes = best(variant, raw, options.runs)
        total = sum(seconds.values())
        rows[name] = {
            "pipelines": name,
            "records_per_second": round(options.records / total),
            "cpu_us_per_record": {stage: round(each / options.records * 1e6, 2) for stage, each in seconds.items()},
            "bytes_per_record": {topic: round(sizes[topic] / options.records, 2) for topic in TOPICS},
            "bytes_per_record_in_all": round(sum(sizes.values()) / options.records, 2),
        }
    for row in rows.values():
        print(
            json.dumps(row) if options.json else "\n".join(f"{name:<24}{value}" for name, value in row.items()) + "\n"
        )
    if not options.json:
        one, three = rows["one"], rows["three"]
        for name in ("records_per_second", "bytes_per_record_in_all"):
            print(f"{name}: one / three = {one[name] / three[name]:.2f}")  # type: ignore[operator]


if __name__ == "__main__":
    main()
