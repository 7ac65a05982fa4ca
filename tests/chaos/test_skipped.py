"""A budget that renews, on a broker: the same windows are skipped whoever is killed, and two pipelines share one period."""

from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.budget import Charges, spans_of
from susurrus.mechanisms.periods import Periods
from susurrus.mechanisms.spend import Budget
from susurrus.releases import releases
from susurrus.topics import histogram, ledger, progress
from susurrus.topics.charges import Charge
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.pipeline import CRASHING, THREE_POINTS, Pipeline, merged

pytestmark = pytest.mark.chaos

HOUR = 3_600_000
WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
STARTS = [WINDOW + n * 6 * HOUR for n in range(4)]
ROOM_FOR_ONE: dict[str, Any] = {
    "window": {"length": "6h", "trigger_every": "3h"},
    "budget": {"epsilon": 6.0, "delta": 1e-9, "per": "12h"},
    "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
}
"""Twelve hours touch three windows, and one has room: the first and the fourth of a day."""


def decided(pipeline: Pipeline) -> dict[int, bool]:
    """By the ledger: window -> whether it begins."""
    found = {}
    for message in pipeline.broker.read_all(pipeline.settings.topic("ledger")):
        record = ledger.decode(message.key(), message.value())
        if isinstance(record, ledger.WindowDecision):
            assert found.setdefault(record.window, record.begun) is record.begun, "nothing is decided twice"
    return found


def said(pipeline: Pipeline) -> set[tuple[int, bool]]:
    """By the topic of progress: (window, whether it is skipped)."""
    records = [progress.decode(m.value()) for m in pipeline.broker.read_all(pipeline.settings.topic("progress"))]
    return {(record.window, record.skips) for record in records}


def log_of(pipeline: Pipeline) -> list[Charge]:
    """The charges on its raw topic that stand."""
    clients = clients_of(pipeline.settings, quiet=True)
    try:
        return Charges(pipeline.settings, clients).read(complete=True)
    finally:
        clients.close()


def charged(pipeline: Pipeline) -> list[int]:
    """The windows of this pipeline that are charged."""
    return sorted(one.window for one in log_of(pipeline) if one.pipeline == pipeline.settings.application)


def released(pipeline: Pipeline) -> set[str]:
    rows = [histogram.decode_row(m.value()) for m in pipeline.broker.read_all(pipeline.settings.topic("histogram"))]
    return {row.window_start for row in rows}


def test_windows_without_room_are_skipped_in_the_same_way_whoever_is_killed(
    kafka: Broker, raw: str, tmp_path: Path
) -> None:
    with Pipeline(kafka, tmp_path, raw, ROOM_FOR_ONE) as pipeline:
        pipeline.start()
        pipeline.wait(windows=2)
        undisturbed = pipeline.public()
        assert decided(pipeline) == {STARTS[0]: True, STARTS[1]: False, STARTS[2]: False, STARTS[3]: True}
        assert charged(pipeline) == [STARTS[0], STARTS[3]]
        assert format_time(STARTS[3]) in released(pipeline) <= {format_time(STARTS[0]), format_time(STARTS[3])}
        assert said(pipeline) == {(STARTS[0], False), (STARTS[1], True), (STARTS[2], True), (STARTS[3], False)}
        wait_for(lambda: pipeline.counters()["skipped"] >= 2, "what release has skipped")
        found = collect(pipeline_of(pipeline.settings))
        assert found.account is not None
        assert found.account.period is not None
        everything = [(one.window_start, one.trigger) for one in releases(pipeline.settings, follow=False)]
        assert everything == [(start, trigger) for start in (STARTS[0], STARTS[3]) for trigger in (1, 2)]
        assert list(releases(pipeline.settings, window=STARTS[1])) == [], "it ends, though nothing final comes"
    with Pipeline(kafka, tmp_path, raw, merged(ROOM_FOR_ONE, CRASHING)) as killed:
        killed.crash("release:after-commit:1")  # charged, and not decided
        killed.crash_everywhere("release.decision", 1, THREE_POINTS)  # the first window begins, the second is skipped
        killed.crash("release.decision:after-offsets:1")
        killed.crash("release.decision:after-commit:1")  # the third is skipped, and nothing else knows yet
        killed.start()
        killed.wait(windows=2)
        assert killed.public() == undisturbed
        assert charged(killed) == [STARTS[0], STARTS[3]]


def test_two_pipelines_that_begin_at_once_share_one_period(kafka: Broker, raw: str, tmp_path: Path) -> None:
    """Of one name, under two prefixes: the order of the cluster's log decides, and together they stay within the total."""
    cluster = merged(ROOM_FOR_ONE, {"topics": {"charges": f"{kafka.new_prefix()}.charges"}})
    first, second = (Pipeline(kafka, tmp_path, raw, cluster) for _ in range(2))
    with first, second:
        with first.held(), second.held():
            pass
        for pipeline in (first, second):
            wait_until_decided(pipeline)
        begun = [start for one in (first, second) for start, begins in decided(one).items() if begins]
        assert begun
        spans = spans_of(log_of(first))
        assert sorted(span.begin for span in spans) == sorted(begun), "who lost has withdrawn"
        worst = Periods(Budget(epsilon=6.0, delta=1e-9), 12 * HOUR).worst(spans)
        assert worst is not None
        assert Budget(epsilon=6.0, delta=1e-9).allows(worst[1])
        assert first.settings.pipeline.name == second.settings.pipeline.name
        assert first.settings.pipeline.prefix != second.settings.pipeline.prefix


def wait_until_decided(pipeline: Pipeline) -> None:
    wait_for(lambda: len(decided(pipeline)) == len(STARTS), f"decisions of {pipeline.settings.pipeline.name}")
