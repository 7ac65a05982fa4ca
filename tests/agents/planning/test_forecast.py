"""A forecast is what the pipeline's mechanism makes of the data: counted again here record by record, and by the harness itself."""

from collections import defaultdict

import numpy as np
import pytest

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.planning.forecast import forecast
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.measures import LayoutMeasures
from susurrus.agents.planning.offline import run, window_noise
from susurrus.agents.planning.outcome import Spread
from susurrus.agents.planning.plan import make_plan, preference
from susurrus.agents.planning.sources import NoData, OfLaw, OfSample
from susurrus.agents.planning.spool import spool
from susurrus.agents.planning.windows import windows_of
from susurrus.mechanisms.histogram.registry import STRATEGIES
from tests.agents.planning.ordered import ordered
from tests.agents.planning.settings import BEGIN, HOUR, configuration, sample, settings
from tests.reference import NO_LAST_LOOK

COLUMNS = [
    {"name": "visits", "kind": "count"},
    {"name": "people", "kind": "users"},
    {"name": "bytes", "kind": "sum", "field": "b", "bound": 50.0, "lower": 0.0, "grid": 1.0},
    {"name": "size", "kind": "mean", "field": "b", "bound": 50.0, "lower": 0.0, "grid": 1.0},
]


def crowd(users: int = 600, seed: int = 3):
    """Users with up to 12 records on few keys, values of which one in five is outside of the bound."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), rng.integers(1, 13, users))
    key = np.minimum(rng.geometric(0.25, len(user)) - 1, 30)
    time = BEGIN + rng.integers(0, 24 * HOUR, len(user))
    return sample(user, key, time, rng.integers(0, 63, len(user))[:, None])


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_one_count_is_what_the_benchmarks_harness_measures(name):
    given = settings(privacy={"strategy": name})
    law = Law(users=3000, keys=300)
    found = forecast(given, [law], seeds=[0, 1])
    strategy = HistogramPipeline(given).strategy
    spooled = spool(law, strategy.bounding, 12)
    runs = [run(strategy, spooled, window_noise(seed, strategy.plan.digest())).checkpoints for seed in (0, 1)]
    assert found.outcome is not None
    for at, ends in zip(found.outcome.triggers, zip(*runs, strict=True), strict=True):
        assert at.trigger == ends[0].trigger
        assert at.keys == Spread.of([end.keys for end in ends])
        assert at.columns["count"].l1 == Spread.of([end.l1 for end in ends])
    assert found.outcome.kept == spooled.kept / spooled.records
    assert found.outcome.triggers[-1].keys.mean > 10


def test_every_column_is_compared_with_its_own_truth():
    given = settings(
        columns=COLUMNS,
        bounds={"max_records_per_user": 12, "max_records_per_key": 12},
        privacy={"epsilon": 100.0, "strategy": "toeplitz"},
    )
    data = crowd()
    found = forecast(given, [window.workload for window in windows_of(data, given)])
    assert found.outcome is not None
    end = found.outcome.triggers[-1]
    # Almost no noise, and no record over the caps: what is left is what clamps take, and keys that are not published.
    assert found.outcome.kept == 1
    assert end.columns["visits"].relative.mean < 0.02
    assert end.columns["people"].relative.mean < 0.02
    b = data.values[:, 0]
    lost = np.abs(b - np.clip(b, 0, 50)).sum()
    assert end.columns["bytes"].relative.mean == pytest.approx(lost / b.sum(), abs=0.02)
    assert found.outcome.clamped == {"b": (pytest.approx((b > 50).mean()), pytest.approx(lost / b.sum()))}
    assert np.isnan(end.columns["size"].l1.mean)
    size = end.columns["size"]
    assert (
        0.5 < size.published.mean < 3 * size.std_error.mean
    )  # the clamped values pull means down; rare keys are noisy


@pytest.mark.parametrize("name", ["toeplitz", "dp-sqlp"])  # test_offline.py has the ledger
def test_sums_are_those_of_caps_that_go_record_by_record(name):
    given = settings(
        columns=COLUMNS, bounds={"max_records_per_user": 5, "max_records_per_key": 2}, privacy={"strategy": name}
    )
    strategy = HistogramPipeline(given).strategy
    data = crowd()
    kept: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    counts: dict[int, int] = defaultdict(int)
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    (window,) = windows_of(data, given)
    (records,) = ordered(window.workload.chunks(), 12)
    assert records.values is not None
    columns = (records.user, records.key, records.values[:, 0])
    for user, key, value in zip(*map(np.ndarray.tolist, columns), strict=True):
        if pairs[user, key] == 2 or counts[user] == 5:
            continue
        kept[key][0] += 1
        kept[key][1] += pairs[user, key] == 0
        kept[key][2] += min(value, 50)
        counts[user] += 1
        pairs[user, key] += 1
    spooled = spool(window.workload, strategy.bounding, 12, measures=LayoutMeasures(given.layout))
    sums = np.zeros((len(data.key_names), 3), np.int64)
    assert spooled.adds is not None
    for rows, adds in zip(spooled.rows, spooled.adds, strict=True):
        for (key, _), added in zip(rows, adds, strict=True):
            np.add.at(sums, key, added)
    rows = [each.rows(sums, np.zeros(sums.shape)) for each in given.layout.published if each.column.additive]
    assert [row.name for row in rows] == ["visits", "people", "bytes"]
    published = np.stack([row.estimate for row in rows], axis=1)
    assert {key: row.tolist() for key, row in enumerate(published) if row.any()} == dict(kept)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_declared_keys_are_published_from_the_first_trigger_on(name):
    given = settings(keys={"declared": ["key-3", "nowhere"]}, privacy={"strategy": name, "epsilon": 0.1})
    found = forecast(given, [window.workload for window in windows_of(crowd(40), given)])
    assert found.outcome is not None
    assert [at.keys.mean for at in found.outcome.triggers] == [2, 2, 2, 2]
    assert found.outcome.triggers[0].columns["count"].l1.mean > 0


def test_without_discovery_only_declared_keys_come():
    given = settings(keys={"declared": ["key-0"], "discover": False}, privacy={"epsilon": 100.0})
    found = forecast(given, [window.workload for window in windows_of(crowd(), given)])
    assert found.outcome is not None
    assert found.appears == {}
    assert found.outcome.triggers[-1].keys.mean == 1


def test_standard_errors_are_those_of_the_published_rows():
    for name, own in (("toeplitz", {}), ("closing", {"closing": NO_LAST_LOOK}), ("dp-sqlp", {})):
        given = settings(columns=COLUMNS[:3], privacy={"strategy": name, "epsilon": 20.0, **own})
        found = forecast(given, [window.workload for window in windows_of(crowd(), given)], seeds=[0])
        assert found.outcome is not None
        published = found.outcome.triggers[-1].columns
        if name == "dp-sqlp":  # a row keeps the error of the trigger that released it
            continue
        for column in ("visits", "people", "bytes"):
            assert found.std_errors[column][-1] == pytest.approx(published[column].std_error.mean)


def test_keys_are_classed_by_their_distinct_users():
    given = settings(privacy={"strategy": "toeplitz"})
    data = crowd()
    users = [len(set(data.user[data.key == key].tolist())) for key in range(len(data.key_names))]
    found = forecast(given, [window.workload for window in windows_of(data, given)])
    assert found.outcome is not None
    for each in found.outcome.sizes:
        most = each.most or 10**9
        assert each.keys == sum(each.least <= number <= most for number in users)
    assert found.outcome.sizes[0].found.mean == 0
    assert found.outcome.sizes[-1].found.mean == 1


def test_several_windows_are_averaged():
    given = settings()
    one, two = crowd(seed=1), crowd(seed=2)
    both = sample(
        np.concatenate([one.user, two.user]),
        np.concatenate([one.key, two.key]),
        np.concatenate([one.time, two.time + 24 * HOUR]),
    )
    found, first, second = (
        forecast(given, [w.workload for w in windows_of(data, given)], seeds=[0]).outcome for data in (both, one, two)
    )
    assert found.records == (first.records + second.records) / 2
    assert found.triggers[-1].keys.mean == (first.triggers[-1].keys.mean + second.triggers[-1].keys.mean) / 2


def test_a_plan_says_what_runs_what_is_refused_and_what_is_preferred():
    plan = make_plan(configuration(), OfSample(crowd(), "here"), variants=[{"C": 4}, {"m": 99}], seeds=2)
    assert (plan.runs, plan.private, plan.of("closing").refused) == ("closing", True, None)
    assert plan.why is not None
    assert plan.preferred in STRATEGIES
    assert plan.preferred in plan.by
    assert plan.what_if[0].forecast is not None
    assert plan.what_if[0].forecast.outcome is not None
    assert plan.what_if[0].forecast.outcome.kept < plan.of("closing").outcome.kept  # type: ignore[union-attr]
    assert "max_records_per_key" in str(plan.what_if[1].refused)
    capped = make_plan(configuration(bounds={"max_keys_per_user": 3}), OfLaw(lambda s: Law(users=500)), seeds=1)
    assert capped.runs == "toeplitz"
    assert not capped.private
    assert "max_keys_per_user" in str(capped.of("closing").refused)
    assert capped.of("closing").outcome is None


def test_another_strategy_is_preferred_only_where_it_is_clearly_better():
    def with_l1(name: str, mean: float, deviation: float):
        found = make_plan(configuration(privacy={"strategy": name}), OfLaw(lambda s: Law(users=100)), strategies=[name])
        each = found.of(name)
        object.__setattr__(each.outcome.triggers[-1].columns["count"], "l1", Spread(mean, deviation))
        return each

    here = with_l1("closing", 1000, 10)
    for l1, expected in ((900, "toeplitz"), (975, "closing"), (1100, "closing")):
        preferred, by = preference([here, with_l1("toeplitz", l1, 10)], "closing", settings())
        assert preferred == expected
        assert "1,000" in by
    assert preference([], "closing", settings())[0] is None


def test_without_data_thresholds_and_errors_are_all_there_is():
    plan = make_plan(configuration(), NoData())
    assert plan.preferred is None
    for each in plan.forecasts:
        assert each.outcome is None
        assert each.triggers == [1, 3, 6, 9, 12]
        assert len(each.appears[0.95]) == len(each.std_errors["count"]) == 5


def test_scaling_up_is_tried_on_the_sample_itself():
    data = crowd()
    plan = make_plan(configuration(), OfSample(data, "half", share=0.5), strategies=["closing"], seeds=2)
    assert plan.sizes[0].users == 2 * data.users
    assert plan.extrapolation is not None
    assert plan.extrapolation.keys == pytest.approx(1, abs=0.3)
    assert plan.extrapolation.l1 == pytest.approx(1, abs=0.3)
    assert make_plan(configuration(), OfSample(data, "all"), strategies=["closing"], seeds=1).extrapolation is None
