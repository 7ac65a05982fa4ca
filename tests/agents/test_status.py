"""status: every partition has a row, and every row that is not well says why and what to do."""

import pytest
from susurrus.agents.status import SILENT_MS, PartitionStatus, judge
from susurrus.topics.ledger import Refusal, Status

NOW = 1_800_000_000_000
ENDS = {("route", 0): 100, ("bound", 0): 10}


def one(*records: Status | Refusal) -> PartitionStatus:
    return judge(records, {("route", 0): 100}, NOW)[0]


def report(**fields: object) -> Status:
    return Status(**{"stage": "route", "partition": 0, "state": "running", "position": 90, "at": NOW, **fields})  # type: ignore[arg-type]


def test_partitions_nobody_reports_are_rows_too() -> None:
    rows = judge([], ENDS, NOW)
    assert [(row.stage, row.state) for row in rows] == [("route", "missing"), ("bound", "missing")]
    assert all(row.reason and row.action for row in rows)


def test_lag_is_what_is_not_committed() -> None:
    assert one(report()).lag == 10
    assert one(report(position=101)).lag == 0
    assert one(report(position=-1)).lag is None


def test_a_running_partition_needs_nobody() -> None:
    row = one(report(slot=7, worker="w"))
    assert (row.state, row.reason, row.slot, row.worker) == ("running", "", 7, "w")


def test_silence_is_noticed() -> None:
    assert one(report(at=NOW - SILENT_MS)).state == "running"
    row = one(report(at=NOW - SILENT_MS - 1))
    assert row.state == "silent"
    assert "worker" in row.action


def test_a_stall_is_split_into_cause_and_action() -> None:
    row = one(report(stalled="slot=7 waits for offset=9, position=3: find the open transaction"))
    assert row.state == "stalled"
    assert row.reason == "slot=7 waits for offset=9, position=3"
    assert row.action == "find the open transaction"


def test_a_refusal_outlives_the_last_report() -> None:
    refusal = Refusal(stage="route", partition=0, cause="topic recreated", action="restore it", at=NOW - 5)
    for records in ([refusal], [report(at=NOW - 10 * SILENT_MS), refusal], [report(state="refused"), refusal]):
        row = one(*records)
        assert (row.state, row.reason, row.action) == ("refused", "topic recreated", "restore it")


def test_a_refusal_of_an_unknown_partition_is_shown() -> None:
    refusal = Refusal(stage="route", partition=7, cause="c", action="a", at=NOW)
    assert [row.partition for row in judge([refusal], {("route", 0): 1}, NOW)] == [0, 7]


@pytest.mark.parametrize("state", ["moved", "stopped", "refused", "something-new"])
def test_every_other_state_needs_somebody(state: str) -> None:
    assert one(report(state=state)).state not in ("running", "starting")
