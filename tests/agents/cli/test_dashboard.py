"""`susurrus dashboard` and `susurrus demo --dashboard` as programs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from susurrus.agents.broker.leash import ends_with_us
from tests.agents.dashboard.published import create, write
from tests.agents.released import rows, said, settings
from tests.broker import Broker, wait_for
from tests.waiting import PATIENCE


def state(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}api/state", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def started(arguments: Sequence[str], log: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """The program, and the address that it prints."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "susurrus.agents.cli", *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "100"},
        )
        ends_with_us(process.pid)
    try:
        found: list[str] = []

        def printed() -> bool:
            assert process.poll() is None, log.read_text()
            found.extend(re.findall(r"http://[\d.]+:\d+/", log.read_text()))
            return bool(found)

        wait_for(printed, "the address is printed")
        yield process, found[0]
    finally:
        process.kill()
        process.wait(30)


def ended(process: "subprocess.Popen[bytes]", number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(60)


def test_it_serves_until_it_is_told_to_stop_and_names_a_port_that_is_taken(embedded: Broker, tmp_path: Path) -> None:
    of = settings(embedded.bootstrap_servers, pipeline={"name": "p", "prefix": embedded.new_prefix()})
    create(embedded, of)
    write(of, {"histogram": rows(1, {b'"/a"': 10}), "progress": [said(1, 1)]})
    config = tmp_path / "pipeline.toml"
    data = {
        "pipeline": {"name": "p", "prefix": of.pipeline.prefix},
        "kafka": {"bootstrap_servers": embedded.bootstrap_servers, "embedded": True},
        "input": {"topic": "raw", "user": "host", "key": ["url"]},
        "window": {"trigger_every": "6h"},
        "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"},
    }
    config.write_text(tomli_w.dumps(data))
    command = ["dashboard", "--config", str(config), "--port"]
    with started([*command, "0"], tmp_path / "log") as (process, url):
        wait_for(lambda: state(url)["windows"], "the release is read")
        assert state(url)["windows"][0]["keys"] == 1
        port = url.rpartition(":")[2].rstrip("/")
        again = subprocess.run(
            [sys.executable, "-m", "susurrus.agents.cli", *command, port],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert again.returncode == 2
        assert f'--port {port}: cannot listen on "127.0.0.1"' in again.stderr
        assert ended(process, signal.SIGTERM) == 0


@pytest.mark.thorough
def test_the_demonstration_has_a_page_until_ctrl_c(tmp_path: Path) -> None:
    with started(["demo", "--dashboard", "--port", "0"], tmp_path / "log") as (process, url):
        deadline = time.monotonic() + PATIENCE
        while not (windows := state(url)["windows"]) or not windows[0]["final"]:
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.3)
        wait_for(lambda: "The page stays until Ctrl-C." in (tmp_path / "log").read_text(), "the demonstration is over")
        kept = re.search(r"^Kept +(\d+) of", (tmp_path / "log").read_text(), re.MULTILINE)
        assert kept is not None
        assert windows[0]["keys"] == int(kept[1])
        assert ended(process, signal.SIGINT) == 0
