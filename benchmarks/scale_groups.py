#!/usr/bin/env python3
"""Many partitions, workers and pipelines on one broker, with small loads: what a group and a cluster cost beside the records.

    group       one pipeline: so many workers, raw partitions, and a quarter as many partitions of by-user and of bounded
    pipelines   so many pipelines of one worker each over one raw topic of one partition, and one partition of everything

All workers of a group start at once. Of many pipelines eight start at a time. Then, while records arrive at --rate a second and a
release is due every 5 s (of many pipelines every 30 s, because two cores are to hold fifty):

    start_seconds           from the start of the processes until every partition runs (looked for five times a second at most)
    metadata_calls          requests for metadata that the broker was sent until then
    requests, connections   what it is sent per second at rest, by kind; what is open then
    threads, memory_mb      of the largest worker; cores: processors that all workers, and the broker, keep busy at rest
    left_seconds            group: from SIGTERM to one worker until every partition runs elsewhere
    others_stopped_seconds  the longest that a partition of another worker stood still meanwhile
    joined_seconds          from the start of that worker until it runs partitions, and all run
    stopped_seconds         the longest that a partition stood still meanwhile

benchmarks/scale_model.py fits a model to the smaller cases, and docs/scale.md shows what it predicts for the largest beside what
was measured. The broker counts requests itself (JMX; benchmarks/peers/broker/Requests.java).

    benchmarks/scale_groups.py [--groups 1x4,1x16,2x16,4x32,8x64] [--pipelines 5,10,20,50] [--steady 60] [--json]
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.inputs import create_raw_topic, say
from benchmarks.latency import live_toml
from benchmarks.latency_floor import arriving
from benchmarks.usage import processor_seconds, resident_memory_mb, threads
from benchmarks.workers import Fleet
from susurrus.agents.broker.artefacts import find_java
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.process import BrokerProcess

REQUESTS = Path(__file__).with_name("peers") / "broker" / "Requests.java"
EVERY_MS = 5_000
PIPELINES_EVERY_MS = 30_000
LOOK_SECONDS = 0.2
LOOK_SHARE = 5
"""Between two looks there is as much time as that many of them take: on a full machine looking would be a good part of the load."""
BROKER = {"group.initial.rebalance.delay.ms": "0", "broker.session.timeout.ms": "60000"}
"""By default a broker that has no processor for nine seconds leads nothing any more, and then all workers begin again."""
SECONDS = 900.0
SETTLING_SECONDS = 10.0
COUNTED_TWICE = ("FetchConsumer", "FetchFollower")
"""Kinds that the broker counts beside Fetch, in which they are."""
STARTING = 8
"""Pipelines that start at a time. The imports of fifty would take two cores a minute. The broker, which is on them too, would not
answer its clients for so long."""
SHARE = 4
"""Raw partitions for each of by-user and of bounded."""

Place = tuple[str, str]
"""A stage and a partition of it."""


class BrokerRequests:
    """What a broker has been asked so far, by its own count."""

    def __init__(self, pid: int) -> None:
        self._process = subprocess.Popen(
            [find_java(), "-XX:TieredStopAtLevel=1", str(REQUESTS), str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def now(self) -> dict[str, int]:
        """Requests by kind, and "connections". Raises RuntimeError where the broker cannot be asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the broker's counts cannot be read: a JDK of the same user is needed, not only a JRE")
        return {kind: count for kind, count in json.loads(line).items() if kind not in COUNTED_TWICE}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


class Lookout:
    """Looks which partitions of some fleets run, and for how long each has not."""

    def __init__(self, fleets: Sequence[Fleet], places: int) -> None:
        self._fleets, self._places = fleets, places
        self._seen: dict[tuple[int, Place], float] = {}
        self.longest: dict[tuple[int, Place], float] = {}
        """Of each fleet's partitions the longest time that it was not seen running, since `begin`."""
        self.running: list[dict[int, set[Place]]] = [{} for _ in fleets]
        """Of each fleet and worker what ran at the last look."""
        self._took = 0.0

    def begin(self) -> None:
        """Forget what was before."""
        now = time.monotonic()
        self._seen = dict.fromkeys(self._seen, now)
        self.longest = {}

    def wait(self, enough: Callable[[], bool] = lambda: True) -> float:
        """Seconds until all partitions run, each on one worker, and enough() holds. Raises RuntimeError after SECONDS."""
        began = time.monotonic()
        self.look()
        while self.open or not enough():
            self._pause(began)
            self.look()
        return time.monotonic() - began

    def wait_for_some(self, fleets: int, open_at_most: int) -> None:
        """Until of the first so many fleets no more than some lack a partition. Raises RuntimeError after SECONDS.

        Those that run are not looked at again: a look at fifty would be a good part of the load.
        """
        began = time.monotonic()
        while len(left := [number for number in self.open if number < fleets]) > open_at_most:
            self._pause(began)
            self.look(left)

    @property
    def open(self) -> list[int]:
        """The fleets that did not run every partition on one worker each when they were looked at last."""
        found = [[place for places in workers.values() for place in places] for workers in self.running]
        return [number for number, run in enumerate(found) if not len(run) == len(set(run)) == self._places]

    def _pause(self, began: float) -> None:
        if time.monotonic() > began + SECONDS:
            raise RuntimeError(
                f"the fleets {self.open} do not run all of {self._places} partitions after {SECONDS:.0f} s"
            )
        time.sleep(max(LOOK_SECONDS, LOOK_SHARE * self._took))

    def look(self, fleets: Sequence[int] | None = None) -> None:
        """Ask every worker of some fleets, or all, once; one that does not answer runs nothing."""
        before = time.monotonic()
        for number in range(len(self._fleets)) if fleets is None else fleets:
            fleet = self._fleets[number]
            fleet.check()
            workers: dict[int, set[Place]] = {}
            for worker in fleet.numbers():
                workers[worker] = set()
                with contextlib.suppress(OSError):
                    for sample in fleet.samples(worker, "susurrus_partition_state"):
                        if sample.value and sample.labels["state"] == "running":
                            workers[worker].add((sample.labels["stage"], sample.labels["partition"]))
            self.running[number] = workers
            now = time.monotonic()
            for place in set().union(*workers.values()):
                at = (number, place)
                self.longest[at] = max(self.longest.get(at, 0.0), now - self._seen.get(at, now))
                self._seen[at] = now
        self._took = time.monotonic() - before


def at_rest(fleets: Sequence[Fleet], broker: int, requests: BrokerRequests, steady: float) -> dict[str, Any]:
    """What the workers and their broker do, while nothing but small loads arrives.

    That is measured for `steady` seconds, or as many times that long as it takes until something is released. The workers' pages
    of metrics are read before and after: reading those of fifty would be a good part of the load. Raises RuntimeError if nothing
    is released within SECONDS.
    """
    pids = [pid for fleet in fleets for pid in fleet.pids()]
    time.sleep(SETTLING_SECONDS)
    was_released = _released(fleets)
    before, began = requests.now(), time.monotonic()
    spent = [processor_seconds(pid).get("total", 0.0) for pid in (*pids, broker)]
    released = 0
    while not released:
        if time.monotonic() > began + SECONDS:
            raise RuntimeError(f"nothing was released within {SECONDS:.0f} s")
        time.sleep(steady)
        used = [processor_seconds(pid).get("total", 0.0) - was for pid, was in zip((*pids, broker), spent, strict=True)]
        after, seconds = requests.now(), time.monotonic() - began
        released = _released(fleets) - was_released
    kinds = {kind: (after[kind] - before.get(kind, 0)) / seconds for kind in after if kind != "connections"}
    return {
        "threads": max(map(threads, pids)),
        "memory_mb": round(max(map(resident_memory_mb, pids))),
        "broker_memory_mb": round(resident_memory_mb(broker)),
        "connections": after["connections"],
        "requests": {kind: round(rate, 2) for kind, rate in sorted(kinds.items()) if rate >= 0.01},
        "requests_per_second": round(sum(kinds.values()), 1),
        "cores": {"workers": round(sum(used[:-1]) / seconds, 2), "broker": round(used[-1] / seconds, 2)},
        "releases_per_second": round(released / seconds, 2),
    }


def _released(fleets: Sequence[Fleet]) -> int:
    return int(sum(fleet.sums("susurrus_stage_total", "stage", "total")["release", "triggers"] for fleet in fleets))


def started(lookout: Lookout, fleets: Sequence[Fleet], workers: int, requests: BrokerRequests) -> dict[str, Any]:
    """Start so many workers of each fleet at once, and wait for all partitions. Of many fleets, STARTING start at a time."""
    before, began = requests.now(), time.monotonic()
    for begun, fleet in enumerate(fleets, 1):
        for number in range(workers):
            fleet.start(number)
        lookout.wait_for_some(begun, STARTING - 1)
    lookout.wait_for_some(len(fleets), 0)
    seconds, after = time.monotonic() - began, requests.now()
    say(f"all partitions run after {seconds:.1f} s")
    return {
        "start_seconds": round(seconds, 1),
        "metadata_calls": after["Metadata"] - before.get("Metadata", 0),
    }


def rebalanced(lookout: Lookout, fleet: Fleet, worker: int) -> dict[str, float]:
    """One worker of the fleet leaves and comes back."""
    lookout.look()
    own = {(0, place) for place in lookout.running[0][worker]}
    lookout.begin()
    leaving = threading.Thread(target=fleet.stop, args=(worker,))
    leaving.start()
    left = lookout.wait(lambda: worker not in fleet.numbers())
    others = max((gap for at, gap in lookout.longest.items() if at not in own), default=0.0)
    leaving.join()
    lookout.begin()
    fleet.start(worker)
    joined = lookout.wait(lambda: bool(lookout.running[0].get(worker)))
    say(f"one worker left within {left:.1f} s, and came back within {joined:.1f} s")
    return {
        "left_seconds": round(left, 1),
        "others_stopped_seconds": round(others, 1),
        "joined_seconds": round(joined, 1),
        "stopped_seconds": round(max(lookout.longest.values()), 1),
    }


def measure(cluster: KafkaCluster, case: Mapping[str, int], rate: int, steady: float) -> dict[str, Any]:
    """One case: pipelines, and workers and raw partitions of each."""
    servers = cluster.bootstrap_servers
    pipelines, workers, partitions = case["pipelines"], case["workers"], case["raw_partitions"]
    inner = max(1, partitions // SHARE)
    broker = BrokerProcess(cluster.directory / "broker-1").pid()
    assert broker is not None
    raw = f"scale-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    create_raw_topic(admin, raw, partitions, message_timestamp_type="LogAppendTime")
    say(f"{pipelines} pipelines of {workers} workers and {partitions} raw partitions")
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="susurrus-scale-")))
        requests = stack.enter_context(BrokerRequests(broker))
        fleets: list[Fleet] = []
        stack.callback(stop_all, fleets)
        for number in range(pipelines):
            (home / str(number)).mkdir()
            toml = live_toml(servers, raw, "broker", PIPELINES_EVERY_MS if pipelines > 1 else EVERY_MS, inner)
            fleets.append(Fleet(toml, home / str(number), loglevel="warning"))
            fleets[-1].create_topics()
        places = partitions + 2 * inner
        lookout = Lookout(fleets, places)
        stack.enter_context(arriving(servers, raw, rate))
        row = {
            "what": "pipelines" if pipelines > 1 else "group",
            **case,
            "tasks": places * pipelines,
            "cores_of_machine": os.cpu_count(),
            "rate": rate,
            **started(lookout, fleets, workers, requests),
            **at_rest(fleets, broker, requests, steady),
        }
        if workers > 1:
            row |= rebalanced(lookout, fleets[0], workers - 1)
    topics = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
    for done in admin.delete_topics(topics).values():
        done.result(60)
    return row


def stop_all(fleets: Sequence[Fleet]) -> None:
    """Stop all workers, some at a time."""
    with ThreadPoolExecutor(8) as several:
        list(several.map(lambda fleet: fleet.__exit__(None, None, None), fleets))


def cases(groups: str, pipelines: str) -> Iterator[dict[str, int]]:
    """The cases of the two options. Raises ValueError."""
    for group in filter(None, groups.split(",")):
        workers, _, partitions = group.partition("x")
        yield {"pipelines": 1, "workers": int(workers), "raw_partitions": int(partitions)}
    for count in filter(None, pipelines.split(",")):
        yield {"pipelines": int(count), "workers": 1, "raw_partitions": 1}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="1x4,1x16,2x16,4x32,8x64", help="workers x raw partitions of one pipeline")
    parser.add_argument("--pipelines", default="5,10,20,50", help="of one worker and one partition each")
    parser.add_argument("--rate", type=int, default=500, help="records per second, of the raw topic (default 500)")
    parser.add_argument(
        "--steady", type=float, default=60.0, help="seconds at rest that are measured at least (default 60)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    options = parser.parse_args(argv)
    try:
        chosen = list(cases(options.groups, options.pipelines))
    except ValueError as error:
        parser.error(f"--groups, --pipelines: {error}; as in 1x4,2x16 and 5,10")
    for case in chosen:
        # A broker of its own for each: what an earlier case has left, such as expiring producers, is not in the next one.
        with KafkaCluster(heap="1g", properties=BROKER) as cluster:
            row = measure(cluster, case, options.rate, options.steady)
        print(json.dumps(row) if options.json else "   ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
