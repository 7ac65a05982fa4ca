"""Findings as a pure function: generated totals, and each cause by hand."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.cli.outcomes import waiting_count
from susurrus.agents.cli.status_json import outcomes_json
from susurrus.agents.finding import Finding
from susurrus.agents.operations.explanation import explain, facts_of
from susurrus.agents.operations.status import PartitionStatus, PipelineStatus
from susurrus.agents.pipelines import KINDS, pipeline_of, settings_from
from susurrus.agents.runtime.facts import Facts, NewestRelease, PartitionTotal, added, percent, total_of
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.topics.ledger import Start
from susurrus.topics.sources import Run

DAY = 86_400_000
HOUR = 3_600_000
NOW = 20_000 * DAY + 5 * HOUR
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "histogram": {
        "input": {"topic": "raw", "user": "u", "key": ["k"], "where": "status = 200"},
        "clock": {"kind": "producer"},
        "window": {"length": "1d", "trigger_every": "6h"},
        "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"},
    },
    "stream": {"input": {"topic": "raw"}, "stream": {"bound": 1.0, "epsilon": 1.0}},
    "local": {"local": {"bound": 1.0, "epsilon": 1.0}},
}
PIPELINES = {
    kind: pipeline_of(settings_from({"pipeline": {"name": "p", "kind": kind}, **tables}, environ={}))
    for kind, tables in CONFIGURATIONS.items()
}
FIRST = 20_000 * DAY
CLOSED = FIRST // (6 * HOUR) - 1
"""The last interval before the first window."""


def status_of(
    pipeline: Pipeline[Any], counters: Mapping[str, Mapping[str, int]], *, start: str = "earliest", **fields: Any
) -> PipelineStatus:
    """One partition of each stage, running, with these totals. fields: of all partitions; skipped: of the whole."""
    skipped, newest, deleted = fields.pop("skipped", 0), fields.pop("newest", None), fields.pop("deleted", 0)
    rows = tuple(
        PartitionStatus(
            **{
                "stage": stage.name,
                "partition": 0,
                "state": "running",
                "position": 10,
                "next": 10,
                "end": 10,
                "counters": counters.get(stage.name, {}),
                **fields,
            }
        )
        for stage in pipeline.stages
    )
    return PipelineStatus(
        epoch="ab" * 16,
        first_window=FIRST,
        partitions=rows,
        start=Start(first_window=FIRST, origin=start, topic_ids={}, sources=(Run("raw", 0, 1),), offsets={0: 0}),
        skipped=skipped,
        deleted=deleted,
        newest=newest,
    )


def found(
    kind: str,
    counters: Mapping[str, Mapping[str, int]],
    *,
    now: int = NOW,
    reasons: Mapping[str, int] | None = None,
    **fields: Any,
) -> dict[str, Finding]:
    pipeline = PIPELINES[kind]
    findings = explain(pipeline, facts_of(pipeline, status_of(pipeline, counters, **fields), now=now, reasons=reasons))
    assert [finding.share for finding in findings] == sorted((finding.share for finding in findings), reverse=True)
    assert len({finding.subject for finding in findings}) == len(findings)
    return {finding.subject: finding for finding in findings}


def names_of(pipeline: Pipeline[Any]) -> dict[str, set[str]]:
    counters: dict[str, set[str]] = {stage.name: set() for stage in pipeline.stages}
    for outcome in pipeline.outcomes:
        for stage, names in outcome.counters.items():
            counters[stage] |= {name.removeprefix("-") for name in names}
    for stage, name in pipeline.released:
        counters[stage].add(name)
    return counters


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_name_counters_that_the_stages_have(kind: str) -> None:
    pipeline = PIPELINES[kind]
    for stage in pipeline.stages:
        assert names_of(pipeline)[stage.name] <= set(stage.stage.counted)
    assert [outcome.name for outcome in pipeline.outcomes][:2] == ["read", "kept"]
    assert pipeline.released[-1][1] in ("rows", "intervals")


@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_any_totals_are_explained(kind: str, data: st.DataObject) -> None:
    """Whatever the totals are, and whatever is not known: no error, whole sentences, shares between 0 and 1."""
    pipeline = PIPELINES[kind]
    number = st.integers(0, 1 << 40)
    counters = {
        stage: data.draw(st.dictionaries(st.sampled_from(sorted(names)), number))
        for stage, names in names_of(pipeline).items()
        if names
    }
    fields = data.draw(
        st.fixed_dictionaries(
            {
                "skipped": st.none() | number,
                "start": st.sampled_from(["earliest", "latest", str(FIRST)]),
                "interval": st.none() | st.integers(CLOSED, CLOSED + 8),
                "state": st.sampled_from(["running", "starting", "refused", "missing"]),
                "end": st.integers(-1, 1 << 30),
                "deleted": st.integers(0, 1 << 30),
            }
        )
    )
    reasons = data.draw(st.dictionaries(st.sampled_from(["NOT_JSON", "LATE", "SOMETHING_NEW"]), st.integers(1, 1000)))
    for finding in found(kind, counters, reasons=reasons, **fields).values():
        assert 0 <= finding.share <= 1
        assert finding.number is None or finding.number >= 0
        assert finding.text.endswith(".")
        assert finding.why.endswith(".")
        assert finding.action
        assert not finding.action.endswith(".")
        prose = (line for line in finding.action.splitlines() if not line.startswith("    "))  # the others are to copy
        assert "  " not in "\n".join((finding.text, finding.why, *prose))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 100)), max_size=4))
def test_what_a_partition_does_not_say_is_never_taken_for_nothing(counters: list[dict[str, int]]) -> None:
    totals = added(counters)
    for name in "abc":
        says = [one[name] for one in counters if name in one]
        if not says:
            assert name not in totals
            assert str(Facts(now=0, totals={"s": totals}).total("s", name)) == "?"
        else:
            assert totals[name] == PartitionTotal(sum(says), len(says) < len(counters))
            assert str(totals[name]).endswith("+?") == (len(says) < len(counters))


def test_a_sum_is_as_well_known_as_its_parts() -> None:
    assert total_of([PartitionTotal(1), PartitionTotal(2)]) == PartitionTotal(3)
    assert total_of([PartitionTotal(1), PartitionTotal()]) == PartitionTotal(1, partial=True)
    assert total_of([PartitionTotal(1, partial=True), PartitionTotal(2)]) == PartitionTotal(3, partial=True)
    assert total_of([PartitionTotal(), PartitionTotal()]) == PartitionTotal()


@given(st.lists(st.integers(0, 1000), min_size=7, max_size=7))
def test_shares_of_a_histogram_add_up_to_what_was_read(numbers: list[int]) -> None:
    pipeline = PIPELINES["histogram"]
    over, late, filtered, dead, kept, capped, skipped = numbers
    counters = {
        "route": {
            "in": sum(numbers) + 7,
            "capped": over,
            "late": late,
            "filtered": filtered,
            "skipped": skipped,
            "dead_letter": dead,
        },
        "bound": {"kept": kept, "capped": capped},
    }
    facts = facts_of(pipeline, status_of(pipeline, counters), now=NOW)
    assert waiting_count(pipeline, facts) == PartitionTotal(7)
    rows = outcomes_json(pipeline, facts)["outcomes"]
    assert [row["number"] for row in rows] == [sum(numbers) + 7, kept, over + capped, late, filtered, skipped, dead, 7]
    assert sum(row["share"] for row in rows[1:]) == pytest.approx(1.0)


def test_late_reports_are_counted_once() -> None:
    pipeline = PIPELINES["local"]
    counters = {
        "collect": {"in": 100, "phase_1": 20, "phase_2": 30, "late": 10, "dead_letter": 50},
        "server": {"phase_1": 20, "phase_2": 25, "expired": 5, "thresholds": 1, "intervals": 3},
    }
    facts = facts_of(pipeline, status_of(pipeline, counters), now=NOW)
    shown = {row["outcome"]: row["number"] for row in outcomes_json(pipeline, facts)["outcomes"]}
    assert shown == {"read": 100, "kept": 45, "late": 10, "expired": 5, "dead letters": 40, "waiting": 0}


ROUTE = {"in": 1000, "routed": 1000, "capped": 0, "late": 0, "filtered": 0, "skipped": 0, "dead_letter": 0}
WELL = {
    "route": ROUTE,
    "bound": {"taken": 1000, "kept": 1000, "capped": 0},
    "release": {"triggers": 4, "rows": 400},
}


def test_nothing_is_said_where_the_result_is_full() -> None:
    assert found("histogram", WELL, interval=CLOSED + 4, now=FIRST + DAY + HOUR) == {}


def test_a_start_that_leaves_nothing() -> None:
    nothing = {stage: dict.fromkeys(totals, 0) for stage, totals in WELL.items()}
    late_start = found("histogram", nothing, start="latest", skipped=5, interval=CLOSED)["start"]
    assert (late_start.number, late_start.share) == (5, 1.0)
    assert "and none has come since" in late_start.text
    lines = late_start.action.splitlines()
    assert lines[2] == '    name = "p-2"'
    assert lines[-1].startswith('    first_window = "2024-10-04T00:00:00Z"')
    instant = found("histogram", nothing, start=str(FIRST + HOUR), skipped=1, interval=CLOSED)["start"]
    assert instant.text.startswith("1 record of topic raw lies before the start and is not read")
    assert "start.from = 2024-10-04T01:00:00Z" in instant.why
    # Where the result is full, what lies before the start is in the table only.
    assert found("histogram", WELL, skipped=900, start="latest", interval=CLOSED + 4, now=FIRST + DAY + HOUR) == {}
    assert "start" in found(
        "histogram", WELL, skipped=1001, start="latest", interval=CLOSED + 4, now=FIRST + DAY + HOUR
    )


def test_an_empty_topic_is_told_as_such_and_only_where_it_is_known() -> None:
    nothing = {stage: dict.fromkeys(totals, 0) for stage, totals in WELL.items()}
    never = {"position": 0, "next": 0, "end": 0}
    assert "no-records" in found("histogram", nothing, interval=CLOSED, **never)
    assert "deleted" not in found("histogram", nothing, interval=CLOSED, **never)
    gone = found("histogram", nothing, interval=CLOSED, deleted=10)
    assert "they are deleted" in gone["deleted"].why
    assert "no-records" not in gone
    assert "deleted" not in found("histogram", WELL, interval=CLOSED, deleted=10)
    # Transactions take offsets, too, and what was there before an epoch that began with the latest record is not its concern.
    since = found("histogram", nothing, interval=CLOSED, start="latest")["no-records"]
    assert since.why == "The epoch began with the latest record, and nothing has been written to the topic since."
    assert "no-records" not in found("histogram", {}, interval=CLOSED)
    assert "no-records" not in found("histogram", nothing, interval=CLOSED, end=11)


@pytest.mark.parametrize(
    ("total", "cause"), [("late", "late"), ("filtered", "filtered"), ("dead_letter", "dead-letters")]
)
def test_small_losses_are_in_the_table_only(total: str, cause: str) -> None:
    for lost, told in ((49, False), (50, True)):
        counters = {**WELL, "route": {**ROUTE, total: lost}}
        findings = found("histogram", counters, interval=CLOSED + 4, now=FIRST + DAY + HOUR)
        assert (cause in findings) is told


def test_the_commonest_reason_is_named_with_what_to_do() -> None:
    counters = {**WELL, "route": {**ROUTE, "dead_letter": 1000}}
    dead = found("histogram", counters, reasons={"NOT_JSON": 30, "EMPTY": 10}, interval=CLOSED + 4)["dead-letters"]
    assert dead.text == "All 1,000 records read are dead letters."
    assert "75.0 % of the newest 40, is NOT_JSON: the value is not one JSON value" in dead.why
    assert "one JSON object per record" in dead.action
    unread = found("histogram", counters, interval=CLOSED + 4)["dead-letters"]
    assert "could not be read" in unread.why


def test_caps_are_told_with_the_noise_of_twice_the_cap() -> None:
    counters = {**WELL, "route": {**ROUTE, "capped": 100}, "bound": {"taken": 900, "kept": 800, "capped": 100}}
    caps = found("histogram", counters, interval=CLOSED + 4, now=FIRST + DAY + HOUR)["caps"]
    assert (caps.number, caps.share) == (200, 0.2)
    assert "With max_records_per_user = 64: ±" in caps.why


@pytest.mark.parametrize(("rows", "told"), [(0, True), (39, True), (40, False)])
def test_few_keys_are_told_with_the_users_that_a_key_needs(rows: int, told: bool) -> None:
    counters = {**WELL, "release": {"triggers": 4, "rows": rows}}
    findings = found("histogram", counters, interval=CLOSED + 4, now=FIRST + DAY + HOUR)
    assert ("thresholds" in findings) is told
    if told:
        assert findings["thresholds"].number == rows // 4
        assert "at trigger 1, " in findings["thresholds"].why
        assert "(of 4)" in findings["thresholds"].why


@pytest.mark.parametrize(
    ("trigger", "rows", "average", "told"),
    [
        (4, 9, 100, True),  # the last release says what there is
        (1, 0, 100, False),  # the first releases of a window are always thin
        (1, 0, 5, True),
        (4, 10, 5, False),
    ],
)
def test_the_newest_release_decides_what_is_thin(trigger: int, rows: int, average: int, told: bool) -> None:
    counters = {**WELL, "release": {"triggers": 4, "rows": 4 * average}}
    newest = NewestRelease(interval=CLOSED + 4, trigger=trigger, of_triggers=4, rows=rows)
    findings = found("histogram", counters, interval=CLOSED + 4, now=FIRST + DAY + HOUR, newest=newest)
    assert ("thresholds" in findings) is told
    if told:
        assert f"trigger {trigger} of 4" in findings["thresholds"].text


def test_what_is_published_is_closed_whatever_a_stopped_partition_says() -> None:
    newest = NewestRelease(interval=CLOSED + 4, trigger=4, of_triggers=4, rows=100)
    stopped: dict[str, Any] = {"interval": None, "state": "missing", "now": FIRST + DAY + HOUR}
    assert found("histogram", WELL, newest=newest, **stopped) == {}
    assert "missing-tick" in found("histogram", WELL, **stopped)


def test_a_release_waits_for_its_time_and_then_for_who_is_behind() -> None:
    none = {**WELL, "bound": {"taken": 0, "kept": 0, "capped": 0}, "release": {"triggers": 0, "rows": 0}}
    waits = found("histogram", none, interval=CLOSED, now=FIRST + 5 * HOUR)["not-due"]
    assert "due in 1h 1m, at 2024-10-04T06:01:00Z. 1,000 records wait for it." in waits.text
    assert "1m (clock.idle_grace)" in waits.why
    after = FIRST + 7 * HOUR
    held = found(
        "histogram",
        none,
        interval=CLOSED,
        now=after,
        state="missing",
        finding=Finding("route-0", "failure", "no worker has this partition", "start one"),
    )
    assert "waits for route 0" in held["missing-tick"].text
    assert "no worker has this partition" in held["missing-tick"].why
    behind = found("histogram", none, interval=CLOSED, now=after, end=1_010)
    assert "1,000 records are still unread" in behind["unread"].text
    assert "clock" in found("histogram", none, interval=CLOSED, now=after)
    assert "missing-tick" not in found("histogram", WELL, interval=CLOSED + 4, now=FIRST + DAY + HOUR, state="missing")


def test_before_the_first_worker_a_start_can_still_be_changed() -> None:
    pipeline = PIPELINES["histogram"]
    status = PipelineStatus(epoch="", first_window=None, partitions=(), skipped=12)
    [finding] = explain(pipeline, facts_of(pipeline, status, now=NOW))
    assert finding.action.splitlines()[1:] == [
        "    [start]",
        '    from = "earliest"',
        '    first_window = "2024-10-04T00:00:00Z"  # or an earlier start of a window',
    ]
    assert (
        explain(
            pipeline, facts_of(pipeline, PipelineStatus(epoch="", first_window=None, partitions=(), skipped=0), now=NOW)
        )
        == ()
    )


ARCHIVE = pipeline_of(
    settings_from(
        {
            "pipeline": {"name": "p"},
            **CONFIGURATIONS["histogram"],
            "clock": {"kind": "replay", "until": FIRST + DAY},
            "start": {"from": "earliest", "first_window": FIRST},
        },
        environ={},
    )
)


@pytest.mark.parametrize(
    ("ends", "deleted", "cause"),
    [((0, 0), 0, "no-records"), ((7, 0), 7, "deleted"), ((7, 0), 3, None), ((-1, 0), 0, None), ((), 0, None)],
)
def test_an_archive_that_no_worker_begins_is_told_by_its_logs_start(
    ends: tuple[int, ...], deleted: int, cause: str | None
) -> None:
    rows = tuple(
        PartitionStatus(stage="route", partition=number, state="missing", end=end) for number, end in enumerate(ends)
    )
    status = PipelineStatus(epoch="", first_window=None, partitions=rows, deleted=deleted)
    causes = {one.subject: one for one in explain(ARCHIVE, facts_of(ARCHIVE, status, now=NOW))}
    assert set(causes) == ({cause} if cause else set())
    if cause == "no-records":
        assert causes[cause].action == "write the whole archive and then start a worker, or correct input.topic"
    live = PIPELINES["histogram"]
    assert explain(live, facts_of(live, status, now=NOW)) == ()


def test_the_other_kinds_have_their_own_causes() -> None:
    assert "holdout" in found("stream", {"stream": {"in": 5, "dead_letter": 0, "streams": 2, "rows": 0}})
    assert found("stream", {"stream": {"in": 5, "dead_letter": 0, "streams": 2, "rows": 3}}) == {}
    assert (
        found("stream", {}, state="missing", finding=Finding("stream-0", "failure", "r", "a"))["partition"].why == "r."
    )
    phase_1 = {"collect": {"in": 5, "phase_1": 5, "phase_2": 0, "late": 0, "dead_letter": 0}}
    server = {"phase_1": 5, "phase_2": 0, "expired": 0, "thresholds": 0, "intervals": 0}
    assert "5 of 65,536 reports" in found("local", {**phase_1, "server": server})["holdout"].text
    assert "phase-2" in found("local", {**phase_1, "server": {**server, "thresholds": 1}})


def test_percent_never_rounds_to_all_or_nothing() -> None:
    assert [percent(share) for share in (0, 1e-6, 0.0123, 0.5, 0.99999, 1)] == [
        "0 %", "less than 0.1 %", "1.23 %", "50.0 %", "more than 99.9 %", "100 %",
    ]  # fmt: skip
