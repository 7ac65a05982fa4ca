"""``susurrus kafka``: it starts what answers, stops that and nothing else, and says what is missing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from susurrus.agents.broker.artefacts import KafkaUnavailableError, fetch_jars
from susurrus.agents.broker.cluster import KafkaCluster, clusters_directory
from susurrus.agents.broker.network import free_ports
from susurrus.agents.broker.process import command_line
from susurrus.agents.cli.main import app
from tests.broker import give_up, wait_for
from tests.left_behind import children


def kafka(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["kafka", *map(str, arguments)])


def start(*arguments: str | Path) -> str:
    """In a process of its own, which the broker outlives."""
    command = [sys.executable, "-m", "susurrus.agents.cli", "kafka", "start", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def said(result: Result) -> str:
    """Standard error without the frame of its panel."""
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache but for the JARs, which are fetched once for all tests."""
    try:
        jars = fetch_jars()
    except KafkaUnavailableError as missing:
        give_up(f"no real broker: {missing}")
    cache = tmp_path / "cache"
    (cache / "kafka").mkdir(parents=True)
    (cache / "kafka" / jars.name).symlink_to(jars)
    monkeypatch.setenv("SUSURRUS_CACHE", str(cache))
    return cache


@pytest.mark.broker
def test_a_cluster_is_started_shown_and_stopped(cache: Path, tmp_path: Path) -> None:
    home, (port,) = tmp_path / "data", free_ports(1)
    address = f"127.0.0.1:{port}"
    try:
        assert start("--directory", home, "--port", port) == f"{address}\n"
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).brokers.keys() == {1}
        shown = kafka("status", "--directory", home)
        assert shown.exit_code == 0
        assert f"broker 1  {address}  running" in shown.stdout

        assert kafka("start", "--directory", home).stdout == f"{address}\n"
        other = kafka("start", "--directory", home, "--brokers", "2")
        assert other.exit_code == 2
        assert "brokers=2: the cluster in" in said(other)
        taken = kafka("start", "--directory", tmp_path / "other", "--port", port)
        assert taken.exit_code == 2
        assert f"port={port}: is taken; give another one" in said(taken)
        assert not (tmp_path / "other").exists()

        assert kafka("stop", "--name", "default").exit_code == 0  # another cluster, which is not there
        assert kafka("status", "--directory", home).exit_code == 0
    finally:
        kafka("stop", "--directory", tmp_path / "other")
        stopped = kafka("stop", "--directory", home)
    assert f"broker 1  {address}  stopped" in stopped.stdout
    assert kafka("status", "--directory", home).exit_code == 3

    (home / "mine").touch()
    kafka("stop", "--directory", home, "--purge")
    assert [file.name for file in home.iterdir()] == ["mine"]
    assert kafka("status", "--directory", home).exit_code == 3


@pytest.mark.broker
def test_a_command_finds_the_brokers_and_gives_its_exit_code(cache: Path, tmp_path: Path) -> None:
    script = 'echo "$SUSURRUS__KAFKA__BOOTSTRAP_SERVERS $1" > "$0"; exit 7'
    ran = kafka("run", "--", "sh", "-c", script, tmp_path / "told", "--port")
    assert ran.exit_code == 7, ran.output
    address, argument = (tmp_path / "told").read_text().split()
    assert address.startswith("127.0.0.1:")
    assert argument == "--port"  # the command's, not ours
    assert list((cache / "kafka" / "clusters").iterdir()) == []


@contextmanager
def running(cache: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path, int]]:
    """A run, the id of its command, the folder of its cluster, and the id of its broker."""
    command = ["sh", "-c", "echo $$; exec sleep 600"]
    with subprocess.Popen(
        [sys.executable, "-m", "susurrus.agents.cli", "kafka", "run", "--", *command], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        (home,) = (cache / "kafka" / "clusters").iterdir()
        yield run, pid, home, int((home / "broker-1" / "pid").read_text())


@pytest.mark.broker
def test_a_terminated_run_ends_its_command_and_its_brokers(cache: Path, tmp_path: Path) -> None:
    with running(cache) as (run, pid, home, broker):
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
    assert not command_line(pid)
    wait_for(lambda: not command_line(broker), "the broker is gone")
    assert not home.exists()


@pytest.mark.broker
def test_a_killed_run_ends_its_command_and_its_brokers(cache: Path) -> None:
    """Nothing of it runs any more that could."""
    with running(cache) as (run, pid, home, broker):
        wait_for(lambda: children(run.pid, str(pid)), "the command is on the leash")
        run.kill()
    wait_for(lambda: not command_line(pid), "the command is gone")
    wait_for(lambda: not command_line(broker), "the broker is gone")
    wait_for(lambda: not home.exists(), "its files are gone")


def test_a_program_that_is_not_there_starts_no_broker() -> None:
    ran = kafka("run", "no-such-program")
    assert ran.exit_code == 2
    assert "command=no-such-program: not found" in said(ran)


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    started = kafka("start", "--directory", tmp_path)
    assert started.exit_code == 2
    assert "is not empty and holds no cluster" in said(started)
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "..", ""])
def test_a_name_stays_in_the_cache(name: str) -> None:
    assert "is no name of a folder" in said(kafka("start", "--name", name))


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUSURRUS_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    started = kafka("start")
    assert started.exit_code == 2
    assert "no Java found; install a JDK 17 or later" in said(started)

    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    assert "version=11: Kafka needs 17" in said(kafka("start"))

    java.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    started = kafka("start")
    assert started.exit_code == 2
    assert "mvn: not found" in said(started)
    assert "install Maven" in said(started)
    assert not KafkaCluster.exists(clusters_directory() / "default")


def test_a_failure_of_maven_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUSURRUS_CACHE", str(tmp_path / "cache"))
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho 'Could not transfer artifact'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fetched = kafka("fetch")
    assert fetched.exit_code == 2
    assert "Could not transfer artifact" in said(fetched)
