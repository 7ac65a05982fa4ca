"""The campaign can fail: differences are counted, ended workers are started again, every kind of event gets its turn."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import campaign
import campaign_events
import campaign_versions
import pytest
from campaign_events import EVENTS, Crew, World, schedule, wipe
from campaign_pipelines import TARGETS, Compared, Feeder, Histogram, compare, until_window
from campaign_versions import Outcome
from rich.console import Console

from susurrus.agents.broker.artefacts import kafka_version
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.wire.timestamps import format_time
from tests.broker import wait_for
from tests.pipeline import DEFAULTS, Public, merged

ROW = (b'{"window":"2026-01-01T00:00:00Z"}', b"value", 7)
SIZE = len(ROW[0]) + len(ROW[1]) + 8


def test_equal_outputs_differ_in_no_byte() -> None:
    public = {"histogram": {0: [ROW, ROW], 1: []}}
    assert compare(public, {"histogram": {0: [ROW, ROW]}}) == Compared("bytes", 2 * SIZE, 0)
    gone: Public = {"latest": {0: [(ROW[0], None, 7)]}}  # a tombstone
    assert compare(gone, gone) == Compared("bytes", len(ROW[0]) + 8, 0)


@pytest.mark.parametrize(
    "other",
    [
        {0: [ROW, (ROW[0], b"other", 7)]},
        {0: [ROW, (*ROW[:2], 8)]},
        {0: [ROW, (ROW[0], None, 7)]},
        {0: [ROW]},
        {0: [ROW], 1: [ROW]},
        {},
    ],
)
def test_another_value_stamp_place_or_number_of_records_differs(
    other: dict[int, list[tuple[bytes, bytes | None, int]]],
) -> None:
    for wanted, found in [({0: [ROW, ROW]}, other), (other, {0: [ROW, ROW]})]:
        assert compare({"histogram": wanted}, {"histogram": found}).different >= SIZE


def test_a_version_of_kafka_is_sound_if_all_was_compared_and_nothing_differs() -> None:
    same, other, nothing = Compared("bytes", 9, 0), Compared("bytes", 9, 1), Compared("bytes", 0, 0)
    assert Outcome("3.6.2", same, same).sound
    for killed, first in [(other, same), (same, other), (nothing, same), (same, nothing), (None, None)]:
        assert not Outcome("3.6.2", killed, first).sound
    assert not Outcome("3.6.2", same, same, error="TimeoutError: late").sound


def test_the_versions_are_the_oldest_the_default_and_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the pages name them."""
    monkeypatch.delenv("SUSURRUS_KAFKA_VERSION", raising=False)
    versions = campaign_versions.matrix()
    assert versions == [campaign_versions.OLDEST, kafka_version(), campaign_versions.NEWEST]
    assert versions == sorted(versions, key=lambda version: [int(part) for part in version.split(".")])
    for page in ("operations.md", "known-limits.md"):
        text = (Path(campaign_versions.__file__).parents[1] / "docs" / page).read_text()
        assert all(version in text for version in versions), page


def test_a_version_that_does_not_start_or_differs_fails_the_campaign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = Compared("bytes", 9, 0)
    results = {
        "1.0": Outcome("1.0", same, same),
        "2.0": Outcome("2.0", same, Compared("bytes", 9, 1)),
        "3.0": Outcome("3.0", error="KafkaUnavailableError: no such version"),
    }
    monkeypatch.setattr(campaign_versions, "play", lambda version, *_: (results[version], {}))
    console = Console(width=120)
    assert campaign_versions.run_versions(["1.0"], tmp_path, console)
    assert not campaign_versions.run_versions(["1.0", "2.0"], tmp_path, console)
    assert not campaign_versions.run_versions(["3.0"], tmp_path, console)
    told = capsys.readouterr().out
    assert "Kafka 2.0: DIFFERS" in told
    assert "Kafka 3.0: KafkaUnavailableError: no such version" in told


def test_windows_that_were_still_open_are_left_out() -> None:
    first, last, open_yet = (f'{{"window":"{format_time(at)}"}}'.encode() for at in (0, 60_000, 120_000))
    public = {"progress": {0: [(key, b"v", 0) for key in (first, last, open_yet)]}}
    assert [key for key, *_ in until_window(public, 60_000)["progress"][0]] == [first, last]


def test_events_are_the_seed_s_and_every_kind_as_often() -> None:
    kinds = list(EVENTS)
    order = schedule(kinds, 100, Random("1"))
    assert order == schedule(kinds, 100, Random("1")) != schedule(kinds, 100, Random("2"))
    assert set(Counter(order).values()) <= {14, 15}
    assert len(order) == 100


def test_a_result_is_sound_only_if_something_was_compared_and_nothing_differs() -> None:
    result = campaign.Result("toeplitz")
    for compared, sound in [(None, False), (("bytes", 0, 0), False), (("bytes", 9, 1), False), (("bytes", 9, 0), True)]:
        result.compared = None if compared is None else Compared(*compared)
        assert result.sound is sound
    result.error = "TimeoutError: it has not finished"
    assert not result.sound


def test_an_unknown_pipeline_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        campaign.parse(["--only", "toeplitz,laplace"])
    assert "no such pipeline: laplace" in capsys.readouterr().err
    assert campaign.parse([]).only == [*TARGETS, campaign.VERSIONS, campaign.TESTS]


HISTOGRAMS = [name for name, kind in TARGETS.items() if issubclass(kind, Histogram)]


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_every_histogram_of_the_campaign_has_a_valid_configuration(name: str, tmp_path: Path) -> None:
    prefixes = (f"t{number}" for number in count())
    brokers: Any = SimpleNamespace(new_prefix=lambda: next(prefixes), create_topic=lambda topic, *_: topic)
    target: Any = TARGETS[name](World(brokers), tmp_path, "1/feed", 300)
    data = merged(merged(DEFAULTS, {"input": {"topic": target.raw}}), target.configuration())
    settings = settings_from(data | {"kafka": {"bootstrap_servers": "localhost:9092"}}, environ={})
    plan = settings.plan()
    build_strategy(plan)
    assert plan.strategy == {
        "avro": "toeplitz",
        "ranking": "toeplitz",
        "two-topics": "toeplitz",
        "no-last-look": "closing",
    }.get(name, name)
    assert settings.clock.kind == "broker"
    assert settings.topics.replication_factor == 3


class Short:
    """A worker that ends at once with an exit code, and one after it that stays."""

    def __init__(self, code: str, log: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", code])
        self.log = log

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    codes = iter(["import sys; sys.exit(74)"])

    started: list[Short] = []

    def start(**environ: str) -> Short:
        log = tmp_path / f"worker-{len(started)}.log"
        pure = environ.get("SUSURRUS_COMPILED") == "0"
        log.write_text("the hot loops run in pure Python\n" if pure else "the hot loops are compiled\n")
        started.append(Short(next(codes, "import time; time.sleep(600)"), log))
        return started[-1]

    monkeypatch.setattr(campaign_events, "RESTART_SECONDS", 0.01)
    monkeypatch.setattr(campaign_events, "pipeline_of", lambda settings: SimpleNamespace(stages=[]))
    monkeypatch.setattr(campaign_events.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    pipeline: Any = SimpleNamespace(directory=tmp_path, settings=None, start=start, workers=started)
    with Crew(pipeline, 1) as crew:
        yield crew


def test_the_keeper_starts_a_worker_again_that_has_ended_and_remembers_why(crew: Crew) -> None:
    wait_for(lambda: crew.ended[74] == 1 and crew.places[0].worker.process.poll() is None, "a second worker runs")
    assert not crew.can_fill  # nothing could be mounted


def test_a_place_has_compiled_loops_and_none_by_turns(crew: Crew) -> None:
    wait_for(lambda: crew.ended[74] == 1 and crew.places[0].worker.process.poll() is None, "a second worker runs")
    assert crew.loops() == {"compiled": 1, "pure": 1}
    crew.places[0].kill()
    wait_for(lambda: sum(crew.loops().values()) == 3, "a third one runs")
    assert crew.loops() == {"compiled": 2, "pure": 1}


def test_a_wiped_disk_is_empty_and_its_worker_another_one(crew: Crew) -> None:
    wait_for(lambda: crew.ended[74] == 1, "the first worker has ended")
    (place,) = crew.places
    before = place.worker
    (place.directory / "state").mkdir()
    (place.directory / "state" / "000001.sst").write_bytes(b"x")
    nothing: Any = None
    wipe(crew, World(nothing), Random(1))
    assert list(place.directory.iterdir()) == []
    assert before.process.poll() is not None
    assert place.worker is not before


def test_many_odd_records_are_read_by_a_campaign_that_has_the_time_alone() -> None:
    assert "fuzz" in campaign.wanted(float("inf"))
    assert campaign.wanted(20) == "campaign or statistical"


def test_what_goes_wrong_while_feeding_is_reported() -> None:
    def feed() -> None:
        raise KeyError("a full queue")

    feeder = Feeder(feed)
    wait_for(lambda: not feeder._thread.is_alive(), "it has failed")
    with pytest.raises(KeyError, match="a full queue"):
        feeder.close()
