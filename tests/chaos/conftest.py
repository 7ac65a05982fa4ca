"""The raw topics that runs of the chaos tests read, and what a run publishes that nobody disturbs; each made once a run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker
from tests.pipeline import Pipeline, Public, archive_topic, produce, web_log

RAW_PARTITIONS = 3
COPIES = 2
"""62,000 records: enough for several commits of every stage."""
LOAD = 10
"""310,000 records: for faults that come at any moment of a run, which must not be over by then."""
Once = Callable[[str, Callable[[], Any]], Any]


def archive(kafka: Broker, copies: int) -> str:
    """The shipped log, dealt out over several partitions without regard to users."""
    topic = archive_topic(kafka, RAW_PARTITIONS)
    produce(kafka, topic, web_log(RAW_PARTITIONS, copies))
    return topic


def same_archive(broker: Broker, topic: str, copies: int) -> str:
    """On another broker. The topic's name is part of the noise's address, so the copy has it, too."""
    broker.create_topic(topic, RAW_PARTITIONS, {"retention.ms": "-1"})
    produce(broker, topic, web_log(RAW_PARTITIONS, copies))
    return topic


def published_in_peace(
    kafka: Broker,
    directory: Path,
    raw: str,
    overrides: Mapping[str, Any] | None = None,
    wait: Callable[[Pipeline], None] = Pipeline.wait,
) -> Public:
    """What one worker publishes that nobody disturbs. It is started from the command line; those compared with it are forked."""
    with Pipeline(kafka, directory, raw, overrides) as pipeline:
        pipeline.start(SUSURRUS_TEST_FORK="0")
        wait(pipeline)
        return pipeline.public()


@pytest.fixture(scope="session")
def raw(kafka: Broker, once: Once) -> str:
    """A raw topic that is soon read."""
    return once("raw", lambda: archive(kafka, COPIES))


@pytest.fixture(scope="session")
def undisturbed(kafka: Broker, raw: str, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Public:
    """What is published of it."""
    return once("undisturbed", lambda: published_in_peace(kafka, tmp_path_factory.mktemp("undisturbed"), raw))


@pytest.fixture
def lone_raw(lone_broker: Broker, raw: str) -> str:
    """The same on a broker of the test's own."""
    return same_archive(lone_broker, raw, COPIES)


@pytest.fixture(scope="session")
def loaded_raw(kafka: Broker, once: Once) -> str:
    """A raw topic that keeps workers busy."""
    return once("loaded-raw", lambda: archive(kafka, LOAD))


@pytest.fixture(scope="session")
def loaded_undisturbed(kafka: Broker, loaded_raw: str, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Public:
    """What is published of it."""
    return once("loaded", lambda: published_in_peace(kafka, tmp_path_factory.mktemp("loaded"), loaded_raw))
