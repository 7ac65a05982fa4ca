"""kill -9 of a worker between every two steps of the commit, at random under load, and many workers against one.

All runs read the same raw topic under the same epoch and secret, with other prefixes; what a read_committed reader sees must be
the same bytes.
"""

import random
import time
from pathlib import Path

import pytest

from susurrus.agents.crash_points import POINTS
from tests.broker import Broker
from tests.pipeline import Pipeline, Public

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1500)]


def test_the_undisturbed_run_publishes_something(undisturbed: Public) -> None:
    assert sum(map(len, undisturbed["histogram"].values())) > 500
    assert sum(map(len, undisturbed["progress"].values())) == 4 * 24


def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, raw) as pipeline:
        for stage in ("route", "bound", "release"):
            for point in POINTS:
                worker = pipeline.start(SUSURRUS_CRASH_AT=f"{stage}:{point}:2")
                assert worker.process.wait(120) == -9, f"{stage}:{point} was not reached\n{worker.tail()}"
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == undisturbed


def test_workers_killed_at_random_and_replaced_with_empty_disks_change_no_byte(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    dice = random.Random(7)
    with Pipeline(kafka, tmp_path, raw) as pipeline:
        workers = [pipeline.start(), pipeline.start()]
        for number in range(5):
            time.sleep(dice.uniform(2.0, 6.0))
            victim = dice.randrange(2)
            workers[victim].kill()
            # A directory of its own each time: the state comes back from the changelog.
            fresh = str(pipeline.directory / f"empty-{number}")
            workers[victim] = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=fresh)
        pipeline.wait()
        assert pipeline.public() == undisturbed


def test_three_workers_publish_what_one_does_while_they_come_and_go(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, raw) as pipeline:
        first = pipeline.start()
        time.sleep(4)
        second, third = pipeline.start(), pipeline.start()
        time.sleep(6)
        assert first.stop() == 0, first.tail()
        time.sleep(3)
        assert third.stop() == 0, third.tail()
        pipeline.wait()
        assert second.process.poll() is None
        assert pipeline.public() == undisturbed
