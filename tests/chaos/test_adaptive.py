"""Strategies `adaptive` and `closing` under kill -9: what bound did depends on what release published, and still no byte changes.

The hard part is the way back: a bound that comes back must see what its predecessor saw, not what has been published since.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.broker import Broker
from tests.chaos.test_windows import CALENDAR, TRIGGERS, WINDOWS, events
from tests.chaos.test_windows import PARTITIONS as RAW_PARTITIONS
from tests.pipeline import Pipeline, Public, archive_topic, merged, produce

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1500)]

STRATEGIES = {
    "adaptive": merged(CALENDAR, {"privacy": {"strategy": "adaptive", "adaptive": {"lag": 2}}}),
    "closing": merged(
        CALENDAR,
        {
            "privacy": {"strategy": "closing", "closing": {"lag": 2}},
            "columns": [*CALENDAR["columns"], {"name": "hosts", "kind": "users"}],
        },
    ),
}


@pytest.fixture(scope="module")
def raw_events(kafka: Broker) -> str:
    """Late and early records of overlapping windows."""
    topic = archive_topic(kafka, RAW_PARTITIONS)
    produce(kafka, topic, events())
    return topic


@pytest.fixture(scope="module", params=STRATEGIES)
def configuration(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of one strategy."""
    return STRATEGIES[request.param]


@pytest.fixture(scope="module")
def quiet(
    kafka: Broker, raw_events: str, configuration: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Public:
    """What one worker publishes that nobody disturbs."""
    with Pipeline(kafka, tmp_path_factory.mktemp("quiet"), raw_events, configuration) as pipeline:
        pipeline.start()
        pipeline.wait(TRIGGERS, windows=WINDOWS)
        return pipeline.public()


def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker, raw_events: str, configuration: dict[str, Any], quiet: Public, tmp_path: Path
) -> None:
    assert sum(map(len, quiet["histogram"].values())) > 200
    with Pipeline(kafka, tmp_path, raw_events, configuration) as pipeline:
        pipeline.crash_everywhere(["bound", "release"], 3)
        pipeline.start()
        pipeline.wait(TRIGGERS, windows=WINDOWS)
        assert pipeline.public() == quiet


def test_spills_and_workers_with_empty_disks_change_no_byte(
    kafka: Broker, raw_events: str, configuration: dict[str, Any], quiet: Public, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, raw_events, configuration | {"worker": {"max_open_records": 1000}}) as pipeline:
        pipeline.replace_at_random(Random(5), 5.0)
        pipeline.wait(TRIGGERS, windows=WINDOWS)
        assert pipeline.public() == quiet
