"""Which raw topics a configuration names, how each is written, and what of that the digest covers."""

from typing import Any

import pytest
from pydantic import ValidationError

from susurrus.agents.config.raw_topics import literal_prefix
from susurrus.agents.kafka.access import right_on, rights_of
from susurrus.agents.kafka.raw_topics import matching
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.released import settings

FIELDS: dict[str, Any] = {"user": "host", "key": ["url"]}
PROTOBUF = {"format": "protobuf", "message": "google.protobuf.descriptor_pb2:EnumValueDescriptorProto"}


def reading(**source: Any) -> Any:
    return settings(input={**FIELDS, **source})


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "nothing says which topic is read"),
        ({"topic": "a", "topics": ["b"]}, "topic and topics exclude each other"),
        ({"topics": ["a"], "topic_pattern": "b.*"}, "topics and topic_pattern exclude each other"),
        ({"topics": ["a", "b", "a"]}, '"a" is there twice'),
        ({"topic_pattern": "a("}, "is no regular expression"),
        ({"topic_pattern": "a-.*", "formats": {"b": {}}}, "does not match it"),
        ({"topics": ["a", "b"], "formats": {"b": {"format": "protobuf"}}}, r'formats\."b"\.message: is missing'),
    ],
)
def test_a_configuration_that_does_not_say_what_is_read_is_refused(source: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError), match=said):
        reading(**source)


def test_a_topic_with_a_section_is_written_as_the_section_says_and_the_others_as_input_says() -> None:
    source = reading(topics=["a", "b"], formats={"b": PROTOBUF}).input
    assert (source.listed, source.called) == (("a", "b"), "a, b")
    assert (source.of("a").format, source.of("a").message, source.of("a").topic) == ("json", None, "a")
    assert (source.of("b").format, source.of("b").user) == ("protobuf", "host")
    assert set(source.each_format) == {"input", 'input.formats."b"'}
    assert set(reading(topics=["b"], formats={"b": PROTOBUF}).input.each_format) == {'input.formats."b"'}


def test_topics_may_be_added_to_the_list_within_an_epoch_and_the_first_one_stands_for_the_pipeline() -> None:
    one = reading(topic="a").config_digest()
    assert reading(topics=["a"]).config_digest() == reading(topics=["a", "b"]).config_digest() == one
    assert reading(topics=["b", "a"]).config_digest() != one
    assert reading(topics=["a", "b"], formats={"b": PROTOBUF}).config_digest() != one
    assert reading(topic_pattern="a").config_digest() != one


def test_streams_read_one_topic() -> None:
    stream = {"method": "tops", "value": "v", "epsilon": 1.0, "bound": 1.0}
    data = {"pipeline": {"name": "p", "kind": "stream"}, "input": {"topics": ["a", "b"]}, "stream": stream}
    with pytest.raises(ConfigurationError, match=r'input\.topics: kind "stream" reads one topic'):
        settings_from(data, environ={})


def test_a_pattern_reads_neither_kafkas_topics_nor_the_pipelines_own() -> None:
    ours = reading(topic_pattern=".*raw.*")
    names = ["raw-b", "raw-a", "__raw", ours.topic("raw"), "t.charges-raw", "other"]
    assert matching(ours, names) == ("raw-a", "raw-b", "t.charges-raw")


@pytest.mark.parametrize(
    ("pattern", "begin"),
    [
        ("orders-.*", "orders-"), (r"orders\.eu\..*", "orders.eu."), ("a|b", ""), ("abc?d", "ab"), ("ab*", "a"), ("(a)b", ""),
        ("x.y", "x"), (r"a\.{2}", "a"),
    ],
)  # fmt: skip
def test_rights_for_a_pattern_are_on_what_every_name_begins_with(pattern: str, begin: str) -> None:
    assert literal_prefix(pattern) == begin
    [right] = rights_of(reading(topic_pattern=pattern), "writer")
    assert (right.name, right.prefixed) == (begin or "*", bool(begin))


def test_every_named_topic_has_its_right() -> None:
    ours = reading(topics=["a", "b"])
    assert [right.name for right in rights_of(ours, "worker")][:2] == ["a", "b"]
    assert right_on(ours, "topic", "b").name == "b"
