"""Forked workers are processes as any other: exit codes, logs, environments and signals."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.broker import wait_for
from tests.forked import fork_server


def test_the_exit_code_comes_back_and_both_streams_are_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "200"}
    assert fork_server().spawn(["--version"], environment, log).wait(60) == 0
    assert fork_server().spawn(["worker"], environment, log).wait(60) == 2
    assert log.read_text().startswith("susurrus ")
    assert "give the pipeline's TOML file" in log.read_text()


def test_it_can_be_frozen_and_killed(tmp_path: Path) -> None:
    log, config = tmp_path / "log", tmp_path / "pipeline.toml"
    config.write_text(
        """
        pipeline = { name = "web" }
        kafka = { bootstrap_servers = "localhost:1" }
        input = { topic = "raw", user = "host", key = ["url"] }
        privacy = { epsilon = 6.0, delta = 1e-9 }
        """
    )
    child = fork_server().spawn(
        ["worker", "--config", str(config)],
        {"SUSURRUS_SECRET": "5a" * 32, "SUSURRUS__WORKER__DATA_DIRECTORY": str(tmp_path / "state")},
        log,
    )
    wait_for(log.exists, "it runs")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    child.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    assert child.poll() is None
    child.kill()
    assert child.wait(60) == -9 == child.poll()
