"""What is hidden from sums over remembered keys: figures that can be counted by hand, and the command's rows."""

import json

import hidden_rows
import numpy as np

from susurrus.agents.planning.in_a_row import WindowRows


def test_figures_are_sums_by_size_over_rows_that_are_shown_and_over_all() -> None:
    true = np.array([0, 5, 20, 400, 50])
    of = np.ones(5, np.bool_)[:, None]
    rows = WindowRows(
        public=np.array([True, True, True, True, False]),
        shown=np.array([False, True, True, True, False]),
        smoothed=np.array([True, True, True, False, True])[:, None],
        direct=true[:, None] + 1.0,
        direct_errors=5.0 * of,
        estimates=true[:, None] + 2.0,
        std_errors=3.0 * of,
        own=true[:, None] + 10.0,
        own_errors=4.0 * of,
        rates=true[:, None] + 3.0,
        rate_variances=9.0 * of,
    )
    found = hidden_rows.seen(rows, np.ones(5, np.bool_), true)
    assert found["sizes"]["all"]["all"] == {
        "rows": 3, "true": 25, "direct": 55.0, "direct_error": 48**0.5, "shown": 31.0, "shown_error": 27**0.5,
    }  # fmt: skip
    assert found["sizes"]["0"]["shown"]["rows"] == 0
    assert found["sizes"]["0"]["all"]["rows"] == 1
    assert found["sizes"]["1 to 9"]["shown"]["direct"] == 15.0
    assert found["sizes"]["300 or more"]["all"]["rows"] == 0, "it has no smoothed number"
    assert found["release"]["shown"]["true"] == 425
    assert found["release"]["all"]["shown"] == 425 + 4 * 2
    assert list(found["sizes"]) == ["all", "0", "1 to 9", "10 to 29", "30 to 99", "100 to 299", "300 or more"]


def test_the_command_writes_a_row_for_each_seed_and_quarter(tmp_path) -> None:
    out = tmp_path / "hidden.jsonl"
    hidden_rows.main(["--users", "3000", "--days", "2", "--seeds", "2", "--micro-batches", "8", "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["seed"], row["trigger"], row["day"]) for row in rows] == [
        (s, t, 2) for s in (0, 1) for t in (2, 4, 6, 8)
    ]
