"""Fixtures shared by all tests: one broker of each kind a session, started when first asked for (tests/broker.py)."""

from collections.abc import Iterator

import pytest

from tests import broker, registry
from tests.broker import Broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A real Kafka broker, shared by the session: use ``new_prefix()`` for every name."""
    with broker.real_broker() as found:
        yield found


@pytest.fixture(scope="session")
def _three_brokers() -> Iterator[Broker]:
    with broker.real_cluster() as found:
        yield found


@pytest.fixture
def kafka_cluster(_three_brokers: Broker) -> Iterator[Broker]:
    """Three real brokers that the test may kill, pause and restart; they are healed afterwards."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture
def lone_broker() -> Iterator[Broker]:
    """A real broker of the test's own, without any replica: when it is down, Kafka is down."""
    with broker.real_cluster(1) as found:
        yield found


@pytest.fixture(scope="session")
def embedded() -> Iterator[Broker]:
    """librdkafka's in-process broker; no transactions are filtered, and topics appear when first named."""
    with broker.embedded_broker() as found:
        yield found


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[str]:
    """The address of a real schema registry, shared by the session: use subjects of your own."""
    with registry.apicurio() as url:
        yield url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a real broker or registry is marked ``broker``, so that ``-m "not broker"`` needs no discipline."""
    for item in items:
        if {"kafka", "kafka_cluster", "lone_broker", "schema_registry"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests without their broker are the ones that matter most here: never let that pass quietly."""
    for reason, times in broker.missing.items():
        terminalreporter.section("TESTS ON A REAL BROKER DID NOT RUN", sep="!", red=True, bold=True)
        terminalreporter.line(f"{times}x {reason}")
