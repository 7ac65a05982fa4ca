#!/usr/bin/env python3
"""A campaign of faults against live pipelines on three real brokers: after every fault, each published byte must be the same.

    python benchmarks/campaign.py [--events 100] [--only toeplitz,stream,versions,tests] [--minutes 20] [--seed 1] [--json FILE]

Each pipeline (strategies of a histogram, two topics of lists, Avro, a stream, a local server) has two workers under a keeper that
restarts what ends. One of the two has compiled loops and the other runs in pure Python, and a place changes from one to the other
whenever its worker is started again. Meanwhile records arrive, and events happen in random order, each kind as often as any other:
kill -9, death at a crash point of the commit, a wiped disk, a pause beyond the session's time-out, a dead broker, a full disk,
hundreds of slow clients, a schema registry that is away. Then one worker publishes the same raw log without faults, and all public
output is compared byte by byte (for a local server: every report must count once). The exit status is 0 if nothing differs, and 1
if anything differs or a pipeline gets stuck.

The seed decides the events, but not the moments at which they happen. About 25 minutes for 100 events of two pipelines at a time.

After the pipelines one of them runs on the oldest, the default and the newest Kafka (campaign_versions.py), but not with
``--minutes``. Then come the tests that are too long for `make test` (``pytest -m campaign``: random kills with ten seeds, outages,
clocks), the statistical tests with ten times the samples, and without ``--minutes`` those of odd records with five times as many.
With ``--minutes`` no pipeline begins after half of the time and no test begins after all of it. The last lines say what was
not run.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

import pytest
from campaign_events import Crew, World, schedule
from campaign_pipelines import TARGETS, Compared, Target
from campaign_versions import matrix, run_versions
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.broker import Broker, real_cluster

VERSIONS = "versions"
TESTS = "tests"
"""The parts that are no pipelines."""
SAMPLES = 10
NO_BROKERS = 2


@dataclass
class Result:
    """What became of one pipeline. exits: codes of workers that ended by themselves, which the keeper started again. loops: how
    many workers had compiled loops, and how many ran in pure Python."""

    pipeline: str
    events: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    exits: Counter[int] = field(default_factory=Counter)
    loops: Counter[str] = field(default_factory=Counter)
    log: list[dict[str, object]] = field(default_factory=list)
    compared: Compared | None = None
    error: str = ""
    seconds: float = 0.0
    begun: bool = True

    @property
    def sound(self) -> bool:
        """Whether something was compared and nothing of it differs, or there was no time to begin."""
        if not self.begun:
            return True
        compared = self.compared
        return not self.error and compared is not None and compared.compared > 0 and compared.different == 0

    def as_json(self) -> dict[str, object]:
        """For --json."""
        return {
            "pipeline": self.pipeline,
            "begun": self.begun,
            "sound": self.sound,
            "events": dict(self.events),
            "skipped": self.skipped,
            "exits": dict(self.exits),
            "loops": dict(self.loops),
            "compared": None if self.compared is None else asdict(self.compared),
            "error": self.error,
            "seconds": self.seconds,
            "log": self.log,
        }


class Campaign:
    """Pipelines on one cluster, some at the same time."""

    def __init__(self, kafka: Broker, directory: Path, options: argparse.Namespace, progress: Progress) -> None:
        self.world = World(kafka)
        self.directory = directory
        self.options = options
        self.progress = progress

    def run(self, names: Sequence[str]) -> list[Result]:
        """One result for each; a pipeline that fails does not stop the others."""
        with ThreadPoolExecutor(self.options.together) as pool:
            try:
                return list(pool.map(self._run_one, names))
            except KeyboardInterrupt:
                self.world.over.set()  # the threads clean up behind themselves
                raise

    def _tell(self, bar: TaskID, what: str, advance: int = 0) -> None:
        """Show a message on the progress bar, or print it as a line where there is no terminal."""
        self.progress.update(bar, advance=advance, what=what)
        if not self.progress.console.is_terminal:
            task = next(task for task in self.progress.tasks if task.id == bar)
            place = f"{task.elapsed or 0:5.0f} s  {task.description} {task.completed:.0f}/{task.total:.0f}"
            self.progress.console.print(f"{place}  {what}", markup=False, highlight=False)

    def _run_one(self, name: str) -> Result:
        result, began = Result(name), time.monotonic()
        if began > self.options.last_begin:
            result.begun = False
            return result
        bar = self.progress.add_task(name, total=self.options.events, what="starts")
        try:
            target = TARGETS[name](self.world, self.directory, f"{self.options.seed}/{name}/feed", self.options.rate)
            with target.surroundings():
                self._disturb(target, result, bar)
        except (
            Exception,
            pytest.skip.Exception,
            pytest.fail.Exception,
        ) as error:  # the others go on, and the table tells
            result.error = f"{type(error).__name__}: {error}"
            self.progress.console.print(f"{name}: {result.error}", style="bold red", markup=False, highlight=False)
        result.seconds = round(time.monotonic() - began, 1)
        verdict = "no difference" if result.sound else "DIFFERS" if not result.error else "FAILED"
        self._tell(bar, verdict)
        return result

    def _disturb(self, target: Target, result: Result, bar: TaskID) -> None:
        dice = Random(f"{self.options.seed}/{target.name}/events")
        with target.made() as disturbed:
            with Crew(disturbed, self.options.workers) as crew:
                kinds = list(target.events)
                if not crew.can_fill:
                    kinds.remove("full disk")
                    result.skipped.append("full disk")
                    self.progress.console.print(
                        f"[bold yellow]{target.name}: NO FULL DISK: a tmpfs cannot be mounted here (needs root)"
                    )
                feeder = target.feed(disturbed)
                with contextlib.ExitStack() as stack:
                    stack.callback(feeder.stop)
                    began = time.monotonic()
                    self.world.rest(self.options.warm_up)
                    if crew.ended[2]:
                        raise RuntimeError(f"a worker does not start: {disturbed.workers[0].tail()}")
                    for kind in schedule(kinds, self.options.events, dice):
                        self.world.rest(dice.uniform(0.5, 4.0))
                        self.progress.update(bar, what=kind)
                        happened = time.monotonic() - began
                        what = target.events[kind](crew, self.world, dice)
                        result.events[kind] += 1
                        result.log.append({"at": round(happened, 1), "event": kind, "what": what})
                        self._tell(bar, f"{kind} {what}", advance=1)
                    self._tell(bar, "no more events; feeds to the end of the window")
                    target.wind_up(feeder)
                self._tell(bar, "catches up")
                target.settle(disturbed)
                result.exits.update(crew.ended)
                result.loops.update(crew.loops())
            self._tell(bar, "compares with an undisturbed run")
            result.compared = target.judge(disturbed)


def table(results: list[Result]) -> Table:
    """A row for each pipeline."""
    shown = Table(title="Campaign: what happened, and what it changed", show_lines=True)
    shown.add_column("pipeline", no_wrap=True)
    shown.add_column("events")
    shown.add_column("ended by itself")
    shown.add_column("workers")
    for name in ("compared", "different"):
        shown.add_column(name, justify="right", no_wrap=True)
    for result in results:
        if not result.begun:
            shown.add_row(result.pipeline, "[bold yellow]not run: no time left")
            continue
        compared = result.compared
        shown.add_row(
            result.pipeline,
            ", ".join(f"{times} {kind}" for kind, times in sorted(result.events.items())),
            ", ".join(f"code {code}: {times}x" for code, times in sorted(result.exits.items())) or "-",
            ", ".join(f"{times} {kind}" for kind, times in sorted(result.loops.items())) or "-",
            "-" if compared is None else f"{compared.compared:,} {compared.unit}",
            "[bold red]failed" if compared is None else f"{'' if result.sound else '[bold red]'}{compared.different:,}",
        )
    return shown


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=100, help="per pipeline (100)")
    parts = [*TARGETS, VERSIONS, TESTS]
    parser.add_argument("--only", default=",".join(parts), help=f"of {', '.join(parts)}; separated by commas")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin nothing new after so many (no limit)"
    )
    parser.add_argument("--together", type=int, default=2, help="pipelines at the same time (2)")
    parser.add_argument("--workers", type=int, default=2, help="per pipeline (2)")
    parser.add_argument("--rate", type=int, default=300, help="records per second and pipeline (300)")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before the first event (15)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the results there, too")
    parser.add_argument("--keep", type=Path, help="keep the workers' logs in this directory")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if unknown := sorted(set(options.only) - set(parts)):
        parser.error(f"--only: no such pipeline: {', '.join(unknown)}; there are {', '.join(parts)}")
    return options


def quiet_clients(file: Path) -> None:
    """librdkafka writes to standard error for every broker that is away. A campaign expects that, so these lines go to a file."""
    sys.stderr = os.fdopen(os.dup(2), "w")
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)


def wanted(minutes: float) -> str:
    """Which tests. One with 100,000 odd records takes minutes, so a campaign of some minutes would end late."""
    return "campaign or statistical" + " or fuzz" * (minutes == float("inf"))


def run_tests(minutes: float, processes: int) -> bool:
    """The tests of the campaign; whether all that ran are green."""
    command = [sys.executable, "-m", "pytest", "-q", "--campaign", "-m", wanted(minutes), "--durations=10"]
    command += [f"-n{processes}", "--dist=loadgroup", "--no-loadscope-reorder", f"--minutes={minutes}"]
    # Workers are started from the command line here, as they are in production.
    environment = {**os.environ, "SUSURRUS_SAMPLES": str(SAMPLES), "SUSURRUS_TEST_FORK": "0"}
    # Of the standard error stream: where it was before quiet_clients.
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, stderr=sys.stderr, check=False)
    return done.returncode == 0


def run_on_versions() -> bool:
    """Whether no version of Kafka changes a byte."""
    with tempfile.TemporaryDirectory(prefix="versions-") as directory:
        return run_versions(matrix(), Path(directory), Console())


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ["SUSURRUS_TEST_FORK"] = "0"
    began, sound = time.monotonic(), True
    pipelines = [name for name in options.only if name not in (VERSIONS, TESTS)]
    if pipelines:
        share = 0.5 if TESTS in options.only else 1.0
        options.last_begin = began + 60 * share * options.minutes
        code = disturb(pipelines, options)
        if code == NO_BROKERS:
            return code
        sound = code == 0
    if VERSIONS in options.only:
        if options.minutes < float("inf"):
            print("versions of Kafka: not run with --minutes; python benchmarks/campaign_versions.py runs them alone")
        else:
            sound = run_on_versions() and sound
    if TESTS in options.only:
        left = options.minutes - (time.monotonic() - began) / 60
        sound = run_tests(left, options.together) and sound
    return 0 if sound else 1


def disturb(pipelines: Sequence[str], options: argparse.Namespace) -> int:
    """Run the pipelines among faults; the exit code."""
    console = Console()
    columns = [
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    ]
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-")))
        directory.mkdir(parents=True, exist_ok=True)
        quiet_clients(directory / "clients.log")
        try:
            kafka = stack.enter_context(real_cluster())
        except (pytest.skip.Exception, pytest.fail.Exception) as reason:
            console.print(f"[bold red]no brokers: {reason}")
            return NO_BROKERS
        progress = stack.enter_context(Progress(*columns, console=console))
        results = Campaign(kafka, directory, options, progress).run(pipelines)
    console.print(table(results))
    if options.json:
        options.json.write_text(json.dumps([result.as_json() for result in results], indent=1) + "\n")
    for result in results:
        if result.skipped:
            console.print(f"[bold yellow]{result.pipeline}: not tried: {', '.join(result.skipped)}")
        if result.error:
            console.print(f"{result.pipeline}: {result.error}", style="bold red", markup=False, highlight=False)
    return 0 if all(result.sound for result in results) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
