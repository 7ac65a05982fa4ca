"""A clock that is registered in one line checks its settings, is documented, and closes intervals in route."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from susurrus.agents.cli.reference import _type_name
from susurrus.agents.histogram.clock import CLOCKS, CREATE_TIME, LOG_APPEND_TIME, HistogramClockSettings
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from tests.agents.released import settings
from tests.agents.stages import WINDOW, MemoryClients, Runner, services_of
from tests.toys.clock import Doubtful

GRACE, HOUR = 5_000, 3_600_000


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLOCKS, Doubtful.kind, Doubtful)


def configured(**clock: object) -> HistogramSettings:
    start = {"from": "earliest", "first_window": WINDOW}
    return HistogramSettings.of(settings(start=start, clock={"kind": Doubtful.kind, "grace": GRACE, **clock}))


def test_its_settings_are_checked() -> None:
    with pytest.raises(ConfigurationError, match=r'clock.until: has no meaning for clock.kind = "doubtful"'):
        configured(until=WINDOW + HOUR)
    with pytest.raises(ConfigurationError, match=r'clock.grace: with clock.kind = "doubtful" use at most half'):
        configured(idle_grace="9s")
    with pytest.raises(ConfigurationError, match="use 'broker', 'producer', 'replay' or 'doubtful'"):
        configured(kind="doubting")


def test_schema_and_reference_name_it_and_topics_are_checked_for_it() -> None:
    assert Doubtful.kind in HistogramClockSettings.model_json_schema()["properties"]["kind"]["enum"]
    assert Doubtful.kind in _type_name(HistogramClockSettings.model_fields["kind"].rebuild_annotation())
    assert configured().clock.chosen.topic_type() == "LogAppendTime"


class _Record:
    """What a fetch brings."""

    key, value = None, msgspec.json.encode({"host": "a", "url": "/"})

    def __init__(self, offset: int, timestamp: int, timestamp_type: int) -> None:
        self.offset, self.timestamp, self.timestamp_type = offset, timestamp, timestamp_type


@pytest.mark.parametrize(("beyond", "passed"), [(2 * GRACE - 1, False), (2 * GRACE, True)])
def test_route_closes_an_interval_when_it_says_so(tmp_path: Path, beyond: int, passed: bool) -> None:
    services = replace(services_of(configured(), sources=1), clients=MemoryClients({0: 1}))  # type: ignore[arg-type]
    runner = Runner(RouteStage, services, tmp_path)
    closed = runner.stage._clock.closed
    record = _Record(0, WINDOW + 6 * HOUR + beyond, LOG_APPEND_TIME)
    runner.feed([record], 1)
    assert runner.stage._clock.closed - closed == passed
    closed = runner.stage._clock.closed
    runner.feed([record, _Record(1, record.timestamp + 6 * HOUR, CREATE_TIME)], 2)
    assert runner.stage._clock.closed == closed
    runner.commit(now=WINDOW)
    [output] = [o for commit in runner.commits for o in commit.outputs if o.headers]
    assert [(x.offset, x.reason) for x in map(decode_headers, output.headers or ())][-1] == (1, Reason.WRONG_STAMP)
    runner.close()
