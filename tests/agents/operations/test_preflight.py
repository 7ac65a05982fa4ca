"""What `susurrus preflight` finds on a real broker: each check once as it should be and once as it should not."""

import shutil
import time
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.access import grant, rights_of
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations.preflight import clock, machine
from susurrus.agents.operations.preflight.run import preflight
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.agents.runtime.host import Limit
from susurrus.mechanisms.errors import ConfigurationError
from tests.broker import Broker, wait_for
from tests.guarded import Guarded
from tests.pipeline import SECRET, merged

Usage = namedtuple("Usage", "total used free")


class Setting:
    """A pipeline with its topics, ready to run unless a test spoils it."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker, self.prefix, self.raw = broker, broker.new_prefix(), broker.create_topic(broker.new_prefix(), 2)
        (directory / "secret").write_text(SECRET)
        (directory / "secret").chmod(0o400)
        self.directory = directory
        self.data: dict[str, Any] = {
            "pipeline": {"name": "p", "prefix": self.prefix},
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "input": {"topic": self.raw, "user": "u", "key": ["k"]},
            "clock": {"kind": "producer"},
            "privacy": {"epsilon": 1.0, "delta": 1e-9, "strategy": "toeplitz", "secret_file": "secret"},
            "topics": {
                "charges": f"{self.prefix}.charges", "by_user_partitions": 2, "bounded_partitions": 2, "replication_factor": 1,
                "min_insync_replicas": 1,
            },
            "worker": {"data_directory": str(directory / "state")},
        }  # fmt: skip

    def create(self) -> None:
        create_topics(settings_from(self.data, environ={}), self.broker.admin())

    def look(self, **sections: Mapping[str, Any]) -> list[Finding]:
        settings = settings_from(merged(self.data, sections), directory=self.directory, environ={})
        return list(preflight(pipeline_of(settings)))

    def one(self, subject: str, **sections: Mapping[str, Any]) -> Finding:
        [found] = [finding for finding in self.look(**sections) if finding.subject == subject]
        return found

    def alter(self, name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.raw, incremental_configs=[change])
        admin = self.broker.admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(20)


@pytest.fixture
def ready(kafka: Broker, tmp_path: Path) -> Setting:
    found = Setting(kafka, tmp_path)
    found.create()
    return found


def test_nothing_fails_where_a_worker_could_run_and_the_commands_exit_code_says_so(
    ready: Setting, tmp_path: Path
) -> None:
    wait_for(lambda: "unknown" not in {finding.level for finding in ready.look()}, "the cluster has Kafka's own topics")
    found = ready.look()
    assert {finding.level for finding in found} <= {"ok", "warning"}, found
    several = ("topic", "compiled loops")  # one for each topic; whether they were built is no matter here
    assert [finding.subject for finding in found if finding.level == "ok" and finding.subject not in several] == [
        "noise secret", "disk", "kafka.properties", "brokers", "rights", "__transaction_state", "__consumer_offsets", "clock",
        "retention", "isolation", "time stamps", "records", "open files", "size of a worker", "threads", "epoch",
    ]  # fmt: skip
    assert not (tmp_path / "state").exists()  # it changes nothing
    (tmp_path / "p.toml").write_text(tomli_w.dumps(ready.data))
    good = CliRunner().invoke(app, ["preflight", "--config", str(tmp_path / "p.toml")])
    assert good.exit_code == 0, good.output
    assert "failure" not in good.output
    (tmp_path / "p.toml").write_text(tomli_w.dumps(merged(ready.data, {"input": {"topic": "no-such-topic"}})))
    bad = CliRunner().invoke(app, ["preflight", "--config", str(tmp_path / "p.toml")])
    assert bad.exit_code == 1
    assert "does not exist on this cluster" in " ".join(bad.output.split())


def test_topics_that_are_missing_or_wrong(kafka: Broker, tmp_path: Path) -> None:
    setting = Setting(kafka, tmp_path)
    assert "its topics do not exist yet" in setting.one("topics").text
    setting.create()
    setting.alter("cleanup.policy", "compact")
    wait_for(lambda: any(f.subject == "topic" and f.level == "failure" for f in setting.look()), "the policy is seen")
    [wrong] = [f for f in setting.look() if f.subject == "topic" and f.level == "failure"]
    assert "cleanup.policy=compact" in str(wrong)
    assert "cleanup.policy=delete" in str(wrong)
    # Too few brokers: the worker runs, so it is a warning, said once. The topics are as they would be created here.
    few = setting.look(topics={"replication_factor": 3, "min_insync_replicas": 2})
    assert not [f for f in few if f.subject == "topic" and "replication" in f.text]
    assert setting.one("brokers", topics={"replication_factor": 3, "min_insync_replicas": 2}).level == "warning"


def test_a_raw_topic_that_keeps_less_than_a_window(ready: Setting) -> None:
    ready.alter("retention.ms", "3600000")
    wait_for(lambda: ready.one("retention").level == "warning", "the retention is seen")
    assert "keeps records for 1h, less than window.length=1d" in ready.one("retention").text


def test_an_open_transaction_of_a_producer(ready: Setting) -> None:
    producer = Producer(
        {"bootstrap.servers": ready.broker.bootstrap_servers, "transactional.id": ready.broker.new_prefix()}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(ready.raw, b"{}", partition=1)
    producer.flush(20)
    found = ready.one("isolation")
    producer.abort_transaction(20)
    assert (found.level, f"open on {ready.raw}, partition 1: releases wait" in str(found)) == ("warning", True)
    wait_for(lambda: ready.one("isolation").level == "ok", "the transaction has ended")


@pytest.mark.parametrize(
    ("minutes", "state", "way"), [(0.1, "warning", "ahead of"), (-0.1, "warning", "behind"), (5, "failure", "ahead of")]
)
def test_a_clock_that_is_wrong(
    ready: Setting, monkeypatch: pytest.MonkeyPatch, minutes: float, state: str, way: str
) -> None:
    class Skewed:
        @staticmethod
        def time() -> float:
            return time.time() + 60 * minutes

    monkeypatch.setattr(clock, "time", Skewed)
    found = ready.one("clock")
    assert found.level == state, found
    assert f" {way} the broker" in str(found)
    assert str(found).startswith("this machine is ")


def test_a_record_from_the_future(ready: Setting) -> None:
    producer = Producer({"bootstrap.servers": ready.broker.bootstrap_servers})
    producer.produce(ready.raw, b"{}", partition=0, timestamp=int(time.time() * 1000) + 600_000)
    assert producer.flush(20) == 0
    found = ready.one("time stamps")
    assert found.level == "warning"
    assert str(found).startswith(f"the newest record of {ready.raw} is stamped ")


def test_a_secret_for_everyone_and_none(ready: Setting) -> None:
    (ready.directory / "secret").chmod(0o644)
    found = ready.one("noise secret")
    assert (found.level, "run chmod o=" in str(found)) == ("warning", True)
    assert SECRET not in str(found)
    (ready.directory / "secret").unlink()
    assert ready.one("noise secret").level == "failure"


def test_a_disk_that_is_full_or_in_the_way(ready: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ready.one("disk", worker={"data_directory": str(ready.directory / "secret")}).level == "failure"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - 5 * 10**8, 5 * 10**8))
    found = ready.one("disk")
    assert (found.level, "0.5 GB free" in str(found)) == ("warning", True)


@pytest.mark.parametrize(("allowed", "state"), [(100, "failure"), (300, "warning"), (float("inf"), "ok")])
def test_a_small_limit_of_open_files(
    ready: Setting, monkeypatch: pytest.MonkeyPatch, allowed: float, state: str
) -> None:
    limit = Limit("open files", allowed, 226, 500, 9, "at most so many", "raise the hard limit")
    monkeypatch.setattr(machine.host, "file_limit", lambda *arguments, **options: limit)
    found = ready.one("open files")
    assert found.level == state
    assert ("raise the hard limit" in str(found)) == (state != "ok")


def test_no_broker_and_no_cluster(kafka: Broker, tmp_path: Path) -> None:
    setting = Setting(kafka, tmp_path)
    found = setting.look(kafka={"bootstrap_servers": "127.0.0.1:1"})
    assert [(f.subject, f.level) for f in found if f.subject != "compiled loops"] == [
        ("promise", "warning"), ("noise secret", "ok"), ("disk", "ok"), ("kafka.properties", "ok"), ("brokers", "failure"),
    ]  # fmt: skip
    assert "nothing listens at 127.0.0.1:1" in found[-1].text
    (tmp_path / "p.toml").write_text(tomli_w.dumps(merged(setting.data, {"kafka": {"embedded": True}})))
    result = CliRunner().invoke(app, ["preflight", "--config", str(tmp_path / "p.toml")])
    assert result.exit_code == 2
    assert ConfigurationError.__name__ not in result.stderr


def test_rights_that_are_missing_and_what_a_worker_may_not_ask(guarded: Guarded, tmp_path: Path) -> None:
    setting = Setting(guarded.broker, tmp_path)
    setting.create()
    properties = guarded.new_user("preflight")
    setting.data["kafka"] = {"bootstrap_servers": guarded.password, "properties": properties}
    missing = [finding for finding in setting.look() if finding.subject == "rights"]
    assert {finding.level for finding in missing} == {"failure"}
    assert all(finding.action.startswith("give it:\n    kafka-acls.sh") for finding in missing)
    for what in ("input.topic=", "topic=", "group=", "transactional-id="):
        assert any(f" on {what}" in finding.text for finding in missing), what
    rights = rights_of(settings_from(setting.data, environ={}), "worker")
    admin = guarded.admin()
    grant(admin, "User:preflight", rights)
    wait_for(lambda: not [f for f in setting.look() if f.level == "failure"], "the worker has its rights")
    found = setting.one("clock")
    assert (found.level, "Describe on __transaction_state" in str(found)) == ("unknown", True)


def test_registries_that_answer_and_refuse(ready: Setting, schema_registry: str) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    output = {"format": "avro", "registry": {"url": schema_registry}}
    reading = {"format": "avro", "registry": {"url": schema_registry}}
    found = [one for one in ready.look(output=output, input=reading) if "registry" in one.subject]
    assert [(one.subject, one.level) for one in found] == [("input.registry", "ok"), *[("output.registry", "ok")] * 2]
    assert found[1].text == f"subject={ready.prefix}.p.histogram-value gets the schema when the first worker starts"
    subject = f"{ready.prefix}.p.histogram-value"
    other = Schema('{"type": "record", "name": "Other", "fields": [{"name": "a", "type": "int"}]}')
    with SchemaRegistryClient({"url": schema_registry}) as client:
        client.register_schema(subject, other)
        client.set_compatibility(subject_name=subject, level="FULL")
    refused = ready.one("output.registry", output=output)
    assert (refused.level, f"subject={subject} has a schema that this one is not compatible with" in str(refused)) == (
        "failure",
        True,
    )
    gone = {"url": "http://127.0.0.1:1"}
    for subject, section in (
        ("input.registry", {"input": {**reading, "registry": gone}}),
        ("output.registry", {"output": {**output, "registry": gone}}),
    ):
        away = ready.one(subject, **section)
        assert (away.level, "no answer" in str(away)) == ("failure", True)
