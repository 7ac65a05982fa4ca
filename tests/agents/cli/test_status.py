"""The picture of a pipeline's state, at the widths terminals have."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from susurrus.agents.cli.status import picture, start
from susurrus.agents.finding import Finding
from susurrus.agents.operations.account import account_of
from susurrus.agents.operations.status import PartitionStatus, PipelineStatus
from susurrus.agents.pipelines import pipeline_of, settings_from
from tests.agents.operations.test_account import NOW, days, with_budget
from tests.agents.released import settings

RUNNING = [
    PartitionStatus(stage=stage, partition=p, state="running", position=p, end=p + 5, interval=40, worker="w")
    for stage in ("route", "bound", "release")
    for p in range(4)
]
REFUSED = PartitionStatus(
    stage="release",
    partition=4,
    state="refused",
    finding=Finding("release-4", "failure", "trigger would change", "restore the raw log"),
    at=1,
)
MISSING = [
    PartitionStatus(
        stage="bound", partition=p, state="missing", finding=Finding(f"bound-{p}", "failure", "no worker", "start one")
    )
    for p in (4, 5, 6)
]


def shown(found: PipelineStatus, width: int, *, every: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(picture(found, pipeline_of(settings()), every=every, width=width))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_sources_are_shown_by_topic_and_partition(width: int) -> None:
    long = "orders-of-all-countries-and-shops"
    rows = [
        replace(row, topic="visits" if row.partition < 3 else long, topic_partition=row.partition % 3)
        for row in RUNNING
        if row.stage == "route"
    ]
    bad = [replace(MISSING[0], stage="route", partition=n, topic=long, topic_partition=n - 3) for n in (4, 5)]
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=(*rows, *bad))
    text = "".join(shown(found, width, every=True).split())
    assert "visits2" in text
    assert long.replace("-", "") in text.replace("-", "").replace("│", "")
    assert f"route 4-5 ({long} 1-2): missing" in " ".join(shown(found, 200).split())
    assert "reads" not in shown(replace(found, partitions=tuple(RUNNING)), width, every=True)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("every", [False, True])
def test_all_is_well(width: int, every: bool) -> None:
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=tuple(RUNNING), charged=3, charged_all=5)
    text = shown(found, width, every=every)
    assert "4 running" in text
    assert "20" in text  # 4 partitions, 5 behind each
    assert "1970-01-11T06:00:00Z" in text  # the end of interval 40, six hours each
    assert "What to do" not in text
    assert "3 windows charged, 2 more by others" in " ".join(text.split())


def test_the_budget_is_one_line_of_the_head() -> None:
    with_it = account_of(days(8), with_budget(), NOW)
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=tuple(RUNNING), account=with_it)
    lines = [line.rstrip() for line in shown(found, 80).splitlines()]
    assert "budget ████████░░░░░░ 60% spent · 5 windows left, until 2024-10-10" in lines
    without = account_of(days(8), settings(), NOW)
    spent = f"no [budget] · epsilon {without.spent.epsilon_total(16e-6):.3g} at delta 1.6e-05 spent"
    assert spent in shown(replace(found, account=without), 80)
    assert "budget" not in shown(replace(found, account=None), 80)


def test_problems_say_why_and_what_to_do_once_for_all_partitions_alike() -> None:
    found = PipelineStatus(epoch="ab" * 16, first_window=None, partitions=(*RUNNING, REFUSED, *MISSING))
    text = shown(found, 80)
    assert "bound 4-6: missing" in text
    assert text.count("no worker") == 1
    assert "trigger would change" in text
    assert "What to do: restore the raw log" in text
    assert "4 running, 3 missing" in text


def test_a_configuration_that_workers_would_refuse_is_told_even_if_all_is_well() -> None:
    found = PipelineStatus(
        epoch="ab" * 16, first_window=0, partitions=tuple(RUNNING), changed=("bounds", "privacy.epsilon")
    )
    text = " ".join(shown(found, 80).replace("│", " ").split())
    assert "The pipeline runs with other values of bounds, privacy.epsilon" in text
    assert "What to do: change them back" in text


def test_a_pipeline_that_never_ran_says_so() -> None:
    found = PipelineStatus(epoch="", first_window=None, partitions=tuple(MISSING))
    assert "not started yet" in shown(found, 80)


def test_that_no_worker_runs_is_told_with_what_one_would_meet() -> None:
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=tuple(MISSING), workers=0)
    assert "no worker runs" in shown(found, 120)
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as capture:
        console.print(
            start(Finding("rights", "failure", "the right Read is missing", "give it:\n    kafka-acls.sh ..."), found)
        )
        console.print(
            start(
                Finding("brokers", "failure", "no broker answers", "see to it", waits=True), replace(found, workers=2)
            )
        )
    text = " ".join(capture.get().replace("│", " ").split())
    assert (
        "No worker runs. One that starts now ends with exit code 2: the right Read is missing What to do: give it:"
        in text
    )
    assert "A worker that starts now waits: no broker answers" in text
    assert "\n    kafka-acls.sh ...\n" in capture.get()  # it stands below, where no frame breaks it


def test_no_windows_are_charged_where_there_are_none() -> None:
    local = settings_from(
        {"pipeline": {"name": "m", "kind": "local"}, "local": {"bound": 1.0, "epsilon": 1.0, "interval": "10s"}},
        environ={},
    )
    collect = PartitionStatus(stage="collect", partition=0, state="running", position=0, end=0, interval=5, worker="w")
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=(collect,))
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as capture:
        console.print(picture(found, pipeline_of(local), every=False, width=100))
    assert "collect" in capture.get()
    assert "window" not in capture.get()
