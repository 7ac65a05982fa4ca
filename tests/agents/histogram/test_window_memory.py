"""What operators see of a window's memory: the same in words and as JSON, and when it can do nothing yet."""

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.cli.status_json import status_json
from susurrus.agents.histogram.public_progress import PublicProgress
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.window_memory import as_json, limits, present_limits, sentence
from susurrus.agents.operations.explanation import facts_of
from susurrus.agents.operations.status import PipelineStatus
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.facts import NewestRelease, WindowMemory
from tests.agents.config.test_settings import changed
from tests.agents.histogram.test_public_progress import Topic
from tests.agents.histogram.test_remembered import Both, events_of, ours
from tests.agents.stages import born


def remembering(**sections: Any) -> HistogramSettings:
    given: dict[str, Any] = {
        "privacy": {"strategy": "closing"},
        "topics": {"bounded_partitions": 4},
        "window": {"length": "1d", "trigger_every": "15m"},
    }
    return HistogramSettings.of(changed(**(given | sections)))


def newest(remembered: int | None, persistence: float | None = 0.7) -> NewestRelease:
    memory = WindowMemory(window=0, remembered=remembered, persistence=persistence)
    return NewestRelease(interval=3, trigger=4, of_triggers=96, rows=100, memory=memory)


def test_the_numbers_are_the_same_in_words_and_as_json() -> None:
    settings = remembering(keys={"evidence_windows": 4})
    found = newest(31_204)
    assert as_json(settings, found) == {
        "window": "1970-01-01T00:00:00Z",
        "remembered_keys": 31_204,
        "persistence": 0.7,
        "evidence_windows": 4,
    }
    assert sentence(settings, found) == (
        "The window 1970-01-01T00:00:00Z has 31,204 keys of the one before it; kappa is 0.7, the part of an earlier window that "
        "had lasted; evidence over 4 windows."
    )
    assert present_limits(settings, found) == ""


def test_a_pipeline_without_memory_says_nothing() -> None:
    for settings in (remembering(keys={"remember": 0}), remembering(privacy={"strategy": "toeplitz"})):
        without = replace(newest(0), memory=None)
        assert as_json(settings, without) is None
        assert sentence(settings, without) == limits(settings) == ""
        assert present_limits(settings, without) == present_limits(settings, None) == ""
    evidence_alone = remembering(keys={"remember": 0, "evidence_windows": 2})
    assert sentence(evidence_alone, without) == "Evidence over 2 windows."
    assert as_json(evidence_alone, without) == {
        "window": None,
        "remembered_keys": None,
        "persistence": None,
        "evidence_windows": 2,
    }


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "the first window of an epoch has nothing of windows before it"),
        (newest(0, 0.0), "Its rows are what it has measured itself, as in the first window of an epoch"),
        (newest(1), "fewer than 40 keys for each of 4 partitions"),
        (newest(159), "fewer than 40 keys for each of 4 partitions"),
        (newest(160), ""),
        (newest(None), ""),
    ],
    ids=str,
)
def test_it_says_when_memory_can_do_nothing_yet(found: NewestRelease | None, says: str) -> None:
    sentence = present_limits(remembering(), found)
    assert bool(sentence) == bool(says)
    assert says in sentence


def test_status_says_it_in_a_line_and_as_json() -> None:
    pipeline = pipeline_of(remembering())
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=(), newest=newest(7))
    said = status_json(pipeline, found, facts_of(pipeline, found, now=0), (), [])
    assert json.loads(json.dumps(said["memory"])) == as_json(remembering(), newest(7))
    settings = remembering()
    assert pipeline.memory_sentences(newest(7)) == [sentence(settings, newest(7)), present_limits(settings, newest(7))]
    assert pipeline.memory_sentences(newest(1000)) == [sentence(settings, newest(1000))]
    assert pipeline_of(remembering(keys={"remember": 0})).memory_sentences(None) == []


def test_explain_says_from_when_on_memory_helps(tmp_path: Any) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        '[pipeline]\nname = "p"\n[input]\ntopic = "t"\nuser = "u"\nkey = ["k"]\n'
        "[privacy]\nepsilon = 6.0\ndelta = 1e-9\n[topics]\nbounded_partitions = 3\n"
    )
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    text = " ".join(runner.invoke(app, ["explain", "--config", str(path)]).stdout.split())
    assert "memory needs the first window of an epoch has nothing of windows before it" in text
    assert (
        "rows of one of the 3 partitions are drawn to the window before from 40 remembered keys there on, so from about 120"
        in text
    )
    path.write_text(path.read_text() + "[keys]\nremember = 0\n")
    assert "memory needs" not in runner.invoke(app, ["explain", "--config", str(path)]).stdout


def test_a_worker_that_starts_says_what_progress_said_before(tmp_path: Any) -> None:
    both = Both(tmp_path, ours(), events_of(1)).finish()
    topic = Topic()
    said = [value for runner in both.releases for *_, value, _ in runner.to("progress")]
    topic.records = said
    seen = PublicProgress(topic, "progress", both.services.calendar)  # type: ignore[arg-type]
    for number, runner in enumerate(both.releases):
        before = runner.stage.report()["gauges"]
        assert before["remembered_keys"] > 0
        again, _ = born(
            ReleaseStage,
            replace(both.services, public_progress=seen),
            runner.store,
            runner.meta,
            runner.position,
            partition=number,
        )
        assert again.report()["gauges"] == before
