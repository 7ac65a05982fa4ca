"""SASL and TLS against a real broker: one set of librdkafka properties must open every client's door, and only that door."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.network import free_ports
from susurrus.agents.broker.properties import Node
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import load_settings, pipeline_of
from susurrus.agents.runtime.faust.connection import for_aiokafka
from tests.broker import create_topic, started
from tests.guarded import PASSWORD, certificate
from tests.pipeline import Worker, small, until_final

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("secure broker")]


def properties(authority: Path) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "susurrus",
        "sasl.password": {"file": "password"},
        "ssl.ca.location": str(authority),
    }


class SecureCluster(KafkaCluster):
    """A broker with a second listener that wants TLS and a password."""

    def __init__(self, pem: Path, port: int) -> None:
        super().__init__(1, short_lived=True)
        self.pem, self.port = pem, port

    def _server_properties(self, node: Node) -> dict[str, str]:
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        secure = "listener.name.secure"
        properties = super()._server_properties(node)
        return properties | {
            "listeners": f"{properties['listeners']},SECURE://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
            f"{secure}.sasl.enabled.mechanisms": "PLAIN",
            f"{secure}.plain.sasl.jaas.config": f'{plain} user_susurrus="{PASSWORD}";',
            f"{secure}.ssl.keystore.type": "PEM",
            f"{secure}.ssl.keystore.location": str(self.pem),
        }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    directory = tmp_path_factory.mktemp("tls")
    broker, authority = certificate(directory)
    [port] = free_ports(1)
    cluster = SecureCluster(broker, port)
    with started(cluster):
        yield f"127.0.0.1:{port}", authority


def pipeline(servers: str, authority: Path, directory: Path, **changed: Any) -> Settings:
    (directory / "password").write_text(PASSWORD + "\n")
    return load_settings(small(directory, servers, properties(authority) | changed), {})


async def read(settings: Settings, topic: str) -> bytes:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(topic, **for_aiokafka(settings.kafka), auto_offset_reset="earliest")
    try:
        await consumer.start()
        return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)
    finally:
        await consumer.stop()


def test_one_set_of_properties_opens_every_client(secure: tuple[str, Path], tmp_path: Path) -> None:
    settings = pipeline(*secure, tmp_path)
    admin = AdminClient(librdkafka(settings.kafka))
    create_topic(admin, "events")
    producer = Producer(librdkafka(settings.kafka))
    producer.produce("events", b"1")
    assert producer.flush(20) == 0
    assert asyncio.run(read(settings, "events")) == b"1"


@pytest.mark.parametrize(
    "wrong",
    [{"sasl.password": "guess"}, {"ssl.ca.location": "probe"}],
    ids=["a wrong password", "an unknown authority"],
)
def test_the_wrong_key_opens_none(secure: tuple[str, Path], tmp_path: Path, wrong: dict[str, str]) -> None:
    from aiokafka.errors import KafkaError

    settings = pipeline(*secure, tmp_path, **wrong)
    # aiokafka does not wait until a refused TLS connection is closed. If the event loop ends first, asyncio warns of an open
    # socket at the next garbage collection. That must be this one: a later one fails whatever test runs then.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        with pytest.raises(KafkaError):
            asyncio.run(read(settings, "events"))
        gc.collect()


def test_a_worker_runs_behind_tls_and_a_password(secure: tuple[str, Path], tmp_path: Path) -> None:
    servers, authority = secure
    (tmp_path / "password").write_text(PASSWORD + "\n")
    config = small(
        tmp_path,
        servers,
        properties(authority),
        start={"from": "earliest", "first_window": "1970-01-01T00:00:00Z"},
        clock={"kind": "replay", "until": "1970-01-02T00:00:00Z"},
        window={"trigger_every": "12h"},
    )
    settings = load_settings(config, {})
    admin = AdminClient(librdkafka(settings.kafka))
    forever = {"retention.ms": "-1"}  # the stamps are of 1970
    create_topic(admin, "raw", 2, forever)
    create_topics(settings, admin)
    producer = Producer(librdkafka(settings.kafka))
    for user in range(400):
        producer.produce("raw", f'{{"u":{user},"k":"a"}}'.encode(), partition=user % 2, timestamp=1_000 + user // 2)
    assert producer.flush(20) == 0
    worker = Worker(config, tmp_path, {"SUSURRUS_TEST_FORK": "0"})
    try:
        with ReleaseReader(HistogramSettings.of(settings)) as reader:
            found = until_final(reader, worker)
    finally:
        worker.stop()
    assert found[-1].keys == ["a"]
    measured = found[-1].columns["count"].at(0)
    assert abs(measured.estimate - 400) < 6 * measured.std_error
    assert {row.state for row in collect(pipeline_of(settings)).partitions} <= {"running", "stopped", "missing"}
