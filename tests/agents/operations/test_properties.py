"""A worker whose clients cannot be made ends before it joins its group, and the workers that run notice nothing."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from susurrus.agents.operations.preflight.properties import check_properties
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.ending import MISCONFIGURED
from tests.agents.kafka.test_profiles import settings
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline, archive_topic, produce, web_log

WRONG = {
    "SUSURRUS__KAFKA__PROPERTIES__SECURTY_PROTOCOL": ("SSL", 'did you mean "security.protocol"?'),
    "SUSURRUS__KAFKA__PROPERTIES__RETRIES": ("0", "librdkafka makes no producers"),
    "SUSURRUS__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS": ("400000", "librdkafka makes no consumers"),
}
"""A misspelt name, and values that only a client with all properties refuses."""


def members(admin: AdminClient, group: str) -> set[str]:
    try:
        found = admin.describe_consumer_groups([group])[group].result(20)
    except KafkaException:  # the coordinator of a new cluster is still loading
        return set()
    return {member.member_id for member in found.members if member.assignment is not None}


def test_a_running_group_is_undisturbed(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    produce(kafka, raw, web_log(2))
    with Pipeline(kafka, tmp_path, raw) as pipeline:
        first = pipeline.start()
        group = pipeline.settings.application
        wait_for(lambda: len(members(kafka.admin(), group)) == 1, "the worker is in its group")
        before = members(kafka.admin(), group)
        for name, (value, says) in WRONG.items():
            second = pipeline.start(**{name: value})
            assert second.process.wait(60) == MISCONFIGURED, second.tail()
            assert says in " ".join(second.tail().replace("│", " ").split())
            assert members(kafka.admin(), group) == before
        pipeline.wait()
        assert members(kafka.admin(), group) == before
        assert first.stop() == 0
        assert first.log.read_text().count("assigned") <= 1


@pytest.mark.parametrize(
    ("properties", "states"),
    [
        ({}, ["ok"]),
        ({"queued.min.messages": 5}, ["warning", "ok"]),
        ({"retries": 0}, ["failure"]),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, ["failure"]),
    ],
    ids=str,
)
def test_preflight_makes_the_clients(properties: dict[str, object], states: list[str]) -> None:
    found = list(check_properties(pipeline_of(settings(properties))))
    assert [one.level for one in found] == states
    assert {one.subject for one in found} == {"kafka.properties"}
