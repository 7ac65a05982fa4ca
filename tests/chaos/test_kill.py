"""kill -9 of a worker between every two steps of the commit, at random under load, and many workers against one.

All runs read the same raw topic under the same epoch and secret, with other prefixes; what a read_committed reader sees must be
the same bytes.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from susurrus.agents.runtime.crash_points import POINTS
from tests.broker import Broker
from tests.pipeline import CRASHING, SEEDS, THREE_POINTS, Pipeline, Public

pytestmark = pytest.mark.chaos

STAGES = ("route", "bound", "release")


def test_the_undisturbed_run_publishes_something(undisturbed: Public) -> None:
    assert sum(map(len, undisturbed["histogram"].values())) > 500
    assert sum(map(len, undisturbed["progress"].values())) == 4 * 24


@pytest.mark.parametrize(
    ("stage", "points"),
    [
        pytest.param("release", POINTS, id="release"),
        *(pytest.param(stage, THREE_POINTS, id=f"{stage}, three points") for stage in STAGES[:2]),
        *(pytest.param(stage, POINTS, id=f"{stage}, every point", marks=pytest.mark.campaign) for stage in STAGES),
    ],
)
def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path, stage: str, points: Sequence[str]
) -> None:
    with Pipeline(kafka, tmp_path, raw, CRASHING) as pipeline:
        pipeline.crash_everywhere(stage, 2, points)
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == undisturbed


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_workers_killed_at_random_and_replaced_with_empty_disks_change_no_byte(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path, seed: int
) -> None:
    with Pipeline(kafka, tmp_path, loaded_raw) as pipeline:
        pipeline.replace_at_random(Random(seed), 6.0)
        pipeline.wait()
        assert pipeline.public() == loaded_undisturbed


@pytest.mark.campaign
def test_three_workers_publish_what_one_does_while_they_come_and_go(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, loaded_raw) as pipeline:
        first = pipeline.start()
        time.sleep(4)
        second, third = pipeline.start(), pipeline.start()
        time.sleep(6)
        assert first.stop() == 0, first.tail()
        time.sleep(3)
        assert third.stop() == 0, third.tail()
        pipeline.wait()
        assert second.process.poll() is None
        assert pipeline.public() == loaded_undisturbed
