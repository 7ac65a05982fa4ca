"""Every command that asks Kafka, on a listener that lets nobody in without a token: against a real broker."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from confluent_kafka import Producer
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.config import kafka_tokens
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.local.client import ToplClient
from susurrus.agents.operations.brokers import reach
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import ConfigurationError, TokenAway
from tests.agents.cli.test_dashboard import started, state
from tests.agents.operations.test_probe import settings_for
from tests.agents.runtime.test_security import read
from tests.broker import create_topic, wait_for
from tests.identity_provider import SECRET
from tests.oauth_broker import Door
from tests.pipeline import Worker, small

LOCAL: dict[str, Any] = {
    "pipeline": {"name": "meters", "kind": "local"},
    "local": {"epsilon": 2.0, "bound": 1000.0, "interval": "1s", "lateness": "1s"},
    "topics": {"by_user_partitions": None, "bounded_partitions": None},
    **dict.fromkeys(("input", "bounds", "privacy")),
}


def run(*arguments: str, given: str | None = None, code: int = 0) -> str:
    """What a command prints; neither secret nor token is in it."""
    result = CliRunner().invoke(app, arguments, input=given, env={"COLUMNS": "200"})
    assert result.exit_code == code, (arguments, result.output, result.exception)
    assert SECRET not in result.output
    assert "eyJ" not in result.output  # how a JWT begins
    return result.output


def test_commands_of_a_histogram(door: Door, tmp_path: Path) -> None:
    config = small(
        tmp_path,
        door.signed,
        door.with_secret_in(tmp_path / "secret"),
        pipeline={"name": "web"},
        input={"topic": "clicks"},
        clock={"kind": "producer", "idle_grace": "1s"},
        window={"length": "4s", "trigger_every": "2s"},
    )
    settings = load_settings(config, {})
    of = ("--config", str(config))
    admin = reach(settings)  # kept until it has the answer
    create_topic(admin, "clicks", 2)
    run("topics", "create", *of)
    run("topics", "check", *of)
    run("preflight", *of)
    producer = Producer(librdkafka(settings.kafka))
    worker = Worker(config, tmp_path, {"SUSURRUS_TEST_FORK": "0"})
    try:

        def released() -> bool:
            assert worker.process.poll() is None, worker.tail()
            for user in range(200):
                producer.produce("clicks", json.dumps({"u": user, "k": "a"}).encode(), partition=user % 2)
            assert producer.flush(60) == 0
            return CliRunner().invoke(app, ["watch", "--once", *of]).exit_code == 0

        wait_for(released, "a window is released")
        with started(["dashboard", *of, "--port", "0"], tmp_path / "dashboard.log") as (_, url):
            wait_for(lambda: state(url)["windows"], "the dashboard has read the release")
        assert SECRET not in (tmp_path / "dashboard.log").read_text()
        assert "route" in run("status", *of)
        assert json.loads(run("status", "--json", *of))
        run("ledger", "show", *of)
        run("explain", *of)
        run("dead-letters", *of)
        run("watch", *of, "--export", "jsonl", "--output", str(tmp_path / "rows"))
        assert (tmp_path / "rows").exists()
    finally:
        code = worker.stop()
    assert code == 0, worker.tail()
    run("ledger", "new-epoch", *of, "--yes")


def test_commands_of_local_reports(door: Door, tmp_path: Path) -> None:
    config = small(tmp_path, door.signed, door.with_secret_in(tmp_path / "secret"), **LOCAL)
    of = ("--config", str(config))
    run("topics", "create", *of)
    assert "3 reports acknowledged" in run("report", *of, given="1\n2\n3\n")
    run("topics", "check", *of)
    run("preflight", *of)
    run("status", *of, code=1)  # no worker has run yet


def test_a_client_that_gets_no_token_says_so(door: Door) -> None:
    """It may be made again later."""
    door.provider.status = 503
    try:
        with pytest.raises(TokenAway, match="identity provider is not ready"):
            ToplClient(
                door.signed, pipeline="meters", epsilon=1.0, bound=1.0, interval=1000,
                properties={**door.provider.properties, "sasl.oauthbearer.scope": "none"},
            )  # fmt: skip
    finally:
        door.provider.status = 200


def test_extensions_reach_the_brokers(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker lets nobody in with a name that is none, so it has read those that it takes."""

    def settings_with(extensions: str) -> Any:
        return settings_for(door.signed, {**door.provider.properties, "sasl.oauthbearer.extensions": extensions})

    settings = settings_with("logicalCluster=lkc-12345, identityPoolId=pool-12345")
    admin = reach(settings)
    create_topic(admin, "extended")
    producer = Producer(librdkafka(settings.kafka))
    producer.produce("extended", b"1")
    assert producer.flush(60) == 0
    assert asyncio.run(read(settings, "extended")) == b"1"
    with pytest.raises(ConfigurationError, match="names of letters only"):
        settings_with("pool-id=1")
    monkeypatch.setattr(kafka_tokens, "_EXTENSION", re.compile(".*"))
    with pytest.raises(KafkaError):
        asyncio.run(read(settings_with("pool-id=1"), "extended"))
