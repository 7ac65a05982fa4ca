"""What a run uses: processor time by thread, memory, and the bytes that the broker writes, read from /proc and its directory."""

import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.process import BrokerProcess

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 1.0
_FAMILIES = (
    (re.compile(r"(route|bound|release|stream)-\d"), r"\1"),
    (re.compile(r"aiokafka"), "aiokafka"),
    (re.compile(r"main$"), "main"),
    (re.compile(r"rdk:"), "librdkafka"),
    (re.compile(r"rocksdb"), "rocksdb"),
    (re.compile(r"streams-count"), "streams"),
    (re.compile(r"kafka-producer"), "producer"),
    (re.compile(r"C[12] Compiler"), "compiler"),
    (re.compile(r"GC |G1 |VM "), "garbage collector"),
)


def family(comm: str) -> str:
    """What a thread belongs to, by the name that the kernel shows for it; "other" where that says nothing."""
    for pattern, name in _FAMILIES:
        if match := pattern.match(comm):
            return match.expand(name)
    return "other"


def processor_seconds(pid: int) -> dict[str, float]:
    """Seconds of processor time of a process, by family of threads, and "total", threads that have ended included.

    Empty for a process that is gone.
    """
    found: defaultdict[str, float] = defaultdict(float)
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                found[family((task / "comm").read_text().strip())] += _seconds(task / "stat")
            except OSError:
                continue  # a thread that has just ended
        total = _seconds(Path(f"/proc/{pid}/stat"))
    except OSError:
        return {}
    found["other"] += max(0.0, total - sum(found.values()))
    found["total"] = total
    return dict(found)


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_memory_mb(pid: int) -> float:
    """The highest resident size of a process so far; 0 for one that is gone."""
    return _status(pid, "VmHWM") / 1024


def _status(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def resident_memory_mb(pid: int) -> float:
    """The resident size of a process now; 0 for one that is gone."""
    return _status(pid, "VmRSS") / 1024


def threads(pid: int) -> int:
    """Threads of a process now; 0 for one that is gone."""
    return _status(pid, "Threads")


def topic_kind(topic: str) -> str:
    """What a topic is for, without the name of the run: by-user, changelog, repartition, ..."""
    if topic.startswith("__"):
        return topic
    if topic.startswith("changelog__"):  # Quix
        return "changelog"
    return (
        next((kind for kind in ("repartition", "changelog") if topic.endswith(f"-{kind}") and "." not in topic), "")
        or (topic.rpartition(".")[2])
    )


class Written:
    """Bytes that a broker writes to each topic while the block runs.

    Segments may be cleaned or deleted before the run ends, so their largest size counts, looked at once a second.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._largest: dict[tuple[str, str], int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="written", daemon=True)
        self._before: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._look()
        self._before = self._sums()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def topics(self) -> dict[str, int]:
        """Topic -> bytes since the block began, in log files as they are on the disk."""
        self._look()
        grown = {topic: size - self._before.get(topic, 0) for topic, size in self._sums().items()}
        return {topic: size for topic, size in grown.items() if size > 0}

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _sums(self) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for (partition, _), size in list(self._largest.items()):
            sums[partition.rpartition("-")[0]] += size
        return dict(sums)

    def _look(self) -> None:
        for partition, segment, size in _segments(self._data):
            place = (partition, segment)
            self._largest[place] = max(self._largest.get(place, 0), size)


def _segments(data: Path) -> Iterable[tuple[str, str, int]]:
    for partition in data.glob("*-*"):
        if partition.name.endswith("-delete") or partition.name.startswith("__cluster_metadata"):
            continue
        try:
            with os.scandir(partition) as files:
                for file in files:
                    if file.name.endswith(".log"):
                        yield partition.name, file.name, file.stat().st_size
        except OSError:
            continue  # deleted meanwhile


class Meter:
    """Measures one run on a broker; without one of our own, only the processes that it is told of."""

    def __init__(self, cluster: KafkaCluster | None) -> None:
        self._broker = None if cluster is None else BrokerProcess(cluster.directory / "broker-1").pid()
        self._written = None if cluster is None else Written(cluster.directory / "broker-1" / "data")
        self._broker_before = 0.0

    def __enter__(self) -> Self:
        if self._broker is not None and self._written is not None:
            self._written.__enter__()
            self._broker_before = processor_seconds(self._broker).get("total", 0.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._written is not None:
            self._written.__exit__(kind, error, at)

    def cpu(self, pids: Iterable[int]) -> dict[str, float]:
        """Seconds of processor time so far: of all these processes ("worker", and "worker: THREADS"), and of the broker since the
        block began."""
        together: defaultdict[str, float] = defaultdict(float)
        for pid in pids:
            for name, spent in processor_seconds(pid).items():
                together[name] += spent
        seconds = {"worker": together.pop("total", 0.0)}
        seconds |= {f"worker: {name}": spent for name, spent in sorted(together.items())}
        if self._broker is not None:
            seconds["broker"] = processor_seconds(self._broker).get("total", 0.0) - self._broker_before
        return seconds

    def written(self, input_topic: str) -> dict[str, int]:
        """Bytes written since the block began, by kind of topic; the input is no part of it."""
        found: Counter[str] = Counter()
        for topic, size in (self._written.topics() if self._written else {}).items():
            if topic != input_topic:
                found[topic_kind(topic)] += size
        return dict(found)


def difference(later: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float]:
    """What was spent between two samples; nothing is negative, because the clock that counts it ticks in 10 ms."""
    return {name: max(0.0, spent - earlier.get(name, 0.0)) for name, spent in later.items()}
