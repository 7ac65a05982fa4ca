"""Volumes against the stages themselves: the same records through route, bound and release in memory, by benchmarks/scale.py."""

import sys
from pathlib import Path

import numpy as np
import pytest

from susurrus.agents.planning import volumes
from susurrus.agents.planning.forecast import forecast
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.workload import DAY_MS, FileWorkload, sort_records
from tests.agents.planning.settings import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import scale

EVENTS, TRIGGERS = 20_000, 24


def test_bytes_are_about_those_that_the_stages_write(monkeypatch):
    monkeypatch.setattr(volumes, "USER_BYTES", len(b'"u1234"'))
    log, _ = scale.raw_log(EVENTS)
    events = [record.value.split(b'"') for record in log]
    names, key = np.unique([event[3] for event in events], return_inverse=True)
    people, user = np.unique([event[7] for event in events], return_inverse=True)
    time = (np.arange(EVENTS) * (DAY_MS / EVENTS)).astype(np.int32)
    records = sort_records(user.astype(np.int32), key.astype(np.int32), time, len(people))
    workload = FileWorkload(name="log", records=records, key_names=[b'"%s"' % name for name in names.tolist()])
    found = forecast(scale.services_of(TRIGGERS, EVENTS).settings, [workload], seeds=[0]).outcome.volumes

    measured = {row["stage"]: row for row in scale.stages(EVENTS, TRIGGERS)}
    for stage, topic in (("route", "by-user"), ("bound", "bounded"), ("release", "histogram")):
        wrote = measured[stage]["out_bytes_per_event"] * EVENTS
        # Bytes per event are rounded to a tenth there, and rows name a shorter epoch.
        assert found.topics[topic] == pytest.approx(wrote, rel=0.2)
    for stage in ("bound", "release"):
        wrote = measured[stage]["changelog_bytes_per_event"] * EVENTS
        assert found.topics[f"{stage}-changelog"] == pytest.approx(wrote, rel=0.25)
    assert found.busiest == max(np.bincount(records.trigger(TRIGGERS)))


def test_more_records_take_more_of_everything():
    small, large = (
        forecast(settings(), [Law(users=users, keys=50)], seeds=[0]).outcome.volumes for users in (500, 5000)
    )
    for topic in (
        "by-user",
        "bound-changelog",
        "bounded",
        "histogram",
    ):  # published keys leave shorter states in release
        assert large.topics[topic] > small.topics[topic]
    assert large.state["bound"] > 5 * small.state["bound"]
    assert large.seconds["bound"] > 5 * small.seconds["bound"]
    assert (small.workers, large.workers) == (1, 1)


def test_a_busy_window_needs_more_workers(monkeypatch):
    monkeypatch.setattr(volumes, "WORKER_RATE", 95_000)  # less than a sample of reasonable size brings
    given = settings(window={"length": "12s", "trigger_every": "1s"})
    found = forecast(given, [Law(users=150_000, keys=50)], seeds=[0]).outcome.volumes
    rate = found.busiest
    assert found.workers >= np.ceil(2 * rate / volumes.WORKER_RATE) > 1


@pytest.mark.parametrize("name", ["toeplitz", "closing"])
def test_rows_of_a_window_are_those_that_every_trigger_publishes(name):
    given = settings(privacy={"strategy": name})
    found = forecast(given, [Law(users=3000, keys=100)], seeds=[0]).outcome
    assert found.volumes.last_rows == found.triggers[-1].keys.mean
    assert found.volumes.last_rows <= found.volumes.rows <= 12 * found.volumes.last_rows
    assert ("published-keys" in found.volumes.topics) == (name == "closing")


def test_a_rolling_view_has_a_row_of_every_key_at_every_trigger():
    """Where all keys are declared, so that all of them always have a row."""
    names = [f"k{number}" for number in range(30)]
    ours, rolling = (
        settings(keys={"declared": names, "discover": False}, window={"trigger_every": "1h", "rolling": on})
        for on in (False, True)
    )
    before, found = (forecast(of, [Law(users=500, keys=30)], seeds=[0]).outcome.volumes for of in (ours, rolling))
    assert "rolling" not in before.topics
    period = len('"period_start":"1970-01-01T00:00:00Z","period_end":"1970-01-01T00:00:00Z",')
    counted = len('"counted_from":"1970-01-01T00:00:00Z","counted_until":"1970-01-01T00:00:00Z",')
    row = found.topics["histogram"] / found.rows
    assert found.topics["rolling"] == pytest.approx(found.rows * (row + period + counted))
    kept = found.topics["release-changelog"] - before.topics["release-changelog"]
    assert kept >= 8 * found.rows
    assert found.state["release"] == pytest.approx(before.state["release"] + 2 * kept)
