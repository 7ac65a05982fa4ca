"""Strategy `adaptive` under kill -9: what bound did depends on what release published, and still no byte changes.

The hard part is the way back: a bound that comes back must see what its predecessor saw, not what has been published since.
"""

import random
import time
from pathlib import Path

import pytest

from susurrus.agents.crash_points import POINTS
from tests.broker import Broker
from tests.chaos.test_windows import CALENDAR, TRIGGERS, WINDOWS, events
from tests.chaos.test_windows import PARTITIONS as RAW_PARTITIONS
from tests.pipeline import Pipeline, Public, archive_topic, merged, produce

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1500)]

ADAPTIVE = merged(CALENDAR, {"privacy": {"strategy": "adaptive", "adaptive": {"lag": 2}}})


@pytest.fixture(scope="module")
def raw_events(kafka: Broker) -> str:
    """Late and early records of overlapping windows."""
    topic = archive_topic(kafka, RAW_PARTITIONS)
    produce(kafka, topic, events())
    return topic


@pytest.fixture(scope="module")
def quiet(kafka: Broker, raw_events: str, tmp_path_factory: pytest.TempPathFactory) -> Public:
    """What one worker publishes that nobody disturbs."""
    with Pipeline(kafka, tmp_path_factory.mktemp("quiet"), raw_events, ADAPTIVE) as pipeline:
        pipeline.start()
        pipeline.wait(TRIGGERS, windows=WINDOWS)
        return pipeline.public()


def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker, raw_events: str, quiet: Public, tmp_path: Path
) -> None:
    assert sum(map(len, quiet["histogram"].values())) > 200
    with Pipeline(kafka, tmp_path, raw_events, ADAPTIVE) as pipeline:
        for stage in ("bound", "release"):
            for point in POINTS:
                worker = pipeline.start(SUSURRUS_CRASH_AT=f"{stage}:{point}:3")
                assert worker.process.wait(120) == -9, f"{stage}:{point} was not reached\n{worker.tail()}"
        pipeline.start()
        pipeline.wait(TRIGGERS, windows=WINDOWS)
        assert pipeline.public() == quiet


def test_spills_and_workers_with_empty_disks_change_no_byte(
    kafka: Broker, raw_events: str, quiet: Public, tmp_path: Path
) -> None:
    dice = random.Random(5)
    with Pipeline(kafka, tmp_path, raw_events, ADAPTIVE | {"worker": {"max_open_records": 1000}}) as pipeline:
        workers = [pipeline.start(), pipeline.start()]
        for number in range(5):
            time.sleep(dice.uniform(2.0, 5.0))
            victim = dice.randrange(2)
            workers[victim].kill()
            fresh = str(pipeline.directory / f"empty-{number}")
            workers[victim] = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=fresh)
        pipeline.wait(TRIGGERS, windows=WINDOWS)
        assert pipeline.public() == quiet
