"""The demonstration of private histograms: an embedded broker, a web log at full speed, a real worker, and the truth
beside it.

    web log ──▶ raw topic ──▶ susurrus worker (another process) ──▶ latest, progress ──▶ this process: table

The worker is the same one that runs in production, started the same way; only broker, secret and configuration are
made here.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from rich.console import Console

from susurrus.agents.config import secrets
from susurrus.agents.demo.machinery import PATIENCE_SECONDS, bars_of, place_of, tail_of, worker_of
from susurrus.agents.demo.outcome import picture
from susurrus.agents.demo.weblog import DAY, NEXT_DAY, WebLog
from susurrus.agents.histogram.reader import HistogramReader, Snapshot
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import SusurrusError
from susurrus.topics import charges
from susurrus.topics.spec import HISTOGRAM_TOPICS

RAW: Final = "web-requests"

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
        place = stack.enter_context(place_of(keep))
        broker = stack.enter_context(EmbeddedBroker())
        settings = _prepare(place, broker, epsilon)
        bars = stack.enter_context(bars_of(console))
        events = bars.add_task("raw events produced", total=len(log))
        triggers = bars.add_task("private triggers released", total=settings.triggers)
        # The archive is whole before a worker looks at it: a replay ends where the input ends.
        _produce(broker, log, lambda done: bars.update(events, completed=done))
        worker = stack.enter_context(worker_of(place))
        snapshot = _released(settings, worker, place, lambda done: bars.update(triggers, completed=done))
    console.print()
    console.print(picture(snapshot, log, settings, rows=rows, width=console.width))
    if keep:
        console.print(f"Configuration, secret, state and log are in {place}; the broker is gone.", style="bright_black")
    console.print(f"{time.monotonic() - began:.0f} seconds.", style="bright_black")


def _prepare(place: Path, broker: EmbeddedBroker, epsilon: float) -> HistogramSettings:
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
    settings = HistogramSettings.of(load_settings(place / "demo.toml", {}))
    for topic in (RAW, *(settings.topic(spec.name) for spec in HISTOGRAM_TOPICS), charges.topic_name("susurrus")):
        broker.create(topic)
    return settings


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
    settings: HistogramSettings, worker: "subprocess.Popen[bytes]", place: Path, progress: Callable[[int], None]
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
                raise SusurrusError(
                    f"the worker ended with code {worker.returncode}; its last words:\n{tail_of(place)}"
                )
    raise SusurrusError(
        f"the worker took longer than {PATIENCE_SECONDS:.0f} s; try again on an idle machine. Its last words:\n"
        f"{tail_of(place)}"
    )
