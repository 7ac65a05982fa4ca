"""Commands that read or evaluate expressions end without a word of the engine's; standard error is empty, or holds a panel."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CONFIGURATION = """
[pipeline]
name = "p"
[input]
topic = "raw"
user = "host"
key = [{{ name = "page", expression = "upper(url)" }}]
where = "{where}"
[start]
from = "earliest"
first_window = "1995-08-01T00:00:00Z"
[clock]
kind = "replay"
until = "1995-08-02T00:00:00Z"
[privacy]
epsilon = 1.0
delta = 1e-9
"""
GOOD = "bytes > 10 AND url <> '/index.html'"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "SUSURRUS_SECRET": "5a" * 32, "COLUMNS": "100"},
        check=False,
        timeout=300,
    )


def command(directory: Path, where: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    config = directory / "p.toml"
    config.write_text(CONFIGURATION.format(where=where))
    return run("-m", "susurrus.agents.cli", *arguments, "--config", str(config))


def sample(directory: Path) -> str:
    file = directory / "sample.jsonl"
    events = [{"host": f"h{n % 50}", "url": f"/{n % 3}", "bytes": n, "time": 807_235_200 + n} for n in range(400)]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(file)


def test_a_check_that_passes(tmp_path: Path) -> None:
    done = command(tmp_path, GOOD, "config", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bytes" in done.stdout


def test_a_check_that_finds_a_mistake(tmp_path: Path) -> None:
    done = command(tmp_path, "bytes > random()", "config", "check")
    assert done.returncode == 2
    assert "the function random is not available" in done.stderr
    assert "nanobind" not in done.stderr


@pytest.mark.parametrize("arguments", [["plan", "--seeds", "1"], ["tune", "--public-sample"]])
def test_what_evaluates_a_sample(tmp_path: Path, arguments: list[str]) -> None:
    name = "--sample-time" if arguments[0] == "plan" else "--time"
    done = command(tmp_path, GOOD, *arguments, "--sample", sample(tmp_path), name, "time")
    assert (done.returncode, "nanobind" in done.stderr) == (0, False), done.stderr


WORKER = """
    import threading
    from types import SimpleNamespace
    from susurrus.agents.expressions.evaluation import Evaluation
    from susurrus.agents.expressions.language import parse
    from susurrus.agents.runtime.faust import worker
    from susurrus.agents.runtime.ending import ENDING

    class Worker:
        def __init__(self, *arguments, **options):
            self.evaluation = Evaluation(parse("a = 1"))

        def execute_from_commandline(self):
            assert self.evaluation.evaluate([[1, 2]], 2)[0] == [True, False]
            raise SystemExit(0)

    def evaluates(begun):
        mine = Evaluation(parse("md5(c) = d"))
        while True:
            mine.evaluate([["x"] * 20_000, ["y"] * 20_000], 20_000)
            begun.set()

    worker._Worker = Worker
    alive = Evaluation(parse("b = 1"))  # frozen with everything else
    left = {left}
    if left:
        begun = threading.Event()
        threading.Thread(target=evaluates, args=(begun,), daemon=True).start()
        begun.wait()
    ENDING.exit_code = {code}
    supervisor = SimpleNamespace(
        worker="w", left_behind=left, stages=(), topics_of=None, group=SimpleNamespace(offer=None, loop=None)
    )
    worker.run(None, supervisor, "INFO")
"""


@pytest.mark.parametrize("code", [0, 74])
def test_a_worker_whose_objects_are_kept_from_the_collector(code: int) -> None:
    done = run("-c", textwrap.dedent(WORKER.format(code=code, left=[])))
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("code", [0, 74])
def test_a_worker_with_a_task_that_is_still_inside_the_engine(code: int) -> None:
    done = run("-c", textwrap.dedent(WORKER.format(code=code, left=["route-0"])))
    assert (done.returncode, done.stderr) == (code, "")
