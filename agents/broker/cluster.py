"""A Kafka cluster on loopback: every node is broker and KRaft controller in one process."""

import atexit
import json
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from susurrus.agents.broker.artefacts import (
    KafkaUnavailableError,
    cache_directory,
    fetch_jars,
    find_java,
    prepared_directory,
)
from susurrus.agents.broker.network import free_ports, is_free, known_brokers
from susurrus.agents.broker.prepared import DATA, QUICK, class_options, copy_formatted, new_id
from susurrus.agents.broker.process import BrokerProcess
from susurrus.agents.broker.properties import Node, common_properties, node_properties

START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 20.0
"""Controlled shutdown hands leadership over; the last nodes have no one left, and are killed."""


def clusters_directory() -> Path:
    """Where clusters without a directory of their own are kept."""
    return cache_directory() / "kafka" / "clusters"


class KafkaCluster:
    """A KRaft cluster on loopback; use it as a context manager, or through :meth:`open` for one kept on disk.

    ``brokers`` nodes with min(3, brokers) replicas and min(2, brokers) in-sync replicas by default. ``properties``
    override the brokers' settings. ``port``: of broker 1, the next ones for the others; free ones by default. ``short_lived``:
    the JVM starts in half the processor time, in a third where that is there which prepared.py names, and never becomes fast, which
    is right for a few minutes of small tests. A cluster
    without ``directory`` is a throw-away: its files and processes go with :meth:`stop`, at exit, and, by a guard process, when
    this process is killed. ``version``: of Kafka; a named one is kept with the cluster, and without one every start takes what
    ``artefacts.kafka_version`` says then. Brokers are named by id: 1, 2, ...

    Raises KafkaUnavailableError when Java, Maven or the JARs are missing or a broker does not come up.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        heap: str = "512m",
        short_lived: bool = False,
        version: str | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: need at least 1")
        self.throw_away = directory is None
        self.directory = directory or clusters_directory() / f"run-{uuid.uuid4().hex[:12]}"
        self.properties = dict(properties or {})
        self.heap = heap
        self.short_lived = short_lived
        self.version = version
        self.nodes: list[Node] = []
        self._brokers = brokers
        self._port = port
        self._processes: dict[int, BrokerProcess] = {}
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def exists(cls, directory: Path) -> bool:
        """Whether a cluster's files are in this directory."""
        return (directory / "cluster.json").exists()

    @classmethod
    def open(cls, directory: Path) -> "KafkaCluster":
        """The cluster whose files are in ``directory``, running or not; FileNotFoundError when there is none."""
        state = json.loads((directory / "cluster.json").read_text())
        cluster = cls(
            len(state["nodes"]),
            directory=directory,
            properties=state["properties"],
            heap=state["heap"],
            short_lived=state["short_lived"],
            version=state.get("version"),
        )
        cluster.nodes = [Node(**node) for node in state["nodes"]]
        return cluster

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Format what is new, start every broker that is not running, and wait until all know each other."""
        java, libs = find_java(), fetch_jars(self.version)
        if self.throw_away and self._guard is None:  # before there is anything to leave behind
            atexit.register(self.stop)
            self._guard = subprocess.Popen(
                [sys.executable, "-m", "susurrus.agents.broker.guard", str(self.directory)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        try:
            if not self.nodes:
                self._create(java, libs)
            for node in self.nodes:
                if self._process(node.id).pid() is None:
                    self._launch(java, libs, node.id)
            self.wait_until_ready()
        except BaseException:
            self.stop(graceful=False)
            raise

    def stop(self, *, graceful: bool | None = None) -> None:
        """Stop every broker; a throw-away cluster is killed and its files are removed. Safe to call twice."""
        graceful = not self.throw_away if graceful is None else graceful
        for node in self.nodes:
            self._process(node.id).send(signal.SIGTERM if graceful else signal.SIGKILL)
        deadline = time.monotonic() + _STOP_SECONDS
        while graceful and self.running() and time.monotonic() < deadline:
            time.sleep(0.1)
        for node in self.nodes:
            self.kill(node.id)
        if self.throw_away:
            shutil.rmtree(self.directory, ignore_errors=True)
            atexit.unregister(self.stop)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def purge(self) -> None:
        """Remove the files of a stopped cluster, and its directory unless something else is in it."""
        for node in self.nodes:
            shutil.rmtree(self._process(node.id).home, ignore_errors=True)
        (self.directory / "cluster.json").unlink(missing_ok=True)
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    def kill(self, broker: int) -> None:
        """SIGKILL one broker and wait until it is gone; nothing happens when it is not running."""
        self._process(broker).kill()

    def pause(self, broker: int) -> None:
        """SIGSTOP one broker: its connections stay open and nothing answers."""
        self._process(broker).send(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT a paused broker."""
        self._process(broker).send(signal.SIGCONT)

    def restart(self, broker: int) -> None:
        """Start one stopped broker on its own port and data, killing it first when it runs; wait until it is back."""
        self.kill(broker)
        self._launch(find_java(), fetch_jars(self.version), broker)
        self.wait_until_ready(broker)

    def running(self) -> list[int]:
        """Ids of the brokers whose process is alive (a paused one is)."""
        return [node.id for node in self.nodes if self._process(node.id).pid() is not None]

    def log(self, broker: int) -> Path:
        """The file that one broker writes warnings and errors to."""
        return self._process(broker).log

    def wait_until_ready(self, broker: int | None = None, seconds: float = START_SECONDS) -> None:
        """Wait until each running broker (or the one named) sees all running ones registered and unfenced."""
        deadline = time.monotonic() + seconds
        waiting = [node for node in self.nodes if broker in (None, node.id)]
        while waiting:
            for node in waiting:
                if self._process(node.id).pid() is None:
                    raise self._not_ready(node.id, "ended while starting")
            expected = set(self.running())
            waiting = [node for node in waiting if not expected <= known_brokers(node.port)]
            if waiting and time.monotonic() > deadline:
                raise self._not_ready(waiting[0].id, f"was not ready after {seconds:.0f} s")
            time.sleep(0.1 if waiting else 0)

    def _not_ready(self, broker: int, what: str) -> KafkaUnavailableError:
        process = self._process(broker)
        return KafkaUnavailableError(
            f"broker={broker} log={process.log}: {what}; its last lines follow; mend what they name and start again:\n"
            f"{process.last_words()}"
        )

    def _process(self, broker: int) -> BrokerProcess:
        """Raises ValueError for an id that no broker has: stopping none would pass for stopping one."""
        known = [node.id for node in self.nodes]
        if broker not in known:
            raise ValueError(f"broker={broker}: the brokers of this cluster are {known}")
        return self._processes.setdefault(broker, BrokerProcess(self.directory / f"broker-{broker}"))

    def _create(self, java: str, libs: Path) -> None:
        self.nodes = self._new_nodes()
        cluster_id, prepared = new_id(), prepared_directory(java, libs)
        try:
            formatting = []
            for node in self.nodes:
                process = self._process(node.id)
                process.write(self._server_properties(node))
                data = process.home / DATA
                if not self.short_lived or not copy_formatted(prepared, data, cluster_id=cluster_id, node_id=node.id):
                    formatting.append(process.format(java, libs, cluster_id))
            told = [(process.communicate()[0], process.returncode) for process in formatting]
            for text, status in told:
                if status != 0:
                    last = text.strip()[-2000:]
                    raise KafkaUnavailableError(
                        f"status={status}: the storage was not formatted; mend what it names:\n{last}"
                    )
            state: dict[str, Any] = {"nodes": [asdict(node) for node in self.nodes], "properties": self.properties}
            state |= {"heap": self.heap, "short_lived": self.short_lived, "version": self.version}
            (self.directory / "cluster.json").write_text(json.dumps(state, indent=1))
        except BaseException:
            self.purge()
            raise

    def _new_nodes(self) -> list[Node]:
        ports = free_ports(2 * self._brokers)
        controllers, brokers = ports[: self._brokers], ports[self._brokers :]
        if self._port is not None:
            brokers = list(range(self._port, self._port + self._brokers))
            for port in brokers:
                if not is_free(port):
                    raise KafkaUnavailableError(f"port={port}: is taken; give another one, or none for a free one")
            controllers = [port for port in ports if port not in brokers][: self._brokers]
        return [Node(i + 1, *pair) for i, pair in enumerate(zip(brokers, controllers, strict=True))]

    def _server_properties(self, node: Node) -> dict[str, str]:
        own = node_properties(node, self.nodes, self._process(node.id).home / DATA)
        return {**own, **common_properties(self._brokers), **self.properties}

    def _launch(self, java: str, libs: Path, broker: int) -> None:
        quick = [*QUICK, *class_options(prepared_directory(java, libs))] if self.short_lived else []
        self._process(broker).launch(java, libs, [f"-Xmx{self.heap}", *quick])
