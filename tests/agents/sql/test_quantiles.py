"""Quantiles in statements: each spelling, and what an operator reads where one is wrong."""

from typing import Any

import pytest

from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.sql.test_statement import GOOD, column, read

RANGED = "ms CLAMPED BETWEEN 1 AND 60000"
RANGE: dict[str, Any] = {"field": "ms", "lower": 1, "upper": 60000}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        (f"PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY {RANGED})", {"kind": "quantiles", **RANGE, "at": [0.95]}),
        (
            f"percentile_cont(0.5) within group (order by {RANGED} in 64 log buckets)",
            {"kind": "quantiles", **RANGE, "buckets": 64, "scale": "log", "at": [0.5]},
        ),
        (
            "PERCENTILE_CONT(ms, 0.5, contribution_bounds_per_row => (1, 60000))",
            {"kind": "quantiles", **RANGE, "at": [0.5]},
        ),
        (
            "APPROX_QUANTILES(ms, 2, contribution_bounds_per_row => (-5, 5))",
            {"kind": "quantiles", "field": "ms", "lower": -5, "upper": 5, "at": [0.5]},
        ),
        (
            f"APPROX_QUANTILES({RANGED} IN LINEAR BUCKETS, 4)",
            {"kind": "quantiles", **RANGE, "scale": "linear", "at": [0.25, 0.5, 0.75]},
        ),
        (
            "INTERQUARTILE_RANGE(ms / 1000 CLAMPED BETWEEN 0 AND 60 IN 8 BUCKETS)",
            {"kind": "spread", "expression": "ms / 1000", "lower": 0, "upper": 60, "buckets": 8},
        ),
    ],
)
def test_each_spelling(text: str, table: dict[str, Any]) -> None:
    assert column(f"{text} AS views") == {"name": "views", **table}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"PERCENTILE_CONT(1) WITHIN GROUP (ORDER BY {RANGED}) AS x", "a quantile lies between 0 and 1"),
        (f"PERCENTILE_CONT('a') WITHIN GROUP (ORDER BY {RANGED}) AS x", "write a number here"),
        (f"PERCENTILE_CONT(0.5) WITHIN GROUP ({RANGED}) AS x", r"WITHIN GROUP \(ORDER BY"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY ms) AS x", "the value needs public bounds"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY ms CLAMPED 5) AS x", "the bounds are missing"),
        (f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {RANGED} IN BUCKETS) AS x", "IN 32 LOG BUCKETS"),
        (f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {RANGED} IN 2.5 BUCKETS) AS x", "write a whole number"),
        (f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {RANGED})", "the column needs a name"),
        ("PERCENTILE_CONT(ms, 0.5) AS x", "the value needs public bounds"),
        ("PERCENTILE_CONT(ms) AS x", "write PERCENTILE_CONT"),
        (f"PERCENTILE_CONT({RANGED}, 0.5, contribution_bounds_per_row => (1, 5)) AS x", "the bounds are there twice"),
        ("PERCENTILE_CONT(ms, 0.5, contribution_bounds_per_row (1, 5)) AS x", "contribution_bounds_per_row =>"),
        (f"APPROX_QUANTILES({RANGED}, 1) AS x", "from 2 to 100"),
        (f"APPROX_QUANTILES({RANGED}) WITHIN GROUP (ORDER BY ms) AS x", "write APPROX_QUANTILES"),
        (f"INTERQUARTILE_RANGE({RANGED}, 4) AS x", "write INTERQUARTILE_RANGE"),
        (f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {RANGED}) / 2 AS x", "stands alone"),
        ("MEDIAN(ms) AS x", "there is no private MEDIAN.* PERCENTILE_CONT"),
        ("APPROX_QUANTILES(SUM(ms) CLAMPED BETWEEN 0 AND 1, 4) AS x", "SUM stands alone"),
    ],
)
def test_what_is_wrong_says_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        column(text)


def test_one_of_several_quantiles_may_decide_a_ranking() -> None:
    """Whether there is such a quantile, the settings say, and show its place."""
    text = GOOD.replace("COUNT(*) AS views", f"APPROX_QUANTILES({RANGED}, 4) AS views")
    found = read(text.replace(" EMIT", " HAVING views_p25 > 3 ORDER BY views_p50 DESC LIMIT 3 EMIT")).settings
    assert (found["top.order_by"], found["top.having"]) == ("views_p50", ["views_p25 > 3"])
    with pytest.raises(ConfigurationError, match="only a published column can be named here"):
        read(text.replace(" EMIT", " ORDER BY other_p50 LIMIT 3 EMIT"))
