"""What would become of reports: as collect decides it, packed and in a format; and what is closed, as far as the ledger says it."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.local import collect as collect_module
from susurrus.agents.local.decisions import LocalDecisions
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.operations.trying import Trial, try_records
from susurrus.agents.runtime.begun import Begun
from susurrus.mechanisms.local.window import GRID
from susurrus.topics.reports import encode_one
from susurrus.topics.sources import Run, SourceMap
from tests.agents.local.test_collect import BOUND, EPSILON, INTERVAL, Clients, collect
from tests.agents.local.test_collect import fates as collected
from tests.agents.operations.raw_records import fates
from tests.agents.stages import WINDOW, WallClock
from tests.golden.make_digests import other

NOW = WINDOW + 10 * INTERVAL
CODE = GRID
"""One that phase 2 may draw under the third threshold, and not under others."""
STAMP = WINDOW + INTERVAL // 2


class NoThresholds(Clients):
    """No topic of thresholds yet."""

    def partitions(self, topic: str) -> int:
        return 0

    def read(self, topic: str, start: int = 0, *, group: str, complete: bool = True) -> Any:
        raise AssertionError("there is nothing to read")


class WithThresholds(Clients):
    """Thresholds of which the topic is there."""

    def partitions(self, topic: str) -> int:
        return 1


def settings(first_window: int | None = WINDOW, **source: Any) -> LocalSettings:
    return LocalSettings.of(
        other(
            "local",
            {"bound": BOUND, "epsilon": EPSILON, "interval": INTERVAL},
            topics={"by_user_partitions": 1},
            window={"length": "1h", "trigger_every": "1m"},
            input=source,
            **({} if first_window is None else {"start": {"first_window": first_window}}),
        )
    )


def tried(
    ours: LocalSettings,
    payloads: Sequence[bytes | None],
    begun: Begun | None = None,
    clients: Clients | None = None,
    stamp: int = STAMP,
) -> Trial:
    topic = ours.input.topic
    some = [ReadRecord(topic, 0, n, stamp, None, value, []) for n, value in enumerate(payloads)]
    decisions = LocalDecisions(ours, clients or WithThresholds(3))  # type: ignore[arg-type]
    return try_records(decisions, ours.input, some, np.zeros(len(some), np.int64), now=NOW, begun=begun)


def phase_2(interval: int, version: int = 3) -> bytes:
    return encode_one(phase=2, threshold_version=version, interval=WINDOW + interval * INTERVAL, code=CODE)


def odd(chance: random.Random) -> bytes | None:
    kind = chance.random()
    fields = {
        "phase": chance.choice([1, 2, 2, 2]),
        "threshold_version": chance.choice([0, 1, 2, 3, 9]),
        "interval": WINDOW + chance.choice([-2, 0, 0, 1, 2, 9_000]) * INTERVAL,
        "code": chance.choice([CODE, CODE, 1, 2**62, chance.randrange(2**20)]),
    }
    if kind < 0.4:
        return encode_one(**fields)
    if kind < 0.6:
        return json.dumps(fields).encode()
    if kind < 0.7:
        return json.dumps({**fields, chance.choice(list(fields)): chance.choice([None, "x", -1, 2**80])}).encode()
    return None if kind < 0.8 else chance.randbytes(chance.choice([5, 23]))


def test_odd_reports_are_decided_as_collect_decides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(33)
    payloads = [odd(chance) for _ in range(600)]
    clock = WallClock()
    clock.now = NOW
    monkeypatch.setattr(collect_module, "time", clock)
    runner = collect(tmp_path)
    letters, *_ = collected(runner, payloads, [len(payloads)], [STAMP] * len(payloads))
    trial = tried(settings(), payloads)
    counted: dict[str, int] = {}
    for why in letters.values():
        counted[why] = counted.get(why, 0) + 1
    assert len(counted) > 4
    assert {fate.reason.name: fate.number for fate in trial.refused} == counted
    assert trial.number("kept") == len(payloads) - len(letters)


def test_before_a_pipeline_has_begun_there_are_no_thresholds() -> None:
    first = encode_one(phase=1, threshold_version=0, interval=WINDOW, code=1)
    trial = tried(settings(None), [first, phase_2(0)], clients=NoThresholds(0))
    assert fates(trial) == [("kept", "OK", "", 1), ("dead letter", "WRONG_THRESHOLD", "", 1)]
    assert "the pipeline has not begun" in trial.undecided[0]


def test_what_is_closed_is_late_for_reports_that_are_not_taken_yet() -> None:
    ours = settings(None)
    calendar = ours.calendar
    begun = Begun(
        first_window=WINDOW,
        created=WINDOW,
        sources=SourceMap((Run(ours.input.topic, 0, 1),)),
        starts={},
        joined={},
        # As the stage reports it where the intervals of reports up to 4 are closed.
        closed={0: (2, calendar.interval_at(WINDOW + 5 * INTERVAL) - 1)},
    )
    trial = tried(ours, [phase_2(-1), phase_2(0), phase_2(4), phase_2(5)], begun, stamp=NOW)
    assert [(fate.outcome, fate.reason.name, [place.offset for place in fate.examples]) for fate in trial.fates] == [
        ("kept", "OK", [1, 3]),
        ("dead letter", "LATE", [0, 2]),
    ]
    assert trial.fates[1].setting == "local.lateness"
