"""status: every partition has a row, and every row that is not well says why and what to do."""

from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.finding import Finding
from susurrus.agents.operations.status import PartitionStatus, judge
from susurrus.agents.runtime.cuts import Cuts
from susurrus.agents.runtime.ledger import Ledger
from susurrus.mechanisms import errors
from susurrus.topics.ledger import RefusalRecord, Status, decode
from susurrus.topics.wire.packing import MalformedRecord

NOW = 1_800_000_000_000
ENDS = {("route", 0): 100, ("bound", 0): 10}


def one(*records: Status | RefusalRecord) -> PartitionStatus:
    return judge(records, {("route", 0): 100}, {("route", 0)})[0]


def report(**fields: object) -> Status:
    return Status(**{"stage": "route", "partition": 0, "state": "running", "position": 90, "at": NOW, **fields})  # type: ignore[arg-type]


def test_partitions_without_a_report_are_rows_too() -> None:
    rows = judge([], ENDS, set())
    assert [(row.stage, row.state) for row in rows] == [("route", "missing"), ("bound", "missing")]
    assert all(row.finding.text and row.finding.action for row in rows)


def test_lag_is_what_is_not_committed() -> None:
    assert one(report()).lag == 10
    assert one(report(position=101)).lag == 0
    assert one(report(position=-1)).lag is None


def test_a_running_partition_needs_no_operator() -> None:
    row = one(report(interval=7, worker="w"))
    assert (row.state, row.finding, row.interval, row.worker) == ("running", None, 7, "w")


def test_a_partition_that_no_worker_has_is_missing_whatever_it_reported_last() -> None:
    for state in ("running", "stopped"):
        row = judge([report(state=state)], {("route", 0): 100}, set())[0]
        assert row.state == "missing"
        assert "start a worker" in row.finding.action


def test_an_idle_partition_reports_nothing_new_and_is_well() -> None:
    assert one(report(at=0)).state == "running"
    assert judge([report(at=0)], {("route", 0): 100}, None)[0].state == "running"


def test_a_new_owner_is_starting_until_it_reports() -> None:
    assert one(report(state="stopped")).state == "starting"
    assert judge([report(state="stopped")], {("route", 0): 100}, None)[0].state == "stopped"


def test_a_stall_has_a_text_and_an_action_from_where_it_is_found_to_where_it_is_shown() -> None:
    cuts = Cuts()
    cuts.asked(5, 100)
    stalled = cuts.stall(99, "topic=raw partition=0")
    assert stalled is not None
    row = one(report(stalled=stalled.text, action=stalled.action, waits=stalled.waits))
    assert row.state == "stalled"
    assert row.finding == Finding("route-0", "warning", stalled.text, stalled.action, waits=True)
    assert row.finding.text.endswith("a producer's transaction is open there, or there is much to read")
    assert row.finding.action == "if it stays, end the transaction (kafka-transactions.sh find-hanging, then abort)"


def test_a_stall_that_a_worker_of_the_version_before_reports_is_one_text() -> None:
    row = one(report(stalled="interval=7 waits for offset=9, position=3: find the open transaction"))
    assert row.state == "stalled"
    assert str(row.finding) == "interval=7 waits for offset=9, position=3: find the open transaction"


def test_the_step_of_a_start_is_no_problem_and_what_it_fails_at_is() -> None:
    row = one(report(state="starting", stalled="recovering state from the changelog"))
    assert (row.state, row.finding.level, row.finding.waits) == ("starting", "ok", True)
    row = one(report(state="starting", stalled="starting again", action="look at the brokers", waits=True))
    assert (row.state, row.finding.level, row.finding.action) == ("stalled", "warning", "look at the brokers")


def test_a_refusal_outlives_the_last_report() -> None:
    refusal = RefusalRecord(stage="route", partition=0, cause="topic recreated", action="restore it", at=NOW - 5)
    for records in ([refusal], [report(at=0), refusal], [report(state="refused"), refusal]):
        row = one(*records)
        assert (row.state, row.finding) == ("refused", Finding("route-0", "failure", "topic recreated", "restore it"))


def test_a_refusal_keeps_its_cause_and_its_action_apart_whatever_colons_they_have() -> None:
    """They were one text, cut at its last colon: of this one, "upgrade the reader" was shown as what to do."""
    with pytest.raises(MalformedRecord) as malformed:
        decode(b"epoch", b'{"schema": 2, "epoch": "ab", "created": 1}')
    error = errors.Refusal(f"topic=s.p.ledger offset=5: {malformed.value}", "find out who else writes to it")
    assert str(error).endswith("is not 1: upgrade the reader: find out who else writes to it")
    written: list[RefusalRecord] = []
    ledger: Any = SimpleNamespace(publish=written.append)
    Ledger.refuse(ledger, "route", 0, Finding.of(error, "route-0"))
    row = one(*written)
    assert row.finding is not None
    assert row.finding.text.endswith("ledger record schema=2 is not 1: upgrade the reader")
    assert row.finding.action == "find out who else writes to it"


def test_a_refusal_of_an_unknown_partition_is_shown() -> None:
    refusal = RefusalRecord(stage="route", partition=7, cause="c", action="a", at=NOW)
    assert [row.partition for row in judge([refusal], {("route", 0): 1}, None)] == [0, 7]


@pytest.mark.parametrize("state", ["fenced", "refused", "something-new"])
def test_every_other_state_needs_an_operator(state: str) -> None:
    assert one(report(state=state)).state not in ("running", "starting")
