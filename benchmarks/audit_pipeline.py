"""The audit's inputs through the whole pipeline: the agents' own stages, with topics and state held in memory.

Flow: audit_scenarios.Scenario → JSON records in raw partitions → route → by-user → bound → bounded → release → rows.
What Kafka does (transactions, fencing, rebalances) is not here: `pump` hands every stage its batches, applies each
commit whole, and makes every stage anew from its state after each commit, as a worker does that restarts all the time.
Fetches go round the raw partitions, so by-user logs interleave them differently when one of them carries more load.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from audit_scenarios import REAL, L, QuietNoise, Scenario, build, plan_of
from audit_statistics import Outputs

from susurrus.agents.app import calendar_of
from susurrus.agents.commit import Commit, Output
from susurrus.agents.histogram.bound import Bound
from susurrus.agents.histogram.release import Release
from susurrus.agents.histogram.route import Route
from susurrus.agents.services import Services
from susurrus.agents.settings import settings_from
from susurrus.agents.stage import Stage
from susurrus.agents.transport import Batch
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.topics import histogram

FIRST_WINDOW = 1_767_225_600_000
TRIGGER_MS = 60_000
PARTITIONS = 2
FETCH = 500


class Memory:
    """One store: what agents/store.py offers, in a dictionary. A planted defect forgets users or hides due keys."""

    def __init__(self, defect: str) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.defect = defect

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def get_one(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self.defect == "tested when touched" and start.startswith(b"d"):
            return
        for key in sorted(key for key in self.rows if start <= key < end):
            yield key, self.rows[key]

    def scan_chunks(self, start: bytes, end: bytes, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        rows = list(self.scan(start, end))
        for at in range(0, len(rows), size):
            yield rows[at : at + size]

    def write(self, commit: Commit) -> None:
        for start, end in commit.drops:
            self.rows = {key: value for key, value in self.rows.items() if not start <= key < end}
        for key in commit.deletes:
            self.rows.pop(key, None)
        self.rows.update(commit.puts)

    def restart(self) -> None:
        if self.defect == "cap lost":
            self.rows = {key: value for key, value in self.rows.items() if not key.startswith(b"u")}


class Ledger:
    """The facts of a ledger topic that stages ask for; one epoch, one window, charged."""

    def __init__(self, epoch: str, first_window: int, sources: int) -> None:
        self.epoch = epoch
        self.first_window = first_window
        self.start = SimpleNamespace(
            offsets=dict.fromkeys(range(sources), 0), topic_id="raw", first_window=FIRST_WINDOW
        )
        self.sources = None

    def refresh(self) -> None: ...

    def digests(self, partition: int) -> dict[tuple[int, int], str]:
        return {}

    def is_charged(self, window: int) -> bool:
        return True

    def output(self, *records: Any) -> Output:
        return Output("ledger", 0, [])

    def withdrawn(self, keys: list[bytes]) -> Output:
        return Output("ledger", 0, [])


class Clients:
    """Where the raw logs end."""

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends

    def topic_id(self, topic: str) -> str:
        return "raw"

    def partitions(self, topic: str) -> int:
        return len(self.ends)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, self.ends[partition]


class Runner:
    """One pipeline over in-memory logs."""

    def __init__(self, services: Services, raw: list[list[SimpleNamespace]], defect: str) -> None:
        self.services = services
        self.defect = defect
        self.logs: dict[tuple[str, int], list[Any]] = {("raw", p): log for p, log in enumerate(raw)}
        self.tasks: dict[tuple[type[Stage], int], Any] = {}

    def run(self) -> list[bytes]:
        """All values of the histogram topic."""
        sources = range(sum(topic == "raw" for topic, _ in self.logs))
        for at in range(0, max(len(self.logs["raw", source]) for source in sources) + 1, FETCH):
            for source in sources:
                self.pump(Route, source, "raw", limit=at + FETCH)
        for partition in range(PARTITIONS):
            self.pump(Bound, partition, self.services.topic("by-user"))
        for partition in range(PARTITIONS):
            self.pump(Release, partition, self.services.topic("bounded"))
        topic = self.services.topic("histogram")
        return [record.value for (name, _), log in self.logs.items() if name == topic for record in log]

    def pump(self, kind: type[Stage], partition: int, topic: str, limit: int = 1 << 60) -> None:
        """Feeds a stage its log up to `limit`, in fetches, and applies its commits; a restart follows every commit."""
        log = self.logs.get((topic, partition), [])
        task = self.tasks.get((kind, partition))
        if task is None:
            task = self.tasks[kind, partition] = SimpleNamespace(store=Memory(self.defect), meta=None, next=0)
            task.stage = kind(self.services, partition)
            task.stage.restore(task.store, None, 0)
        end = min(limit, len(log))
        while True:
            upto = min(task.next + FETCH, end)
            if upto > task.next:
                task.stage.take(Batch(task.next, upto, log[task.next : upto], 0))
                task.next = upto
            # Asked also without news, as a worker's task does: an empty partition must close its slots too.
            for commit in task.stage.commits(FIRST_WINDOW):
                self.apply(commit)
                task.store.write(commit)
                task.meta, task.position = commit.meta, commit.position
                task.stage.committed(commit)
                task.store.restart()
            if task.meta is not None and task.position == task.next:
                counters = dict(task.stage.counters)
                task.stage = kind(self.services, partition)
                task.stage.counters = counters
                task.next = task.stage.restore(task.store, task.meta, task.position)
            if task.next >= end:
                return

    def apply(self, commit: Commit) -> None:
        for output in commit.outputs:
            log = self.logs.setdefault((output.topic, output.partition), [])
            for message in output.messages:
                log.append(SimpleNamespace(offset=len(log), value=message["value"]))


def play_pipeline(
    scenario: Scenario, strategy: str, *, present: bool, trials: int, seed: int, defect: str = REAL
) -> Outputs:
    """Like `audit_scenarios.play`, through route, bound and release."""
    seen = []
    for number in range(scenario.inputs):
        here = present and number == scenario.inputs - 1
        epoch = 2 * number + present if defect != "noise reused" else int(present)
        seen.append(_run(scenario, strategy, here, trials, f"{seed:016x}{epoch:016x}", defect))
    return Outputs(
        published=np.concatenate([one.published for one in seen], axis=1),
        estimates=np.concatenate([one.estimates for one in seen], axis=1),
    )


def _run(scenario: Scenario, strategy: str, present: bool, trials: int, epoch: str, defect: str) -> Outputs:
    plan = plan_of(scenario, strategy)
    names = [f"{trial}.{key}" for trial in range(trials) for key in range(scenario.keys)]
    settings = settings_from(
        {
            "pipeline": {"name": "audit"},
            "kafka": {"bootstrap_servers": "none:1"},
            "input": {"topic": "raw", "user": "user", "key": ["key"]},
            "start": {"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
            "clock": {"kind": "replay", "until": f"2026-01-01T00:{plan.triggers:02d}:00Z"},
            "window": {"length": f"{plan.triggers}m", "trigger_every": "1m", "origin": "2026-01-01T00:00:00Z"},
            "bounds": {"max_records_per_user": plan.max_records, "max_records_per_key": plan.max_records_per_key},
            "columns": [{"name": "amount", "kind": "sum", "field": "value", "bound": L, "grid": 1}],
            "keys": {"declared": names if scenario.declared else []},
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "strategy": strategy},  # the plan below is what counts
            "topics": {"by_user_partitions": PARTITIONS, "bounded_partitions": PARTITIONS},
        },
        environ={"SUSURRUS_SECRET": "5a" * 32},
    )
    raw = _raw(scenario, present, trials)
    calendar = calendar_of(settings)
    services = Services(
        settings=settings,
        clients=Clients([len(log) for log in raw]),  # type: ignore[arg-type]
        ledger=Ledger(epoch, calendar.window_at(FIRST_WINDOW), len(raw)),  # type: ignore[arg-type]
        calendar=calendar,
        config_digest=plan.digest(),
        secret=bytes(32),
        strategy=build(plan, defect),
    )
    with ExitStack() as stack:
        if defect == "by-user order":
            stack.enter_context(
                patch("susurrus.agents.histogram.bound.sorted", lambda blocks, key: list(blocks), create=True)
            )
        if defect == "noise scale":
            real = NoiseSource.window

            def quiet(source: NoiseSource, window: int) -> WindowNoise:
                return QuietNoise(real(source, window))

            stack.enter_context(patch.object(NoiseSource, "window", quiet))
        values = Runner(services, raw, defect).run()
    outputs = Outputs(
        published=np.zeros((trials, scenario.keys, plan.triggers), np.bool_),
        estimates=np.zeros((trials, scenario.keys, plan.triggers)),
    )
    for value in values:
        row = histogram.decode_row(value)
        trial, key = map(int, str(row.key).split("."))
        outputs.published[trial, key, row.trigger - 1] = True
        outputs.estimates[trial, key, row.trigger - 1] = row.values["amount"].estimate
    return outputs


def _raw(scenario: Scenario, present: bool, trials: int) -> list[list[SimpleNamespace]]:
    """Raw partitions of all trials, sorted by time; at equal times the audited users' records come first."""
    given = scenario.build(present)
    sources = 1 + max([*scenario.build(True).source, 0])
    order = np.lexsort((np.asarray(given.user) != 0, given.trigger))
    logs: list[list[SimpleNamespace]] = [[] for _ in range(sources)]
    for row in order.tolist():
        stamp = FIRST_WINDOW + (given.trigger[row] - 1) * TRIGGER_MS
        log = logs[given.source[row]]
        for trial in range(trials):
            value = {"user": f"{trial}.{given.user[row]}", "key": f"{trial}.{given.key[row]}", "value": L}
            log.append(
                SimpleNamespace(
                    offset=len(log), timestamp=stamp, timestamp_type=0, key=None, value=json.dumps(value).encode()
                )
            )
    return logs
