"""From grid units to readers' units: scaling, means from noisy sums and counts, their errors."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.agents.histogram.columns import Kept
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.histogram import ColumnRows
from tests.agents.released import settings

BOUND, GRID = 100.0, 0.5
CONFIGURED = settings(
    bounds={"max_records_per_user": 4, "max_records_per_key": 4},
    columns=[
        {"name": "visits", "kind": "count"},
        {"name": "people", "kind": "users"},
        {"name": "paid", "kind": "sum", "field": "amount", "bound": BOUND, "grid": GRID},
        {"name": "average", "kind": "mean", "field": "amount", "bound": BOUND, "grid": GRID},
    ],
)
KINDS = [column.kind for column in CONFIGURED.measured_columns]
COUNT, USERS, SUM = KINDS.index("count"), KINDS.index("users"), KINDS.index("sum")


def published_rows(estimates: npt.NDArray[np.int64], std_errors: npt.NDArray[np.float64]) -> list[ColumnRows]:
    return [column.rows(estimates, std_errors) for column in CONFIGURED.layout.published]


def published(
    count: int, users: int, total: int, errors: tuple[float, float, float] = (2.0, 1.0, 8.0)
) -> dict[str, ColumnRows]:
    estimates, std_errors = np.zeros((1, len(KINDS)), np.int64), np.zeros((1, len(KINDS)))
    for at, value, error in zip((COUNT, USERS, SUM), (count, users, total), errors, strict=True):
        estimates[0, at], std_errors[0, at] = value, error
    return {column.name: column for column in published_rows(estimates, std_errors)}


def test_a_mean_shares_the_sum_and_the_count_that_are_measured_anyway() -> None:
    assert sorted(KINDS) == ["count", "sum", "users"]


def test_columns_come_in_the_order_of_the_configuration_and_sums_in_the_fields_unit() -> None:
    found = published(40, 10, 600)
    assert list(found) == ["visits", "people", "paid", "average"]
    assert (found["visits"].estimate[0], found["visits"].std_error[0]) == (40, 2.0)
    assert (found["people"].estimate[0], found["people"].std_error[0]) == (10, 1.0)
    assert (found["paid"].estimate[0], found["paid"].std_error[0]) == (300.0, 4.0)


def test_a_mean_is_the_noisy_sum_over_the_noisy_count_with_the_error_of_a_ratio() -> None:
    mean = published(40, 10, 600)["average"]
    assert mean.estimate[0] == 300.0 / 40
    # Delta method: the derivative by the sum is 1 / count, by the count -mean / count.
    assert mean.std_error[0] == pytest.approx(np.sqrt((4.0 / 40) ** 2 + (7.5 * 2.0 / 40) ** 2))


def test_a_direct_pair_is_published_as_the_estimate_is() -> None:
    estimates, errors = np.array([[40, 10, 600]]), np.array([[2.0, 1.0, 8.0]])
    order = [(COUNT, USERS, SUM).index(at) for at in range(3)]
    direct = 2 * estimates[:, order], 3 * errors[:, order]
    for column in CONFIGURED.layout.published:
        assert column.rows(estimates[:, order], errors[:, order]).direct is None
        beside = column.rows(estimates[:, order], errors[:, order], direct).direct
        alone = column.rows(*direct)
        assert beside is not None
        assert (beside[0][0], beside[1][0]) == (alone.estimate[0], alone.std_error[0])  # type: ignore[index]


@pytest.mark.parametrize(
    ("count", "total", "mean"), [(0, 20, 10.0), (-7, 20, 10.0), (1, 10**9, BOUND), (1, -(10**9), -BOUND)]
)
def test_a_mean_never_divides_by_less_than_one_and_never_leaves_its_bound(count: int, total: int, mean: float) -> None:
    found = published(count, 1, total)["average"]
    assert found.estimate[0] == mean
    assert np.isfinite(found.std_error[0])
    assert found.std_error[0] > 0


def test_the_simulated_spread_of_a_mean_is_what_its_error_bar_says() -> None:
    dice = np.random.default_rng(5)
    n, count, total = 20_000, 400, 24_000
    estimates, errors = np.zeros((n, len(KINDS)), np.int64), np.zeros((n, len(KINDS)))
    estimates[:, COUNT] = np.rint(count + 10 * dice.standard_normal(n))
    estimates[:, SUM] = np.rint(total + 300 * dice.standard_normal(n))
    errors[:, COUNT], errors[:, SUM] = 10, 300
    mean = {column.name: column for column in published_rows(estimates, errors)}["average"]
    assert np.std(mean.estimate) == pytest.approx(np.median(mean.std_error), rel=0.05)


def test_the_room_of_sums_is_that_of_the_longest_list_that_the_strategy_allows() -> None:
    """A ledger lets a user keep more records than it is named by."""
    configured: dict[str, Any] = {
        "bounds": {"max_records_per_user": 100},
        "columns": [
            {"name": "people", "kind": "users"},
            {"name": "paid", "kind": "sum", "field": "amount", "bound": 2**24, "grid": 1},
        ],
    }
    promise = {"epsilon": 6.0, "delta": 1e-9}
    settings(**configured, privacy={**promise, "strategy": "toeplitz"})
    with pytest.raises(ConfigurationError, match=r"sums could leave 64 bits .* lower bounds.max_records_per_user"):
        settings(**configured, privacy={**promise, "strategy": "closing"})


def test_a_cell_of_which_nothing_is_kept_adds_nothing_to_any_column() -> None:
    """It is there for the weight that one of its records has."""
    kept = Kept(
        rows=np.array([4, 0, 2], np.intp),
        starts=np.array([0, 0, 2, 2, 3, 3]),
        first=np.array([True, True, False, True, True]),
        values=np.array([[5], [1_000], [-7], [1_000], [2**62]]),
    )
    assert CONFIGURED.layout.aggregate(kept).tolist() == [
        [{"count": count, "users": users, "sum": total}[kind] for kind in KINDS]
        for count, users, total in [(0, 0, 0), (2, 2, 2**62 + 5), (0, 0, 0), (1, 0, -7), (0, 0, 0), (0, 0, 0)]
    ]
    nothing = Kept(rows=np.empty(0, np.intp), starts=np.zeros(2, np.int64), first=kept.first, values=kept.values)
    assert not CONFIGURED.layout.aggregate(nothing).any()
