"""The order of a ranking against Python's own sort, parts against the whole, and what the first row is worth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from susurrus.mechanisms.ranking import COMPARISONS, Condition, RowRanking

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
CONDITION = st.builds(Condition, st.sampled_from(["n", "m"]), st.sampled_from(list(COMPARISONS)), st.integers(-3, 3))
RANKING = st.builds(
    RowRanking,
    order_by=st.sampled_from(["n", "m"]),
    descending=st.booleans(),
    limit=st.integers(1, 6),
    having=st.lists(CONDITION, max_size=2).map(tuple),
)
ROWS = st.lists(st.tuples(NUMBERS, st.floats(-4, 4, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0])), max_size=12)
HOLDS = {">=": lambda a, b: a >= b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, "<": lambda a, b: a < b}


def columns_of(rows: list[tuple[int, float]]) -> dict[str, np.ndarray]:
    return {"n": np.array([row[0] for row in rows], np.int64), "m": np.array([row[1] for row in rows], np.float64)}


def by_hand(ranking: RowRanking, rows: list[tuple[int, float]]) -> list[int]:
    """Python's sort is stable, and its integers have no end."""
    place = {"n": 0, "m": 1}
    met = [
        at
        for at, row in enumerate(rows)
        if all(HOLDS[one.sign](row[place[one.column]], one.number) for one in ranking.having)
    ]
    sign = -1 if ranking.descending else 1
    return sorted(met, key=lambda at: sign * rows[at][place[ranking.order_by]])[: ranking.limit]


@given(RANKING, ROWS)
def test_it_is_pythons_own_order(ranking: RowRanking, rows: list[tuple[int, float]]) -> None:
    assert ranking.first(columns_of(rows)).tolist() == by_hand(ranking, rows)


@given(RANKING, st.lists(st.tuples(st.integers(0, 2), st.tuples(st.integers(-3, 3), st.just(0.0))), max_size=20))
def test_the_first_of_the_parts_are_enough(ranking: RowRanking, rows: list[tuple[int, tuple[int, float]]]) -> None:
    """Rows stand in the order of their keys, in each part and in the whole."""
    whole = [row for _, row in rows]
    kept: list[int] = []
    for part in range(3):
        mine = [at for at, (of, _) in enumerate(rows) if of == part]
        kept += [mine[at] for at in ranking.first(columns_of([whole[at] for at in mine])).tolist()]
    kept.sort()
    again = ranking.first(columns_of([whole[at] for at in kept])).tolist()
    assert [kept[at] for at in again] == ranking.first(columns_of(whole)).tolist()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_place(number: float) -> None:
    ranking = RowRanking(order_by="m", descending=True, limit=1)
    with pytest.raises(ValueError, match="not finite"):
        ranking.first({"m": np.array([1.0, number])})


def test_it_says_what_it_is() -> None:
    having = (Condition("n", ">=", 100), Condition("m", "<", 0.5))
    assert str(RowRanking(order_by="n", descending=True, limit=10, having=having)) == (
        "HAVING n >= 100 AND m < 0.5 ORDER BY n DESC LIMIT 10"
    )
    assert str(RowRanking(order_by="n", descending=False, limit=3)) == "ORDER BY n LIMIT 3"
    assert RowRanking(order_by="n", descending=True, limit=1, having=having).columns == ("n", "m")


@pytest.mark.parametrize(("keys", "said"), [(10, 1.54), (1000, 3.24)])
def test_the_first_of_equal_keys_is_too_high_by_what_the_guarantee_page_says(keys: int, said: float) -> None:
    def of_largest(x: float) -> float:
        return float(x * keys * stats.norm.pdf(x) * stats.norm.cdf(x) ** (keys - 1))

    excess, _ = integrate.quad(of_largest, -10, 10)
    assert abs(excess - said) < 0.005
    noise = np.random.default_rng(5).normal(size=(2_000, keys))
    ranking = RowRanking(order_by="n", descending=True, limit=1)
    firsts = [row[ranking.first({"n": row})[0]] for row in noise]
    assert abs(np.mean(firsts) - excess) < 5 * np.std(firsts) / math.sqrt(len(firsts))
