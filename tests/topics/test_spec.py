"""The topics' contracts: complete, named as promised, and documented."""

from pathlib import Path

import pytest
from susurrus.topics.spec import HISTOGRAM_TOPICS, topic_name

DOCUMENT = Path(__file__).parents[2] / "docs" / "topics.md"


def test_names_are_prefix_pipeline_topic():
    assert topic_name("susurrus", "page-views", "by-user") == "susurrus.page-views.by-user"


def test_names_are_distinct():
    names = [spec.name for spec in HISTOGRAM_TOPICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("spec", HISTOGRAM_TOPICS, ids=lambda s: s.name)
def test_only_private_results_are_public(spec):
    assert (spec.readers == "public") == (spec.name in {"histogram", "latest", "progress"})


@pytest.mark.parametrize("spec", HISTOGRAM_TOPICS, ids=lambda s: s.name)
def test_the_document_says_the_same(spec):
    row = next(line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{spec.name}` |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:6] == [spec.partitions, spec.cleanup, spec.readers]
