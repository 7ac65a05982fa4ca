"""A Java program of Kafka Streams, with `latest` as a KTable."""

import re
from importlib.resources import files

import pytest

from tests.recipes.conftest import RECIPES, Published, check_shown
from tests.recipes.programs import java_program, quietly

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first run fetches and builds the program

PAGES = ["/ksc.html", "/images/NASA-logosmall.gif", "/shuttle/missions/sts-69/mission-sts-69.html"]


def test_a_ktable_of_latest_answers_queries(published: Published) -> None:
    program = java_program("kafka-streams", "recipes.Lookup")
    lookup = [*program, published.bootstrap_servers, f"{published.prefix}.latest"]
    check_shown("kafka-streams", quietly([*lookup, "1995-08-01T00:00:00Z", *PAGES]))
    assert quietly([*lookup, "1995-08-02T00:00:00Z", "/smoothed.html"]).split()[:4] == ["/smoothed.html", "3", "±", "1"]


def test_the_versions_are_the_brokers() -> None:
    wanted, found = (
        re.search(r"<kafka.version>(.*)</kafka.version>", pom.read_text())
        for pom in (files("susurrus.agents.broker") / "pom.xml", RECIPES / "kafka-streams" / "pom.xml")
    )
    assert wanted is not None
    assert found is not None
    assert wanted[1] == found[1]
