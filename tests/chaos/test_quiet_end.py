"""Processes with expressions end without a line that is not theirs: standard error holds log lines only, text or JSON.

The engine of the expressions complains at the end of the interpreter about objects that are still there.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker
from tests.chaos.test_refusals import SMALL, raw_topic
from tests.chaos.test_stop import PATIENCE, says
from tests.pipeline import SECRET, Pipeline, Worker, merged, produce

pytestmark = pytest.mark.chaos

EXPRESSIONS: dict[str, Any] = merged(
    SMALL,
    {
        "input": {
            "where": "url <> '/page 2' AND length(host) > 3",
            "key": [{"expression": "upper(url)", "name": "page"}],
        },
    },
)
WITH_EACH_FORM = pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.thorough)])
"""Runs a test with each form that the log has."""
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) +[\w.-]+: .+")


def foreign(log: str, form: str) -> list[str]:
    """The lines that are none of the worker's log."""
    if form == "text":
        return [line for line in log.splitlines() if not LINE.fullmatch(line)]
    return [line for line in log.splitlines() if not _ours(line)]


def _ours(line: str) -> bool:
    try:
        return {"timestamp", "level", "logger", "message"} <= json.loads(line).keys()
    except ValueError:
        return False


def start(pipeline: Pipeline, form: str, **environ: str) -> Worker:
    """From the command line: a forked process ends otherwise."""
    return pipeline.start("--log-format", form, SUSURRUS_TEST_FORK="0", **environ)


def ended(worker: Worker) -> int:
    try:
        return worker.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        worker.signal(signal.SIGUSR1)
        raise AssertionError(f"still there\n{worker.tail()}") from None


@WITH_EACH_FORM
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_worker_that_is_stopped(kafka: Broker, tmp_path: Path, number: signal.Signals, form: str) -> None:
    with Pipeline(kafka, tmp_path, raw_topic(kafka), EXPRESSIONS) as pipeline:
        worker = start(pipeline, form)
        pipeline.wait()
        worker.signal(number)
        assert ended(worker) == 0, worker.tail()
        assert pipeline.counters()["filtered"] > 0  # the expressions were evaluated
        assert foreign(worker.log.read_text(), form) == []


@WITH_EACH_FORM
def test_a_worker_that_is_refused(kafka: Broker, tmp_path: Path, form: str) -> None:
    """Before it joins the group; its expressions are ready by then."""
    with Pipeline(kafka, tmp_path, raw_topic(kafka), EXPRESSIONS) as pipeline:
        pipeline.crash("route:after-commit:1")
        pipeline.data["privacy"] = {**pipeline.data["privacy"], "epsilon": 7.0}
        pipeline.write_config()
        worker = start(pipeline, form)
        assert ended(worker) == 2, worker.tail()
        assert says(worker, "configuration changed under the same epoch")
        left = foreign(worker.log.read_text(), form)
        assert [line for line in left if line.strip() and line[0] not in "╭│╰"] == []  # the panel, in a text
        assert bool(left) == (form == "text")


def test_a_worker_that_gives_up_its_partitions(kafka: Broker, tmp_path: Path) -> None:
    """It ends by itself, with an exit code of its own, when another has joined with its instance."""
    with Pipeline(kafka, tmp_path, raw_topic(kafka), merged(EXPRESSIONS, {"worker": {"instance": "a"}})) as pipeline:
        worker = start(pipeline, "text")
        pipeline.wait()
        pipeline.start()
        assert ended(worker) == 2, worker.tail()
        assert foreign(worker.log.read_text(), "text") == []


@pytest.mark.thorough
def test_commands_on_a_pipeline(kafka: Broker, tmp_path: Path) -> None:
    raw = raw_topic(kafka)
    with Pipeline(kafka, tmp_path, raw, EXPRESSIONS) as pipeline:
        produce(kafka, raw, [(0, b"no JSON", None)])
        start(pipeline, "text")
        pipeline.wait()
        for command in (["status"], ["dead-letters"], ["dead-letters", "--values", "--yes"], ["preflight"]):
            done = subprocess.run(
                [sys.executable, "-m", "susurrus.agents.cli", *command, "--config", str(pipeline.config)],
                capture_output=True,
                text=True,
                env={"SUSURRUS_SECRET": SECRET, "PATH": "/usr/bin:/bin"},
                check=False,
                timeout=PATIENCE,
            )
            assert done.returncode in (0, 1), (command, done.stderr)
            assert done.stdout, command
            assert ("nanobind" in done.stderr, bool(done.stderr)) == (False, "--values" in command), command
