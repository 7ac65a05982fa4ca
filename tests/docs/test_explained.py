"""Reasons, causes and JSON names in the documents are those in the code."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from susurrus.agents.cli.letters import letters_json
from susurrus.agents.cli.status_json import status_json
from susurrus.agents.finding import Finding
from susurrus.agents.operations.dead_letters import Letter, RawRecord, Scan
from susurrus.agents.operations.explanation import explain, facts_of
from susurrus.agents.operations.status import PartitionStatus, PipelineStatus
from susurrus.agents.pipelines import pipeline_of
from susurrus.topics.records.reason import LEFT_OUT, Reason
from tests.agents.released import settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "explain-an-empty-result.md").read_text()


def test_reasons_are_documented_with_what_they_mean_and_what_to_do() -> None:
    table = re.findall(
        r"^\| `([A-Z0-9_]+)` \| (.+) \| (.+) \|$", (ROOT / "docs" / "topics.md").read_text(), re.MULTILINE
    )
    reasons = [reason for reason in sorted(Reason, key=int) if reason and reason not in LEFT_OUT]
    assert table == [(reason.name, reason.message, reason.advice) for reason in reasons]


def test_causes_are_documented() -> None:
    files = [path for name in ("explanation", "waiting") for path in (ROOT / "agents").rglob(f"{name}.py")]
    sources = "".join(path.read_text() for path in files)
    section = PAGE[PAGE.index("## What keeps records out") : PAGE.index("## Dead letters")]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    assert {cause for row in rows for cause in re.findall(r"`([^`]+)`", row)} == set(
        re.findall(r'subject="([\w-]+)"', sources)
    )


def test_outcomes_are_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "agents").rglob("pipeline.py"))
    section = PAGE[PAGE.index("## What became of the records") : PAGE.index("## What keeps records out")]
    documented = re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)[1:]
    assert set(documented) == {*re.findall(r'Outcome\("([a-z ]+)"', sources), "waiting", "before the start"}


def names(value: Any) -> Iterator[str]:
    """Names of a JSON value and of what is in it, without those that stages give."""
    for each in value if isinstance(value, list) else ():
        yield from names(each)
    if isinstance(value, dict):
        for name, inside in value.items():
            yield name
            if name not in ("stages", "released", "counters"):
                yield from names(inside)


def test_names_of_the_json_are_documented() -> None:
    pipeline = pipeline_of(settings())
    row = PartitionStatus(
        stage="route",
        partition=0,
        state="missing",
        finding=Finding("route-0", "failure", "r", "a"),
        counters={"in": 0, "dead_letter": 0},
    )
    found = PipelineStatus(epoch="ab" * 16, first_window=0, partitions=(row,), skipped=1)
    facts = facts_of(pipeline, found, now=0)
    said = status_json(pipeline, found, facts, explain(pipeline, facts), [])
    assert said["findings"]
    letter = Letter(0, "raw", 0, 0, Reason.EMPTY, "route")
    scan = Scan(counts=Counter({(Reason.EMPTY, "raw", 0): 1}), newest=[letter])
    letters = letters_json("t", scan, [(letter, RawRecord(0, b"k", b"v"))], values=True)
    documented = {
        part for name in re.findall(r"`([a-z_.]+)`", PAGE[PAGE.index("## JSON") :]) for part in name.split(".")
    }
    assert {*names(said), *names(letters)} <= documented
