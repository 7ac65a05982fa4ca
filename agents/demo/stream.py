"""The demonstration of private streams: a meter's readings in, a private stream out, and the truth beside it as a plot.

readings ──▶ raw topic ──▶ susurrus worker (another process) ──▶ private-stream ──▶ this process: range sums, plot
"""

import contextlib
import json
import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from susurrus.agents.config import secrets
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.demo.machinery import PATIENCE_SECONDS, bars_of, place_of, tail_of, worker_of
from susurrus.agents.demo.meter import Series
from susurrus.agents.kafka.embedded import EmbeddedBroker
from susurrus.agents.pipelines import load_settings
from susurrus.agents.stream.mechanism import grid_of, mechanism_of, promise_of
from susurrus.agents.stream.reader import released_stream
from susurrus.agents.stream.sections import StreamSection
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.errors import SusurrusError
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics import charges, private_stream
from susurrus.topics.private_stream import StreamRow
from susurrus.topics.spec import STREAM_TOPICS

RAW: Final = "meter-readings"
METER: Final = "meter-1"
HEIGHT: Final = 14
Z95: Final = 1.96
GREY: Final = "bright_black"
Floats = npt.NDArray[np.float64]

CONFIGURATION: Final = """\
[pipeline]
name = "demo"
kind = "stream"

[kafka]
bootstrap_servers = "{servers}"
embedded = true

[input]
topic = "{raw}"

[start]
from = "earliest"
first_window = "1970-01-01T00:00:00Z"

[stream]
stream = "meter"
value = "reading"
bound = {bound}
grid = {grid}
epsilon = {epsilon}
holdout = 4096
range_limit = 65536
secret_file = "secret"

[topics]
replication_factor = 1
min_insync_replicas = 1

[worker]
data_directory = "{state}"
log_level = "warning"
"""


def run(console: Console, series: Series, *, epsilon: float, keep: bool) -> None:
    """Show the whole demonstration. Raises SusurrusError when the worker fails or takes too long."""
    began = time.monotonic()
    console.print(
        f"[bold]{series.name}[/bold]: {len(series.values):,} readings as a Kafka topic.\nHow much was it, when? Published is a "
        "stream of sums that hides the value of any one reading.\n"
    )
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(place_of(keep))
        broker = stack.enter_context(EmbeddedBroker())
        settings = _prepare(place, broker, series, epsilon)
        mechanism = mechanism_of(settings.stream)
        assert isinstance(mechanism, Tops)
        wanted = (len(series.values) - mechanism.holdout) // mechanism.base.leaf
        bars = stack.enter_context(bars_of(console))
        events = bars.add_task("raw readings produced", total=len(series.values))
        pieces = bars.add_task("private sums released", total=wanted)
        _produce(broker, series)
        bars.update(events, completed=len(series.values))
        worker = stack.enter_context(worker_of(place))
        rows: list[StreamRow] = []
        consumer = _reader(settings)
        stack.callback(consumer.close)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(rows) < wanted:
            rows += [private_stream.decode_row(m.value()) for m in consumer.consume(1000, 0.2) if m.error() is None]
            bars.update(pieces, completed=len(rows))
            if worker.poll() is not None:
                raise SusurrusError(
                    f"the worker ended with code {worker.returncode}; its last words:\n{tail_of(place)}"
                )
            if time.monotonic() > deadline:
                raise SusurrusError(
                    f"the worker took longer than {PATIENCE_SECONDS:.0f} s; its last words:\n{tail_of(place)}"
                )
    console.print()
    console.print(picture(rows, series, settings.stream, width=console.width))
    if keep:
        console.print(f"Configuration, secret, state and log are in {place}; the broker is gone.", style=GREY)
    console.print(f"{time.monotonic() - began:.0f} seconds.", style=GREY)


def _prepare(place: Path, broker: EmbeddedBroker, series: Series, epsilon: float) -> StreamSettings:
    secrets.create(place / "secret")
    text = CONFIGURATION.format(
        servers=broker.bootstrap_servers,
        raw=RAW,
        bound=series.bound,
        grid=series.grid,
        epsilon=epsilon,
        state=(place / "state").as_posix(),
    )
    (place / "demo.toml").write_text(text, encoding="utf-8")
    settings = StreamSettings.of(load_settings(place / "demo.toml", {}))
    for topic in (RAW, *(settings.topic(spec.name) for spec in STREAM_TOPICS), charges.topic_name("susurrus")):
        broker.create(topic)
    return settings


def _produce(broker: EmbeddedBroker, series: Series) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "log_level": 2})
    for number, value in enumerate(series.values.tolist()):
        payload = json.dumps({"meter": METER, "reading": value}).encode()
        producer.produce(RAW, payload, METER.encode(), partition=0, timestamp=60_000 * (number + 1))
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(PATIENCE_SECONDS):
        raise SusurrusError("the embedded broker did not take the readings; try again")


def _reader(settings: StreamSettings) -> Consumer:
    consumer = Consumer(
        {**librdkafka(settings.kafka), "group.id": "demo-reader", "auto.offset.reset": "earliest", "log_level": 2}
    )
    consumer.assign([TopicPartition(settings.topic("private-stream"), 0, 0)])
    return consumer


def picture(rows: list[StreamRow], series: Series, stream: StreamSection, *, width: int) -> Group:
    """The plot, what it says, and the promise."""
    mechanism, grid = mechanism_of(stream), grid_of(stream)
    assert isinstance(mechanism, Tops)
    released = released_stream(rows, stream)
    columns = max(20, min(width - 10, 110))
    edges = np.linspace(0, len(rows) * mechanism.base.leaf, columns + 1).astype(np.int64)
    sums, errors = released.filtered(edges[:-1], edges[1:])
    length = np.diff(edges)
    private, error = sums * grid / length, errors * grid / length
    after = series.values[mechanism.holdout :]
    true = np.add.reduceat(after[: edges[-1]], edges[:-1]) / length
    theta = rows[0].theta
    far = np.abs(private - true) / np.maximum(true, 1e-9)
    # The filter's bars rest on a model of the series; the plain sums' rest on the noise alone, and can be checked.
    plain, plain_error = (column * grid / length for column in released.plain(edges[:-1], edges[1:]))
    inside = int((np.abs(plain - true) <= Z95 * plain_error).sum())
    plain_far = np.abs(plain - true) / np.maximum(true, 1e-9)
    cut = np.maximum(after[: edges[-1]] - theta, 0).sum() / max(after[: edges[-1]].sum(), 1e-9)
    total = rows[-1].sum
    findings = (
        (
            "Columns  ",
            f"{int(length[0]):,} readings each; the private mean (filtered) is {far.mean():.1%} off on average.",
        ),
        (
            "Plain    ",
            f"sums without the filter are {plain_far.mean():.1%} off; {inside} of {columns} of their error bars (95 %) hold "
            "the truth.",
        ),
        (
            "Total    ",
            f"private {total.estimate:,.0f} ± {Z95 * total.std_error:,.0f}, true {after[: edges[-1]].sum():,.0f} {series.unit}",
        ),
        (
            "Threshold",
            f" {theta:,.0f} {series.unit} of a public bound of {series.bound:,.0f}: clipping leaves out {cut:.2%}.",
        ),
    )
    legend = Text.assemble(
        ("● ", "cyan"),
        ("private   ", GREY),
        ("░ ", "cyan"),
        ("the filter's error bar   ", GREY),
        ("┼ ", "yellow"),
        ("true", GREY),
    )
    return Group(
        *plot(true, private, Z95 * error),
        legend,
        *(Text.assemble((name, "bold"), text) for name, text in findings),
        Text(""),
        Panel(
            Text(promise_of(stream).sentence()),
            title="[bold]The guarantee[/bold]",
            title_align="left",
            border_style="green",
            padding=(0, 1),
        ),
    )


def plot(true: Floats, private: Floats, margin: Floats) -> list[Text]:
    """Lines of a plot, HEIGHT rows high, one column per value."""
    top = float(max(true.max(), np.quantile(private + margin, 0.95)))
    low = float(min(0.0, true.min()))
    scale = (HEIGHT - 1) / max(top - low, 1e-9)

    def row_of(values: Floats) -> npt.NDArray[np.int64]:
        return np.clip(np.rint((values - low) * scale), 0, HEIGHT - 1).astype(np.int64)

    at_true, at_private = row_of(true), row_of(private)
    down, up = row_of(private - margin), row_of(private + margin)
    lines = []
    for height in range(HEIGHT - 1, -1, -1):
        line = Text(f"{low + height / scale:8,.0f} ", style=GREY)
        for i in range(len(true)):
            if at_private[i] == height:
                line.append("●", "bold cyan" if at_true[i] != height else "bold green")
            elif at_true[i] == height:
                line.append("┼", "yellow")
            else:
                line.append("░" if down[i] <= height <= up[i] else " ", "cyan")
        lines.append(line)
    return lines
