#!/usr/bin/env python3
"""A real Apache Kafka without Docker: one broker or several, on loopback, from Maven artefacts.

The tests, the benchmarks and anyone who wants a broker on a laptop use this one file. It needs Python's standard
library, a JDK (17 or later) and, the first time, Maven. The JARs stay in the cache directory
(``$SUSURRUS_CACHE``, else ``$XDG_CACHE_HOME/susurrus``, else ``~/.cache/susurrus``).

    deploy/kafka.py start [--brokers 3] [--name NAME]     start in the background, print bootstrap.servers
    deploy/kafka.py status | stop [--name NAME]           stop keeps the data unless --purge is given
    deploy/kafka.py run [--brokers 3]                     a throw-away cluster until Ctrl-C

    with KafkaCluster(brokers=3) as kafka:                the same from Python; gone with the process that made it
        Producer({"bootstrap.servers": kafka.bootstrap_servers})
        kafka.kill(2); kafka.restart(2)

Every node is broker and KRaft controller in one process. A process is only ever signalled when its command line
still names the configuration file of this cluster, so a recycled process id cannot hit a stranger.
"""

import argparse
import atexit
import base64
import contextlib
import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

POM = Path(__file__).with_name("kafka.pom.xml")
COMMANDS = ("start", "stop", "status", "run", "fetch")
MINIMUM_JAVA = 17
START_SECONDS = 90.0
# Below Linux' ephemeral range (32768 and up): a client that retries a dead broker's port can otherwise be given that
# very port as its own source port, connect to itself, and keep the broker from coming back.
PORTS = range(20_000, 30_000)


class KafkaUnavailableError(RuntimeError):
    """No broker could be started on this machine; the message says what is missing."""


def cache_directory() -> Path:
    """Where JARs and clusters are kept; ``SUSURRUS_CACHE`` overrides."""
    if override := os.environ.get("SUSURRUS_CACHE"):
        return Path(override).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "susurrus"


def find_java() -> str:
    """The Java launcher from ``JAVA_HOME`` or the path; raises KafkaUnavailableError below version 17."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise KafkaUnavailableError(f"no Java found (JAVA_HOME={home}); install JDK {MINIMUM_JAVA} or later")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        raise KafkaUnavailableError(f"{java} is not version {MINIMUM_JAVA} or later: {told.strip().splitlines()[:1]}")
    return java


def fetch_jars() -> Path:
    """The directory of Kafka's JARs, fetched with Maven unless this version of the POM was fetched before."""
    home = cache_directory() / "kafka" / f"libs-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    return fetch_with_maven(home, "Kafka's JARs", "dependency:copy-dependencies", "-DincludeScope=runtime")


def fetch_with_maven(home: Path, what: str, *goal: str) -> Path:
    """The directory ``home``, as a goal of the dependency plugin has filled it the first time.

    ``what`` is for messages. Raises KafkaUnavailableError without Maven, or where it fails.
    """
    if home.is_dir():
        return home
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(f"no Maven found (mvn), which fetches {what} the first time; install it")
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.parent / "fetch.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_dir():  # another process was faster
            return home
        partial = home.with_name(f"{home.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        # Maven leaves markers beside the POM, and would take an emptied cache for a full one by them.
        with tempfile.TemporaryDirectory() as project:
            pom = shutil.copy(POM, Path(project) / "pom.xml")
            fetched = subprocess.run(
                [maven, "-B", "-q", "-f", str(pom), *goal, f"-DoutputDirectory={partial}"],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        if fetched.returncode != 0:
            last = "\n".join((fetched.stdout + fetched.stderr).strip().splitlines()[-15:])
            raise KafkaUnavailableError(f"Maven could not fetch {what}:\n{last}")
        partial.rename(home)
    return home


@dataclass(frozen=True, slots=True)
class Node:
    """One broker-and-controller; ``id`` is the broker id that Kafka's metadata shows, counted from 1."""

    id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class KafkaCluster:
    """A KRaft cluster on loopback; use it as a context manager, or through :meth:`open` for one kept on disk.

    ``brokers`` nodes with min(3, brokers) replicas and min(2, brokers) in-sync replicas by default. ``properties``
    override the brokers' settings. ``short_lived``: the JVM starts in half the processor time, and never becomes fast, which is
    right for a few minutes of small tests. A cluster without ``directory`` is a throw-away: its files and processes go with
    :meth:`stop`, at exit, and, by a guard process, when this process is killed. Brokers are named by id: 1, 2, ...

    Raises KafkaUnavailableError when Java, Maven or the JARs are missing or a broker does not come up.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: Path | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        short_lived: bool = False,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: need at least 1")
        self.throw_away = directory is None
        self.directory = directory or cache_directory() / "kafka" / "clusters" / f"run-{uuid.uuid4().hex[:12]}"
        self.properties = dict(properties or {})
        self.heap = heap
        self.short_lived = short_lived
        self.nodes: list[Node] = []
        self._brokers = brokers
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None

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
        )
        cluster.nodes = [Node(**node) for node in state["nodes"]]
        return cluster

    def __enter__(self) -> "KafkaCluster":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Format what is new, start every broker that is not running, and wait until all know each other."""
        java, libs = find_java(), fetch_jars()
        if not self.nodes:
            self._create(java, libs)
        if self.throw_away and self._guard is None:
            atexit.register(self.stop)
            self._guard = subprocess.Popen(
                [sys.executable, __file__, "guard", str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
            )
        try:
            for node in self.nodes:
                if self._pid(node.id) is None:
                    self._launch(java, libs, node)
            self.wait_until_ready()
        except BaseException:
            self.stop(graceful=False)
            raise

    def stop(self, *, graceful: bool | None = None) -> None:
        """Stop every broker; a throw-away cluster is killed and its files are removed. Safe to call twice."""
        graceful = not self.throw_away if graceful is None else graceful
        for node in self.nodes:
            self._signal(node.id, signal.SIGTERM if graceful else signal.SIGKILL)
        deadline = time.monotonic() + 20  # controlled shutdown hands leadership over; the last nodes have no one left
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

    def kill(self, broker: int) -> None:
        """SIGKILL one broker and wait until it is gone; nothing happens when it is not running."""
        self._signal(broker, signal.SIGKILL)
        while self._pid(broker) is not None:
            time.sleep(0.02)
        if (child := self._children.pop(broker, None)) is not None:
            child.wait()
        (self._home(broker) / "pid").unlink(missing_ok=True)

    def pause(self, broker: int) -> None:
        """SIGSTOP one broker: its connections stay open and nothing answers."""
        self._signal(broker, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT a paused broker."""
        self._signal(broker, signal.SIGCONT)

    def restart(self, broker: int) -> None:
        """Start one stopped broker on its own port and data, killing it first when it runs; wait until it is back."""
        self.kill(broker)
        self._launch(find_java(), fetch_jars(), self._node(broker))
        self.wait_until_ready(broker)

    def running(self) -> list[int]:
        """Ids of the brokers whose process is alive (a paused one is)."""
        return [node.id for node in self.nodes if self._pid(node.id) is not None]

    def log(self, broker: int) -> Path:
        """The file that one broker writes warnings and errors to."""
        return self._home(broker) / "broker.log"

    def wait_until_ready(self, broker: int | None = None, seconds: float = START_SECONDS) -> None:
        """Wait until each running broker (or the one named) sees all running ones registered and unfenced."""
        deadline = time.monotonic() + seconds
        waiting = [node for node in self.nodes if broker in (None, node.id)]
        while waiting:
            for node in waiting:
                if self._pid(node.id) is None:
                    raise KafkaUnavailableError(f"broker {node.id} ended while starting:\n{self._last_words(node.id)}")
            expected = set(self.running())
            waiting = [node for node in waiting if not expected <= known_brokers(node.port)]
            if waiting and time.monotonic() > deadline:
                words = self._last_words(waiting[0].id)
                raise KafkaUnavailableError(f"broker {waiting[0].id} was not ready after {seconds:.0f} s:\n{words}")
            time.sleep(0.1 if waiting else 0)

    # ---- files and processes ----

    def _home(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}"

    def _node(self, broker: int) -> Node:
        return next(node for node in self.nodes if node.id == broker)

    def _create(self, java: str, libs: Path) -> None:
        ports = free_ports(2 * self._brokers)
        self.nodes = [Node(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(self._brokers)]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = []
        for node in self.nodes:
            home = self._home(node.id)
            home.mkdir(parents=True)
            lines = (f"{name}={value}\n" for name, value in self._server_properties(node).items())
            (home / "server.properties").write_text("".join(lines))
            tool = [java, "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*", "kafka.tools.StorageTool", "format"]
            # One id in 64 begins with a dash, which is taken for an option if it stands alone.
            command = [*tool, f"--cluster-id={cluster_id}", "-c", str(home / "server.properties")]
            formatting.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        told = [(process.communicate()[0], process.returncode) for process in formatting]
        for text, status in told:
            if status != 0:
                shutil.rmtree(self.directory, ignore_errors=True)
                raise KafkaUnavailableError(f"formatting the storage failed:\n{text.strip()[-2000:]}")
        state: dict[str, Any] = {"nodes": [asdict(node) for node in self.nodes], "properties": self.properties}
        state |= {"heap": self.heap, "short_lived": self.short_lived}
        (self.directory / "cluster.json").write_text(json.dumps(state, indent=1))

    def _server_properties(self, node: Node) -> dict[str, str]:
        voters = ",".join(f"{peer.id}@127.0.0.1:{peer.controller_port}" for peer in self.nodes)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._home(node.id) / "data"),
            **common_properties(self._brokers),
            **self.properties,
        }

    def _launch(self, java: str, libs: Path, node: Node) -> None:
        home = self._home(node.id)
        options = [f"-Xmx{self.heap}", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"]
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if self.short_lived else []
        logging = {"defaultLogLevel": "warn", "showDateTime": "true", "dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
        options += [f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in logging.items()]
        with open(self.log(node.id), "ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the tests, which then stop the brokers in order.
            child = subprocess.Popen(
                [java, *options, "-cp", f"{libs}/*", "kafka.Kafka", str(home / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (home / "pid").write_text(str(child.pid))
        self._children[node.id] = child
        while (
            child.poll() is None and self._pid(node.id) is None
        ):  # between fork and exec it still looks like this process
            time.sleep(0.01)

    def _pid(self, broker: int) -> int | None:
        """Process id of a running broker of this cluster; None also when the id now belongs to another process."""
        child = self._children.get(broker)
        if child is not None and child.poll() is not None:  # reaps it, too
            del self._children[broker]
        try:
            pid = int((self._home(broker) / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self._home(broker) / "server.properties") in command_line(pid) else None

    def _signal(self, broker: int, number: signal.Signals) -> None:
        if (pid := self._pid(broker)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _last_words(self, broker: int) -> str:
        try:
            return "\n".join(self.log(broker).read_text(errors="replace").splitlines()[-20:])
        except FileNotFoundError:
            return "(no log)"


def common_properties(brokers: int) -> dict[str, str]:
    """Broker settings that tests rely on, whatever starts the brokers: replication by their number, and short waits."""
    replicas, in_sync = min(3, brokers), min(2, brokers)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        # The coordinators' own topics: replicated like the rest, few partitions, so that they come up quickly.
        "offsets.topic.num.partitions": "8",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        # A topic that exists by accident has the wrong partitions and the wrong timestamp type.
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        # Tests wait for these: rebalances, expired transactions, deleted or compacted records, a dead broker's heirs.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        "log.segment.bytes": str(64 << 20),
        "log.index.size.max.bytes": str(1 << 20),
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "5000",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def command_line(pid: int) -> list[str]:
    """Arguments of a running process; empty when it has ended."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.split()


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on at this moment."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise KafkaUnavailableError(f"no {count} free loopback ports in {PORTS}")


def known_brokers(port: int, host: str = "127.0.0.1") -> set[int]:
    """Ids of the unfenced brokers in the metadata of the broker on ``port``; empty while it does not answer.

    Speaks Kafka's Metadata request, version 1, by hand: a listening socket alone says nothing, because a KRaft broker
    listens before it is registered.
    """
    client = b"susurrus-deploy"
    body = (
        struct.pack(">hhih", 3, 1, 7, len(client)) + client + struct.pack(">i", 0)
    )  # api, version, correlation, no topics
    try:
        with socket.create_connection((host, port), timeout=2) as connection, connection.makefile("rb") as answer:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", answer.read(4))
            data = answer.read(size)
        _correlation, count = struct.unpack_from(">ii", data)
        at, ids = 8, set()
        for _ in range(count):
            (broker, name) = struct.unpack_from(">ih", data, at)
            at += 6 + name + 4
            (rack,) = struct.unpack_from(">h", data, at)
            at += 2 + max(rack, 0)
            ids.add(broker)
        return ids
    except (OSError, struct.error):
        return set()


# ---- command line ----


def guard(directory: Path) -> None:
    """Wait until the process that started a throw-away cluster is gone, however it went; then end the cluster."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while directory.exists():
        with contextlib.suppress(FileNotFoundError):
            KafkaCluster.open(directory).stop(graceful=False)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what it started is stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def main() -> int:
    parser = argparse.ArgumentParser(description="A real Apache Kafka on loopback, without Docker.")
    parser.add_argument("command", choices=[*COMMANDS, "guard"], metavar="{" + ",".join(COMMANDS) + "}")
    parser.add_argument("directory", nargs="?", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--brokers", type=int, default=1, help="nodes of a new cluster (default 1)")
    parser.add_argument("--name", default="default", help="which cluster; each has its own data (default: default)")
    parser.add_argument("--purge", action="store_true", help="with stop: also remove the data")
    options = parser.parse_args()
    if options.command == "guard":
        guard(options.directory)
        return 0
    directory = cache_directory() / "kafka" / "clusters" / options.name
    known = (directory / "cluster.json").exists()
    try:
        if options.command == "fetch":
            print(fetch_jars())
        elif options.command == "run":
            with terminated_like_interrupted(), KafkaCluster(options.brokers) as cluster:
                print(cluster.bootstrap_servers, flush=True)
                signal.pause()
        elif options.command == "start":
            if not known:
                shutil.rmtree(directory, ignore_errors=True)
            cluster = KafkaCluster.open(directory) if known else KafkaCluster(options.brokers, directory=directory)
            cluster.start()
            print(cluster.bootstrap_servers)
        elif not known:
            print(f"no cluster named {options.name} in {directory.parent}", file=sys.stderr)
            return 0 if options.command == "stop" else 3
        else:
            cluster = KafkaCluster.open(directory)
            if options.command == "stop":
                cluster.stop()
                if options.purge:
                    shutil.rmtree(directory)
            for node in cluster.nodes:
                state = "running" if node.id in cluster.running() else "stopped"
                print(f"broker {node.id}  {node.address}  {state}  {cluster.log(node.id)}")
            return 0 if options.command == "stop" or cluster.running() else 3
    except KafkaUnavailableError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
