"""What a demonstration's worker has of the environment."""

import contextlib
from pathlib import Path

import pytest
from rich.progress import Progress

from susurrus.agents.demo.histogram import HistogramDemo
from susurrus.agents.demo.machinery import DemoRun, configured
from tests.broker import wait_for


@pytest.mark.parametrize("compiled", ["0", None])
def test_the_worker_runs_the_path_that_was_asked_for_and_has_none_of_the_users_settings(
    compiled: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUSURRUS_COMPILED", raising=False)
    if compiled is not None:
        monkeypatch.setenv("SUSURRUS_COMPILED", compiled)
    monkeypatch.setenv("SUSURRUS__KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:2")
    settings = configured(HistogramDemo(epsilon=6.0, rows=15), tmp_path, "127.0.0.1:1")
    log = tmp_path / "worker.log"
    with contextlib.ExitStack() as stack:
        run = DemoRun(80, settings, tmp_path, stack, Progress(disable=True))
        run.start_worker()
        # What a worker runs with stands before anything that it says of a broker.
        wait_for(lambda: "127.0.0.1:" in log.read_text(), "the worker looks for a broker")
    text = log.read_text()
    assert ("SUSURRUS_COMPILED=0" in text) == (compiled == "0")
    assert "127.0.0.1:1" in text
    assert "127.0.0.1:2" not in text
