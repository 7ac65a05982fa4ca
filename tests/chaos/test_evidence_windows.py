"""What windows measured of unpublished keys adds up, under kill -9 in the commits of last triggers: no byte changes."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from susurrus.topics.histogram import decode_row
from tests.broker import Broker
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_windows import CALENDAR, START, archive_of, events, wait_for_all
from tests.pipeline import CRASH_POINTS, CRASHING, Pipeline, Public, merged

pytestmark = pytest.mark.chaos

ADDS_UP = merged(
    CALENDAR,
    {
        "privacy": {"strategy": "closing", "delta": 1e-4, "closing": {"lag": 2}},
        "columns": [*CALENDAR["columns"], {"name": "hosts", "kind": "users"}],
        "keys": {"evidence_windows": 4},
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
    alone = once(
        f"{raw_few_users}-alone",
        lambda: published_in_peace(
            kafka,
            tmp_path_factory.mktemp("alone"),
            raw_few_users,
            merged(ADDS_UP, {"keys": {"evidence_windows": 1}}),
            wait_for_all,
        ),
    )

    def named_later(public: Public) -> set[object]:
        rows = [decode_row(value) for partition in public["histogram"].values() for _, value, _ in partition]
        return {(row.window, row.key) for row in rows if row.window > START}

    assert len(named_later(quiet)) > len(named_later(alone)) + 10, "or no window adds anything up"
    with Pipeline(kafka, tmp_path, raw_few_users, merged(ADDS_UP, CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 2, points)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
