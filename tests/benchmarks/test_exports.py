"""The benchmark of readers, on few rows and a real broker."""

import pytest

from benchmarks.exports import FORMATS, measure
from tests.broker import Broker


@pytest.mark.thorough
def test_every_way_to_read_has_what_was_published(kafka: Broker) -> None:
    pytest.importorskip("pyarrow")
    found = list(measure(kafka.bootstrap_servers, keys=7, triggers=3, partitions=2))
    ways = ["watch --once", *(f"watch --export {form}" for form in FORMATS), "releases(follow=False)"]
    assert [(row["what"], row["rows"]) for row in found] == [*((way, 7) for way in ways[:-1]), (ways[-1], 21)]
