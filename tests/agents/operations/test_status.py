"""status: every partition has a row, and every row that is not well says why and what to do."""

import pytest

from susurrus.agents.operations.status import PartitionStatus, judge
from susurrus.topics.ledger import RefusalRecord, Status

NOW = 1_800_000_000_000
ENDS = {("route", 0): 100, ("bound", 0): 10}


def one(*records: Status | RefusalRecord) -> PartitionStatus:
    return judge(records, {("route", 0): 100}, {("route", 0)})[0]


def report(**fields: object) -> Status:
    return Status(**{"stage": "route", "partition": 0, "state": "running", "position": 90, "at": NOW, **fields})  # type: ignore[arg-type]


def test_partitions_without_a_report_are_rows_too() -> None:
    rows = judge([], ENDS, set())
    assert [(row.stage, row.state) for row in rows] == [("route", "missing"), ("bound", "missing")]
    assert all(row.reason and row.action for row in rows)


def test_lag_is_what_is_not_committed() -> None:
    assert one(report()).lag == 10
    assert one(report(position=101)).lag == 0
    assert one(report(position=-1)).lag is None


def test_a_running_partition_needs_no_operator() -> None:
    row = one(report(interval=7, worker="w"))
    assert (row.state, row.reason, row.interval, row.worker) == ("running", "", 7, "w")


def test_a_partition_that_no_worker_has_is_missing_whatever_it_reported_last() -> None:
    for state in ("running", "stopped"):
        row = judge([report(state=state)], {("route", 0): 100}, set())[0]
        assert row.state == "missing"
        assert "start a worker" in row.action


def test_an_idle_partition_reports_nothing_new_and_is_well() -> None:
    assert one(report(at=0)).state == "running"
    assert judge([report(at=0)], {("route", 0): 100}, None)[0].state == "running"


def test_a_new_owner_is_starting_until_it_reports() -> None:
    assert one(report(state="stopped")).state == "starting"
    assert judge([report(state="stopped")], {("route", 0): 100}, None)[0].state == "stopped"


def test_a_stall_is_split_into_cause_and_action() -> None:
    row = one(report(stalled="interval=7 waits for offset=9, position=3: find the open transaction"))
    assert row.state == "stalled"
    assert row.reason == "interval=7 waits for offset=9, position=3"
    assert row.action == "find the open transaction"


def test_a_refusal_outlives_the_last_report() -> None:
    refusal = RefusalRecord(stage="route", partition=0, cause="topic recreated", action="restore it", at=NOW - 5)
    for records in ([refusal], [report(at=0), refusal], [report(state="refused"), refusal]):
        row = one(*records)
        assert (row.state, row.reason, row.action) == ("refused", "topic recreated", "restore it")


def test_a_refusal_of_an_unknown_partition_is_shown() -> None:
    refusal = RefusalRecord(stage="route", partition=7, cause="c", action="a", at=NOW)
    assert [row.partition for row in judge([refusal], {("route", 0): 1}, None)] == [0, 7]


@pytest.mark.parametrize("state", ["fenced", "refused", "something-new"])
def test_every_other_state_needs_an_operator(state: str) -> None:
    assert one(report(state=state)).state not in ("running", "starting")
