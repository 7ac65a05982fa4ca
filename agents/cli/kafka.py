"""``susurrus kafka``: a real Kafka on this machine, without Docker; for a look around, for tests, for notebooks."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from susurrus.agents.broker.artefacts import fetch_jars, jars_directory
from susurrus.agents.broker.cluster import KafkaCluster, clusters_directory
from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.cli.console import err, out
from susurrus.mechanisms.errors import ConfigurationError

BOOTSTRAP_SERVERS = "SUSURRUS__KAFKA__BOOTSTRAP_SERVERS"
NOT_RUNNING = 3
"""Exit code of ``status`` where nothing runs, as for a service."""

NameOption = Annotated[str, typer.Option("--name", help="Which cluster; each has its own data.")]
DirectoryOption = Annotated[
    Path | None, typer.Option("--directory", help="Where the data are, in place of a folder of that name in the cache.")
]
BrokersOption = Annotated[int | None, typer.Option("--brokers", min=1, max=9, help="Brokers of a new cluster (1).")]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1,
        max=65_000,
        help="Port of broker 1 of a new cluster; others take the next ones. Free ones by default.",
    ),
]


def start(
    brokers: BrokersOption = None,
    port: PortOption = None,
    name: NameOption = "default",
    directory: DirectoryOption = None,
) -> None:
    """Start brokers in the background, on loopback, and print their bootstrap servers. What was there before goes on."""
    home = _home(name, directory)
    if KafkaCluster.exists(home):
        cluster = KafkaCluster.open(home)
        _same(cluster, brokers, port)
    else:
        if home.is_dir() and any(home.iterdir()):
            raise ConfigurationError(
                f"directory={home}: is not empty and holds no cluster; name another one, or empty it"
            )
        cluster = KafkaCluster(brokers or 1, directory=home, port=port)
    _announce_fetching()
    cluster.start()
    out().print(cluster.bootstrap_servers, soft_wrap=True)


def status(name: NameOption = "default", directory: DirectoryOption = None) -> None:
    """Show the brokers, their addresses and logs; exit code 3 if none runs."""
    cluster = _known(_home(name, directory))
    if cluster is None:
        raise typer.Exit(NOT_RUNNING)
    _show(cluster)
    if not cluster.running():
        raise typer.Exit(NOT_RUNNING)


def stop(
    name: NameOption = "default",
    directory: DirectoryOption = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the data, too.")] = False,
) -> None:
    """Stop what `start` started, and nothing else; the data stay."""
    if (cluster := _known(_home(name, directory))) is None:
        return
    cluster.stop()
    _show(cluster)
    if purge:
        cluster.purge()


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"A program and its arguments; it finds the brokers in {BOOTSTRAP_SERVERS}.", show_default=False
        ),
    ] = None,
    brokers: BrokersOption = None,
    port: PortOption = None,
) -> None:
    """Run a command beside a new cluster that is gone afterwards, with its data; without a command, until Ctrl-C.

    The exit code is the command's.
    """
    if command and shutil.which(command[0]) is None:
        raise ConfigurationError(f"command={command[0]}: not found; give the program's path, or install it")
    _announce_fetching()
    with _interrupted_by_termination(), KafkaCluster(brokers or 1, port=port) as cluster:
        if command:
            raise typer.Exit(_run(command, cluster.bootstrap_servers))
        out().print(cluster.bootstrap_servers, soft_wrap=True)
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def fetch() -> None:
    """Fetch Kafka's JARs, so that a later start needs no Maven and no network; print where they are."""
    _announce_fetching()
    out().print(str(fetch_jars()), soft_wrap=True)


def _announce_fetching() -> None:
    if not jars_directory().is_dir():
        err().print(f"Maven fetches Kafka's JARs, once (55 MB), into {jars_directory()}.", soft_wrap=True)


def _home(name: str, directory: Path | None) -> Path:
    if directory is not None:
        return directory.expanduser().absolute()
    if name in ("", "..") or Path(name).name != name:
        raise ConfigurationError(f"name={name}: is no name of a folder; leave out slashes, or give --directory")
    return clusters_directory() / name


def _known(home: Path) -> KafkaCluster | None:
    if KafkaCluster.exists(home):
        return KafkaCluster.open(home)
    err().print(f"No cluster in {home}; `susurrus kafka start` makes one.", soft_wrap=True)
    return None


def _same(cluster: KafkaCluster, brokers: int | None, port: int | None) -> None:
    """What a cluster is made of does not change. Raises ConfigurationError for another wish."""
    has = {"brokers": len(cluster.nodes), "port": cluster.nodes[0].port}
    for option, wanted in (("brokers", brokers), ("port", port)):
        if wanted not in (None, has[option]):
            raise ConfigurationError(
                f"{option}={wanted}: the cluster in {cluster.directory} has {option}={has[option]}; give another --name, "
                "or remove this one first (susurrus kafka stop --purge)"
            )


def _show(cluster: KafkaCluster) -> None:
    running = cluster.running()
    for node in cluster.nodes:
        state = "running" if node.id in running else "stopped"
        out().print(f"broker {node.id}  {node.address}  {state}  {cluster.log(node.id)}", soft_wrap=True)


def _run(command: list[str], bootstrap_servers: str) -> int:
    """The exit code of the command, as a shell gives it. Ctrl-C in a terminal reaches the command itself."""
    started: list[subprocess.Popen[bytes]] = []
    asked = False

    def terminate(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        for child in started:
            child.terminate()

    # An exception could come when the command runs and is not known here yet.
    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        with subprocess.Popen(command, env={**os.environ, BOOTSTRAP_SERVERS: bootstrap_servers}) as child:
            started.append(child)
            ends_with_us(child.pid)
            if asked:
                child.terminate()
            try:
                code = child.wait()
            except KeyboardInterrupt:
                child.terminate()
                code = child.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _interrupted_by_termination() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what it started is stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
