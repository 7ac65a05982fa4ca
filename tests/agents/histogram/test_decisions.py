"""What `susurrus try` says of records that come next is what route then does, also where intervals are closed already."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import route as route_module
from susurrus.agents.histogram.clock import LOG_APPEND_TIME
from susurrus.agents.histogram.decisions import HistogramDecisions
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.runtime.begun import Begun
from susurrus.topics.records.reason import Reason
from susurrus.topics.sources import Run, SourceMap
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, WallClock, services_of

MINUTE = 60_000
LENGTH = 20 * MINUTE
START = WINDOW - WINDOW % LENGTH


def records(dice: random.Random) -> list[ReadRecord]:
    """Stamps rise, as brokers write them; event times lie behind them, some by more than a window."""
    found, stamp = [], START
    for offset in range(120):
        stamp += dice.choice([0, 1_000, MINUTE])
        time = stamp - dice.choice([0, 0, MINUTE, LENGTH, 3 * LENGTH])
        value = {"u": dice.choice(["ann", "bob", None]), "k": "x", "t": dice.choice([time, time, time, "soon"])}
        found.append(ReadRecord("raw", 0, offset, stamp, None, json.dumps(value).encode(), []))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_of_the_next_records_is_what_route_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    ours = HistogramSettings.of(
        settings(
            input={"topic": "raw", "user": "u", "key": ["k"], "time": "t"},
            window={"length": LENGTH, "trigger_every": 5 * MINUTE, "allowed_lateness": 0},
            start={"first_window": START},
            clock={"kind": "broker", "grace": 0},
            bounds={"max_records_per_user": 1_000, "max_records_per_key": 1_000},
        )
    )
    clock = WallClock()
    monkeypatch.setattr(route_module, "time", clock)
    some = records(dice)
    clock.now = some[-1].timestamp
    services = services_of(ours, sources=1)
    runner = Runner(RouteStage, services, tmp_path)
    log: list[Any] = [SimpleNamespace(**one._asdict(), timestamp_type=LOG_APPEND_TIME) for one in some]
    cut = dice.randrange(20, 80)
    runner.feed(log, cut)
    runner.commit(now=START)
    report = runner.stage.report()
    begun = Begun(
        first_window=START,
        sources=SourceMap((Run("raw", 0, 1),)),
        starts={},
        joined={},
        closed={0: (cut, report["interval"])},
    )
    types = np.full(len(some), LOG_APPEND_TIME, np.int64)
    said = HistogramDecisions(ours).decide(ours.input, some, types, now=clock.now, begun=begun)
    assert said.late is not None
    done: list[tuple[str, bool]] = []
    for offset in range(cut, len(some)):
        before = dict(runner.stage.counters)
        runner.feed(log, offset + 1)
        after = runner.stage.counters
        [became] = [name for name in ("routed", "late", "dead_letter") if after[name] > before[name]]
        done.append((became, became == "late"))
    wanted = [
        ("dead_letter" if why != Reason.OK else "late" if late else "routed", bool(late))
        for why, late in zip(said.reason[cut:].tolist(), said.late[cut:].tolist(), strict=True)
    ]
    assert {became for became, _ in done} == {"routed", "late", "dead_letter"}
    # Intervals close further while the next ones come: more may be late than is known now, and nothing less.
    assert all(one == two for one, two in zip(done, wanted, strict=True) if two[0] != "routed")
    assert all(one[0] in ("routed", "late") for one, two in zip(done, wanted, strict=True) if two[0] == "routed")
    runner.close()


def test_one_key_for_all_records_is_no_part_that_could_be_to_blame() -> None:
    total = HistogramDecisions(HistogramSettings.of(settings(input={"topic": "raw", "user": "u", "key": []})))
    assert [part.setting for part in total.parts()] == ['input.user = "u"']
