"""An older copy of the internal topics is put back, while the public topics and the raw topic stay: never the same noise twice.

With clock `producer` a trigger is cut anew after such a restore. Who came late the first time is in time the second time, and two
releases under one noise would tell exactly who that was.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.topics import charges, histogram
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.chaos.test_refusals import command_line, one_line, wait_until_refused
from tests.pipeline import SECRET, Pipeline, Worker, archive_topic, produce
from tests.stream_pipeline import TOPS, stream_pipeline
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chaos

EVERY = 4_000
LENGTH = 600_000
WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
Place = tuple[str, str, int]
"""(epoch, window start, trigger)"""
PUBLIC = ("histogram", "latest", "progress", "private-stream", "dead-letter")


def visits(first: int, number: int, stamp: int) -> list[tuple[int, bytes, int]]:
    """Users of one page, a record each."""
    names = range(first, first + number)
    return [(n % 2, json.dumps({"host": f"user {n}", "url": "/page"}).encode(), stamp) for n in names]


def estimates(pipeline: Pipeline) -> dict[Place, list[float]]:
    """What was published of the page, in the order of the log."""
    found: dict[Place, list[float]] = defaultdict(list)
    for message in pipeline.broker.read_all(pipeline.settings.topic("histogram")):
        row = histogram.decode_row(message.value())
        found[row.epoch, row.window_start, row.trigger].append(next(iter(row.values.values())).estimate)
    return found


def last_trigger(pipeline: Pipeline) -> int:
    return max(pipeline.progress().values(), default=0)


def partitions_of(pipeline: Pipeline, broker: Broker) -> list[Path]:
    """The directories of the internal topics' partitions."""
    assert broker.cluster is not None
    data = broker.cluster.directory / "broker-1" / "data"
    public = tuple(pipeline.settings.topic(name) for name in PUBLIC)
    prefix = pipeline.settings.pipeline.prefix
    return [path for path in data.glob(f"{prefix}.*") if not path.name.startswith(public)]


class Copy:
    """Of the internal topics as they are now. The broker stands still meanwhile."""

    def __init__(self, pipeline: Pipeline, broker: Broker, directory: Path) -> None:
        self._pipeline, self._broker, self._directory = pipeline, broker, directory
        broker.kill(1)
        for path in partitions_of(pipeline, broker):
            shutil.copytree(path, directory / path.name)
        assert len(list(directory.iterdir())) > 3
        self._restart()

    def put_back(self, only: str = "") -> None:
        """only: a part of the topics' names."""
        self._broker.kill(1)
        for path in partitions_of(self._pipeline, self._broker):
            if only not in path.name:
                continue
            shutil.rmtree(path)
            shutil.copytree(self._directory / path.name, path)
        self._restart()

    def _restart(self) -> None:
        self._broker.restart(1)
        output = self._pipeline.settings.topic(pipeline_of(self._pipeline.settings).output.name)
        wait_for(lambda: self._broker.read_all(output) is not None, "the topics are there again")


def live_pipeline(broker: Broker, directory: Path) -> Pipeline:
    """Clock `producer`; its first window begins now."""
    raw = broker.create_topic(f"raw-{broker.new_prefix()}", 2, {"retention.ms": "-1"})
    began = int(time.time() * 1000) // 1000 * 1000
    live: dict[str, Any] = {
        "start": {"from": "earliest", "first_window": format_time(began), "epoch": None},
        "clock": {"kind": "producer", "until": None, "idle_grace": "1s"},
        "window": {"length": f"{LENGTH}ms", "trigger_every": f"{EVERY}ms", "origin": format_time(began)},
        "keys": {"declared": ["/page"], "discover": False},
        "topics": {"by_user_partitions": 2, "bounded_partitions": 1},
        "worker": {"session_timeout": "2s"},
    }
    return Pipeline(broker, directory, raw, live)


@pytest.fixture
def pipeline(lone_broker: Broker, tmp_path: Path) -> Iterator[Pipeline]:
    with live_pipeline(lone_broker, tmp_path) as made:
        yield made


class Life:
    """Forty-five users are published, and seven of them who come late are not; then an older copy is put back."""

    def __init__(self, broker: Broker, pipeline: Pipeline, directory: Path) -> None:
        self.broker, self.pipeline, self._directory = broker, pipeline, directory
        self._lives = 0

    def start(self) -> Worker:
        """A worker with an empty disk: what it had would tell that the changelogs are shorter now."""
        self._lives += 1
        return self.pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(self._directory / f"life-{self._lives}"))

    def run_and_put_back(self, *, early: bool = False, only: str = "") -> dict[Place, list[float]]:
        """early: the copy is from before the beginning. What was published."""
        raw = self.pipeline.settings.input.topic
        if not early:
            worker = self.start()
            self.pipeline.wait(1)
            assert worker.stop() == 0, worker.tail()
        copy = Copy(self.pipeline, self.broker, self._directory / "copy")
        self.stamp = int(time.time() * 1000)
        produce(self.broker, raw, visits(0, 45, self.stamp))
        worker = self.start()
        reached = last_trigger(self.pipeline)
        self.pipeline.wait(max(reached + 1, interval_of(self.pipeline, self.stamp) + 2))
        assert worker.stop() == 0, worker.tail()
        before = estimates(self.pipeline)
        produce(self.broker, raw, visits(1000, 7, self.stamp))
        copy.put_back(only)
        return before


def interval_of(pipeline: Pipeline, stamp: int) -> int:
    return (stamp - pipeline.settings.window.origin) // EVERY


@pytest.fixture
def life(lone_broker: Broker, pipeline: Pipeline, tmp_path: Path) -> Life:
    return Life(lone_broker, pipeline, tmp_path)


def command(pipeline: Pipeline, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`susurrus ledger new-epoch`."""
    return subprocess.run(
        [sys.executable, "-m", "susurrus.agents.cli", "ledger", "new-epoch", "-c", str(pipeline.config), *arguments],
        capture_output=True,
        text=True,
        env={"SUSURRUS_SECRET": SECRET, "COLUMNS": "200", "PATH": "/usr/bin:/bin", **environ},
        check=False,
        timeout=PATIENCE,
    )


def wait_until_alone(pipeline: Pipeline) -> None:
    """Until the group has forgotten workers that ended, or froze, without leaving it."""
    group, admin = f"{pipeline.settings.pipeline.prefix}.web", pipeline.broker.admin()
    wait_for(lambda: not admin.describe_consumer_groups([group])[group].result().members, "the group is empty")


def charged(pipeline: Pipeline) -> list[tuple[str, int]]:
    """(epoch, window start) of every charge."""
    topic = pipeline.settings.topics.charges
    rows = [charges.decode(m.value()) for m in pipeline.broker.read_all(topic) if m.value()]
    return [(row.epoch, row.window) for row in rows]


def epoch_of(pipeline: Pipeline) -> str:
    return collect(pipeline_of(pipeline.settings)).epoch


def test_an_older_copy_of_the_internal_topics_is_refused_and_a_new_charged_epoch_is_the_way_out(life: Life) -> None:
    pipeline = life.pipeline
    before = life.run_and_put_back()
    old = epoch_of(pipeline)
    worker = life.start()
    [row] = wait_until_refused(pipeline, ("release", 0))
    assert "stage=release partition=0 knows epoch=1 up to" in str(row.finding)
    assert f"topic={pipeline.settings.topic('progress')} shows trigger=" in str(row.finding)
    assert "internal topics are an older copy, and the same noise would be published over other data" in str(
        row.finding
    )
    assert "run `susurrus ledger new-epoch`" in row.finding.action

    # While anybody runs there is no other epoch.
    said = command(pipeline, "--yes")
    assert said.returncode == 2
    assert "has members=1 at 127.0.0.1, but no worker may run while an epoch ends" in one_line(said.stderr)
    assert worker.stop() == 0, worker.tail()
    assert estimates(pipeline) == before

    # Unasked, or with a no, it changes nothing.
    said = command(pipeline, "--first-window", "current")
    assert said.returncode != 0
    assert epoch_of(pipeline) == old
    said = command(pipeline, "--first-window", "current", "--yes")
    assert said.returncode == 0, said.stderr
    print(said.stdout)
    assert f"web: epoch 1 ({old[:8]}) ends, epoch 2 begins." in said.stdout
    assert "Published a second time, and charged epsilon=6, delta=1e-09, mu=" in said.stdout
    assert "in 2 epochs: epsilon=" in said.stdout
    new = epoch_of(pipeline)
    assert new != old
    assert new[:8] in said.stdout

    life.start()
    wanted = interval_of(pipeline, int(time.time() * 1000))
    begun = format_time(pipeline.settings.window.origin)
    wait_for(lambda: (new, begun, wanted) in estimates(pipeline), "the new epoch publishes")
    after = estimates(pipeline)
    assert {place: values for place, values in after.items() if place[0] == old} == before
    assert all(len(values) == 1 for values in after.values())
    # All 52 count now, under other noise: neither the difference nor its absence tells anything.
    pairs = [(after[new, window, trigger][0], values[0]) for (_, window, trigger), values in before.items()]
    assert len({late - early for late, early in pairs}) > 3
    assert charged(pipeline) == [(old, pipeline.settings.window.origin), (new, pipeline.settings.window.origin)]
    pipeline.wait_for_total(52, "kept", "capped")
    status = command_line(pipeline)[1]
    assert f"epoch 2 ({new[:8]})" in status
    assert "2 windows charged" in status


def test_a_copy_from_before_the_beginning_founds_nothing_and_what_its_charges_have_lost_is_entered_again(
    life: Life,
) -> None:
    pipeline = life.pipeline
    before = life.run_and_put_back(early=True)
    [old] = {epoch for epoch, _, _ in before}
    assert charged(pipeline) == []
    worker = life.start()
    [row] = wait_until_refused(pipeline, ("release", 0))
    assert "so the ledger was lost, or is a copy from before the beginning" in str(row.finding)
    assert "run `susurrus ledger new-epoch`" in row.finding.action
    assert worker.stop() == 0, worker.tail()
    assert estimates(pipeline) == before
    assert epoch_of(pipeline) == ""
    said = command(pipeline, "--yes", "--first-window", "current")
    assert said.returncode == 0, said.stderr
    print(said.stdout)
    assert "the epoch that the ledger has lost ends, epoch 2 begins" in said.stdout
    assert "The log of charges lacks charged windows: the progress topic shows 1 more" in said.stdout
    life.start()
    wait_for(lambda: len(charged(pipeline)) == 2, "the new epoch is charged, too")
    assert charged(pipeline) == [(epoch, pipeline.settings.window.origin) for epoch in (old, epoch_of(pipeline))]


def test_an_older_copy_of_routes_changelog_alone_counts_no_user_twice(life: Life) -> None:
    pipeline = life.pipeline
    before = life.run_and_put_back(only="route-changelog")
    life.start()
    for row in wait_until_refused(pipeline, ("bound", 0), ("bound", 1)):
        assert f"topic={pipeline.settings.topic('by-user')} partition={row.partition} offset=" in str(row.finding)
        assert "so the changelog of route is an older copy, and records would count twice" in str(row.finding)
        assert "run `susurrus ledger new-epoch`" in row.finding.action
    assert estimates(pipeline) == before
    pipeline.wait_for_total(45, "kept")


def readings(broker: Broker, raw: str, first: int, end: int) -> None:
    """Of one meter on each of two partitions."""
    events = [(at % 2, {"meter": f"m{at % 2}", "reading": {"watts": at * 7 % 90}}, at) for at in range(first, end)]
    produce(broker, raw, [(partition, json.dumps(event).encode(), 1_000_000 + at) for partition, event, at in events])


def test_older_copies_of_a_streams_topics_publish_no_row_twice(lone_broker: Broker, tmp_path: Path) -> None:
    """Of the changelog alone, it goes on; of all internal topics, only the public one shows what they lack."""
    raw = lone_broker.create_topic(f"raw-{lone_broker.new_prefix()}", 2, {"retention.ms": "-1"})
    with stream_pipeline(lone_broker, tmp_path, raw, TOPS) as pipeline:

        def live(number: int, rows: int) -> list[tuple[bytes, bytes]]:
            """A worker with an empty disk, until so many rows are public."""
            worker = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / f"life-{number}"))
            topic = pipeline.settings.topic("private-stream")
            wait_for(lambda: len(lone_broker.read_all(topic)) >= rows, f"{rows} rows")
            assert worker.stop() == 0, worker.tail()
            return [(message.key(), message.value()) for message in lone_broker.read_all(topic)]

        readings(lone_broker, raw, 0, 1400)
        live(1, 200)
        copy = Copy(pipeline, lone_broker, tmp_path / "copy")
        readings(lone_broker, raw, 1400, 1800)
        before = live(2, 300)
        copy.put_back("stream-changelog")
        readings(lone_broker, raw, 1800, 1880)
        after = live(3, 320)
        assert len(after) == len(set(after)) == 320
        assert set(before) <= set(after)
        copy.put_back()
        readings(lone_broker, raw, 1880, 1960)
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "life-4"))
        for row in wait_until_refused(pipeline, ("stream", 0), ("stream", 1)):
            assert "does not know, so internal topics are an older copy" in str(row.finding)
        assert live_rows(pipeline) == sorted(after)


def live_rows(pipeline: Pipeline) -> list[tuple[bytes, bytes]]:
    messages = pipeline.broker.read_all(pipeline.settings.topic("private-stream"))
    return sorted((message.key(), message.value()) for message in messages)


@pytest.mark.parametrize(
    "point",
    [
        *(
            pytest.param(each, marks=pytest.mark.thorough)
            for each in ("before-fence", "after-fence", "after-second-fence")
        ),
        "after-ledger",
        "after-commit",
    ],
)
def test_a_command_that_dies_leaves_one_epoch_or_the_other(kafka: Broker, tmp_path: Path, point: str) -> None:
    """Nothing is lost here: the same archive, published by the old epoch to its end, or by the new one from its beginning."""
    raw = archive_topic(kafka, 2)
    produce(kafka, raw, [(p, v, WINDOW + 60_000 * (n // 5)) for n, (p, v, _) in enumerate(visits(0, 200, 0))])
    small: dict[str, Any] = {
        "start": {"first_window": format_time(WINDOW), "epoch": None},
        "clock": {"until": format_time(WINDOW + 3_600_000)},
        "window": {"length": "1h", "trigger_every": "15m"},
        "keys": {"declared": ["/page"], "discover": False},
        "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
        "worker": {"session_timeout": "2s"},
    }
    with Pipeline(kafka, tmp_path, raw, small) as pipeline:
        pipeline.crash("release:after-commit:3")
        old = epoch_of(pipeline)
        wait_until_alone(pipeline)
        arguments = ("--yes", "--first-window", "current", "--from", "earliest")
        said = command(pipeline, *arguments, SUSURRUS_CRASH_AT=f"new-epoch:{point}:1")
        assert said.returncode == -9, said.stderr
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        new = point == "after-commit"
        wait_for(
            lambda: (
                sum(e != old and t == 4 for e, _, t in estimates(pipeline)) == new
                and (new or (pipeline.progress() and min(pipeline.progress().values()) == 4))
            ),
            f"all is published {'again' if new else 'by the old epoch'}\n{pipeline.trouble()}",
        )
        found = estimates(pipeline)
        assert all(len(values) == 1 for values in found.values())
        assert (epoch_of(pipeline) != old) == new
        mine = {place[2]: values[0] for place, values in found.items() if (place[0] != old) == new}
        assert sorted(mine) == [1, 2, 3, 4]
        assert abs(mine[4] - 200) < 150
        pipeline.wait_for_total(200, "kept", "capped")
        assert len(charged(pipeline)) == 1 + new


def test_a_frozen_worker_that_wakes_up_in_another_epoch_writes_nothing_of_the_old_one(
    kafka: Broker, tmp_path: Path
) -> None:
    with live_pipeline(kafka, tmp_path) as pipeline:
        raw = pipeline.settings.input.topic
        frozen = pipeline.start()
        pipeline.wait(1)
        produce(kafka, raw, visits(0, 45, int(time.time() * 1000)))
        frozen.signal(signal.SIGSTOP)
        wait_until_alone(pipeline)
        old = epoch_of(pipeline)
        said = command(pipeline, "--yes", "--first-window", "current")
        assert said.returncode == 0, said.stderr
        before = estimates(pipeline)
        frozen.signal(signal.SIGCONT)
        # Those that have something to commit notice it first; nothing of what the others hold in memory can be committed either.
        rows = wait_until_refused(pipeline, ("route", 0), ("route", 1))
        assert {row.finding.text for row in rows} == {
            "epoch=2 has begun while this worker was away, and it still has the epoch before"
        }
        assert {row.finding.action for row in rows} == {"restart it"}
        frozen.stop()
        pipeline.start()
        new = epoch_of(pipeline)
        wanted = interval_of(pipeline, int(time.time() * 1000))
        begun = format_time(pipeline.settings.window.origin)
        wait_for(lambda: (new, begun, wanted) in estimates(pipeline), "the new epoch publishes")
        after = estimates(pipeline)
        assert {place: values for place, values in after.items() if place[0] == old} == before
        pipeline.wait_for_total(45, "kept", "capped")
