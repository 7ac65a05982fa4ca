"""Forecast against what then happened: the web log through a real worker with a secret that the forecast never had.

benchmarks/forecast.py does the same on a real broker, on more data, and from parts of the users; docs/plan.md has its table.
"""

import io
from collections import Counter
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, Group

from susurrus.agents.demo import histogram as demo
from susurrus.agents.demo import machinery
from susurrus.agents.demo.weblog import FILE, WebLog
from susurrus.agents.histogram.estimates import Release
from susurrus.agents.planning.plan import PipelinePlan, make_plan
from susurrus.agents.planning.sample import read_file
from susurrus.agents.planning.sources import OfSample, in_grid_units
from susurrus.agents.planning.variants import Configuration
from tests.agents.planning.settings import configuration

SECRET, EPOCH = "7c" * 32, "0a" * 16
"""Fixed, so that the outcome is the same in every run; a forecast draws other noise."""


def planned(epsilon: float) -> PipelinePlan:
    """From the file, with the constants of the demonstration."""
    given: Configuration = configuration(
        input={"user": "host", "key": ["url"], "time": "time", "time_unit": "s"},
        window={"trigger_every": "1h"},
        bounds={"max_records_per_user": 32},
        columns=[{"name": "hosts", "kind": "count"}],
        privacy={"epsilon": epsilon, "delta": 1e-9},
    )
    with as_file(files("susurrus.agents").joinpath("data", FILE)) as path:
        source = OfSample(in_grid_units(read_file(path, given.histogram(), wide=True), given.histogram()), path.name)
    return make_plan(given, source, strategies=[], seeds=3)


def published(monkeypatch: pytest.MonkeyPatch, epsilon: float) -> Release:
    """What a reader has after the window's last trigger, by the embedded broker and a worker process."""
    seen: list[Release] = []

    def secret(path: Path) -> None:
        path.write_text(SECRET)

    def look(release: Release, *_: Any, **__: Any) -> Group:
        seen.append(release)
        return Group()

    monkeypatch.setattr(machinery.secrets, "create", secret)
    monkeypatch.setattr(demo, "picture", look)
    shown = demo.HistogramDemo(epsilon=epsilon, rows=1)
    shown.sections = shown.sections.replace("[start]\n", f'[start]\nepoch = "{EPOCH}"\n')
    machinery.show(Console(file=io.StringIO()), shown, keep=False)
    return seen[0]


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [6.0])
def test_the_forecast_of_the_web_log_is_within_a_tenth_of_what_a_worker_publishes(monkeypatch, epsilon):
    plan = planned(epsilon)
    outcome = plan.of(plan.runs).outcome
    assert outcome is not None
    end = outcome.triggers[-1]

    release = published(monkeypatch, epsilon)
    assert release.final
    rows = dict(zip(release.keys, release.columns["hosts"].estimate.tolist(), strict=True))
    true = Counter(visit.url for visit in WebLog().visits)
    l1 = sum(abs(rows.get(url, 0) - true[url]) for url in true)

    assert end.keys.mean == pytest.approx(len(rows), rel=0.1)
    assert end.columns["hosts"].l1.mean == pytest.approx(l1, rel=0.1)
    # The noise is other noise: a forecast that knew the secret would have no error at all.
    assert end.columns["hosts"].l1.deviation > 0
