"""A rolling view of days in Berlin on a real broker, around both changes of its clocks, from what `histogram` published."""

import json
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from susurrus.releases import releases
from susurrus.topics.wire.timestamps import parse_time
from tests.agents.histogram.test_calendar_windows import (
    AUTUMN,
    BERLIN,
    HOURS,
    SPRING,
    archive_of,
    days,
    midnight,
    milliseconds,
    wait,
)
from tests.broker import Broker
from tests.pipeline import Pipeline

HOUR = 3_600_000


def an_instant_before(instant: int) -> int:
    """The first one at which clocks show the same time on the day before; as long after a change that skips it."""
    shown = datetime.fromtimestamp(instant / 1000, BERLIN).replace(tzinfo=None) - timedelta(days=1)
    return milliseconds(shown.replace(tzinfo=BERLIN))


@pytest.mark.parametrize("first", [SPRING, AUTUMN])
def test_a_view_begins_at_the_same_time_of_the_day_before(kafka: Broker, tmp_path: Path, first: str) -> None:
    """`toeplitz` calibrates nothing, so the rest of a day is a difference of two rows."""
    raw = archive_of(kafka, first)
    overrides = days(first, window={"rolling": True}, privacy={"strategy": "toeplitz"})
    with Pipeline(kafka, tmp_path, raw, overrides) as pipeline:
        pipeline.start()
        wait(pipeline, first)
        settings = pipeline.settings
        rows: dict[int, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
        for message in kafka.read_all(settings.topic("histogram")):
            row = json.loads(message.value())
            rows[parse_time(row["window_start"])][row["trigger"]][row["key"]] = row["values"]
        views = [json.loads(message.value()) for message in kafka.read_all(settings.topic("rolling"))]
        read = list(releases(settings, rolling=True, follow=False))
    starts = [milliseconds(midnight(first, day)) for day in range(4)]
    whole = 0
    for view in views:
        day, trigger, key = starts.index(parse_time(view["window_start"])), view["trigger"], view["key"]
        end = parse_time(view["period_end"])
        assert end == starts[day] + trigger * HOUR
        assert parse_time(view["window_end"]) == starts[day + 1]
        today = rows[starts[day]][trigger].get(key)
        if day == 0:
            assert parse_time(view["counted_from"]) == starts[0]
            assert today == view["values"]
            continue
        begin = min(an_instant_before(end), starts[day]) if end < starts[day + 1] else starts[day]
        assert parse_time(view["period_start"]) == begin
        since, until = parse_time(view["counted_from"]), parse_time(view["counted_until"])
        assert until == (starts[day] if today is None else end)
        assert since >= begin
        before, last = rows[starts[day - 1]], HOURS[first][day - 1]
        for column, found in view["values"].items():
            wanted = 0 if today is None else today[column]["estimate"]
            if since < starts[day]:
                hour = (since - starts[day - 1]) // HOUR
                wanted += before[last][key][column]["estimate"] - before[hour][key][column]["estimate"]
            assert found["estimate"] == pytest.approx(wanted)
        whole += since == begin and until == end and since < starts[day]
    assert whole > 20
    assert [view.trigger for view in read] == [t for hours in HOURS[first] for t in range(1, hours + 1)]
    ends = [view for view in read if view.final]
    assert [view.period_start for view in ends] == starts[:3]
    assert [view.to_dict()["period_end"] for view in ends] == [midnight(first, day).isoformat() for day in (1, 2, 3)]
