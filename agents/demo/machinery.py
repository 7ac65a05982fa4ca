"""The machinery of the demonstrations: an embedded broker, a real worker in another process, and the truth beside its output.

    records ──▶ embedded broker ◀──▶ susurrus worker (another process)
                       └──▶ this process: what was published, drawn beside the truth

The worker is the same one that runs in production, started the same way. Only broker, secret and configuration are made here.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from confluent_kafka import Producer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.config import secrets
from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard.serving import NO_CHARTS, serving
from susurrus.agents.display.drawing import GREY
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.kafka.follow import Follower
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import SusurrusError

PATIENCE_SECONDS: Final = 120.0
T = TypeVar("T")
_ABOUT_THE_PROGRAM: Final = "SUSURRUS_COMPILED"
"""The variable that says which of two equal paths runs (topics/compiled.py), and nothing of a pipeline."""
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


class Demo(Protocol):
    """One demonstration."""

    kind: str
    """The kind of its pipeline."""
    title: str
    """What is shown, before anything happens."""
    sections: str
    """The TOML of the sections that this pipeline has beside those of all demonstrations; `secret_file` is "secret"."""

    def play(self, run: "DemoRun") -> RenderableType:
        """Everything between an empty broker and the result. Raises SusurrusError when the worker fails or takes too long."""


def show(console: Console, demo: Demo, *, keep: bool, dashboard: int | None = None) -> None:
    """Show a whole demonstration. dashboard: the port of a page that shows it, too, until Ctrl-C; 0 for a free one.

    Raises SusurrusError when the worker fails or takes too long, ConfigurationError where nothing can listen at the port.
    """
    began = time.monotonic()
    console.print(demo.title, end="\n\n")
    place = Path(tempfile.mkdtemp(prefix="susurrus-demo-"))
    with contextlib.ExitStack() as stack:
        if not keep:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        broker = stack.enter_context(EmbeddedBroker())
        settings = configured(demo, place, broker.bootstrap_servers)
        for topic in (
            settings.input.topic,
            *sorted(settings.topic(spec.name) for spec in settings.topic_specs),
            settings.topics.charges,
        ):
            broker.create(topic)
        if dashboard is not None:
            _show_page(console, settings, dashboard, stack)
        columns = ("{task.description}", BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn())
        beside = Console(stderr=True)  # the result can be piped
        bars = stack.enter_context(
            Progress(*columns, console=beside, expand=beside.width < 100, disable=not beside.is_terminal)
        )
        picture = demo.play(DemoRun(console.width, settings, place, stack, bars))
        bars.stop()
        console.print()
        console.print(picture)
        console.print(f"{time.monotonic() - began:.0f} seconds.", style=GREY)
        if dashboard is not None:
            console.print("The page stays until Ctrl-C.")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
    if keep:
        console.print(f"Configuration, secret, state and log are in {place}; the broker is gone.", style=GREY)


def _show_page(console: Console, settings: Settings, port: int, stack: contextlib.ExitStack) -> None:
    server = stack.enter_context(serving(settings, port=port))
    console.print(f"The released data, live: [bold]{server.url}[/bold]", end="\n\n")
    if not server.charts:
        console.print(NO_CHARTS, markup=False)


def configured(demo: Demo, place: Path, servers: str) -> Settings:
    """Write configuration and secret of a demonstration, and read them as a worker does."""
    state = (place / "state").as_posix()
    text = _COMMON.format(kind=demo.kind, servers=servers, partitions=PARTITIONS, state=state)
    (place / "demo.toml").write_text(text + demo.sections, encoding="utf-8")
    secrets.create(place / "secret")
    return load_settings(place / "demo.toml", {})


class DemoRun:
    """What a demonstration uses. width: of the terminal. stack: closes what is opened."""

    def __init__(
        self, width: int, settings: Settings, place: Path, stack: contextlib.ExitStack, bars: Progress
    ) -> None:
        self.width, self.settings, self.stack = width, settings, stack
        self._place, self._bars = place, bars
        self._worker: subprocess.Popen[bytes] | None = None

    def produce(self, text: str, records: Sequence[tuple[bytes, str, int, int]]) -> None:
        """Write all records (value, key, partition, time stamp in ms) to the raw topic, with a progress bar."""
        servers = self.settings.kafka.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 2})
        for done, (value, key, partition, stamp) in enumerate(self.counted(text, records)):
            producer.produce(self.settings.input.topic, value, key, partition, timestamp=stamp)
            if done % 1000 == 0:
                producer.poll(0)
        if producer.flush(PATIENCE_SECONDS):
            raise SusurrusError("the embedded broker did not take the records; try again")

    def counted(self, text: str, items: Sequence[T]) -> Iterable[T]:
        """The items one after the other, with a progress bar."""
        return self._bars.track(items, description=text)

    def start_worker(self) -> None:
        """Start the worker process; its log goes to a file. The user's own settings and secrets are not for it."""
        place = self._place
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == _ABOUT_THE_PROGRAM or not name.upper().startswith("SUSURRUS")
        }
        command = [sys.executable, "-m", "susurrus.agents.cli", "worker", "--config", str(place / "demo.toml")]
        with (place / "worker.log").open("wb") as log:
            self._worker = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=place
            )
        ends_with_us(self._worker.pid)  # a killed demonstration runs no callback
        self.stack.callback(_stop, self._worker)

    def rows(self, name: str, decode: Callable[[bytes], T]) -> Callable[[], list[T]]:
        """A function that reads on in partition 0 of a topic of the pipeline and returns all rows that it has read so far."""
        consumer = self.stack.enter_context(contextlib.closing(clients_of(self.settings, quiet=True).reader("demo")))
        follower, found = Follower(consumer, {(self.settings.topic(name), 0): 0}), list[T]()

        def read() -> list[T]:
            found.extend(decode(message.value() or b"") for message in follower.read(0.2))
            return found

        return read

    def wait(self, text: str, wanted: int, count: Callable[[], int]) -> None:
        """Wait until count() is ``wanted``, with a progress bar. Raises SusurrusError when the worker ends or takes too long."""
        bar = self._bars.add_task(text, total=wanted)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (done := count()) < wanted:
            self._bars.update(bar, completed=done)
            if self._worker is not None and self._worker.poll() is not None:
                raise self._failure(f"ended with code {self._worker.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"took longer than {PATIENCE_SECONDS:.0f} s; try again on an idle machine")
            time.sleep(0.05)
        self._bars.update(bar, completed=wanted)

    def _failure(self, text: str) -> SusurrusError:
        lines = (self._place / "worker.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return SusurrusError("\n".join((f"the worker {text}. The end of its log:", *(lines[-15:] or ["(empty)"]))))


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
