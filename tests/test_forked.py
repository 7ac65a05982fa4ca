"""Forked workers are processes as any other: exit codes, logs, environments and signals."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from susurrus.agents.broker.leash import birth
from tests.broker import wait_for
from tests.forked import fork_server
from tests.left_behind import ROOT, gone

SECRET = {"SUSURRUS_SECRET": "5a" * 32}


def waiting(directory: Path) -> Path:
    """The configuration of a worker that waits for brokers."""
    config = directory / "pipeline.toml"
    config.write_text(
        """
        pipeline = { name = "web" }
        kafka = { bootstrap_servers = "localhost:1" }
        input = { topic = "raw", user = "host", key = ["url"] }
        privacy = { epsilon = 6.0, delta = 1e-9 }
        """
    )
    return config


def test_the_exit_code_comes_back_and_both_streams_are_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "200"}
    assert fork_server().spawn(["--version"], environment, log).wait(60) == 0
    assert fork_server().spawn(["worker"], environment, log).wait(60) == 2
    assert log.read_text().startswith("susurrus ")
    assert "give the pipeline's TOML file" in log.read_text()


def test_it_can_be_frozen_and_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**SECRET, "SUSURRUS__WORKER__DATA_DIRECTORY": str(tmp_path / "state")}
    child = fork_server().spawn(["worker", "--config", str(waiting(tmp_path))], environment, log)
    wait_for(log.exists, "it runs")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    child.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    assert child.poll() is None
    child.kill()
    assert child.wait(60) == -9 == child.poll()


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL], ids=str)
@pytest.mark.parametrize("everybody", [False, True], ids=["the run", "the run and its fork server"])
def test_children_end_with_the_run(death: signal.Signals, everybody: bool, tmp_path: Path) -> None:
    """Whether a signal is for the process that runs the tests, or for its group, as `timeout` and a CI's runner send it."""
    code = """
import os, sys, time
from pathlib import Path
from tests.forked import fork_server
worker = fork_server().spawn(["kafka", "run", "--", "sleep", "900"], dict(os.environ), Path(sys.argv[1]))
print(worker.pid, flush=True)
sys.stdin.read()
"""
    environ = {**os.environ, "JAVA_HOME": str(tmp_path), "SUSURRUS_CACHE": str(tmp_path)}
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f"#!{sys.executable}\nimport os, time\nparent = os.getppid()\nopen({str(tmp_path / 'runs')!r}, 'w')\n"
        "while os.getppid() == parent:\n    time.sleep(0.1)\n"
    )
    java.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        born = birth(pid)
        assert born is not None
        wait_for((tmp_path / "runs").exists, "the child is at work")
        (os.killpg if everybody else os.kill)(run.pid, death)
    wait_for(lambda: gone(pid, born), "the child is gone")


def test_a_child_that_nobody_holds_yet_ends_with_the_server(tmp_path: Path) -> None:
    """A signal may end the server after the fork and before its leash knows of the child."""
    code = """
import os, signal, sys
from tests import fork_server
def die(pid):
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
fork_server.ends_with_us = die
fork_server.serve(sys.argv[1])
"""
    address = str(tmp_path / "socket")
    with subprocess.Popen(
        [sys.executable, "-c", code, address],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
            # A pipeline that never finds its broker.
            request = [["worker", "--config", str(waiting(tmp_path))], SECRET, str(tmp_path / "log"), str(tmp_path)]
            client.sendall(json.dumps(request).encode() + b"\n")
            pid = int(server.stdout.readline())
            born = birth(pid)
    try:
        wait_for(lambda: born is None or gone(pid, born), "the child is gone")
    finally:
        if born is not None and not gone(pid, born):
            os.kill(pid, signal.SIGKILL)
