"""The other systems under measurement: an environment of its own for each, and one run of it."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.inputs import PARTITIONS, Feed, say
from benchmarks.rates import Part, Run
from benchmarks.throughput_rows import PLAIN, Row
from benchmarks.usage import Meter, peak_memory_mb
from susurrus.agents.broker.artefacts import cache_directory, find_java

PEERS = Path(__file__).with_name("peers")
PEER_SECONDS = 1_800
SLOW = {"faust": (40_000, 5), "quix": (200_000, 1)}
"""The most records for the slow ones, and the part of a small input that they get."""


def build(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """A directory under the cache that ``make`` fills, again whenever one of ``sources`` changes."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    home = cache_directory() / "benchmarks" / f"{name}-{digest}"
    if not (home / "complete").exists():
        say(f"building the environment of {name} in {home}")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        make(home)
        (home / "complete").touch()
    return home


def python_of(peer: str) -> str:
    """The interpreter of a Python peer's own virtual environment."""
    requirements = PEERS / peer / "requirements.txt"

    def make(home: Path) -> None:
        quietly([sys.executable, "-m", "venv", str(home)])
        quietly([str(home / "bin" / "pip"), "install", "--quiet", "-r", str(requirements)])

    return str(build(peer, [requirements], make) / "bin" / "python")


def kafka_streams_classpath() -> str:
    """Kafka Streams and our count, compiled with Maven, which also generates the classes of Avro and Protobuf."""
    pom = PEERS / "kafka_streams" / "pom.xml"
    sources = sorted(path for path in (pom.parent / "src").rglob("*") if path.is_file())

    def make(home: Path) -> None:
        quietly(["mvn", "-B", "-q", "-f", str(pom), f"-Dbuild.to={home}", "compile"])

    home = build("kafka-streams", [pom, *sources], make)
    return f"{home / 'classes'}:{home / 'libs'}/*"


def quietly(command: Sequence[str]) -> None:
    """Run a build step; its output is shown when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def run_peer(what: str, command: Sequence[str], meter: Meter | None = None, input_topic: str = "") -> Run:
    """Run one peer. It prints {"mark", "seconds"} when it is warm and {"records", "seconds"} at the end, each on a line, and
    ends when its standard input is closed. Raises RuntimeError where it fails or takes too long."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-peer-"))
        if Path(command[0]).name == "java":
            command = [command[0], f"-Djava.io.tmpdir={directory}", *command[1:]]
        complaints = stack.enter_context(open(Path(directory) / "stderr", "w+"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env={**os.environ, "TMPDIR": directory},
        )
        watchdog = threading.Timer(PEER_SECONDS, process.kill)
        watchdog.start()
        stack.callback(watchdog.cancel)
        stack.enter_context(process)  # closes its pipes, and waits for it
        stack.callback(process.kill)
        assert process.stdout is not None
        first, printed = None, []
        for line in process.stdout:
            printed.append(line)
            if not line.startswith('{"'):
                continue
            told = json.loads(line)
            cpu = meter.cpu([process.pid]) if meter else {}
            if "mark" in told:
                first = Part(told["mark"], told["seconds"], cpu)
                continue
            written = meter.written(input_topic) if meter else {}
            whole = Part(told["records"], told["seconds"], cpu)
            counted = {name: told[name] for name in ("in", "filtered", "counted") if name in told}
            return Run(what, whole, first, written, peak_memory_mb(process.pid), counted)
        complaints.seek(0)
        text = ("".join(printed) + complaints.read())[-3000:]
        raise RuntimeError(f"{what} ended with status {process.wait()} and did not say how long it took:\n{text}")


def share(peer: str, records: int) -> int:
    """How many of the records a slow peer gets."""
    most, part = SLOW[peer]
    return max(1, min(most, records // part))


def bare(feed: Feed, meter: Meter) -> Run:
    """A consumer without state or output."""
    command = [sys.executable, str(PEERS / "bare" / "count.py"), feed.bootstrap_servers, feed.topic, str(feed.records)]
    return run_peer("bare consumer", command, meter, feed.topic)


def faust(feed: Feed, meter: Meter) -> Run:
    """Faust, on the first part of the records."""
    arguments = [feed.bootstrap_servers, feed.topic, str(share("faust", feed.records)), str(PARTITIONS)]
    return run_peer("faust", [python_of("faust"), str(PEERS / "faust" / "count.py"), *arguments], meter, feed.topic)


def quix(feed: Feed, meter: Meter) -> Run:
    """Quix Streams, on the first part of the records."""
    arguments = [feed.bootstrap_servers, feed.topic, str(share("quix", feed.records))]
    return run_peer("quix", [python_of("quix"), str(PEERS / "quix" / "count.py"), *arguments], meter, feed.topic)


def kafka_streams(feed: Feed, meter: Meter, settings: str, threads: int, row: Row = PLAIN) -> Run:
    """Kafka Streams with the settings "quick-start" or "tuned"."""
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = [find_java(), logging, "-cp", kafka_streams_classpath(), "susurrus.Count"]
    expected = row.expected(feed.records)
    figures = [str(number) for number in (expected["in"], expected["counted"], threads)]
    command = [*java, feed.bootstrap_servers, feed.topic, *figures, settings, row.name, feed.registry]
    name = "kafka-streams" if settings == "quick-start" else f"kafka-streams {settings}"
    return replace(run_peer(f"{name} ({threads})", command, meter, feed.topic), row=row.name)
