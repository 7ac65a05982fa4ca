"""The files of docker-compose.yml fit the program they are for."""

import importlib.util
import textwrap
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from susurrus.agents.settings import load_settings, settings_from
from susurrus.topics.raw import RawDecoder
from susurrus.topics.reason import Reason

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


@pytest.fixture
def producer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compose_producer", COMPOSE / "producer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pipeline_is_valid_and_reads_what_the_producer_writes(producer: ModuleType) -> None:
    settings = load_settings(COMPOSE / "pipeline.toml", {})
    assert settings.input.topic == producer.TOPIC
    assert settings.clock.kind == "broker"  # the producer creates the topic with LogAppendTime
    events = [visit.encode() for visit in producer.WebLog().visits[:1000]]
    decoded = RawDecoder(settings.raw_schema()).decode(events)
    assert set(decoded.reason.tolist()) == {Reason.OK}
    assert len(decoded.keys) > 50


def test_silence_is_waited_for_longer_than_a_replica_may_lag() -> None:
    settings = load_settings(COMPOSE / "pipeline.toml", {})
    assert settings.clock.idle_grace > 30_000  # replica.lag.time.max.ms of the official image


def test_the_configuration_in_the_kubernetes_manifest_is_valid() -> None:
    manifest = (COMPOSE.parent / "kubernetes" / "susurrus.yaml").read_text()
    block = manifest.partition("pipeline.toml: |\n")[2].partition("---\n")[0]
    data = tomllib.loads(textwrap.dedent(block))
    assert data["kafka"]["properties"]["sasl.password"] == {"file": "/run/secrets/kafka/password"}
    data["kafka"]["properties"]["sasl.password"] = "that file is only on the cluster"
    settings = settings_from(data, environ={})
    assert settings.topics.replication_factor == 3
    assert settings.topics.min_insync_replicas == 2
