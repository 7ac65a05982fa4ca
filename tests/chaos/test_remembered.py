"""Keys that a window hands on to the next one, under kill -9 around the hand-over: no byte changes.

Windows overlap by their lateness, so that the list enters in mid-window, and the lag is 2.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from susurrus.topics.histogram import decode_row
from tests.broker import Broker
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_windows import CALENDAR, HOUR, START, TRIGGERS, archive_of, events, wait_for_all
from tests.pipeline import CRASH_POINTS, CRASHING, Pipeline, Public, merged
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chaos

REMEMBERS = merged(
    CALENDAR,
    {
        "privacy": {"strategy": "closing", "closing": {"lag": 2}},
        "columns": [*CALENDAR["columns"], {"name": "hosts", "kind": "users"}],
        "keys": {"remember": 40},
    },
)
ENTERS = 4
"""The trigger of the second window that follows the last late one of the first."""


def even_events() -> Iterable[tuple[int, bytes, int]]:
    """As many users of each key, of which half may fall below the threshold."""
    dice = Random(8)
    for partition, value, stamp in events(20_000):
        changed = {"url": f"/{dice.randrange(120)}", "host": f"h{dice.randrange(20_000)}"}
        yield partition, json.dumps(json.loads(value) | changed).encode(), stamp


@pytest.fixture(scope="module")
def raw_even_events(kafka: Broker, once: Once) -> str:
    return once("remembered-events", lambda: archive_of(kafka, even_events()))


@pytest.fixture(scope="module")
def quiet(kafka: Broker, raw_even_events: str, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Public:
    """What one worker publishes that nobody disturbs."""
    directory = tmp_path_factory.mktemp("quiet")
    return once(
        f"{raw_even_events}-remembered",
        lambda: published_in_peace(kafka, directory, raw_even_events, REMEMBERS, wait_for_all),
    )


def test_the_list_enters_behind_the_last_late_rows_of_the_window_before(quiet: Public) -> None:
    rows = [decode_row(value) for partition in quiet["histogram"].values() for _, value, _ in partition]
    first, second = START, START + 8 * HOUR
    last = {
        row.key
        for row in rows
        if (row.window, row.trigger) == (first, TRIGGERS)
        and row.values["hosts"].estimate >= REMEMBERS["keys"]["remember"]
    }
    of = {
        trigger: {row.key for row in rows if (row.window, row.trigger) == (second, trigger)} for trigger in (3, ENTERS)
    }
    assert len(last) > 20
    # Those that are remembered have rows from then on, of which some are too small to be shown.
    found, entered = (len(of[trigger] & last) for trigger in (ENTERS - 1, ENTERS))
    assert entered > found + 10


@CRASH_POINTS
@pytest.mark.parametrize(
    "kind", ["entering", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("evidence", "calibrated"))]
)
def test_a_worker_killed_around_the_hand_over_changes_no_byte(
    kafka: Broker, raw_even_events: str, quiet: Public, tmp_path: Path, kind: str, points: Sequence[str]
) -> None:
    with Pipeline(kafka, tmp_path, raw_even_events, merged(REMEMBERS, CRASHING)) as pipeline:
        pipeline.crash_everywhere(f"release.{kind}", 1, points)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet


def test_workers_that_stop_and_start_in_mid_window_with_empty_disks_change_no_byte(
    kafka: Broker, raw_even_events: str, quiet: Public, tmp_path: Path
) -> None:
    """One is killed in the commit that publishes the list, two more leave when it enters. The state comes from the changelog."""
    with Pipeline(kafka, tmp_path, raw_even_events, merged(REMEMBERS, CRASHING)) as pipeline:
        pipeline.crash("release.calibrated:after-commit:2")
        for number in (1, 2):
            worker = pipeline.start(
                SUSURRUS_CRASH_AT=f"release.entering:after-offsets:{number}:SIGTERM",
                SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / f"empty-{number}"),
            )
            assert worker.process.wait(PATIENCE) == 0
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
