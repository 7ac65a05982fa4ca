"""A stream whose values come in Avro or Protobuf and whose rows go out in them: the mechanism's own result on a real broker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.outputs import OUTPUT_FORMATS, reader_of
from susurrus.topics import private_stream
from tests.agents.stream.test_stage import STREAMS, expected, readings
from tests.broker import Broker, wait_for
from tests.pipeline import archive_topic
from tests.stream_pipeline import TOPS, stream_pipeline

pytest.importorskip("fastavro")
pytest.importorskip("authlib")

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "name", "type": "string"}, {"name": "number", "type": "double"}],
}
# A descriptor that ships with the runtime stands in for generated code; its `number` is an integer.
MESSAGE = "google.protobuf.descriptor_pb2:FieldDescriptorProto"
ROWS = 250


def serializer(form: str, registry: Any, topic: str) -> Callable[[str, float], bytes]:
    """confluent-kafka's, as a producer uses it."""
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    context = SerializationContext(topic, MessageField.VALUE)
    if form == "avro":
        avro = AvroSerializer(registry, Schema(json.dumps(READING), "AVRO"))
        return lambda name, number: bytes(avro({"name": name, "number": number}, context))

    def message(name: str, number: float) -> bytes:
        # No schema of this message can be registered, and none is asked for.
        return b"\0\0\0\0\1\x02\x08" + FieldDescriptorProto(name=name, number=int(number)).SerializeToString()

    return message


@pytest.mark.parametrize("form", [name for name in FORMATS if name in OUTPUT_FORMATS and name != "json"])
def test_values_and_rows_in_other_formats_are_the_mechanisms(
    kafka: Broker, schema_registry: str, tmp_path: Path, form: str
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    raw, values = archive_topic(kafka, 2), {name: np.rint(of) for name, of in readings(300 + 4 * ROWS).items()}
    with SchemaRegistryClient({"url": schema_registry}) as registry:
        serialize, producer = serializer(form, registry, raw), kafka.producer(linger_ms=5)
        for at in range(300 + 4 * ROWS):
            for number, stream in enumerate(STREAMS):
                payload = serialize(stream, float(values[stream][at]))
                producer.produce(raw, payload, partition=number % 2, timestamp=1_000_000 + at)
        producer.flush(60)
    url = {"registry": {"url": schema_registry}}
    overrides = {
        "input": {"format": form, **(url if form == "avro" else {"message": MESSAGE})},
        "output": {"format": form, **url},
    }
    tops = TOPS | {"stream": "name", "value": "number"}
    with stream_pipeline(kafka, tmp_path, raw, tops, overrides) as pipeline:
        settings, topic = pipeline.settings, pipeline.settings.topic("private-stream")
        read = reader_of(settings.output, settings.schemas[topic], settings.namespace)
        pipeline.start()
        wait_for(lambda: len(kafka.read_all(topic)) >= len(STREAMS) * ROWS, "all rows")
        messages = kafka.read_all(topic)
        assert {message.value()[:1] for message in messages} == {b"\0"}
        assert {message.headers()[0][0] for message in messages} == {"susurrus.receipt"}
        rows = [private_stream.decode_row(read(message.value())) for message in messages]
        for number, stream in enumerate(STREAMS):
            theta, released = expected(pipeline, number, stream, values[stream])
            got = [row for row in rows if row.stream == stream]
            assert [row.last for row in got] == released.last.tolist()
            np.testing.assert_array_equal([row.value.estimate for row in got], released.value * 0.5)
            np.testing.assert_array_equal([row.sum.std_error for row in got], released.sum_error * 0.5)
            assert {row.theta for row in got} == {theta * 0.5}
