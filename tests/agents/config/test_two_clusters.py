"""`[input.kafka]`: what may be in it, what messages call it, and to which cluster a request goes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import TopicPartition

from susurrus.agents.config import kafka_properties
from susurrus.agents.config.kafka_checks import of_section
from susurrus.agents.config.load import read, resolved
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.profiles import files_refused, refusals
from susurrus.agents.kafka.two_clusters import TwoClusters
from susurrus.agents.operations import tls
from susurrus.agents.runtime.faust.connection import TokenProvider, for_aiokafka
from susurrus.mechanisms.errors import ConfigurationError, TokenAway
from tests.agents.config.test_settings import changed

FAR = {"bootstrap_servers": "far:9092"}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"input": {"kafka": {}}}, "input.kafka.bootstrap_servers"),
        ({"input": {"kafka": {**FAR, "embedded": False}}}, "input.kafka.embedded"),
        ({"input": {"kafka": FAR}, "kafka": {"embedded": True}}, "does not go with kafka.embedded"),
        (
            {"input": {"kafka": FAR, "topic": "susurrus.page-views.by-user"}},
            'topic="susurrus.page-views.by-user" is the name of one of the pipeline\'s own topics',
        ),
        ({"input": {"kafka": FAR, "topic": "susurrus.charges"}}, "is the name of one of the pipeline's own"),
        (
            {"input": {"kafka": {**FAR, "properties": {"group.id": "x"}}}},
            'input.kafka.properties."group.id": leave it out',
        ),
        (
            {"input": {"kafka": {**FAR, "properties": {"bootstrap.servers": "x:1"}}}},
            'input.kafka.properties."bootstrap.servers": leave it out; set input.kafka.bootstrap_servers instead',
        ),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_own_section(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        changed(**sections)
    assert said in str(refused.value)


def test_where_the_raw_topics_are_is_no_part_of_what_is_published() -> None:
    near, far = changed(), changed(input={"kafka": FAR})
    assert far.config_digest() == near.config_digest()
    assert (near.raw_kafka, far.raw_kafka.bootstrap_servers) == (near.kafka, "far:9092")
    assert [spec.name for spec in far.topic_specs if spec not in near.topic_specs] == ["sources"]


def test_its_secrets_come_from_variables_and_files(tmp_path: Any) -> None:
    (tmp_path / "password").write_text("hush\n")
    environ = {"SUSURRUS__INPUT__KAFKA__PROPERTIES__SASL_USERNAME": "me"}
    data = read(None, environ)
    data["input"]["kafka"]["properties"]["sasl.password"] = {"file": "password"}
    missing: list[Finding] = []
    found = resolved(data, tmp_path, environ, missing)
    assert (found["input"]["kafka"]["properties"], missing) == (
        {"sasl.username": "me", "sasl.password": "hush"},
        [],
    )


def test_messages_name_the_section_of_the_cluster_that_they_are_about() -> None:
    ours = changed(input={"kafka": {**FAR, "properties": {"security.protocol": "SSL", "ssl.ca.location": "/none"}}})
    [found] = refusals(ours)
    assert 'input.kafka.properties."ssl.ca.location"' in found.text
    assert found.subject == "input.kafka.properties"
    assert ours.input.kafka is not None
    about = Finding("kafka.properties", "failure", 'kafka.bootstrap_servers="x"', 'see input.kafka.properties."y"')
    assert of_section(ours.input.kafka, about) == Finding(
        "input.kafka.properties", "failure", 'input.kafka.bootstrap_servers="x"', 'see input.kafka.properties."y"'
    )
    assert of_section(ours.kafka, about) == about


def test_files_and_tokens_that_cannot_be_had_are_named_with_the_section_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tls_properties = {"security.protocol": "SSL", "ssl.ca.location": "/none"}
    ours = changed(kafka={"properties": tls_properties}, input={"kafka": {**FAR, "properties": tls_properties}})
    for kafka, section in zip(ours.clusters, ("kafka", "input.kafka"), strict=True):
        for reader in (kafka_properties.tls_context, for_aiokafka, tls.for_the_raw_consumer):
            with pytest.raises(ConfigurationError, match=f"^{section}.properties: TLS files cannot be loaded"):
                reader(kafka)
    only_theirs = changed(input={"kafka": {**FAR, "properties": tls_properties}})
    files = files_refused(only_theirs)
    assert files is not None
    assert (files.subject, files.level) == ("input.kafka.properties", "unknown")

    def away(properties: Any) -> Any:
        raise TokenAway('kafka.properties."sasl.mechanism": nobody answers', "see kafka.properties")

    monkeypatch.setattr(kafka_properties, "with_token", away)
    for kafka, section in zip(ours.clusters, ("kafka", "input.kafka"), strict=True):
        with pytest.raises(TokenAway, match=f'^{section}.properties."sasl.mechanism": .*; see {section}.properties$'):
            kafka_properties.librdkafka(kafka)
        with pytest.raises(
            KafkaConnectionError, match=f'{section}.properties."sasl.mechanism": .*; see {section}.prop'
        ):
            asyncio.run(TokenProvider(SimpleNamespace(token=lambda: away({})), kafka).token())


class TestWhereRequestsGo:
    @pytest.fixture
    def clients(self, monkeypatch: pytest.MonkeyPatch) -> Clients:
        """Every request answers with the addresses of the cluster that was asked, and for what."""

        def answer(name: str) -> Any:
            return lambda self, *asked: (self.properties["bootstrap.servers"], name, *asked)

        for name in (
            "topic_id",
            "settings_of",
            "partitions",
            "partitions_to_read",
            "watermarks",
            "newest",
            "offset_at",
        ):
            monkeypatch.setattr(Clients, name, answer(name))
        for name in ("ends", "starts"):
            monkeypatch.setattr(
                Clients,
                name,
                lambda self, places: dict.fromkeys(places, Offset(len(self.properties["bootstrap.servers"]))),
            )
        return clients_of(changed(input={"kafka": FAR}), quiet=True)

    def test_by_the_name_of_the_topic(self, clients: Clients) -> None:
        assert isinstance(clients, TwoClusters)
        for topic, servers in (
            ("web-requests", "far:9092"),
            ("susurrus.page-views.by-user", "localhost:9092"),
            ("susurrus.charges", "localhost:9092"),
            ("susurrus.other.by-user", "far:9092"),
        ):
            for name in ("topic_id", "settings_of", "partitions", "partitions_to_read"):
                assert getattr(clients, name)(topic) == (servers, name, topic)
            assert clients.watermarks(topic, 1) == (servers, "watermarks", topic, 1)  # type: ignore[comparison-overlap]
            assert clients.newest(topic, 1) == (servers, "newest", topic, 1)  # type: ignore[comparison-overlap]
            assert clients.offset_at(topic, 1, 2) == (servers, "offset_at", topic, 1, 2)  # type: ignore[comparison-overlap]

    def test_partitions_of_both_are_asked_for_together(self, clients: Clients) -> None:
        places = [TopicPartition("web-requests", 0), TopicPartition("susurrus.page-views.by-user", 0)]
        wanted = dict(zip(places, (len("far:9092"), len("localhost:9092")), strict=True))
        assert clients.ends(places) == wanted
        assert clients.starts(places) == wanted
        assert clients.ends([]) == {}

    def test_with_one_cluster_all_are_its_own(self) -> None:
        clients = clients_of(changed(), quiet=True)
        assert clients.raw is clients
