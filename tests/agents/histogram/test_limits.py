"""lower, upper and bound of a column: what is clamped where, what the noise must follow, and that less noise would be seen."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import settings as runs
from hypothesis import strategies as st
from scipy import stats

from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import RawDecoder
from tests.agents.released import settings
from tests.samples import samples

RECORDS = 3
"""C and m: records of one user that count, all of them of one key if the user likes."""


def configured(kind: str = "sum", *, columns: list[dict[str, Any]] | None = None, **limits: Any) -> HistogramSettings:
    found = settings(
        bounds={"max_records_per_user": RECORDS, "max_records_per_key": RECORDS},
        window={"length": "1d", "trigger_every": "1d"},
        columns=columns or [{"name": "paid", "kind": kind, "field": "v", **limits}],
        keys={"declared": ["a"], "discover": False},
        privacy={"epsilon": 1.0, "delta": 1e-3},
    )
    return HistogramSettings.of(found)


def decoded(ours: HistogramSettings, values: list[float]) -> npt.NDArray[np.int64]:
    """The values of records in grid units, as bound adds them up."""
    decoder = RawDecoder(ours.raw_schema())
    records = [json.dumps({"host": "h", "url": "a", "v": value}).encode() for value in values]
    return decoder.decode(JsonReader(decoder.paths).read(records)).values[:, 0]


numbers = st.one_of(
    st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3)), st.integers(-1000, 1000).map(float)
)


@st.composite
def limits(draw: st.DrawFn) -> dict[str, float]:
    lower, upper = sorted((draw(numbers), draw(numbers)))
    assume(upper - lower > 1e-2)
    # A multiple of the grid lies between the limits, and the bound has at least one step.
    grid = draw(st.sampled_from([1.0, 0.5, 0.25, 2.0**-6])) * min(1.0, upper - lower)
    return {"lower": lower, "upper": upper, "grid": grid}


@given(limits(), st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1, max_size=30))
@runs(deadline=None, max_examples=200)
def test_values_are_clamped_and_rounded_and_no_record_counts_for_more_than_the_bound(
    given_limits: dict[str, float], values: list[float]
) -> None:
    assume(max(map(abs, (given_limits["lower"], given_limits["upper"]))) / given_limits["grid"] < 2**24)
    ours = configured(**given_limits)
    [field], [column] = ours.layout.values, ours.measured_columns
    steps = decoded(ours, values)
    lower, upper, grid = (Fraction(given_limits[name]) for name in ("lower", "upper", "grid"))
    slack = Fraction(1, 10**6) * grid  # 0.7 / 0.1 is meant to be 7
    for value, step in zip(values, steps.tolist(), strict=True):
        assert lower - slack <= step * grid <= upper + slack
        nearest = int(np.rint(value / given_limits["grid"]))
        assert step == max(field.lowest, min(field.highest, nearest))
    # The sensitivity of one record, in grid units: exactly what the extreme values reach, and never more.
    extremes = decoded(ours, [-1e12, 1e12])
    assert np.abs(steps).max() <= np.abs(extremes).max() <= column.bound
    assert column.bound - np.abs(extremes).max() <= 1
    assert Fraction(column.bound) * grid <= max(abs(lower), abs(upper)) + slack


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1e4, 1e4)), min_size=1, max_size=40), st.integers(0, 2))
@runs(deadline=None)
def test_sums_are_exact_and_a_user_moves_them_by_no_more_than_its_records_bounds(
    events: list[tuple[str, float]], leaving: int
) -> None:
    ours = configured(lower=-7.5, upper=2.25, grid=0.25)
    [column] = ours.measured_columns
    users = np.array(["abc".index(user) for user, _ in events])
    steps = decoded(ours, [value for _, value in events])
    # A user's first records count, whoever else is there.
    rank = np.array([(users[:at] == user).sum() for at, user in enumerate(users)])
    kept = np.flatnonzero(rank < RECORDS)

    def total(rows: npt.NDArray[np.intp]) -> int:
        cell = Kept(rows=rows, starts=np.zeros(1, np.int64), first=rank == 0, values=steps[:, None])
        return int(column.aggregate(cell, steps)[0])

    everyone, others = total(kept), total(kept[users[kept] != leaving])
    assert everyone == sum(int(step) for step in steps[kept])
    assert abs(everyone - others) <= RECORDS * column.bound


@pytest.mark.parametrize(
    ("given_limits", "low", "high", "bound"),
    [
        ({"bound": 8}, -8, 8, 8),
        ({"lower": 0, "upper": 8}, 0, 8, 8),
        ({"bound": 8, "lower": 0}, 0, 8, 8),
        ({"bound": 8, "upper": 3}, -8, 3, 8),
        ({"bound": 8, "lower": -8, "upper": 3}, -8, 3, 8),
        ({"lower": -5, "upper": 3}, -5, 3, 5),
        ({"lower": 2, "upper": 8}, 2, 8, 8),
        ({"lower": -8, "upper": -2}, -8, -2, 8),
    ],
    ids=str,
)
def test_the_noise_follows_the_larger_magnitude(
    given_limits: dict[str, float], low: int, high: int, bound: int
) -> None:
    ours = configured(**given_limits, grid=1)
    assert decoded(ours, [-100, 100]).tolist() == [low, high]
    assert [column.bound for column in ours.plan().columns] == [bound]
    assert ours.columns[0].limits == (low, high)


@pytest.mark.parametrize(
    ("given_limits", "says"),
    [
        ({"lower": 0}, "upper is missing; "),
        ({"upper": 5}, "lower is missing; "),
        (
            {"lower": 0, "upper": 1e200},
            "the largest value is 1e+200, and sums and squares must be numbers between 1e-130 and",
        ),
        (
            {"lower": 0, "upper": 1e-200},
            "the largest value is 1e-200, and sums and squares must be numbers between 1e-130 and",
        ),
        ({"lower": 5, "upper": 5}, "lower = 5 is not below upper = 5; correct one of them"),
        ({"lower": 5, "upper": 1}, "lower = 5 is not below upper = 1; correct one of them"),
        ({"bound": 4, "lower": 5}, "lower = 5 is not below upper = 4"),
        (
            {"bound": 4, "lower": -5},
            r"lower = -5 lies outside [-bound, bound]; leave bound = 4 out, or write bound = 5",
        ),
        ({"bound": 4, "lower": 0, "upper": 5}, r"upper = 5 lies outside [-bound, bound]"),
        ({"bound": 9, "lower": 0, "upper": 5}, "bound = 9 is more than lower = 0 and upper = 5 need"),
        ({"lower": 0.4, "upper": 0.6, "grid": 0.5}, ""),
        ({"lower": 1.2, "upper": 1.8, "grid": 1}, "no multiple of grid = 1 lies between lower = 1.2 and upper = 1.8"),
        ({}, 'bound is missing; kind = "sum" needs bounds of its values, for example lower = 0, upper = 5000'),
    ],
    ids=str,
)
def test_limits_that_do_not_agree_are_refused(given_limits: dict[str, float], says: str) -> None:
    if not says:
        assert configured(**given_limits).measured_columns[0].bound == 1
        return
    with pytest.raises(ConfigurationError) as refused:
        configured(**given_limits)
    assert f'column 1 ("paid"): {says}' in str(refused.value)


def test_a_mean_is_clamped_to_its_limits_and_to_nothing_wider() -> None:
    ours = configured("mean", lower=2, upper=8, grid=1)
    [mean] = ours.layout.published
    estimates = np.array([[1000, 10], [-1000, 10], [20, 10]])
    assert mean.rows(estimates, np.ones((3, 2))).estimate.tolist() == [8.0, 2.0, 7.0]  # the middle is 5


class TestDigest:
    def test_a_bound_that_follows_is_the_same_as_one_that_is_written(self) -> None:
        written = configured(bound=5000, lower=0)
        for same in ({"lower": 0, "upper": 5000}, {"bound": 5000, "lower": 0, "upper": 5000}):
            other = configured(**same)
            assert other.config_digest() == written.config_digest()
            assert other.plan().digest() == written.plan().digest()
            assert other.layout == written.layout

    def test_upper_alone_changes_it(self) -> None:
        assert configured(bound=8, upper=3).config_digest() != configured(bound=8).config_digest()

    def test_a_column_without_them_says_nothing_of_them(self) -> None:
        assert configured(bound=8).published_fields()["columns"] == [
            {"name": "paid", "kind": "sum", "field": "v", "bound": 8.0, "grid": None}
        ]


def _published(plan: Plan, step: int, trials: int, seed: bytes) -> npt.NDArray[np.int64]:
    """What is published of a key with one record of so many steps, in so many independent trials."""
    strategy: Any = build_strategy(plan)
    keys = [f"{n}".encode() for n in range(trials)]
    noise = NoiseSource(seed * 32, epoch=b"e", config=b"c", pipeline="p").window(0)
    none = np.zeros(trials, np.int64)
    increments = Increments(users=none, weight=none, sums=np.full((trials, 1), step, np.int64))
    found = strategy.step(1, keys, strategy.empty(trials), increments, noise, np.ones(trials, np.bool_))
    assert found.published.all()
    estimates: npt.NDArray[np.int64] = found.estimates[:, 0]
    return estimates


def _excess(plan: Plan, step: int) -> tuple[float, float]:
    """(P'(S) - e^epsilon P(S) - delta, its standard error) for the event that says most about a record of ``step`` steps."""
    trials = samples(30_000)
    without, with_record = _published(plan, 0, trials, b"w"), _published(plan, step, trials, b"r")
    std = without.std()
    # The likelihood ratio of two Gaussians passes e^epsilon here.
    threshold = abs(step) / 2 + plan.epsilon * std**2 / abs(step)
    sign = math.copysign(1, step)
    there, here = (with_record * sign >= threshold).mean(), (without * sign >= threshold).mean()
    error = math.sqrt(there * (1 - there) / trials + math.exp(plan.epsilon) ** 2 * here * (1 - here) / trials)
    return there - math.exp(plan.epsilon) * here - plan.delta, error


def test_the_dearest_record_stays_within_the_promise_and_noise_for_the_upper_bound_alone_does_not() -> None:
    """CLAMPED BETWEEN -5 AND 3: a record of -5 moves a sum by 5, whatever the upper bound is."""
    ours = configured(lower=-5, upper=3, grid=1 / 64)
    plan = replace(ours.plan(), max_records=1, max_records_per_key=1)
    [dearest] = decoded(ours, [-1e9]).tolist()
    assert dearest == -5 * 64
    excess, error = _excess(plan, dearest)
    limit = float(stats.norm.isf(1e-6))
    assert excess < limit * error
    broken = replace(plan, columns=(replace(plan.columns[0], bound=3 * 64),))
    excess, error = _excess(broken, dearest)
    assert excess > limit * error
    excess, error = _excess(broken, 3 * 64)  # what the broken noise was made for
    assert excess < limit * error
