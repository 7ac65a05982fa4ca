"""The demonstration of local privacy: meters that send nothing true, and what can be known all the same.

    2,000 meters ──(10 clients)──▶ reports ──▶ susurrus worker ──▶ threshold ──▶ the clients, which switch to phase 2
                                                           └──▶ estimate ──▶ this process: table beside the truth

The clients are the real ones, each with its own producer, its own reader of the threshold and its own randomness; a
client speaks for a street of two hundred meters, one report a record. The worker is the production one, in another process.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.demo.machinery import PATIENCE_SECONDS, bars_of, place_of, tail_of, worker_of
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.local.client import ToplClient
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import SusurrusError
from susurrus.topics import charges
from susurrus.topics import estimate as estimate_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.spec import LOCAL_TOPICS
from susurrus.topics.threshold import Threshold

METERS: Final = 2_000
CLIENTS: Final = 10
"""Few: a fetch from the embedded broker brings one batch of one client, and the worker took minutes for those of a hundred."""
FIRST_PHASE: Final = 16_384
SLOTS: Final = 10
PER_SLOT: Final = 2
BOUND: Final = 20_000.0
SLOT_MILLISECONDS: Final = 1_500
Z95: Final = 1.96
GREY: Final = "bright_black"

CONFIGURATION: Final = """\
[pipeline]
name = "demo"
kind = "local"

[kafka]
bootstrap_servers = "{servers}"
embedded = true

[local]
bound = {bound}
epsilon = {epsilon}
holdout = {holdout}
horizon = {horizon}
interval = "{interval}ms"
lateness = "1s"

[topics]
by_user_partitions = {partitions}
replication_factor = 1
min_insync_replicas = 1

[worker]
data_directory = "{state}"
log_level = "warning"
"""


@dataclass
class Town:
    """What the meters measure: log-normal loads that follow the hour. Keeps the truth, for the comparison only."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(2021))
    truth: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._home = np.exp(self.rng.normal(5.6, 0.5, METERS))

    def loads(self, interval: int) -> npt.NDArray[np.float64]:
        """Watts of every meter in an interval of the demonstration (0: the ordinary hour)."""
        hour = 1.0 + 0.9 * np.exp(-((interval - 6.5) ** 2) / 4.0) if interval else 1.0
        loads: npt.NDArray[np.float64] = (self._home * hour * np.exp(self.rng.normal(0.0, 0.5, METERS))).clip(0, BOUND)
        return loads


def run(console: Console, *, epsilon: float, keep: bool) -> None:
    """Show the whole demonstration. Raises SusurrusError when the worker fails or takes too long."""
    began = time.monotonic()
    console.print(
        f"[bold]{METERS:,} electricity meters[/bold], none of which sends a true reading: each perturbs it on the spot.\n"
        "How much does the town draw? Published is the mean of every interval, with its error.\n"
    )
    town = Town()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(place_of(keep))
        broker = stack.enter_context(EmbeddedBroker())
        settings = _prepare(place, broker, epsilon)
        worker = stack.enter_context(worker_of(place))
        clients = [stack.enter_context(_client(settings)) for _ in range(CLIENTS)]
        bars = stack.enter_context(bars_of(console))
        first = bars.add_task("phase 1 reports", total=FIRST_PHASE)
        sent = 0
        while sent < FIRST_PHASE:
            sent += _report_all(clients, town.loads(0))
            bars.update(first, completed=min(sent, FIRST_PHASE))
        switched = bars.add_task("clients in phase 2", total=CLIENTS)
        _wait(
            lambda: sum(client.phase == 2 for client in clients),
            CLIENTS,
            lambda done: bars.update(switched, completed=done),
            worker,
            place,
        )
        intervals = bars.add_task("intervals measured", total=SLOTS)
        for interval in range(1, SLOTS + 1):
            _one_interval(clients, town, interval)
            bars.update(intervals, completed=interval)
        for client in clients:
            client.flush(30)
        rows: dict[int, estimate_codec.Estimate] = {}
        reader = _reader(settings)
        stack.callback(reader.close)
        thresholds: list[Threshold] = []
        published = bars.add_task("intervals published", total=len(town.truth))

        def poll() -> int:
            for message in reader.consume(500, 0.2):
                if message.error() is not None:
                    continue
                if message.topic() == settings.topic("threshold"):
                    thresholds.append(threshold_codec.decode(message.value()))
                else:
                    row = estimate_codec.decode(message.value())
                    rows[row.interval] = row
            return len(rows.keys() & town.truth.keys())

        _wait(poll, len(town.truth), lambda done: bars.update(published, completed=done), worker, place)
    console.print()
    console.print(picture(rows, town, thresholds[-1], epsilon))
    if keep:
        console.print(f"Configuration, state and log are in {place}; the broker is gone.", style=GREY)
    console.print(f"{time.monotonic() - began:.0f} seconds.", style=GREY)


def _prepare(place: Path, broker: EmbeddedBroker, epsilon: float) -> LocalSettings:
    text = CONFIGURATION.format(
        servers=broker.bootstrap_servers,
        bound=BOUND,
        epsilon=epsilon,
        holdout=FIRST_PHASE,
        horizon=METERS * PER_SLOT * SLOTS,
        interval=SLOT_MILLISECONDS,
        partitions=PARTITIONS,
        state=(place / "state").as_posix(),
    )
    (place / "demo.toml").write_text(text, encoding="utf-8")
    settings = LocalSettings.of(load_settings(place / "demo.toml", {}))
    for topic in (*(settings.topic(spec.name) for spec in LOCAL_TOPICS), charges.topic_name("susurrus")):
        broker.create(topic)
    return settings


def _client(settings: LocalSettings) -> ToplClient:
    local = settings.local
    return ToplClient(
        settings.kafka.bootstrap_servers,
        pipeline=settings.pipeline.name,
        epsilon=local.epsilon,
        bound=local.bound,
        interval=local.interval,
        scale=local.scale,
        settle=0.0,
    )


def _report_all(clients: list[ToplClient], loads: npt.NDArray[np.float64], at: int | None = None) -> int:
    share = METERS // CLIENTS
    for number, client in enumerate(clients):
        for load in loads[number * share : (number + 1) * share].tolist():
            client.report(load, at=at)
    return METERS


def _one_interval(clients: list[ToplClient], town: Town, interval: int) -> None:
    """Wait for an interval of the wall clock to begin, and measure in it."""
    now = time.time() * 1000
    time.sleep((SLOT_MILLISECONDS - now % SLOT_MILLISECONDS) / 1000)
    at = int(time.time() * 1000) // SLOT_MILLISECONDS * SLOT_MILLISECONDS
    for _ in range(PER_SLOT):
        loads = town.loads(interval)
        town.truth.setdefault(at, []).extend(loads.tolist())
        _report_all(clients, loads, at)


def _wait(
    count: Callable[[], int],
    wanted: int,
    progress: Callable[[int], None],
    worker: "subprocess.Popen[bytes]",
    place: Path,
) -> None:
    """Until count() reaches `wanted`. Raises SusurrusError when the worker ends or it takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (done := count()) < wanted:
        progress(done)
        if worker.poll() is not None:
            raise SusurrusError(f"the worker ended with code {worker.returncode}; its last words:\n{tail_of(place)}")
        if time.monotonic() > deadline:
            raise SusurrusError(f"this took longer than {PATIENCE_SECONDS:.0f} s; the worker said:\n{tail_of(place)}")
        time.sleep(0.1)
    progress(wanted)


def _reader(settings: LocalSettings) -> Consumer:
    consumer = Consumer(
        {
            **librdkafka(settings.kafka),
            "group.id": "demo-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(settings.topic(name), 0, 0) for name in ("threshold", "estimate")])
    return consumer


def picture(rows: dict[int, estimate_codec.Estimate], town: Town, threshold: Threshold, epsilon: float) -> Group:
    """The table beside the truth, and the promise."""
    table = Table(box=None, pad_edge=False)
    for name in ("interval", "reports", "true mean", "private mean", "± (95 %)", "filtered mean", ""):
        table.add_column(name, justify="left" if name in ("interval", "") else "right", header_style=GREY)
    top = max(float(np.mean(values)) for values in town.truth.values()) * 1.3
    inside, error_plain, error_filtered, compared = 0, 0.0, 0.0, 0
    for at, values in sorted(town.truth.items()):
        row, true = rows[at], float(np.mean(values))
        if row.mean is None:
            continue
        compared += 1
        margin = Z95 * row.mean.std_error
        inside += abs(row.mean.estimate - float(np.minimum(values, threshold.theta).mean())) <= margin
        error_plain += abs(row.mean.estimate - true)
        filtered = None if row.filtered_sum is None else row.filtered_sum.estimate / row.count
        error_filtered += abs((row.mean.estimate if filtered is None else filtered) - true)
        bar = "█" * max(0, round(row.mean.estimate / top * 24))
        table.add_row(
            row.interval_start[11:],
            f"{row.count:,}",
            f"{true:,.0f} W",
            f"{row.mean.estimate:,.0f} W",
            f"{margin:,.0f}",
            "" if filtered is None else f"{filtered:,.0f} W",
            Text(bar, "cyan"),
        )
    found = (
        f"Threshold {threshold.theta:,.0f} W of a public bound of {BOUND:,.0f}, from {threshold.reports:,} phase 1 reports; "
        f"{inside} of {compared} error bars hold the (clipped) truth.\n"
        f"Off by {error_plain / compared:,.0f} W on average, filtered by {error_filtered / compared:,.0f} W; "
        f"a single report is off by about {threshold.theta / 2 * (2.0 / max(epsilon, 0.1)):,.0f} W."
    )
    promise = (
        f"Every report is {epsilon:g}-locally private by itself: whatever a meter measured, each possible report is at most "
        f"e^{epsilon:g} times as likely as for any other reading, whoever runs the server. A meter that reports k times has "
        f"spent k times {epsilon:g}."
    )
    return Group(
        table,
        Text(""),
        Text(found),
        Text(""),
        Panel(
            Text(promise), title="[bold]The guarantee[/bold]", title_align="left", border_style="green", padding=(0, 1)
        ),
    )
