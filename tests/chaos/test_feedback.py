"""Strategy `closing`, with its last look and without it, under kill -9: bound's work depends on what release published.

Still no byte changes.

The hard part is the way back: a bound that comes back must see what its predecessor saw, not what has been published since. And a
release that comes back between the two commits of a last trigger must make the same rows again.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from susurrus.topics.histogram import decode_row
from tests.broker import Broker
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_windows import CALENDAR, TRIGGERS, archive_of, events, wait_for_all
from tests.pipeline import CRASH_POINTS, CRASHING, SEEDS, Pipeline, Public, merged
from tests.reference import NO_LAST_LOOK

pytestmark = pytest.mark.chaos

FEW = 30_000
STRATEGIES = {
    "no last look": merged(CALENDAR, {"privacy": {"strategy": "closing", "closing": {"lag": 2, **NO_LAST_LOOK}}}),
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


def even_events() -> Iterable[tuple[int, bytes, int]]:
    """As many users of each key, so that some hundred keys are published at each last trigger."""
    dice = Random(5)
    for partition, value, stamp in events(45_000):
        changed = {"url": f"/{dice.randrange(400)}", "host": f"h{dice.randrange(20_000)}"}
        yield partition, json.dumps(json.loads(value) | changed).encode(), stamp


@pytest.fixture(scope="module")
def raw_even_events(kafka: Broker, once: Once) -> str:
    """Enough rows for a calibration."""
    return once("even-events", lambda: archive_of(kafka, even_events()))


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


@CRASH_POINTS
@pytest.mark.parametrize("stage", [pytest.param("bound", marks=pytest.mark.thorough), "release"])
@pytest.mark.parametrize("strategy", ["closing", pytest.param("no last look", marks=pytest.mark.thorough)])
def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker,
    raw_events: str,
    once: Once,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    strategy: str,
    stage: str,
    points: Sequence[str],
) -> None:
    quiet = in_peace(kafka, once, raw_events, strategy, tmp_path_factory)
    assert sum(map(len, quiet["histogram"].values())) > 200
    with Pipeline(kafka, tmp_path, raw_events, merged(STRATEGIES[strategy], CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 3, points)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet


@CRASH_POINTS
@pytest.mark.parametrize("kind", ["evidence", pytest.param("calibrated", marks=pytest.mark.thorough)])
def test_a_worker_killed_in_either_commit_of_a_last_trigger_changes_no_byte(
    kafka: Broker,
    raw_even_events: str,
    once: Once,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    points: Sequence[str],
) -> None:
    quiet = in_peace(kafka, once, raw_even_events, "closing", tmp_path_factory)
    last = [
        row.values["hosts"]
        for partition in quiet["histogram"].values()
        for row in (decode_row(value) for _, value, _ in partition)
        if row.trigger == TRIGGERS
    ]
    assert all(row.direct is not None for row in last)
    with Pipeline(kafka, tmp_path, raw_even_events, merged(STRATEGIES["closing"], CRASHING)) as pipeline:
        pipeline.crash_everywhere(f"release.{kind}", 1, points)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
    # The comparison sees a calibration: there are enough rows, and their errors are not the stream's.
    assert any(row.direct is not None and row.std_error < 0.9 * row.direct.std_error for row in last)


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
