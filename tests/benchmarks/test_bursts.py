"""The table of what bursts lose: the page has what the program computes of the shipped log."""

import bursts
import numpy as np

from susurrus.agents.planning.workload import UserRecords


def test_the_page_has_the_rows_of_the_shipped_log() -> None:
    assert bursts.main(["--check"]) == 0, (
        "run python benchmarks/bursts.py and put its table into docs/guarantees/bounding.md"
    )


def test_what_no_common_factor_mends_is_nothing_where_all_keys_lose_alike() -> None:
    user, key = np.repeat(np.arange(4), 2), np.tile(np.arange(2), 4)
    columns = {"user": user.astype(np.int32), "key": key.astype(np.int32), "time": np.zeros(8, np.int32)}
    records = UserRecords(**columns, users=4)
    assert bursts.left_over(records, np.array([1, 0, 0, 1, 1, 0, 0, 1], np.bool_)) == 0.0
    assert bursts.left_over(records, key == 0) == 1.0
    in_log = bursts.kept(records, 1, 1, hashed=False)
    assert in_log.tolist() == (key == 0).tolist()
    assert bursts.kept(records, 1, 1, hashed=True).sum() == 4
