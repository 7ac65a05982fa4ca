"""What a producer in Java writes, by Kafka's own serializers: keys and headers are read as they were meant."""

import subprocess
from pathlib import Path

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError, fetch_jars, find_java
from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.kafka.messages import record_of
from susurrus.topics.records.fields import parse_path
from tests.broker import Broker, give_up
from tests.waiting import PATIENCE

PROGRAM = Path(__file__).parents[2] / "java" / "WriteRecords.java"
KEYS = {
    "long": ("int64", [0, 2**63 - 1, -(2**63)]),
    "int": ("int32", [0, 2**31 - 1, -1]),
    "text": ("text", ["ann", "Zoë", None]),
    "uuid": ("text", ["00112233-4455-6677-8899-aabbccddeeff"] * 3),  # Kafka's serializer writes the text
}
PATHS = [parse_path(text) for text in ("$key", "$headers.user-id", "$headers.none", "page", "$offset", "$timestamp")]


@pytest.mark.thorough
def test_keys_and_headers_of_a_java_producer(kafka: Broker) -> None:
    try:
        command = [find_java(), "-cp", f"{fetch_jars()}/*", str(PROGRAM)]
    except KafkaUnavailableError as missing:
        give_up(f"no Java producer: {missing}")
    prefix = f"java-{kafka.new_prefix()}"
    topics = {name: kafka.create_topic(f"{prefix}-{name}", 1, {"retention.ms": "-1"}) for name in KEYS}
    subprocess.run([*command, kafka.bootstrap_servers, prefix], check=True, timeout=PATIENCE, capture_output=True)
    for name, (key_format, keys) in KEYS.items():
        records = [record_of(message) for message in kafka.read_all(topics[name])]
        source = InputSettings.model_validate({"topic": topics[name], "key_format": key_format})
        [chunk] = reader_of(source, PATHS, topic=None, partition=None).read(records, lambda row: True)
        assert not chunk.refused
        assert chunk.columns == [
            keys,
            ["user-0", "user-1", "user-2"],
            [None] * 3,
            ["/0", "/1", "/2"],
            [0, 1, 2],
            [1_790_834_400_000 + n for n in range(3)],
        ]
