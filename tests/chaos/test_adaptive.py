"""Strategies `adaptive` and `closing` under kill -9: what bound did depends on what release published, and still no byte changes.

The hard part is the way back: a bound that comes back must see what its predecessor saw, not what has been published since.
"""

from pathlib import Path
from random import Random

import pytest

from tests.broker import Broker
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_windows import CALENDAR, archive_of, events, wait_for_all
from tests.pipeline import CRASHING, SEEDS, Pipeline, Public, merged

pytestmark = pytest.mark.chaos

FEW = 30_000
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
def raw_events(kafka: Broker, once: Once) -> str:
    """Late and early records of overlapping windows."""
    return once("events", lambda: archive_of(kafka, events(FEW)))


@pytest.fixture(scope="module")
def loaded_events(kafka: Broker, once: Once) -> str:
    """Many of them."""
    return once("loaded-events", lambda: archive_of(kafka, events()))


def in_peace(kafka: Broker, once: Once, raw: str, strategy: str, factory: pytest.TempPathFactory) -> Public:
    """What one worker publishes that nobody disturbs."""
    directory = factory.mktemp("quiet")
    return once(
        f"{raw}-{strategy}",
        lambda: published_in_peace(kafka, directory, raw, STRATEGIES[strategy], wait_for_all),
    )


@pytest.mark.parametrize("stage", ["bound", "release"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker,
    raw_events: str,
    once: Once,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    strategy: str,
    stage: str,
) -> None:
    quiet = in_peace(kafka, once, raw_events, strategy, tmp_path_factory)
    assert sum(map(len, quiet["histogram"].values())) > 200
    with Pipeline(kafka, tmp_path, raw_events, merged(STRATEGIES[strategy], CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 3)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_spills_and_workers_with_empty_disks_change_no_byte(
    kafka: Broker,
    loaded_events: str,
    once: Once,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    strategy: str,
    seed: int,
) -> None:
    quiet = in_peace(kafka, once, loaded_events, strategy, tmp_path_factory)
    spilling = {"worker": {"max_open_records": 1000}}
    with Pipeline(kafka, tmp_path, loaded_events, STRATEGIES[strategy] | spilling) as pipeline:
        pipeline.replace_at_random(Random(seed), 5.0)
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
