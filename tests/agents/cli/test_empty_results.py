"""Every cause of an empty result happens once on a real broker, and `susurrus status` names it first."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from susurrus.agents.cli.main import app
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.local_pipeline import local_pipeline
from tests.pipeline import Pipeline, archive_topic, merged, produce
from tests.stream_pipeline import TOPS, stream_pipeline

WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
MINUTE = 60_000
ARCHIVE: dict[str, Any] = {
    "clock": {"until": format_time(WINDOW + 60 * MINUTE)},
    "window": {"length": "30m", "trigger_every": "15m"},
    "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
}
LIVE: dict[str, Any] = {
    "start": {"from": "latest", "first_window": None},
    "clock": {"kind": "producer", "until": None, "idle_grace": "1s"},
    "window": {"length": "10d", "trigger_every": "10d", "origin": "2020-01-01T00:00:00Z"},
    "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
}


def command(pipeline: Pipeline, *arguments: str, width: int = 80, **options: Any) -> Result:
    name, *others = arguments
    return CliRunner().invoke(
        app, [name, "--config", str(pipeline.config), *others], env={"COLUMNS": str(width), "TERM": "dumb"}, **options
    )


def status(pipeline: Pipeline, code: int = 0) -> tuple[dict[str, Any], str]:
    """As JSON, and as people read it at 80 columns, in one line."""
    found = command(pipeline, "status", "--json")
    shown = command(pipeline, "status")
    print(shown.output)
    assert (found.exit_code, shown.exit_code) == (code, code), shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    return json.loads(found.stdout), " ".join(shown.output.split())


def number(found: dict[str, Any], outcome: str) -> int | None:
    return next(row["number"] for row in found["records"]["outcomes"] if row["outcome"] == outcome)


def event(n: int, **fields: Any) -> bytes:
    return json.dumps({"host": f"u{n}", "url": f"/{n % 3}", "status": 200, **fields}).encode()


def archive(
    values: Iterable[bytes | None], at: int = WINDOW, partition: int = 0
) -> list[tuple[int, bytes | None, int]]:
    return [(partition, value, at + n) for n, value in enumerate(values)]


LOST: dict[str, tuple[str, str, dict[str, Any], list[tuple[int, bytes | None, int]], str]] = {
    "late": (
        "late",
        "late",
        {"input": {"time": "at"}},
        archive((event(n, at=WINDOW + n) for n in range(200)), WINDOW + 40 * MINUTE),
        "Too late for their window: all 200 records read.",
    ),
    "dead letters": (
        "dead-letters",
        "dead letters",
        {},
        archive(b"GET /index.html 200" for _ in range(200)),
        "The commonest reason, 100 % of the newest 200, is NOT_JSON: the value is not one JSON value.",
    ),
    "filtered": (
        "filtered",
        "filtered",
        {"input": {"where": "status = 500"}},
        archive(event(n) for n in range(200)),
        "input.where leaves out all 200 records read. The condition is (status = 500).",
    ),
    "capped": (
        "caps",
        "capped",
        {},
        archive(event(0, url=f"/{n}") for n in range(400)),
        "The caps leave out 384 of 400 records read (96.0 %). Of one user and window 16 records",
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_records_that_do_not_count(case: str, kafka: Broker, tmp_path: Path) -> None:
    cause, outcome, overrides, events, sentence = LOST[case]
    raw = archive_topic(kafka, 1)
    produce(kafka, raw, events)
    with Pipeline(kafka, tmp_path, raw, merged(ARCHIVE, overrides)) as pipeline:
        pipeline.start()
        pipeline.wait(windows=2)
        pipeline.wait_for_total(len(events), "late", "dead_letter", "filtered", "capped", "kept")
        found, text = status(pipeline)
    first = found["findings"][0]
    assert first["subject"] == cause
    assert sentence in text
    assert first["number"] == number(found, outcome)
    assert number(found, "read") == len(events)
    assert number(found, "waiting") == 0
    if case != "capped":
        assert (first["number"], first["share"]) == (len(events), 1.0)
    else:
        assert "With max_records_per_user = 32:" in text


def test_keys_that_too_few_users_share(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 1)
    produce(kafka, raw, archive(event(n, url="/a") for n in range(8)))
    with Pipeline(kafka, tmp_path, raw, merged(ARCHIVE, {"keys": {"declared": ["/known"]}})) as pipeline:
        pipeline.start()
        pipeline.wait(windows=2)
        pipeline.wait_for_total(8, "kept")
        pipeline.wait_for_total(8, "triggers")  # two windows with two triggers, on two partitions
        found, text = status(pipeline)
        assert pipeline.workers[0].stop() == 0
        wait_for(lambda: "was stopped" in pipeline.trouble(), "the group is empty")
        stopped, _ = status(pipeline, code=1)
    assert stopped["findings"] == found["findings"]  # all that is due has been released, so nothing waits for a worker
    [finding] = found["findings"]
    assert finding["subject"] == "thresholds"
    assert "The newest release, trigger 2 of 2, has no key that was found in the data, beside 1 declared." in text
    assert "Keys appear from about this many users on:" in text
    assert "Only 8 records are counted at all" in text
    assert "keys.declared" in finding["action"]
    assert found["records"]["released"] == {"triggers": 8, "rows": 4}


def test_records_before_the_start_and_a_release_that_is_not_due(kafka: Broker, tmp_path: Path) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 2)
    produce(kafka, raw, ((n % 2, event(n), None) for n in range(300)))
    with Pipeline(kafka, tmp_path, raw, LIVE) as pipeline:
        found, text = status(pipeline, code=1)
        assert [finding["subject"] for finding in found["findings"]] == ["start"]
        assert f"The 300 records that are in topic {raw} will not be read." in text
        assert 'from = "earliest"' in text
        pipeline.start()
        wait_for(lambda: pipeline.trouble() == "", "every task runs")
        wait_for(lambda: {"in", "kept", "rows"} <= set(pipeline.counters()), "every task has reported its totals")
        found, text = status(pipeline)
        first, second = found["findings"]
        assert (first["subject"], first["number"], first["share"]) == ("start", 300, 1.0)
        assert "before the start and are not read, and none has come since." in text
        assert 'name = "web-2"' in first["action"]
        assert found["records"]["before_start"] == 300
        assert second["subject"] == "not-due"
        produce(kafka, raw, ((n % 2, event(n), None) for n in range(700)))
        pipeline.wait_for_total(700, "routed")
        found, text = status(pipeline)
    assert [(f["subject"], f["number"]) for f in found["findings"]] == [("not-due", 700), ("start", 300)]
    assert "700 records wait for it." in text
    assert number(found, "waiting") == 700


def test_a_tick_that_is_missing(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    produce(kafka, raw, archive(event(n) for n in range(100)))
    unsorted = [(1, event(1), WINDOW + MINUTE), (1, event(2), WINDOW)]
    produce(kafka, raw, unsorted)
    with Pipeline(kafka, tmp_path, raw, ARCHIVE) as pipeline:
        worker = pipeline.start()
        pipeline.wait_for_total(100, "routed")
        wait_for(lambda: "refused" in pipeline.trouble(), "route 1 refuses")
        found, text = status(pipeline, code=1)
        [finding] = found["findings"]
        assert (finding["subject"], finding["number"]) == ("missing-tick", 102)  # with the two that route 1 cannot read
        assert "The release of 1995-08-01T00:15:00Z waits for route 1." in text
        assert "needs every partition sorted by time" in finding["why"]
        assert worker.stop() == 0, worker.tail()
        wait_for(lambda: "was stopped" in pipeline.trouble(), "the group is empty")
        found, text = status(pipeline, code=1)
        assert [finding["subject"] for finding in found["findings"]] == ["missing-tick"]
        assert "waits for route 0, 1. 102 records wait for it. route 0: its worker was stopped; route 1:" in text


def test_streams_and_reports_that_are_in_their_holdout(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 1)
    values = [json.dumps({"meter": n % 4, "reading": {"watts": 10.0}}).encode() for n in range(200)]
    produce(kafka, raw, [*archive(values), (0, b"not JSON", WINDOW)])
    with stream_pipeline(kafka, tmp_path, raw, TOPS) as pipeline:
        pipeline.start()
        pipeline.wait_for_total(201, "in")
        found, text = status(pipeline)
    assert [finding["subject"] for finding in found["findings"]] == ["holdout"]
    assert "200 records in 4 streams have come, 50 for each on average." in text
    assert [number(found, name) for name in ("read", "kept", "dead letters")] == [201, 200, 1]
    with local_pipeline(kafka, tmp_path) as pipeline:
        produce(kafka, pipeline.settings.topic("reports"), [(0, b"no report", int(time.time() * 1000))] * 20)
        pipeline.start()
        pipeline.wait_for_total(20, "dead_letter")
        found, text = status(pipeline)
    assert found["findings"][0]["subject"] == "dead-letters"
    assert "NOT_A_REPORT" in text
    assert "0 of 6,000 reports of phase 1 have come" in text
