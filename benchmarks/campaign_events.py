"""The faults of a campaign, and the keeper that restarts workers. Used by benchmarks/campaign.py.

A ``Crew`` is the workers of one pipeline. Each has a place: a data directory, a port for its pages, and a process that the keeper
starts again when it ends, with any exit code, as Kubernetes would. An event may reserve a place while it lasts.
"""

import contextlib
import errno
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Self

from confluent_kafka import KafkaException

from susurrus.agents.broker.artefacts import KafkaUnavailableError
from susurrus.agents.broker.network import free_ports
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.crash_points import POINTS
from tests.broker import Broker
from tests.pipeline import Pipeline, Worker

SMALL_DISK_BYTES = 96 << 20
RESTART_SECONDS = 2.0
SLOW_CLIENTS = 300
_LOOPS = {"compiled": "the hot loops are compiled", "pure": "the hot loops run in pure Python"}
"""What a worker says of its loops."""


class Place:
    """Where one worker of a pipeline runs, one process after the other: with compiled loops and in pure Python by turns.

    pure: whether the first is in pure Python.
    """

    def __init__(self, pipeline: Pipeline, directory: Path, port: int, *, pure: bool) -> None:
        self.pipeline = pipeline
        self.directory = directory
        self.port = port
        self.held = threading.RLock()
        self._pure = pure
        directory.mkdir(parents=True, exist_ok=True)
        self.worker = self.start()

    def start(self, **environ: str) -> Worker:
        """A process with this place's disk and port."""
        environ = {
            "SUSURRUS__WORKER__DATA_DIRECTORY": str(self.directory),
            "SUSURRUS__WORKER__WEB_PORT": str(self.port),
            **({"SUSURRUS_COMPILED": "0"} if self._pure else {}),
            **environ,
        }
        self._pure = not self._pure
        self.worker = self.pipeline.start(**environ)
        return self.worker

    def kill(self) -> None:
        """SIGKILL; it also ends a frozen process."""
        self.worker.kill()


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[bool]:
    """A file system of its own that can be filled; False where mounting is not allowed."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES},mode=700", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], capture_output=True, check=False)


class Crew:
    """The workers of one pipeline under a keeper."""

    def __init__(self, pipeline: Pipeline, workers: int) -> None:
        self.pipeline = pipeline
        self.stages = [stage.name for stage in pipeline_of(pipeline.settings).stages]
        self.ended: Counter[int] = Counter()
        """Exit codes of processes that ended without an event holding them."""
        self._workers = workers
        self._stack = contextlib.ExitStack()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self.places: list[Place] = []
        self.can_fill = False

    def __enter__(self) -> Self:
        try:
            small = self.pipeline.directory / "small-disk"
            self.can_fill = self._stack.enter_context(small_disk(small))
            disks = [small, *(self.pipeline.directory / f"disk-{number}" for number in range(1, self._workers))]
            for number, (disk, port) in enumerate(zip(disks, free_ports(self._workers), strict=True)):
                self.places.append(Place(self.pipeline, disk, port, pure=number % 2 == 1))
            self._keeper.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for place in self.places:
            place.kill()
        self._stack.close()

    def loops(self) -> Counter[str]:
        """How many processes had compiled loops, and how many ran in pure Python, by their own words."""
        logs = [worker.log.read_text(errors="replace") for worker in self.pipeline.workers]
        return Counter({name: sum(said in log for log in logs) for name, said in _LOOPS.items()})

    def _keep(self) -> None:
        while not self._over.wait(0.3):
            for place in self.places:
                if not place.held.acquire(blocking=False):
                    continue
                try:
                    code = place.worker.process.poll()
                    if code is not None and not self._over.wait(RESTART_SECONDS):
                        self.ended[code] += 1
                        place.start()
                finally:
                    place.held.release()


class Interrupted(Exception):
    """The campaign was asked to end."""


class World:
    """What the pipelines share: the brokers, of which at most one is away at a time, and the signal that the campaign ends."""

    def __init__(self, kafka: Broker) -> None:
        self.kafka = kafka
        self.one_broker = threading.Lock()
        self.over = threading.Event()

    def rest(self, seconds: float) -> None:
        """Sleep. Raises Interrupted if the campaign ends."""
        if self.over.wait(max(0.0, seconds)):
            raise Interrupted("by a signal")


Registry = Callable[[bool], None]
"""Lets a schema registry answer (True) or be away (False)."""


def kill(crew: Crew, world: World, dice: Random) -> str:
    """kill -9; the disk stays."""
    place = dice.choice(crew.places)
    with place.held:
        place.kill()
        world.rest(dice.uniform(0.0, 3.0))
        place.start()
    return ""


def crash(crew: Crew, world: World, dice: Random) -> str:
    """The worker kills itself with SIGKILL between two steps of a commit."""
    place, target = dice.choice(crew.places), f"{dice.choice(crew.stages)}:{dice.choice(POINTS)}:{dice.randint(1, 3)}"
    with place.held:
        place.kill()
        place.start(SUSURRUS_CRASH_AT=target)
        deadline = time.monotonic() + 60.0
        while place.worker.process.poll() is None and time.monotonic() < deadline:
            world.rest(0.1)
        reached = place.worker.process.poll() == -signal.SIGKILL
        place.kill()
        place.start()
    return target if reached else f"{target} not reached"


def wipe(crew: Crew, world: World, dice: Random) -> str:
    """kill -9, and the disk is lost."""
    place = dice.choice(crew.places)
    with place.held:
        place.kill()
        for file in place.directory.iterdir():  # the directory itself may be a mount
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        place.start()
    return ""


def pause(crew: Crew, world: World, dice: Random) -> str:
    """SIGSTOP for longer than the session, then SIGCONT."""
    place = dice.choice(crew.places)
    seconds = crew.pipeline.settings.worker.session_timeout / 1000 + dice.uniform(1.0, 5.0)
    with place.held:
        place.worker.signal(signal.SIGSTOP)
        try:
            world.rest(seconds)
        finally:
            place.worker.signal(signal.SIGCONT)
    return f"{seconds:.1f} s"


def broker(crew: Crew, world: World, dice: Random) -> str:
    """kill -9 of a broker, back after some seconds. The next one waits until no replica lags."""
    cluster = world.kafka.cluster
    assert cluster is not None
    victim, seconds = dice.choice([node.id for node in cluster.nodes]), dice.uniform(0.0, 8.0)
    with world.one_broker:
        world.kafka.kill(victim)
        world.rest(seconds)
        for attempt in range(5):
            try:
                world.kafka.restart(victim)
                world.kafka.heal()
                break
            except (TimeoutError, KafkaException, KafkaUnavailableError):  # a machine under load
                if attempt == 4:
                    raise
    return f"broker {victim} for {seconds:.1f} s"


def fill(directory: Path) -> Path:
    """Write a file until no byte is left."""
    filler = directory / "filler"
    with filler.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 16
    return filler


def full_disk(crew: Crew, world: World, dice: Random) -> str:
    """The disk of one worker is full while it runs or starts, and has room again after a while."""
    place, seconds, starts = crew.places[0], dice.uniform(10.0, 25.0), dice.random() < 0.5
    with place.held:
        filler = fill(place.directory)
        if starts:
            place.kill()
            place.start()
    try:
        world.rest(seconds)  # the keeper minds the worker meanwhile
    finally:
        filler.unlink(missing_ok=True)
    return f"{seconds:.0f} s, {'starting' if starts else 'running'}"


def slow_clients(crew: Crew, world: World, dice: Random) -> str:
    """Hundreds of half requests to a worker's pages, which stay open."""
    place, seconds = dice.choice(crew.places), dice.uniform(5.0, 12.0)
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:  # a worker that was just killed has no pages yet
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", place.port), timeout=1.0):
            break
        world.rest(0.5)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(SLOW_CLIENTS):
            try:
                client = stack.enter_context(socket.create_connection(("127.0.0.1", place.port), timeout=1.0))
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: w")
            except OSError:
                continue  # it has enough of them, or does not run
            clients.append(client)
        world.rest(seconds)
        held = 0
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(b"o")
                held += 1
    return f"{held} of {SLOW_CLIENTS} held {seconds:.0f} s"


def registry_away(registry: Registry) -> "Event":
    """A worker that has to start while the schema registry does not answer."""

    def happen(crew: Crew, world: World, dice: Random) -> str:
        place, seconds = dice.choice(crew.places), dice.uniform(5.0, 15.0)
        registry(False)
        try:
            with place.held:
                place.kill()
                place.start()
            world.rest(seconds)
        finally:
            registry(True)
        return f"{seconds:.0f} s"

    return happen


Event = Callable[[Crew, World, Random], str]
"""Happens, and says what in a few words. All that is random comes from the dice."""

EVENTS: dict[str, Event] = {
    "kill": kill,
    "crash point": crash,
    "wipe": wipe,
    "pause": pause,
    "broker": broker,
    "full disk": full_disk,
    "slow clients": slow_clients,
}


def schedule(kinds: list[str], count: int, dice: Random) -> list[str]:
    """Events in random order, as many of every kind."""
    order = [kinds[number % len(kinds)] for number in range(count)]
    dice.shuffle(order)
    return order
