"""The raw topic that all runs of the chaos tests read, and what a run publishes that nobody disturbs."""

from collections.abc import Iterator

import pytest

from tests.broker import Broker
from tests.pipeline import Pipeline, Public, archive_topic, produce, web_log

RAW_PARTITIONS = 3
COPIES = 10
"""310,000 records."""


@pytest.fixture(scope="session")
def raw(kafka: Broker) -> str:
    """The shipped log, dealt out over several partitions without regard to users."""
    topic = archive_topic(kafka, RAW_PARTITIONS)
    produce(kafka, topic, web_log(RAW_PARTITIONS, COPIES))
    return topic


@pytest.fixture
def lone_raw(lone_broker: Broker, raw: str) -> str:
    """The same on a broker of the test's own. The topic's name is part of the noise's address, so the copy has it, too."""
    lone_broker.create_topic(raw, RAW_PARTITIONS, {"retention.ms": "-1"})
    produce(lone_broker, raw, web_log(RAW_PARTITIONS, COPIES))
    return raw


@pytest.fixture(scope="session")
def undisturbed(kafka: Broker, raw: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Public]:
    """What one worker publishes that nobody disturbs."""
    with Pipeline(kafka, tmp_path_factory.mktemp("undisturbed"), raw) as pipeline:
        pipeline.start()
        pipeline.wait()
        yield pipeline.public()
