"""The topics' contracts: complete, named as promised, and documented."""

from pathlib import Path

import pytest

from susurrus.topics.spec import (
    HISTOGRAM_TOPICS,
    LOCAL_TOPICS,
    PUBLISHED_KEYS,
    ROLLING,
    SOURCES,
    STREAM_TOPICS,
    TOP_TOPICS,
    topic_name,
)

PUBLIC = {"histogram", "latest", "progress", "rolling", "top", "private-stream", "threshold", "estimate"}
PIPELINES = {
    "histogram": (*HISTOGRAM_TOPICS, PUBLISHED_KEYS, *TOP_TOPICS, ROLLING, SOURCES),
    "stream": (*STREAM_TOPICS, SOURCES),
    "local": LOCAL_TOPICS,
}
SPECS = list(dict.fromkeys(spec for topics in PIPELINES.values() for spec in topics))
DOCUMENT = Path(__file__).parents[2] / "docs" / "topics.md"


def test_names_are_prefix_pipeline_topic():
    assert topic_name("susurrus", "page-views", "by-user") == "susurrus.page-views.by-user"


@pytest.mark.parametrize("topics", PIPELINES.values(), ids=PIPELINES)
def test_names_are_distinct(topics):
    names = [spec.name for spec in topics]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_only_private_results_are_public(spec):
    assert (spec.readers == "public") == (spec.name in PUBLIC)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_the_document_says_the_same(spec):
    row = next(line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{spec.name}` |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:6] == [spec.partitions, spec.cleanup, spec.readers]
