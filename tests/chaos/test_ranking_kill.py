"""A ranking on a broker: that of the published rows, once, and the same bytes whoever is killed and wherever."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.runtime.crash_points import POINTS
from susurrus.releases import releases
from susurrus.topics import histogram, top
from tests.broker import Broker, wait_for
from tests.chaos.test_restored import command, wait_until_alone
from tests.pipeline import CRASHING, SEEDS, Pipeline, Public, merged

pytestmark = pytest.mark.chaos

TOP: dict[str, Any] = {"top": {"order_by": "count", "limit": 5, "having": ["count > 20"]}}
TOPICS = ("histogram", "top")


def wait_for_ranking(pipeline: Pipeline) -> Public:
    """Until the window's last trigger has been ranked."""
    settings = pipeline.settings
    found: list[int] = []
    with pipeline.broker.following(settings.topic("top")) as more:

        def final() -> bool:
            found.extend(top.decode(message.value()).trigger for message in more())
            return settings.triggers in found

        wait_for(final, "the last trigger is ranked")
    return pipeline.public(TOPICS)


@pytest.fixture(scope="module")
def undisturbed_pipeline(
    kafka: Broker, raw: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Settings, Public]]:
    """Its settings, and what it published."""
    with Pipeline(kafka, tmp_path_factory.mktemp("peace"), raw, TOP) as pipeline:
        pipeline.start()
        yield pipeline.settings, wait_for_ranking(pipeline)


@pytest.fixture(scope="module")
def peace(undisturbed_pipeline: tuple[Settings, Public]) -> Public:
    return undisturbed_pipeline[1]


def test_the_readers_ranking_is_that_of_the_topic(undisturbed_pipeline: tuple[Settings, Public]) -> None:
    settings, public = undisturbed_pipeline
    records = {(record.window, record.trigger): record for record in (top.decode(v) for _, v, _ in public["top"][0])}
    read = [release.top() for release in releases(settings, follow=False)]
    assert len(read) >= 24
    for release in read:
        record = records[release.window_start, release.trigger]
        counts = release.columns["count"].estimate.tolist()
        assert [(row.key, row.values["count"].estimate) for row in record.rows] == list(
            zip(release.keys, counts, strict=True)
        )
        assert record.ranking == str(release.ranking)


def test_every_trigger_is_ranked_once_by_its_published_rows(peace: Public) -> None:
    rows: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for partition in peace["histogram"].values():
        for _, value, _ in partition:
            row = histogram.decode_row(value)
            rows[row.window_start, row.trigger].append(row)
    assert len(peace["histogram"]) > 1
    records = [top.decode(value) for _, value, _ in peace["top"][0]]
    assert [(record.window_start, record.trigger) for record in records[:24]] == [
        ("1995-08-01T00:00:00Z", trigger) for trigger in range(1, 25)
    ]
    for record in records:
        published = [row for row in rows[record.window_start, record.trigger] if row.values["count"].estimate > 20]
        published.sort(key=lambda row: (-row.values["count"].estimate, row.key))
        assert [(row.key, row.values) for row in record.rows] == [(row.key, row.values) for row in published[:5]]
        assert [row.rank for row in record.rows] == list(range(1, len(record.rows) + 1))
    assert max(len(record.rows) for record in records) == 5


@pytest.mark.parametrize("stage", ["rank", pytest.param("release", marks=pytest.mark.campaign)])
def test_a_worker_killed_between_every_two_steps_changes_no_byte(
    kafka: Broker, raw: str, peace: Public, tmp_path: Path, stage: str
) -> None:
    with Pipeline(kafka, tmp_path, raw, merged(TOP, CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 2, POINTS)
        pipeline.start()
        assert wait_for_ranking(pipeline) == peace


@pytest.mark.thorough
def test_a_pipeline_gets_a_ranking_with_a_new_epoch(kafka: Broker, raw: str, tmp_path: Path) -> None:
    """And two workers share its tasks, one of which leaves."""
    with Pipeline(kafka, tmp_path, raw) as pipeline:
        worker = pipeline.start()
        pipeline.wait(trigger=4)
        assert worker.stop() == 0, worker.tail()
        pipeline.data = merged(pipeline.data, TOP)
        pipeline.data["start"]["epoch"] = "ab" * 16
        pipeline.write_config()
        create_topics(pipeline.settings, kafka.admin())
        wait_until_alone(pipeline)
        said = command(pipeline, "--yes", "--first-window", "current", "--from", "earliest")
        assert said.returncode == 0, said.stderr
        first, second = pipeline.start(), pipeline.start()
        wait_for(lambda: kafka.read_all(pipeline.settings.topic("top")), "something is ranked")
        assert first.stop() == 0, first.tail()
        records = [top.decode(value) for _, value, _ in wait_for_ranking(pipeline)["top"][0]]
        assert second.process.poll() is None
    places = [(record.window, record.trigger) for record in records]
    assert len(set(places)) == len(places)
    assert len({record.epoch for record in records}) == 1
    assert [trigger for window, trigger in places if window == places[0][0]] == list(range(1, 25))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_workers_replaced_with_empty_disks_change_no_byte(
    kafka: Broker, raw: str, peace: Public, tmp_path: Path, seed: int
) -> None:
    with Pipeline(kafka, tmp_path, raw, TOP) as pipeline:
        pipeline.replace_at_random(Random(seed), 3.0)
        assert wait_for_ranking(pipeline) == peace
