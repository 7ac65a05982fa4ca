"""Topics are created and checked as topics/spec.py says, on a real broker."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.topics import create_topics, few_brokers
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import SusurrusError
from tests.broker import Broker

KINDS: dict[str, dict[str, Any]] = {
    "histogram": {
        "input": {"user": "u", "key": ["k"]},
        "privacy": {"epsilon": 1.0, "delta": 1e-9, "strategy": "toeplitz"},
    },
    "stream": {"stream": {"bound": 100.0, "epsilon": 1.0}},
    "local": {"local": {"bound": 100.0, "epsilon": 1.0}},
}


def pipeline(kafka: Broker, kind: str, raw: str) -> Settings:
    prefix = kafka.new_prefix()
    data = {
        "pipeline": {"name": "p", "kind": kind, "prefix": prefix},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "topics": {
            "charges": f"{prefix}.charges",
            "by_user_partitions": 2,
            "bounded_partitions": 2,
            "replication_factor": 1,
            "min_insync_replicas": 1,
        },
        **KINDS[kind],
    }
    if kind != "local":
        data["input"] = {**data.get("input", {}), "topic": raw}
    return settings_from(data, environ={})


@pytest.fixture
def admin(kafka: Broker) -> AdminClient:
    return kafka.admin()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_is_named_and_what_was_created_is_in_order(
    kafka: Broker, admin: AdminClient, kind: str
) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 3, {"message.timestamp.type": "LogAppendTime"})
    settings = pipeline(kafka, kind, raw)
    names = {settings.topic(spec.name) for spec in settings.topic_specs} | {settings.topics.charges}
    before = pipeline_of(settings).check_topics(admin)
    assert {found.subject for found in before if found.text == "is missing"} == names
    assert {found.action for found in before if found.level == "failure"} == {"run `susurrus topics create`"}
    create_topics(settings, admin)
    after = pipeline_of(settings).check_topics(admin)
    assert {found.level for found in after} == {"ok"}
    assert {found.subject for found in after} >= names - {settings.topics.charges}
    ledger = ConfigResource(ResourceType.TOPIC, settings.topic("ledger"))
    assert admin.describe_configs([ledger])[ledger].result()["segment.bytes"].value == str(16 << 20)


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("strategy", ["closing", "toeplitz", "dp-sqlp"])
def test_what_create_made_with_the_defaults_is_in_order_on_one_broker(
    kafka: Broker, admin: AdminClient, strategy: str, form: str
) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"message.timestamp.type": "LogAppendTime"})
    prefix = kafka.new_prefix()
    data = {
        "pipeline": {"name": "p", "prefix": prefix},
        "topics": {"charges": f"{prefix}.charges"},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "input": {"user": "u", "key": ["k"], "topic": raw},
        "privacy": {"epsilon": 1.0, "delta": 1e-9, "strategy": strategy},
        **({} if form == "json" else {"output": {"format": form, "registry": {"url": "http://localhost:1"}}}),
    }
    settings = settings_from(data, environ={})  # three replicas, where there is one broker
    [warning, *lines] = create_topics(settings, admin)
    assert warning.startswith("warning: 1 broker, so topics have replication 1 instead of 3")
    assert {line.split()[0] for line in lines} == {"created"}
    assert {found.level for found in pipeline_of(settings).check_topics(admin)} == {"ok"}
    assert f"warning: {few_brokers(settings, 1)}" == warning
    assert {line.split()[0] for line in create_topics(settings, admin)[1:]} == {"exists"}


def test_an_old_log_of_charges_of_the_prefix_is_told(kafka: Broker, admin: AdminClient) -> None:
    """Its charges are not counted, and so would be forgotten without a word."""
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"message.timestamp.type": "LogAppendTime"})
    made = pipeline(kafka, "histogram", raw)
    new = f"{kafka.new_prefix()}.charges"
    settings = made.model_copy(update={"topics": made.topics.model_copy(update={"charges": new})})
    create_topics(settings, admin)
    old = f"{settings.pipeline.prefix}.charges"
    assert old not in {found.subject for found in pipeline_of(settings).check_topics(admin)}
    kafka.create_topic(old, 1, {"cleanup.policy": "compact"})
    [told] = [found for found in pipeline_of(settings).check_topics(admin) if found.subject == old]
    assert told.level == "warning"
    assert f"this pipeline counts those of {new}" in told.text
    assert f'set topics.charges = "{old}" for all pipelines' in told.action


def test_what_is_not_as_create_makes_it_is_wrong(kafka: Broker, admin: AdminClient) -> None:
    settings = pipeline(kafka, "local", "none")
    shared = kafka.create_topic(settings.topics.charges, 1, {"cleanup.policy": "delete"})
    kafka.create_topic(settings.topic("estimate"), 2)
    create_topics(settings, admin)
    wrong = {
        found.subject: found.text for found in pipeline_of(settings).check_topics(admin) if found.level == "failure"
    }
    assert wrong.keys() == {shared, settings.topic("estimate")}
    assert "cleanup.policy=delete, should be compact" in wrong[shared]
    assert "has 2 partitions, needs 1" in wrong[settings.topic("estimate")]


def test_published_keys_have_a_topic_where_bound_is_told_about_them(kafka: Broker) -> None:
    settings = pipeline(kafka, "histogram", "raw")
    telling = settings.model_copy(update={"privacy": settings.privacy.model_copy(update={"named": "closing"})})
    assert {spec.name for spec in telling.topic_specs} - {spec.name for spec in settings.topic_specs} == {
        "published-keys"
    }


def test_only_a_histogram_cares_who_stamps_the_raw_topic(kafka: Broker, admin: AdminClient) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"message.timestamp.type": "CreateTime"})
    found = {kind: pipeline_of(pipeline(kafka, kind, raw)).check_topics(admin) for kind in ("histogram", "stream")}
    [misfit] = [one for one in found["histogram"] if "clock.kind" in one.text]
    assert (misfit.subject, misfit.level) == (raw, "failure")
    assert misfit.text == 'message.timestamp.type=CreateTime, but clock.kind="broker" needs LogAppendTime'
    ways_out = (
        'set clock.kind = "producer" in the file, or let the topic\'s owner set message.timestamp.type=LogAppendTime'
    )
    assert ways_out in misfit.action
    assert not any("clock.kind" in str(one) for one in found["stream"])
    created = {kind: create_topics(pipeline(kafka, kind, raw), admin) for kind in ("histogram", "stream")}
    [warning] = [line for line in created["histogram"] if line.startswith("warning: ") and "clock.kind" in line]
    assert raw in warning
    assert "no worker begins on it" in warning
    assert ways_out in warning
    assert not any("clock.kind" in line for line in created["stream"])


@pytest.mark.parametrize("kind", ["histogram", "stream"])
def test_a_raw_topic_that_is_not_there_is_not_made_and_the_message_says_who_makes_it(
    kafka: Broker, admin: AdminClient, kind: str
) -> None:
    settings = pipeline(kafka, kind, f"raw-{kafka.new_prefix()}")
    clients = clients_of(settings, quiet=True)
    for ask in (
        lambda: create_topics(settings, admin),
        lambda: pipeline_of(settings).check_topics(admin),
        lambda: clients.partitions_to_read(settings.input.topic),
        lambda: clients.topic_id(settings.input.topic),
    ):
        with pytest.raises(SusurrusError, match="it belongs to its producers") as raised:
            ask()
        assert f"\n    kafka-topics.sh --bootstrap-server {kafka.bootstrap_servers} --create --topic " in str(
            raised.value
        )
        assert "susurrus topics create" not in str(raised.value)
    clients.close()
    assert settings.input.topic not in admin.list_topics(timeout=10).topics


def test_a_compacted_raw_topic_is_wrong_for_one_users_record_removes_anothers(
    kafka: Broker, admin: AdminClient
) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"cleanup.policy": "compact,delete"})
    found = pipeline_of(pipeline(kafka, "histogram", raw)).check_topics(admin)
    [wrong] = [one for one in found if "cleanup.policy" in one.text]
    assert (wrong.subject, wrong.level) == (raw, "failure")
    assert wrong.text.startswith("cleanup.policy=compact,delete")


def test_fewer_replicas_than_there_could_be_are_wrong_and_the_worker_runs_with_them(kafka_cluster: Broker) -> None:
    admin = kafka_cluster.admin()
    settings = pipeline(kafka_cluster, "local", "none")
    create_topics(settings, admin)
    wanted = settings.model_copy(update={"topics": settings.topics.model_copy(update={"replication_factor": 3})})
    checks = pipeline_of(wanted).check_topics(admin)
    assert {(found.level, found.text) for found in checks} == {("warning", "replication is 1, configured 3")}
    assert few_brokers(wanted, 3) is None
