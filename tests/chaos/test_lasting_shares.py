"""Three windows on a broker: the third one's shares follow how much of the second one had lasted, and no death changes a byte."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.mechanisms.histogram.persistence import LEAST_ROW, TENTHS
from susurrus.mechanisms.histogram.registry import built
from susurrus.topics.histogram import decode_row
from tests.broker import Broker
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_remembered import REMEMBERS, even_events
from tests.chaos.test_windows import HOUR, START, archive_of
from tests.pipeline import CRASH_POINTS, CRASHING, Pipeline, Public, merged
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chaos

LENGTH, WINDOWS = 8, 3
LASTS = merged(
    REMEMBERS,
    {"window": {"allowed_lateness": "0s"}, "privacy": {"closing": {"lag": 1}}, "topics": {"bounded_partitions": 2}},
)


def wait_for_all(pipeline: Pipeline) -> None:
    """Also for the window that the archive's end cuts off after six hours."""
    pipeline.wait(LENGTH, windows=WINDOWS)
    pipeline.wait(6, windows=WINDOWS + 1)


@pytest.fixture(scope="module")
def raw_even_events(kafka: Broker, once: Once) -> str:
    return once("remembered-events", lambda: archive_of(kafka, even_events()))


@pytest.fixture(scope="module")
def quiet(kafka: Broker, raw_even_events: str, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Public:
    """What one worker publishes that nobody disturbs."""
    directory = tmp_path_factory.mktemp("quiet")
    return once(
        f"{raw_even_events}-lasting",
        lambda: published_in_peace(kafka, directory, raw_even_events, LASTS, wait_for_all),
    )


def test_the_errors_of_the_third_window_are_those_of_the_kappa_that_the_second_ones_rows_say(
    quiet: Public, kafka: Broker, raw_even_events: str, tmp_path: Path
) -> None:
    """From the public topics alone, which do not show every row: about that kappa."""
    rows = [decode_row(value) for partition in quiet["histogram"].values() for _, value, _ in partition if value]
    errors = {
        number: {
            row.values["visits"].std_error
            for row in rows
            if (row.window, row.trigger) == (START + number * LENGTH * HOUR, LENGTH - 1)
        }
        for number in range(WINDOWS)
    }
    assert all(len(each) == 1 for each in errors.values())
    [first], [second], [third] = errors.values()
    assert first == second
    with Pipeline(kafka, tmp_path, raw_even_events, LASTS) as pipeline:
        settings = pipeline.settings
    plan = HistogramPipeline(settings).strategy.plan  # type: ignore[arg-type]
    at = [each.name for each in plan.columns].index("visits")
    of = [float(built(plan.at_persistence(kappa)).standard_errors()[LENGTH - 2, at]) for kappa in range(TENTHS + 1)]
    kappa = min(range(TENTHS + 1), key=lambda each: abs(of[each] - third))
    assert third == pytest.approx(of[kappa], rel=1e-4)
    assert first == pytest.approx(of[0], rel=1e-4)
    last = {
        number: {
            row.key: row.values["hosts"]
            for row in rows
            if (row.window, row.trigger) == (START + number * LENGTH * HOUR, LENGTH)
        }
        for number in range(WINDOWS)
    }
    newest = {
        number: {
            key: (found.estimate if found.smoothed is None else found.smoothed.estimate) for key, found in each.items()
        }
        for number, each in last.items()
    }
    large = {key for key, users in newest[1].items() if users >= LEAST_ROW}
    known = {key for key in large if newest[0].get(key, 0) >= REMEMBERS["keys"]["remember"]}
    assert len(large) > 30
    assert abs(kappa - 10 * len(known) / len(large)) < 2
    assert kappa > 0


@CRASH_POINTS
def test_a_worker_killed_where_kappa_is_used_first_changes_no_byte(
    kafka: Broker, raw_even_events: str, quiet: Public, tmp_path: Path, points: Sequence[str]
) -> None:
    with Pipeline(kafka, tmp_path, raw_even_events, merged(LASTS, CRASHING)) as pipeline:
        first, *others = points
        pipeline.crash(f"release.entering:{first}:3")  # both partitions have entered the second window
        pipeline.crash_everywhere("release.entering", 1, others)
        pipeline.start()
        wait_for_all(pipeline)
        assert pipeline.public() == quiet


def test_workers_with_empty_disks_in_the_third_window_change_no_byte(
    kafka: Broker, raw_even_events: str, quiet: Public, tmp_path: Path
) -> None:
    """kappa comes back from the changelog: one is killed behind the window's first commit, its successor has an empty disk."""
    with Pipeline(kafka, tmp_path, raw_even_events, merged(LASTS, CRASHING)) as pipeline:
        pipeline.crash("release.entering:after-commit:3")
        worker = pipeline.start(
            SUSURRUS_CRASH_AT="release.entering:after-offsets:1:SIGTERM",
            SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty-1"),
        )
        assert worker.process.wait(PATIENCE) == 0
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty-2"))
        wait_for_all(pipeline)
        assert pipeline.public() == quiet
