"""The demonstration of private histograms: an embedded broker, a web log at full speed, a real worker, and the truth
beside it.

    web log ──▶ raw topic ──▶ susurrus worker (another process) ──▶ latest, progress ──▶ this process: table

The worker is the same one that runs in production, started the same way; only broker, secret and configuration are
made here.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from susurrus.agents import secrets
from susurrus.agents.demo.outcome import picture
from susurrus.agents.demo.weblog import DAY, NEXT_DAY, WebLog
from susurrus.agents.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.reader import HistogramReader, Snapshot
from susurrus.agents.settings import Settings, load_settings
from susurrus.mechanisms.errors import SusurrusError
from susurrus.topics import charges
from susurrus.topics.spec import HISTOGRAM_TOPICS

RAW: Final = "web-requests"
PATIENCE_SECONDS: Final = 120.0

CONFIGURATION: Final = """\
[pipeline]
name = "demo"

[kafka]
bootstrap_servers = "{servers}"
embedded = true

[input]
topic = "{raw}"
user = "host"
key = ["url"]
time = "time"
time_unit = "s"

[start]
from = "earliest"
first_window = "{day}"

[clock]
kind = "replay"
until = "{next_day}"

[window]
length = "1d"
trigger_every = "1h"

[bounds]
max_records_per_user = 32

[[columns]]
name = "hosts"
kind = "count"

[privacy]
epsilon = {epsilon}
delta = 1e-9
secret_file = "secret"

[topics]
by_user_partitions = {partitions}
bounded_partitions = {partitions}
replication_factor = 1
min_insync_replicas = 1

[worker]
data_directory = "{state}"
log_level = "warning"
"""


def run(console: Console, *, epsilon: float, rows: int, keep: bool) -> None:
    """Show the whole demonstration. Raises SusurrusError when the worker fails or takes too long."""
    began = time.monotonic()
    log = WebLog()
    console.print(
        f"[bold]One day of a web server[/bold]: {len(log):,} requests by {len(log.urls_of_host):,} hosts, "
        "as a Kafka topic.\nWhich pages did they visit? Published is a histogram that hides what any one host did.\n"
    )
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_place(keep))
        broker = stack.enter_context(EmbeddedBroker())
        settings = _prepare(place, broker, epsilon)
        bars = stack.enter_context(_bars(console))
        events = bars.add_task("raw events produced", total=len(log))
        triggers = bars.add_task("private triggers released", total=settings.triggers)
        # The archive is whole before a worker looks at it: a replay ends where the input ends.
        _produce(broker, log, lambda done: bars.update(events, completed=done))
        worker = stack.enter_context(_worker(place))
        snapshot = _released(settings, worker, place, lambda done: bars.update(triggers, completed=done))
    console.print()
    console.print(picture(snapshot, log, settings, rows=rows, width=console.width))
    if keep:
        console.print(f"Configuration, secret, state and log are in {place}; the broker is gone.", style="bright_black")
    console.print(f"{time.monotonic() - began:.0f} seconds.", style="bright_black")


@contextlib.contextmanager
def _place(keep: bool) -> Iterator[Path]:
    """A directory for secret, state and log, removed afterwards unless it is to be kept."""
    place = Path(tempfile.mkdtemp(prefix="susurrus-demo-"))
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _prepare(place: Path, broker: EmbeddedBroker, epsilon: float) -> Settings:
    secrets.create(place / "secret")
    text = CONFIGURATION.format(
        servers=broker.bootstrap_servers,
        raw=RAW,
        day=DAY,
        next_day=NEXT_DAY,
        epsilon=epsilon,
        partitions=PARTITIONS,
        state=(place / "state").as_posix(),
    )
    (place / "demo.toml").write_text(text, encoding="utf-8")
    settings = load_settings(place / "demo.toml", {})
    for topic in (RAW, *(settings.topic(spec.name) for spec in HISTOGRAM_TOPICS), charges.topic_name("susurrus")):
        broker.create(topic)
    return settings


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        expand=console.width < 100,
    )


@contextlib.contextmanager
def _worker(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The worker process; its log goes to a file. The user's own SUSURRUS variables are not for the demonstration."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("SUSURRUS")}
    command = [sys.executable, "-m", "susurrus.agents.cli", "worker", "--config", str(place / "demo.toml")]
    with (place / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=place
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _produce(broker: EmbeddedBroker, log: WebLog, progress: Callable[[int], None]) -> None:
    """The archive, each partition sorted by time, stamped with the time of the visit."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "log_level": 2})
    for done, (partition, visit) in enumerate(log.by_partition(PARTITIONS), start=1):
        producer.produce(RAW, visit.encode(), visit.host.encode(), partition=partition, timestamp=visit.time * 1000)
        if done % 1000 == 0:
            producer.poll(0)
            progress(done)
    if producer.flush(PATIENCE_SECONDS):
        raise SusurrusError("the embedded broker did not take the web log; try again")
    progress(len(log))


def _released(
    settings: Settings, worker: "subprocess.Popen[bytes]", place: Path, progress: Callable[[int], None]
) -> Snapshot:
    """Wait for the day's last trigger."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with HistogramReader(settings) as reader:
        while time.monotonic() < deadline:
            reader.poll(0.2)
            progress(max((done for _, done, _ in reader.completed()), default=0))
            snapshot = reader.snapshot()
            if snapshot is not None and snapshot.final:
                progress(snapshot.trigger)
                return snapshot
            if worker.poll() is not None:
                raise SusurrusError(f"the worker ended with code {worker.returncode}; its last words:\n{_tail(place)}")
    raise SusurrusError(
        f"the worker took longer than {PATIENCE_SECONDS:.0f} s; try again on an idle machine. Its last words:\n"
        f"{_tail(place)}"
    )


def _tail(place: Path, lines: int = 15) -> str:
    text = (place / "worker.log").read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(none)"
