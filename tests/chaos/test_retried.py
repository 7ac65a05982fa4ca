"""A refusal that an operator fixes from outside: it names what is missing, stays visible, and the worker goes on by itself.

All is there when the worker looks at the start (tests/agents/operations/test_probe.py), and is taken away before its tasks begin.
"""

import re
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from susurrus.agents.broker.network import free_ports
from susurrus.agents.kafka.topics import create_topics
from tests.broker import Broker, wait_for
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_refusals import SMALL, raw_topic, refused, wait_until_refused
from tests.guarded import PRINCIPAL, SASL, Guarded
from tests.pipeline import Pipeline, Public

pytestmark = [pytest.mark.chaos, pytest.mark.broker]


class Rights:
    """What the worker's user may do."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def _binding(self, kind: ResourceType, name: str, operation: AclOperation, *, deny: bool) -> AclBinding:
        pattern = ResourcePatternType.LITERAL if deny else ResourcePatternType.PREFIXED
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        return AclBinding(kind, name, pattern, PRINCIPAL, "*", operation, permission)

    def allow(self, kind: ResourceType, prefix: str, *operations: AclOperation) -> None:
        """Rights on everything that begins so."""
        bindings = [self._binding(kind, prefix, operation, deny=False) for operation in operations]
        for future in self._broker.admin().create_acls(bindings).values():
            future.result(30)

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Take one right away."""
        for future in self._broker.admin().create_acls([self._binding(kind, name, operation, deny=True)]).values():
            future.result(30)

    def give_back(self, kind: ResourceType, name: str) -> None:
        """What ``deny`` took away."""
        wanted = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, PRINCIPAL, None, AclOperation.ANY, AclPermissionType.DENY
        )
        for future in self._broker.admin().delete_acls([wanted]).values():
            assert len(future.result(30)) > 0


Calm = tuple[str, Public]
"""A raw topic, and what is published of it when nothing is missing."""


def calm_on(broker: Broker, directory: Path) -> Calm:
    raw = raw_topic(broker)
    return raw, published_in_peace(broker, directory, raw, SMALL)


@pytest.fixture(scope="module")
def calm(kafka: Broker, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """On the broker of all tests."""
    return once("retried", lambda: calm_on(kafka, tmp_path_factory.mktemp("retried")))


@pytest.fixture(scope="session")
def guarded_calm(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """On the broker with rights."""
    return calm_on(guarded.broker, tmp_path_factory.mktemp("guarded"))


@pytest.mark.parametrize(
    ("missing", "who"),
    [
        ("release-changelog", "release"),
        pytest.param("histogram", "release", marks=pytest.mark.thorough),
        pytest.param("ledger", "route", marks=pytest.mark.thorough),
    ],
)
def test_a_topic_that_is_missing_is_named_and_once_created_the_worker_goes_on(
    kafka: Broker, calm: Calm, tmp_path: Path, missing: str, who: str
) -> None:
    raw, wanted = calm
    [port] = free_ports(1)
    with Pipeline(kafka, tmp_path, raw, {**SMALL, "worker": {"web_port": port}}) as pipeline:
        topic = pipeline.settings.topic(missing)
        with pipeline.held() as worker:
            kafka.delete_topic(topic)
        said = f"{who}-0 refuses: topic={topic} does not exist: create it with `susurrus topics create`"
        wait_for(lambda: said in worker.log.read_text(), f"{who} refuses")

        def words() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                return str(answer.read().decode())

        wait_for(lambda: re.search(rf"{who}-0 \(.*\): refused.*{re.escape(topic)}", words()), "its page says so")
        if missing != "ledger":
            [row] = wait_until_refused(pipeline, (who, 0))
            assert topic in str(row.finding)
            assert row.finding.action == "create it with `susurrus topics create`"
        create_topics(pipeline.settings, kafka.admin())
        pipeline.wait()
        assert pipeline.public() == wanted
        assert worker.process.poll() is None
        wait_for(lambda: not refused(pipeline), "nothing is refused any more")


@pytest.mark.parametrize(
    ("kind", "name", "operation", "said", "way_out"),
    [
        (ResourceType.TOPIC, "histogram", AclOperation.WRITE, "Kafka's user lacks Write", "grant it"),
        (ResourceType.TOPIC, "ledger", AclOperation.READ, "Kafka's user lacks Read", "grant it"),
        (ResourceType.TOPIC, "bound-changelog", AclOperation.DESCRIBE, "Kafka's user lacks Describe", "grant it"),
        (
            ResourceType.TRANSACTIONAL_ID,
            "bound-1",
            AclOperation.WRITE,
            "Kafka's user lacks Write or Describe",
            "grant both on the transactional ids that begin with",
        ),
    ],
    ids=["write", "read", "describe", "transactional id"],
)
def test_a_right_that_is_missing_is_named_and_once_granted_the_worker_goes_on(
    guarded: Guarded,
    guarded_calm: Calm,
    tmp_path: Path,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    said: str,
    way_out: str,
) -> None:
    broker, (raw, wanted) = guarded.broker, guarded_calm
    rights = Rights(broker)
    with Pipeline(broker, tmp_path, raw, SMALL) as pipeline:
        prefix = f"{pipeline.settings.pipeline.prefix}."
        rights.allow(ResourceType.TOPIC, raw, AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        rights.allow(ResourceType.TOPIC, prefix, AclOperation.ALL)
        rights.allow(ResourceType.GROUP, prefix, AclOperation.READ, AclOperation.DESCRIBE)
        rights.allow(ResourceType.TRANSACTIONAL_ID, prefix, AclOperation.WRITE, AclOperation.DESCRIBE)
        full = pipeline.settings.topic(name)
        full = full if kind is ResourceType.TOPIC else full.replace(".web.", ".web-")
        pipeline.data["kafka"] = {"bootstrap_servers": guarded.password, "properties": SASL}
        pipeline.write_config()
        pipeline.data["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}  # who asks for the status may see all
        with pipeline.held() as worker:
            rights.deny(kind, full, operation)
        try:
            wait_for(lambda: bool(refused(pipeline)), "somebody refuses")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{pipeline.trouble()}\n{worker.tail()}") from error
        row = next(iter(refused(pipeline).values()))
        assert full in str(row.finding), row
        assert said in str(row.finding), row
        assert way_out in row.finding.action, row
        rights.give_back(kind, full)
        pipeline.wait()
        assert pipeline.public() == wanted
        assert worker.process.poll() is None
        wait_for(lambda: not refused(pipeline), "nothing is refused any more")
