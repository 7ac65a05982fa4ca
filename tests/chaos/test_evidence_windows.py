"""What windows measured of unpublished keys adds up, under kill -9 in the commits of last triggers: no byte changes."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from susurrus.topics.histogram import decode_row
from tests.broker import Broker
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_windows import CALENDAR, LAST_TRIGGER, START, TRIGGERS, archive_of, events, wait_for_all
from tests.pipeline import CRASH_POINTS, CRASHING, Pipeline, merged

pytestmark = pytest.mark.chaos

ADDS_UP = merged(
    CALENDAR,
    {
        "privacy": {"strategy": "closing", "delta": 1e-4, "closing": {"lag": 2}},
        "columns": [*CALENDAR["columns"], {"name": "hosts", "kind": "users"}],
        "keys": {"evidence_windows": 4, "remember": 0},
    },
)


def few_users() -> Iterable[tuple[int, bytes, int]]:
    """Keys of so few users in each window that some need several."""
    dice = Random(9)
    for partition, value, stamp in events(5_000):
        changed = {"url": f"/{dice.randrange(250)}", "host": f"h{dice.randrange(10**6)}"}
        yield partition, json.dumps(json.loads(value) | changed).encode(), stamp


@pytest.fixture(scope="module")
def raw_few_users(kafka: Broker, once: Once) -> str:
    return once("few-users-events", lambda: archive_of(kafka, few_users()))


@CRASH_POINTS
@pytest.mark.parametrize("stage", ["release.calibrated", pytest.param("release.evidence", marks=pytest.mark.thorough)])
def test_a_worker_killed_at_last_triggers_changes_no_byte(
    kafka: Broker,
    raw_few_users: str,
    once: Once,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    stage: str,
    points: Sequence[str],
) -> None:
    directory = tmp_path_factory.mktemp("quiet")
    quiet = once(
        f"{raw_few_users}-adds-up",
        lambda: published_in_peace(kafka, directory, raw_few_users, ADDS_UP, wait_for_all),
    )
    first = dict[tuple[int, str], int]()
    for rows in quiet["histogram"].values():
        for row in (decode_row(value) for _, value, _ in rows):
            place = row.window, json.dumps(row.key)
            first[place] = min(row.trigger, first.get(place, row.trigger))
    # How many of them other windows have helped to find differs with the noise, and tests without a broker say it.
    found = [place for place, trigger in first.items() if place[0] > START and trigger in (TRIGGERS, LAST_TRIGGER)]
    assert len(found) > 5, "or last triggers find nothing"
    with Pipeline(kafka, tmp_path, raw_few_users, merged(ADDS_UP, CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 2, points)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
