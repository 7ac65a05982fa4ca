"""OAUTHBEARER against a real broker: Kafka's own validators, an identity provider, and a worker that outlives its tokens."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from susurrus.agents.broker.network import free_ports
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.finding import Finding, sentences
from susurrus.agents.histogram.releases import Release, ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations import probe
from susurrus.agents.operations.brokers import Cluster, reach
from susurrus.agents.pipelines import load_settings, pipeline_of
from tests.agents.operations.test_probe import settings_for
from tests.agents.runtime.test_security import read
from tests.broker import create_topic
from tests.identity_provider import SECRET
from tests.oauth_broker import UNSECURED, Door
from tests.pipeline import Worker, small


def everywhere(servers: str, properties: dict[str, Any], topic: str) -> None:
    """An admin client, a producer and aiokafka's consumer come in."""
    settings = settings_for(servers, properties)
    admin = reach(settings)
    create_topic(admin, topic)
    producer = Producer(librdkafka(settings.kafka))
    producer.produce(topic, b"1")
    assert producer.flush(20) == 0
    assert asyncio.run(read(settings, topic)) == b"1"


def test_unsecured_tokens_open_every_client(door: Door) -> None:
    everywhere(door.unsecured, UNSECURED, "unsecured")


def test_one_token_opens_every_client(door: Door) -> None:
    everywhere(door.signed, {**door.provider.properties, "client.id": "one"}, "signed")
    assert door.provider.issued <= 1
    assert door.provider.forms[-1] == {"grant_type": "client_credentials", "scope": "kafka"}


def found_by(door: Door, **properties: Any) -> Finding:
    found = probe.look(pipeline_of(settings_for(door.signed, {**door.provider.properties, **properties})))
    assert not isinstance(found, probe.Ready)
    assert SECRET not in sentences(found)
    assert "Bearer" not in sentences(found)
    return found[0]


def test_a_wrong_secret_ends_the_worker(door: Door) -> None:
    found = found_by(door, **{"sasl.oauthbearer.client.secret": "guess"})
    assert not found.waits
    assert found.text == (
        'kafka.properties."sasl.oauthbearer.client.id" and "sasl.oauthbearer.client.secret": the identity provider refuses them '
        "(HTTP 401, invalid_client)"
    )
    assert found.action == "correct them"


def test_a_token_that_the_brokers_do_not_take_ends_the_worker(door: Door) -> None:
    door.provider.audience = "others"
    found = found_by(door, **{"sasl.oauthbearer.scope": "for others"})
    assert not found.waits
    assert f'"sasl.mechanism" = "OAUTHBEARER": {door.signed} does not take the token' in found.text


def test_an_identity_provider_that_is_away_is_waited_for(door: Door) -> None:
    (port,) = free_ports(1)
    found = found_by(door, **{"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/token"})
    assert found.waits
    assert "127.0.0.1 gives no token (Connection refused)" in found.text
    assert found.action.startswith("see to the identity provider")
    door.provider.status = 503
    found = found_by(door, **{"sasl.oauthbearer.scope": "another"})
    assert found.waits
    assert "the identity provider is not ready (HTTP 503, temporarily_unavailable)" in found.text


@pytest.mark.timeout(480)
def test_a_worker_outlives_its_tokens(door: Door, tmp_path: Path) -> None:
    """Each lasts half a minute, and the broker ends its sessions with it. The worker's log holds neither secret nor token."""
    door.provider.life = (
        30.0  # librdkafka comes with a new one at nine tenths; brokers refuse to be asked twice within a second
    )
    config = small(
        tmp_path,
        door.signed,
        door.with_secret_in(tmp_path / "secret"),
        clock={"kind": "producer", "idle_grace": "1s"},
        window={"length": "20s", "trigger_every": "10s"},
    )
    settings = load_settings(config, {})
    admin = reach(settings)
    create_topic(admin, "raw", 2)
    create_topics(settings, admin)
    producer = Producer(librdkafka(settings.kafka))
    worker = Worker(config, tmp_path, {"SUSURRUS_TEST_FORK": "0"})
    said = worker.log.read_text
    outlived: int | None = None  # when several tokens had been needed
    try:
        with ReleaseReader(HistogramSettings.of(settings)) as reader:
            deadline, found = time.monotonic() + 300, list[Release]()
            while outlived is None or not found or found[-1].window_start <= outlived:
                for user in range(200):
                    producer.produce("raw", f'{{"u":{user},"k":"a"}}'.encode(), partition=user % 2)
                assert producer.flush(30) == 0
                found += reader.poll(1.0)
                if outlived is None and door.provider.issued >= 6:
                    outlived = int(time.time() * 1000)
                assert worker.process.poll() is None, said()
                assert time.monotonic() < deadline, said()
        assert found[-1].keys == ["a"]
        status = subprocess.run(
            [sys.executable, "-m", "susurrus.agents.cli", "status", "--config", str(config)],
            capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
        assert "route" in status.stdout, status.stderr
    finally:
        code = worker.stop()
    assert code == 0, said()
    for output in (said(), status.stdout, status.stderr):
        assert SECRET not in output
        assert "eyJ" not in output  # how a JWT begins
        assert "Traceback" not in output


def test_properties_without_a_pipeline_ask_for_tokens_too(door: Door) -> None:
    """As `susurrus report` does."""
    kafka = KafkaSettings(bootstrap_servers=door.unsecured, properties=UNSECURED)
    assert reach(Cluster(kafka)).list_topics(timeout=20).brokers
