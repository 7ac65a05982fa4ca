"""Means and sums around the middle of a range: what a record moves, which sums take this way, and whether intervals hold."""

import math
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import settings as runs
from hypothesis import strategies as st

from susurrus.agents.histogram.about_columns import about_columns
from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.columns.centred import CentredSum, centre_of, half_range
from susurrus.agents.histogram.columns.sum import Sum, SumFromCount
from susurrus.agents.histogram.estimates import Estimates
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import HistogramPipeline
from susurrus.mechanisms.histogram.registry import STRATEGIES, build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics.records.raw import ValueField
from tests.agents.histogram.test_estimates import release
from tests.agents.released import settings
from tests.mechanisms.test_propagation import check, half_width
from tests.samples import samples

Ints = npt.NDArray[np.int64]
MARKS = {"field": "points", "lower": 50.0, "upper": 100.0, "grid": 0.125}
COUNT = {"name": "n", "kind": "count"}
MEAN = {"name": "average", "kind": "mean", **MARKS}
SUM = {"name": "total", "kind": "sum", **MARKS}


def histogram(*columns: dict[str, Any], records: int = 2, bounds_of: int = 4, **sections: Any) -> HistogramSettings:
    bounds = {"max_records_per_user": bounds_of, "max_records_per_key": records}
    return HistogramSettings.of(settings(columns=list(columns), bounds=bounds, **sections))


def names(given: HistogramSettings) -> list[str]:
    return [column.name for column in given.measured_columns]


# ---- sensitivity -------------------------------------------------------------------------------------------------------


@given(st.integers(-40, 40), st.integers(0, 40), st.sampled_from([1.0, 0.5, 0.1]))
@runs(deadline=None)
def test_no_value_of_the_range_is_further_from_its_middle_than_the_mechanism_is_told(
    low: int, width: int, grid: float
) -> None:
    """By enumeration of all values that the decoder can give, against exact fractions."""
    high = low + width
    assume(max(abs(low), abs(high)) > 0)
    value = ValueField(path="v", bound=max(abs(low), abs(high)) * grid, grid=grid, lower=low * grid, upper=high * grid)
    assert (value.lowest, value.highest) == (low, high)
    column = CentredSum(name="c", field=value)
    moved = [v - centre_of(value) for v in range(low, high + 1)]
    assert column.bound == max(1, *map(abs, moved))
    # Half of the range, and no more than the part of a unit that an integer needs.
    assert Fraction(width, 2) <= max(map(abs, moved)) <= Fraction(width, 2) + Fraction(1, 2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-60, 20)), min_size=1, max_size=40), st.integers(0, 2))
@runs(deadline=None)
def test_a_user_moves_the_centred_sum_by_its_records_times_half_of_the_range(
    events: list[tuple[int, int]], leaving: int
) -> None:
    value = ValueField(path="v", bound=60.0, grid=1.0, lower=-60.0, upper=20.0)
    column, cap = CentredSum(name="c", field=value), 3
    users, values = (np.array([event[part] for event in events]) for part in (0, 1))
    kept = np.flatnonzero([(users[:at] == user).sum() < cap for at, user in enumerate(users)])

    def total(rows: npt.NDArray[np.intp]) -> int:
        first = np.ones(len(users), np.bool_)
        return int(
            column.aggregate(Kept(rows=rows, starts=np.zeros(1, np.int64), first=first, values=values), values)[0]
        )

    assert total(kept) == sum(int(values[row]) + 20 for row in kept)
    assert abs(total(kept) - total(kept[users[kept] != leaving])) <= cap * column.bound
    assert column.bound == 40


def test_the_mechanism_is_told_half_of_the_range() -> None:
    assert [(c.name, c.kind, c.bound) for c in histogram(COUNT, MEAN).plan().columns] == [
        ("n", "count", 1),
        ("average/centred", "sum", 200),  # 25 / 0.125; the largest value would be 800
    ]
    assert histogram(COUNT, {**MEAN, "lower": -100.0}).plan().columns[1].bound == 800


# ---- what is measured --------------------------------------------------------------------------------------------------


def test_a_mean_and_a_sum_of_one_field_are_measured_once() -> None:
    found = histogram(SUM, MEAN)
    assert names(found) == ["total/centred", "total/count"]
    assert [column.sources for column in found.layout.published] == [(0, 1), (0, 1)]
    assert found.layout.divisor(found.layout.published[1]) is None


def test_a_sum_beside_a_count_is_computed_from_it_and_a_sum_alone_is_not() -> None:
    assert names(histogram(COUNT, SUM)) == ["n", "total/centred"]
    assert names(histogram(SUM)) == ["total"]
    assert names(histogram({"name": "people", "kind": "users"}, SUM)) == ["people", "total"]


def test_one_record_per_key_makes_a_number_of_users_a_count() -> None:
    found = histogram({"name": "people", "kind": "users"}, SUM, records=1)
    assert names(found) == ["people", "total/centred"]
    assert found.layout.published[1].sources == (1, 0)


def test_a_range_around_zero_is_measured_as_it_was() -> None:
    around = {"lower": -100.0, "upper": 100.0}
    assert names(histogram(COUNT, SUM | around, MEAN | around)) == ["n", "total"]
    fields = histogram(COUNT, SUM | around, MEAN | around).published_fields()["columns"]
    assert all("centre" not in column for column in fields)


def test_the_digest_says_what_is_centred() -> None:
    assert [column.get("centre") for column in histogram(COUNT, SUM, MEAN).published_fields()["columns"]] == [
        None,
        75.0,
        75.0,
    ]
    assert "centre" not in histogram(SUM).published_fields()["columns"][0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("share", [0.5, 0.001])
def test_the_choice_is_the_one_with_the_smaller_error_of_the_strategies_that_are_built(
    strategy: str, records: int, share: float
) -> None:
    """With one record per key, `toeplitz` counts with the share of the selection. If that is small, the sum is better alone."""
    privacy: dict[str, Any] = {"epsilon": 6.0, "delta": 1e-9, "strategy": strategy}
    if strategy == "toeplitz":
        privacy["selection_share"] = share
    people = {"name": "people", "kind": "users"}
    given = histogram(people, COUNT, SUM, records=records, privacy=privacy)
    chosen = given.layout.published[2].column
    plan = given.plan()
    errors = {}
    for column in (Sum(name="total", field=chosen.field), SumFromCount(name="total", field=chosen.field)):
        own = column.measured()[0]
        columns = (*plan.columns[:2], type(plan.columns[2])(name=own.name, kind="sum", bound=own.bound))
        std = build_strategy(type(plan)(**{**plan.__dict__, "columns": columns})).standard_errors()[-1]
        sources = [2] if type(column) is Sum else [2, 1]
        errors[type(column)] = column.publish(np.zeros((1, len(sources)), np.int64), std[None, sources])[1][0]
    assert type(chosen) is min(errors, key=errors.__getitem__)
    expects_sum = strategy == "toeplitz" and records == 1 and share < 0.1
    assert type(chosen) is (Sum if expects_sum else SumFromCount)


# ---- what is published -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(400, 800), min_size=1, max_size=50))
def test_without_noise_they_are_the_sum_and_the_mean(values: list[int]) -> None:
    found = histogram(COUNT, SUM, MEAN).layout
    cell = Kept(
        rows=np.arange(len(values)),
        starts=np.zeros(1, np.int64),
        first=np.ones(len(values), np.bool_),
        values=np.array(values)[:, None],
    )
    sums = found.aggregate(cell)
    assert sums.tolist() == [[len(values), sum(values) - 600 * len(values)]]
    _, total, mean = (column.rows(sums, np.zeros(sums.shape)) for column in found.published)
    assert total.estimate[0] == sum(values) / 8
    assert mean.estimate[0] == pytest.approx(float(Fraction(sum(values), 8 * len(values))), rel=1e-12)


def test_errors_are_those_of_the_formulas() -> None:
    found = histogram(COUNT, SUM, MEAN).layout
    estimates, errors = np.array([[1000, -40_000]]), np.array([[30.0, 6_000.0]])  # n, and U in eighths
    _, total, mean = (column.rows(estimates, errors) for column in found.published)
    assert (total.estimate[0], mean.estimate[0]) == (75 * 1000 - 5000, 70.0)
    assert np.asarray(total.std_error)[0] == pytest.approx(math.hypot(750, 75 * 30))
    assert np.asarray(mean.std_error)[0] == pytest.approx(math.hypot(750, 5 * 30) / 1000)


def test_a_mean_over_keys_knows_its_centre() -> None:
    """The counts' own noise enters through distances from the centre, not through the means."""
    n, u, n_error, u_error = np.array([4000, 900]), np.array([-9000.0, 8100.0]), 30.0, 500.0
    means = 75 + u / n
    mean_errors = np.hypot(u_error, (means - 75) * n_error) / n
    columns = {
        "n": Estimates(n, np.full(2, n_error)),
        "average": Estimates(means, mean_errors, None, False, "n", 75.0),
    }
    found = release(keys=["a", "b"], columns=columns).mean("average")
    ratio = u.sum() / n.sum()
    assert found.estimate == pytest.approx(75 + ratio)
    assert found.std_error == pytest.approx(
        math.hypot(u_error * math.sqrt(2), ratio * n_error * math.sqrt(2)) / n.sum()
    )


def noisy(given: HistogramSettings, sums: Ints, trials: int, seed: int = 0) -> dict[str, Estimates]:
    """What is published of one key with these sums at the last trigger, in so many independent trials."""
    strategy = HistogramPipeline(given).strategy
    noise = NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=f"p{seed}").window(0)
    none = np.zeros(trials, np.int64)
    increments = Increments(users=none, weight=none, sums=np.tile(sums, (trials, 1)))
    keys = [b"%d" % key for key in range(trials)]
    found = strategy.step(given.triggers, keys, strategy.empty(trials), increments, noise, np.ones(trials, np.bool_))
    rows = [column.rows(found.estimates, found.std_errors) for column in given.layout.published]
    return {row.name: Estimates(row.estimate, np.asarray(row.std_error)) for row in rows}


def scores_of(found: Estimates, truth: float) -> npt.NDArray[np.float64]:
    scores: npt.NDArray[np.float64] = (found.estimate - truth) / found.std_error
    return scores


STRATEGY: dict[str, dict[str, Any]] = {
    "toeplitz": {"strategy": "toeplitz"},
    "closing without its last look": {
        "strategy": "closing",
        "closing": {"discovery_share": 0.5, "unknown_share": 0, "public_share": 0},
    },
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", STRATEGY)
def test_intervals_of_means_and_sums_cover_the_truth(name: str) -> None:
    given = histogram(COUNT, SUM, MEAN, privacy={"epsilon": 2.0, "delta": 1e-6, **STRATEGY[name]})
    n, values = 5000, 90.0
    found = noisy(given, np.array([n, int(n * (values - 75) * 8)]), samples(4000))
    check(scores_of(found["total"], n * values))
    check(scores_of(found["average"], values))


def _forgets_the_count(found: dict[str, Estimates]) -> dict[str, Estimates]:
    """The planted defect: the error of c N + U is that of U."""
    total, n = found["total"], found["n"]
    alone = np.sqrt(total.std_error**2 - (75 * n.std_error) ** 2)
    return found | {"total": Estimates(total.estimate, alone)}


def _not_centred(found: dict[str, Estimates]) -> dict[str, Estimates]:
    """The planted defect: the error of a mean takes the count's noise times the mean, and not its distance from the centre."""
    mean, n = found["average"], found["n"]
    distance, count = mean.estimate - 75, n.estimate
    wrong = np.sqrt(mean.std_error**2 + (mean.estimate**2 - distance**2) * (n.std_error / count) ** 2)
    return found | {"average": Estimates(mean.estimate, wrong)}


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("broken", "column", "truth"), [(_forgets_the_count, "total", 450_000.0), (_not_centred, "average", 90.0)]
)
def test_a_wrong_error_is_seen(
    broken: Callable[[dict[str, Estimates]], dict[str, Estimates]], column: str, truth: float
) -> None:
    given = histogram(COUNT, SUM, MEAN, privacy={"epsilon": 2.0, "delta": 1e-6, "strategy": "toeplitz"})
    found = broken(noisy(given, np.array([5000, 5000 * 15 * 8]), samples(4000)))
    z = scores_of(found[column], truth)
    with pytest.raises(AssertionError):
        check(z)
    assert abs((np.abs(z) < half_width(0.95)).mean() - 0.95) > 0.02


def test_the_centre_makes_a_mean_more_exact_by_the_formula() -> None:
    """Between 50 and 100 the noise of the sum's part falls to a quarter."""
    privacy = {"epsilon": 2.0, "delta": 1e-6, "strategy": "toeplitz"}
    centred = histogram(COUNT, MEAN, privacy=privacy).plan()
    plain = histogram(COUNT, MEAN | {"lower": -100.0}, privacy=privacy).plan()
    errors = [build_strategy(plan).standard_errors()[-1] for plan in (centred, plain)]
    assert errors[0][0] == errors[1][0]
    assert errors[0][1] == pytest.approx(errors[1][1] / 4, rel=1e-3)
    assert half_range(histogram(MEAN).layout.values[0]) == 200


# ---- weights -----------------------------------------------------------------------------------------------------------


def test_what_several_columns_need_has_the_largest_of_their_weights() -> None:
    found = histogram(COUNT | {"weight": 2.0}, SUM | {"weight": 5.0}, MEAN | {"weight": 3.0})
    assert [(c.name, c.weight) for c in found.plan().columns] == [("n", 5.0), ("total/centred", 5.0)]
    found = histogram(COUNT | {"weight": 2.0}, MEAN | {"weight": 3.0})
    assert [(c.name, c.weight) for c in found.plan().columns] == [("n", 3.0), ("average/centred", 3.0)]


def test_a_sum_changes_no_other_column_by_how_it_is_computed() -> None:
    """The count is there anyway, and keeps its weight; if it has too little, the sum is measured by itself."""
    light, heavy = (histogram(COUNT, SUM | {"weight": weight}) for weight in (1.5, 50.0))
    assert [(c.name, c.weight) for c in light.plan().columns] == [("n", 1.0), ("total/centred", 1.5)]
    assert [(c.name, c.weight) for c in heavy.plan().columns] == [("n", 1.0), ("total", 50.0)]


def test_the_share_of_each_column_is_said_and_a_weight_without_effect_is_warned_of() -> None:
    given = histogram(COUNT, MEAN | {"weight": 3.0}, {"name": "other", "kind": "sum", "field": "o", "bound": 3.0})
    said = dict(about_columns(given.layout, HistogramPipeline(given).strategy))
    assert (
        said["shares"]
        == "n 0.214, other 0.0714, average/centred 0.214 of the squared noise budget; selection has the rest"
    )
    people = {"name": "people", "kind": "users", "weight": 4.0}
    warned = [str(finding) for finding in histogram(people, SUM).findings() if "weight" in finding.text]
    assert len(warned) == 1
    assert 'columns: weight = 4 of "people" changes nothing' in warned[0]
    declared = {"keys": {"declared": ["a"], "discover": False}}
    assert not [finding for finding in histogram(people, SUM, **declared).findings() if "weight" in finding.text]


def test_the_digest_covers_a_weight_that_is_written() -> None:
    plain, one, two = (histogram(COUNT, *more) for more in ([SUM], [SUM | {"weight": 1.0}], [SUM | {"weight": 2.0}]))
    assert plain.config_digest() == one.config_digest() != two.config_digest()
    assert plain.plan().digest() == one.plan().digest() != two.plan().digest()


def test_a_narrow_range_far_from_zero_is_warned_of_its_default_grid() -> None:
    """The default grid follows the largest value, and a mean the width."""
    narrow = {"name": "average", "kind": "mean", "field": "v", "lower": 1000.0, "upper": 1010.0}
    [warned] = [str(found) for found in histogram(narrow).findings() if "rounded" in found.text]
    assert 'the values of "average" are rounded to multiples of 0.98' in warned
    assert "grid = 0.005" in warned
    fine = [{**narrow, "grid": 0.005}, {**narrow, "lower": 0.0}, {**narrow, "lower": 700.0}]
    assert not [found for column in fine for found in histogram(column).findings() if "rounded" in found.text]


def test_quantiles_have_a_share_by_their_weight_and_no_grid_to_warn_of() -> None:
    quantiles = {"name": "q", "kind": "quantiles", "field": "v", "lower": 0.0, "upper": 9.0, "at": [0.5], "weight": 3.0}
    found = histogram(COUNT, MEAN, quantiles)
    said = dict(about_columns(found.layout, HistogramPipeline(found).strategy))
    assert said["shares"].startswith("n 0.1, average/centred 0.1, q/buckets 0.3 of")
    assert not [each for each in found.findings() if "rounded" in each.text or "weight" in each.text]


def test_a_reader_learns_the_centre_from_the_configuration() -> None:
    """A mean over keys from what `releases` makes of rows, as the rows were published."""
    found = histogram(COUNT, MEAN)
    sums, errors = np.array([[4000, -72_000], [900, 64_800]]), np.array([[30.0, 4000.0]] * 2)
    rows = {row.name: row for row in (column.rows(sums, errors) for column in found.layout.published)}
    reader: Any = SimpleNamespace(_settings=found)
    columns = {name: ReleaseReader._column(reader, name, [row], np.arange(2)) for name, row in rows.items()}
    assert (columns["n"].centre, columns["average"].centre) == (0.0, 75.0)
    total = release(keys=["a", "b"], columns=columns).mean("average")
    ratio = (-72_000 + 64_800) / 8 / 4900
    assert total.estimate == pytest.approx(75 + ratio)
    assert total.std_error == pytest.approx(math.hypot(500 * math.sqrt(2), ratio * 30 * math.sqrt(2)) / 4900)
