"""Topics are created and checked as topics/spec.py says, on a real broker."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.charges import topic_name
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
    data = {
        "pipeline": {"name": "p", "kind": kind, "prefix": kafka.new_prefix()},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "topics": {
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
    names = {settings.topic(spec.name) for spec in settings.topic_specs} | {topic_name(settings.pipeline.prefix)}
    before = [line.split() for line in pipeline_of(settings).check_topics(admin)]
    assert {name.rstrip(":") for word, name, *_ in before if word == "missing"} == names
    create_topics(settings, admin)
    after = [line.split() for line in pipeline_of(settings).check_topics(admin)]
    assert {word for word, *_ in after} == {"ok"}
    assert {name for _, name, *_ in after} >= names - {topic_name(settings.pipeline.prefix)}


@pytest.mark.parametrize("strategy", ["adaptive", "closing"])
def test_published_keys_have_a_topic_where_bound_is_told_about_them(kafka: Broker, strategy: str) -> None:
    settings = pipeline(kafka, "histogram", "raw")
    telling = settings.model_copy(update={"privacy": settings.privacy.model_copy(update={"named": strategy})})
    assert {spec.name for spec in telling.topic_specs} - {spec.name for spec in settings.topic_specs} == {
        "published-keys"
    }


def test_only_a_histogram_cares_who_stamps_the_raw_topic(kafka: Broker, admin: AdminClient) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"message.timestamp.type": "CreateTime"})
    lines = {kind: pipeline_of(pipeline(kafka, kind, raw)).check_topics(admin) for kind in ("histogram", "stream")}
    assert sum("clock.kind" in line for line in lines["histogram"]) == 1
    assert not any("clock.kind" in line for line in lines["stream"])


def test_a_raw_topic_that_is_not_there_is_not_made(kafka: Broker, admin: AdminClient) -> None:
    settings = pipeline(kafka, "histogram", f"raw-{kafka.new_prefix()}")
    with pytest.raises(ConfigurationError, match="does not exist"):
        create_topics(settings, admin)
    assert settings.input.topic not in admin.list_topics(timeout=10).topics


def test_a_compacted_raw_topic_is_wrong_for_one_users_record_removes_anothers(
    kafka: Broker, admin: AdminClient
) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"cleanup.policy": "compact,delete"})
    [line] = [
        line for line in pipeline_of(pipeline(kafka, "histogram", raw)).check_topics(admin) if "cleanup.policy" in line
    ]
    assert line.startswith(f"wrong    {raw}: cleanup.policy=compact,delete")
