"""The files of docker-compose.yml fit the program they are for."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import typer
import yaml
from typer.core import TyperGroup

from susurrus.agents.cli.main import app
from susurrus.agents.dashboard.serving import PORT
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import load_settings
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import RawDecoder
from susurrus.topics.records.reason import Reason
from tests.broker import KAFKA_IMAGE
from tests.registry import APICURIO

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
    settings = HistogramSettings.of(load_settings(COMPOSE / "pipeline.toml", {}))
    assert settings.input.topic == producer.TOPIC
    assert settings.clock.kind == "broker"  # the producer creates the topic with LogAppendTime
    events = [visit.encode() for visit in producer.WebLog().visits[:1000]]
    decoder = RawDecoder(settings.raw_schema())
    decoded = decoder.decode(JsonReader(decoder.paths).read(events))
    assert set(decoded.reason.tolist()) == {Reason.OK}
    assert len(decoded.keys) > 50


def test_silence_is_waited_for_longer_than_a_replica_may_lag() -> None:
    settings = HistogramSettings.of(load_settings(COMPOSE / "pipeline.toml", {}))
    assert settings.clock.idle_grace > 30_000  # replica.lag.time.max.ms of the official image


def test_rows_can_be_written_by_the_registry() -> None:
    """Without its profile nothing is asked of it."""
    compose = yaml.safe_load((COMPOSE.parents[1] / "docker-compose.yml").read_text())
    assert compose["services"]["registry"]["profiles"] == ["registry"]
    assert compose["services"]["registry"]["image"].endswith(f":{APICURIO}")
    for form in ("json", "avro", "protobuf"):
        environment = {
            name: value.replace("${OUTPUT_FORMAT:-json}", form)
            for name, value in compose["x-susurrus"]["environment"].items()
        }
        settings = load_settings(COMPOSE / "pipeline.toml", environment)
        assert settings.output.format == form
        assert settings.output.registry is not None
        assert settings.output.registry.url.startswith("http://registry:8080/")


def test_nothing_but_state_and_the_secret_is_writable() -> None:
    """Read-only as on Kubernetes; a worker may take its time to stop."""
    services = yaml.safe_load((COMPOSE.parents[1] / "docker-compose.yml").read_text())["services"]
    ours = {name: service for name, service in services.items() if service["image"].startswith("susurrus")}
    assert set(ours) == {"secret", "topics", "worker", "producer", "dashboard"}
    for name, service in ours.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        secret = [] if name == "dashboard" else ["secret:/run/susurrus"]
        assert service["volumes"] == ["./deploy/compose:/etc/susurrus:ro", *secret]
    assert int(ours["worker"]["stop_grace_period"].removesuffix("s")) >= 60


def test_the_dashboard_is_on_loopback_alone_and_its_command_is_one() -> None:
    """With the options of the command as it is."""
    service = yaml.safe_load((COMPOSE.parents[1] / "docker-compose.yml").read_text())["services"]["dashboard"]
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert service["build"]["target"] == "dashboard"
    name, *options = service["command"]
    assert name == "dashboard"
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    parsed = command.commands[name].make_context(name, options)
    assert (parsed.params["host"], parsed.params["port"]) == ("0.0.0.0", PORT)


def test_images_of_others_are_named_by_tag_and_digest() -> None:
    """A tag can be moved. Of the registry's image no digest is known here, and it is in a profile."""
    services = yaml.safe_load((COMPOSE.parents[1] / "docker-compose.yml").read_text())["services"]
    others = {name: each["image"] for name, each in services.items() if not each["image"].startswith("susurrus")}
    assert set(others) == {"kafka", "registry", "prometheus", "grafana"}
    assert others["kafka"].startswith(f"{KAFKA_IMAGE}@")
    for name, image in others.items():
        form = r"[a-z/-]+:[\w.]+" if name == "registry" else r"[a-z/-]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}"
        assert re.fullmatch(form, image), image


def test_grafana_fetches_nothing() -> None:
    """Its root file system is read-only, and an update of the data source in place would take it away."""
    services = yaml.safe_load((COMPOSE.parents[1] / "docker-compose.yml").read_text())["services"]
    assert services["grafana"]["environment"]["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
