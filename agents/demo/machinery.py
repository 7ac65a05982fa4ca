"""The machinery of the demonstrations: an embedded broker, a real worker in another process, and the truth beside its output.

    records ──▶ embedded broker ◀──▶ susurrus worker (another process)
                       └──▶ this process: what was published, drawn beside the truth

The worker is the same one that runs in production, started the same way; only broker, secret and configuration are made here.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from susurrus.agents.config import secrets
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.operations.drawing import GREY
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import SusurrusError
from susurrus.topics import charges

PATIENCE_SECONDS: Final = 120.0
_COMMON: Final = """\
[pipeline]
name = "demo"
kind = "{kind}"

[kafka]
bootstrap_servers = "{servers}"
embedded = true

[topics]
by_user_partitions = {partitions}
bounded_partitions = {partitions}
replication_factor = 1
min_insync_replicas = 1

[worker]
data_directory = "{state}"
log_level = "warning"

"""

Advance = Callable[[int], None]
"""Moves a progress bar to so many."""


class Demo(Protocol):
    """One demonstration."""

    kind: str
    """Of pipeline."""
    title: str
    """What is shown, before anything happens."""
    sections: str
    """The TOML of the sections that this pipeline has beside those of all demonstrations; `secret_file` is "secret"."""

    def play(self, run: "Run") -> RenderableType:
        """Everything between an empty broker and the result. Raises SusurrusError when the worker fails or takes too long."""


def show(console: Console, demo: Demo, *, keep: bool) -> None:
    """Show a whole demonstration. Raises SusurrusError when the worker fails or takes too long."""
    began = time.monotonic()
    console.print(demo.title)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_place(keep))
        broker = stack.enter_context(EmbeddedBroker())
        settings = configured(demo, place, broker.bootstrap_servers)
        names = {settings.topic(spec.name) for spec in settings.topic_specs}
        for topic in (settings.input.topic, *sorted(names), charges.topic_name(settings.pipeline.prefix)):
            broker.create(topic)
        bars = stack.enter_context(_bars(console))
        picture = demo.play(Run(console.width, settings, place, stack, bars))
    console.print()
    console.print(picture)
    if keep:
        console.print(f"Configuration, secret, state and log are in {place}; the broker is gone.", style=GREY)
    console.print(f"{time.monotonic() - began:.0f} seconds.", style=GREY)


def configured(demo: Demo, place: Path, servers: str) -> Settings:
    """Write configuration and secret of a demonstration, and read them as a worker does."""
    state = (place / "state").as_posix()
    text = _COMMON.format(kind=demo.kind, servers=servers, partitions=PARTITIONS, state=state)
    (place / "demo.toml").write_text(text + demo.sections, encoding="utf-8")
    secrets.create(place / "secret")
    return load_settings(place / "demo.toml", {})


class Run:
    """What a demonstration plays on. width: of the terminal. stack: closes what is opened."""

    def __init__(
        self, width: int, settings: Settings, place: Path, stack: contextlib.ExitStack, bars: Progress
    ) -> None:
        self.width, self.settings, self.stack = width, settings, stack
        self._place, self._bars = place, bars
        self._worker: subprocess.Popen[bytes] | None = None

    def bar(self, text: str, total: int) -> Advance:
        """A new progress bar."""
        task = self._bars.add_task(text, total=total)
        return lambda done: self._bars.update(task, completed=min(done, total))

    def produce(self, records: Iterable[dict[str, Any]], advance: Advance) -> None:
        """Write records (arguments of `Producer.produce`) to the raw topic, all before anything else happens."""
        producer = Producer(
            {"bootstrap.servers": self.settings.kafka.bootstrap_servers, "linger.ms": 20, "log_level": 2}
        )
        done = 0
        for done, record in enumerate(records, start=1):
            producer.produce(self.settings.input.topic, **record)
            if done % 1000 == 0:
                producer.poll(0)
                advance(done)
        if producer.flush(PATIENCE_SECONDS):
            raise SusurrusError("the embedded broker did not take the records; try again")
        advance(done)

    def start_worker(self) -> None:
        """Start the worker process."""
        self._worker = self.stack.enter_context(_worker(self._place))

    def follow(self, *names: str) -> Callable[[], list[Any]]:
        """Reads partition 0 of some of the pipeline's topics from the beginning; each call brings what is new."""
        consumer = Consumer(
            {
                **librdkafka(self.settings.kafka),
                "group.id": "demo-reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        self.stack.callback(consumer.close)
        consumer.assign([TopicPartition(self.settings.topic(name), 0, 0) for name in names])
        return lambda: [message for message in consumer.consume(1000, 0.2) if message.error() is None]

    def wait(self, count: Callable[[], int], wanted: int, advance: Advance) -> None:
        """Until count() reaches ``wanted``. Raises SusurrusError when the worker ends or it takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (done := count()) < wanted:
            advance(done)
            if self._worker is not None and self._worker.poll() is not None:
                raise SusurrusError(
                    f"the worker ended with code {self._worker.returncode}; its last words:\n{self._tail()}"
                )
            if time.monotonic() > deadline:
                raise SusurrusError(
                    f"the worker took longer than {PATIENCE_SECONDS:.0f} s; try again on an idle machine. Its last words:\n"
                    f"{self._tail()}"
                )
            time.sleep(0.05)
        advance(wanted)

    def _tail(self, lines: int = 15) -> str:
        text = (self._place / "worker.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:]) or "(none)"


@contextlib.contextmanager
def _place(keep: bool) -> Iterator[Path]:
    """A directory for configuration, secret, state and log, removed afterwards unless it is to be kept."""
    place = Path(tempfile.mkdtemp(prefix="susurrus-demo-"))
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


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
