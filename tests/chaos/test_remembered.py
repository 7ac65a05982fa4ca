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
from tests.chaos.test_windows import CALENDAR, HOUR, START, archive_of, events, wait_for_all
from tests.pipeline import CRASH_POINTS, CRASHING, Pipeline, merged

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


@CRASH_POINTS
@pytest.mark.parametrize("stage", ["release.calibrated", pytest.param("release", marks=pytest.mark.thorough)])
def test_a_worker_killed_around_the_hand_over_changes_no_byte(
    kafka: Broker,
    raw_even_events: str,
    once: Once,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    stage: str,
    points: Sequence[str],
) -> None:
    directory = tmp_path_factory.mktemp("quiet")
    quiet = once(
        f"{raw_even_events}-remembered",
        lambda: published_in_peace(kafka, directory, raw_even_events, REMEMBERS, wait_for_all),
    )
    rows = [decode_row(value) for partition in quiet["histogram"].values() for _, value, _ in partition]
    starts = [START, START + 8 * HOUR]
    last = {
        row.key for row in rows if row.window == starts[0] and row.trigger == 11 and row.values["hosts"].estimate >= 40
    }
    entered = {row.key for row in rows if row.window == starts[1] and row.trigger == ENTERS}
    assert len(last) > 20
    assert entered >= last
    assert not {row.key for row in rows if row.window == starts[1] and row.trigger == ENTERS - 1} >= last
    with Pipeline(kafka, tmp_path, raw_even_events, merged(REMEMBERS, CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 3 if stage == "release" else 1, points)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
