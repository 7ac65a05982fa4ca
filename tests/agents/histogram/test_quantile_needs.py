"""How many records a quantile needs: what is said of it is what simulated rows show."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.quantile_needs import records_for_factor, records_for_ranks
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.quantiles import borders_of, quantile
from susurrus.mechanisms.noise import NoiseSource
from tests.agents.released import settings

BORDERS = borders_of(1, 60_000, 64, "log")
TRIALS = 600


@pytest.fixture(scope="module")
def cells() -> Cells:
    return Cells("x", triggers=4, buckets=64, cost=0.03)


def rows(cells: Cells, values: Any, name: str) -> Any:
    noise = NoiseSource(b"q" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)
    exact = (np.sort(values)[:, None] <= BORDERS[1:]).sum(axis=0)
    return exact + cells.noise(4, "x", [b"%d" % i for i in range(TRIALS)], noise)


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_the_intervals_of_so_many_records_are_as_narrow_as_is_said(cells: Cells, share: float) -> None:
    scale = float(cells.std[-1, -1])
    number, points = records_for_ranks(scale, 64, share)
    values = np.exp(np.random.default_rng(1).normal(5, 1, number))
    found = quantile(rows(cells, values, f"ranks {share}"), np.full(TRIALS, scale), BORDERS, share)
    one = float(max((values <= high).mean() - (values <= low).mean() for low, high in pairwise(BORDERS)))
    reach = [
        max(share - float((values <= low).mean()), float((values <= high).mean()) - share)
        for low, high in zip(found.lower, found.upper, strict=True)
    ]
    assert np.median(reach) <= points + one
    # A tenth of the records would not do.
    few = values[: number // 10]
    found = quantile(rows(cells, few, f"few {share}"), np.full(TRIALS, scale), BORDERS, share)
    assert np.median(found.upper / found.lower) > 2 * np.median(BORDERS[1:] / BORDERS[:-1])


@pytest.mark.statistical
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_the_ends_are_about_as_far_apart_as_is_said(cells: Cells, share: float) -> None:
    scale = float(cells.std[-1, -1])
    told = records_for_factor(scale, tuple(BORDERS.tolist()), share)
    assert told is not None
    number, factor = told
    values = np.exp(np.random.default_rng(2).normal(5, 1, number))
    found = quantile(rows(cells, values, f"factor {share}"), np.full(TRIALS, scale), BORDERS, share)
    assert factor**0.6 < np.median(found.upper / found.lower) < factor**1.35


def test_buckets_that_are_too_wide_have_no_factor() -> None:
    assert records_for_factor(10.0, (1.0, 100.0, 10_000.0), 0.5) is None


def test_config_check_says_it_of_every_quantile_and_range() -> None:
    of = {"field": "ms", "lower": 1, "upper": 60_000, "scale": "log"}
    found = settings(
        columns=[
            {"name": "latency", "kind": "quantiles", "at": [0.5, 0.95], **of},
            {"name": "score", "kind": "quantiles", "at": [0.5], "field": "score", "lower": -1, "upper": 1},
            {"name": "range", "kind": "spread", **of},
        ]
    )
    said = [text for subject, text in HistogramPipeline(found).summary() if subject == "needs"]
    assert [text.split(":")[0] for text in said] == ["latency_p50", "latency_p95", "score", "range"]
    assert ["a factor of 2 apart" in text for text in said] == [True, True, False, False]
    assert "both quartiles lie within 5 percentage points of rank" in said[3]
    assert "its interval lies within 2.5 percentage points of rank" in said[1]
