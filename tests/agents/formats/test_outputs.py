"""Rows in every output format, by a real registry: read by our reader, and by libraries that have only the registry."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.agents.formats.outputs import OUTPUT_FORMATS, reader_of, writers_of
from susurrus.agents.formats.registry import Registry
from susurrus.mechanisms.errors import ConfigurationError, RegistryAway
from susurrus.topics import estimate, histogram, private_stream, top
from susurrus.topics.wire.json_rows import decoder
from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import RowSchema
from tests.registry import relay
from tests.web_server import answering

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("authlib")

KEY = ["/index.html", 2**63 + 1, None, True, 1.5, -7]
MEASURED = {"estimate": 118, "std_error": 9.25}
SMOOTHED = {"estimate": 124, "std_error": 6.5}
QUANTILE = {"estimate": 91.75, "std_error": 8.5, "lower": 75.0, "upper": 108.5}
ROWS: dict[str, tuple[RowSchema, Any, dict[str, Any]]] = {
    "histogram": (
        histogram.schema(["url", "n", "x.y", "b", "f", "i"], ["visits", "b-y", "p95"], ["p95"]),
        histogram.Row,
        {
            "window_start": "2026-01-01T00:00:00Z",
            "window_end": "2026-01-02T00:00:00.500Z",
            "trigger": 3,
            "of_triggers": 96,
            "key": KEY,
            "values": {
                "visits": MEASURED | {"direct": {"estimate": 131, "std_error": 21.5}, "smoothed": SMOOTHED},
                "b-y": MEASURED,
                "p95": QUANTILE,
            },
            "strategy": "toeplitz",
            "epoch": "6f0c",
            "schema": 1,
        },
    ),
    "top": (
        top.schema(["url", "n"], ["visits"]),
        top.RankedRelease,
        {
            "window_start": "2026-01-01T00:00:00Z",
            "window_end": "2026-01-02T00:00:00Z",
            "trigger": 3,
            "of_triggers": 96,
            "ranking": "ORDER BY visits DESC LIMIT 2",
            "rows": [
                {"rank": 1, "key": ["/a", 2**63 + 1], "values": {"visits": MEASURED}},
                {
                    "rank": 2,
                    "key": [None, 1.5],
                    "values": {"visits": MEASURED | {"direct": MEASURED, "smoothed": SMOOTHED}},
                },
            ],
            "strategy": "closing",
            "epoch": "6f0c",
            "schema": 1,
        },
    ),
    "histogram of days": (
        histogram.schema(["url"], ["visits"], dated=True),
        histogram.Row,
        {
            "window_start": "2026-10-24T22:00:00Z",
            "window_end": "2026-10-25T23:00:00Z",
            "window_date": "2026-10-25",
            "trigger": 3,
            "of_triggers": 100,
            "key": "/a",
            "values": {"visits": MEASURED},
            "strategy": "toeplitz",
            "epoch": "6f0c",
            "schema": 1,
        },
    ),
    "top of days": (
        top.schema(["url"], ["visits"], dated=True),
        top.RankedRelease,
        {
            "window_start": "2026-10-24T22:00:00Z",
            "window_end": "2026-10-25T23:00:00Z",
            "window_date": "2026-10-25",
            "trigger": 1,
            "of_triggers": 100,
            "ranking": "ORDER BY visits DESC LIMIT 2",
            "rows": [{"rank": 1, "key": "/a", "values": {"visits": MEASURED}}],
            "strategy": "toeplitz",
            "epoch": "6f0c",
            "schema": 1,
        },
    ),
    "nothing ranked": (
        top.schema(["url"], ["visits"]),
        top.RankedRelease,
        {
            "window_start": "2026-01-01T00:00:00Z",
            "window_end": "2026-01-02T00:00:00Z",
            "trigger": 1,
            "of_triggers": 1,
            "ranking": "ORDER BY visits DESC LIMIT 2",
            "rows": [],
            "strategy": "toeplitz",
            "epoch": "6f0c",
            "schema": 1,
        },
    ),
    "one part": (
        histogram.schema(["url"], ["visits"]),
        histogram.Row,
        {
            "window_start": "0001-01-01T00:00:00Z",
            "window_end": "9999-12-31T23:59:59.999Z",
            "trigger": 1,
            "of_triggers": 1,
            "key": None,
            "values": {"visits": {"estimate": -2.5e17, "std_error": 0.1}},
            "strategy": "closing",
            "epoch": "",
            "schema": 1,
        },
    ),
    "stream": (
        private_stream.SCHEMA,
        private_stream.StreamRow,
        {
            "stream": None,
            "first": 65536,
            "last": 65551,
            "value": MEASURED,
            "sum": MEASURED,
            "filtered_sum": None,
            "theta": 120.0,
            "layout": 0,
            "method": "tops",
            "epsilon": 0.1,
            "epoch": "6f0c",
            "schema": 2,
            "fit": None,
            "jump_first": 65_536,
            "jump_last": None,
            "lower": 0.5,
            "clipped": MEASURED,
            "truncated": None,
        },
    ),
    "estimate": (
        estimate.SCHEMA,
        estimate.EstimateRow,
        {
            "slot_start": "2026-01-01T00:00:00Z",
            "slot_end": "2026-01-01T00:01:00Z",
            "count": 0,
            "sum": MEASURED,
            "mean": None,
            "running_sum": MEASURED,
            "filtered_sum": MEASURED,
            "threshold_version": 2,
            "theta": 96.0,
            "epsilon": 1.0,
            "epoch": "6f0c",
            "schema": 1,
        },
    ),
}
REGISTERED = [name for name, form in OUTPUT_FORMATS.items() if form.registered]
NAMESPACE = "susurrus.web_log"


def target(form: str, url: str | None) -> Any:
    return SimpleNamespace(format=form, registry=None if url is None else Registry(url=url))


def topic_of(path: Path) -> str:
    """A topic, and so a subject, of the test's own."""
    return f"{path.parent.name}.{path.name}".replace("_", "-")


def rows_of(row: dict[str, Any], number: int = 1) -> PublicRows:
    """The same row several times, as JSON."""
    return PublicRows.of_json([json.dumps(row).encode()] * number)


@pytest.fixture
def proxy(schema_registry: str) -> Iterator[tuple[str, list[str]]]:
    """The registry behind an address of its own, and every request that came through it."""
    (port,) = free_ports(1)
    with relay(port, schema_registry) as asked:
        yield f"http://127.0.0.1:{port}", asked


@pytest.mark.parametrize("form", OUTPUT_FORMATS)
@pytest.mark.parametrize("kind", ROWS)
def test_a_row_reads_back(schema_registry: str, tmp_path: Path, form: str, kind: str) -> None:
    schema, record, row = ROWS[kind]
    own = target(form, schema_registry if OUTPUT_FORMATS[form].registered else None)
    text, topic = json.dumps(row).encode(), topic_of(tmp_path)
    [value] = writers_of(own, {topic: schema}, NAMESPACE)[topic].encode(PublicRows.of_json([text]))
    read, decode = reader_of(own, schema, NAMESPACE), decoder(record, "row", schema.version)
    assert (value == text) == (form == "json")
    assert decode(read(value)) == decode(text)
    assert decode(read(text)) == decode(text)  # a row from before the format was configured
    import jsonschema  # takes seconds, which every process that collects this file would spend

    jsonschema.validate(json.loads(read(value)), json.loads(OUTPUT_FORMATS["json"].text(schema, NAMESPACE)))


@pytest.mark.parametrize("form", REGISTERED)
def test_bytes_that_are_no_row_are_malformed(schema_registry: str, tmp_path: Path, form: str) -> None:
    schema, _, row = ROWS["histogram"]
    own, topic = target(form, schema_registry), topic_of(tmp_path)
    [value] = writers_of(own, {topic: schema}, NAMESPACE)[topic].encode(rows_of(row))
    read = reader_of(own, schema, NAMESPACE)
    with pytest.raises(MalformedRecord, match="HistogramRow"):
        read(value[:-3])


@pytest.mark.parametrize("form", REGISTERED)
def test_all_workers_write_the_same_bytes_and_ask_only_when_they_start(
    proxy: tuple[str, list[str]], tmp_path: Path, form: str
) -> None:
    (url, asked), (schema, _, row) = proxy, ROWS["histogram"]
    topics = [f"{topic_of(tmp_path)}.{name}" for name in ("histogram", "latest")]
    found = []
    for _ in range(2):
        writers = writers_of(target(form, url), dict.fromkeys(topics, schema), NAMESPACE)
        at_start = len(asked)
        found += [writers[topic].encode(rows_of(row, 3)) for topic in topics]
        assert len(asked) == at_start
    assert at_start > 0
    assert len({value for values in found for value in values}) == 1
    registered = [line for line in asked if line.startswith("POST") and "/versions" in line]
    assert len(registered) == len(topics)  # the second worker found what the first one had registered


def test_a_worker_registers_nothing_where_an_operator_has_registered_what_the_command_prints(
    proxy: tuple[str, list[str]], schema_registry: str, tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    (url, asked), (schema, _, _), topic = proxy, ROWS["histogram"], topic_of(tmp_path)
    with SchemaRegistryClient({"url": schema_registry}) as client:
        known = client.register_schema(f"{topic}-value", Schema(OUTPUT_FORMATS["avro"].text(schema, NAMESPACE), "AVRO"))
    assert writers_of(target("avro", url), {topic: schema}, NAMESPACE)[topic].schema_id == known
    assert asked
    assert not any("/versions" in line for line in asked)


def test_a_foreign_client_reads_avro_by_the_registered_schema(schema_registry: str, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    schema, _, row = ROWS["histogram"]
    topic = topic_of(tmp_path)
    [value] = writers_of(target("avro", schema_registry), {topic: schema}, NAMESPACE)[topic].encode(rows_of(row))
    with SchemaRegistryClient({"url": schema_registry}) as client:
        assert client.get_latest_version(f"{topic}-value").schema_id == int.from_bytes(value[1:5], "big")
        registered = client.get_schema(int.from_bytes(value[1:5], "big")).schema_str
    found = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(registered)), None)
    assert found["window_end"].isoformat() == "2026-01-02T00:00:00.500000+00:00"
    assert list(found["key"].values()) == KEY
    assert list(found["key"]) == ["url", "n", "x_y", "b", "f", "i"]
    assert found["values"]["visits"] == {
        "estimate": 118.0,
        "std_error": 9.25,
        "direct": {"estimate": 131.0, "std_error": 21.5},
        "smoothed": {"estimate": 124.0, "std_error": 6.5},
    }
    assert found["values"]["b_y"]["direct"] is None
    assert found["values"]["b_y"]["smoothed"] is None


def test_a_foreign_client_reads_protobuf_by_the_registered_schema(schema_registry: str, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

    schema, _, row = ROWS["histogram"]
    topic = topic_of(tmp_path)
    [value] = writers_of(target("protobuf", schema_registry), {topic: schema}, NAMESPACE)[topic].encode(rows_of(row))
    with SchemaRegistryClient({"url": schema_registry}) as client:
        text = client.get_schema(int.from_bytes(value[1:5], "big"), fmt="serialized").schema_str
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    first = pool.FindMessageTypeByName(f"{file.package}.{file.message_type[0].name}")
    assert value[5:6] == b"\0"  # the first message of the file
    found = json_format.MessageToDict(message_factory.GetMessageClass(first).FromString(value[6:]))
    assert (found["windowStart"], found["trigger"]) == ("2026-01-01T00:00:00Z", "3")
    assert found["key"] == {
        "url": {"text": "/index.html"},
        "n": {"unsigned": str(2**63 + 1)},
        "xY": {},
        "b": {"boolean": True},
        "f": {"number": 1.5},
        "i": {"integer": "-7"},
    }
    assert found["values"]["visits"]["direct"] == {"estimate": 131.0, "stdError": 21.5}
    assert found["values"]["visits"]["smoothed"] == {"estimate": 124.0, "stdError": 6.5}


def test_the_proto_file_is_the_descriptor(tmp_path: Path) -> None:
    """protoc reads the text; where there is none, its members and numbers are compared."""
    from susurrus.agents.formats.outputs.protobuf import _file

    schema = ROWS["histogram"][0]
    text, file = OUTPUT_FORMATS["protobuf"].text(schema, NAMESPACE), _file(schema, NAMESPACE)
    numbered = [(field.name, field.number) for message in file.message_type for field in message.field]
    found = [line.split() for line in text.splitlines() if line.endswith(";") and line.startswith("  ")]
    assert [(name, int(number.rstrip(";"))) for _, name, _, number in found] == numbered
    assert [line.split()[1] for line in text.splitlines() if line.startswith("message")] == [
        message.name for message in file.message_type
    ]


def test_an_incompatible_schema_is_refused_with_a_way_out(schema_registry: str, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    topic = topic_of(tmp_path)
    other = {"type": "record", "name": "HistogramRow", "namespace": NAMESPACE,
             "fields": [{"name": "trigger", "type": "string"}]}  # fmt: skip
    with SchemaRegistryClient({"url": schema_registry}) as client:
        client.register_schema(f"{topic}-value", Schema(json.dumps(other), "AVRO"))
        client.set_compatibility(f"{topic}-value", "BACKWARD")
    with pytest.raises(ConfigurationError) as refused:
        writers_of(target("avro", schema_registry), {topic: ROWS["histogram"][0]}, NAMESPACE)
    assert refused.value.text.endswith(f"subject={topic}-value has a schema that this one is not compatible with")
    assert refused.value.action.startswith("compare `susurrus topics schema`; give the pipeline a new name")


@pytest.mark.parametrize("form", REGISTERED)
def test_a_registry_that_does_not_answer_is_named(form: str, tmp_path: Path) -> None:
    with pytest.raises(RegistryAway, match=r"output\.registry: no answer .*start the registry, or correct"):
        writers_of(target(form, "http://127.0.0.1:1"), {topic_of(tmp_path): estimate.SCHEMA}, NAMESPACE)


def test_a_registry_that_is_not_ready_may_answer_later(tmp_path: Path) -> None:
    with (
        answering(lambda _: (503, b"")) as url,
        pytest.raises(RegistryAway, match=r"output\.registry: HTTP 503 .*check the registry"),
    ):
        writers_of(target("avro", url), {topic_of(tmp_path): estimate.SCHEMA}, NAMESPACE)


def test_a_registry_that_refuses_the_worker_is_named(tmp_path: Path) -> None:
    answer = b'{"error_code":40301,"message":"hunter2"}'
    with answering(lambda _: (403, answer)) as url, pytest.raises(ConfigurationError) as refused:
        writers_of(target("avro", url), {topic_of(tmp_path): estimate.SCHEMA}, NAMESPACE)
    assert not refused.value.retryable
    assert "HTTP 403 (code 40301)" in str(refused.value)
    assert refused.value.action.startswith("correct output.registry.properties, or let someone who may register")
    assert "hunter2" not in str(refused.value)


def test_what_is_no_registry_is_named(schema_registry: str, tmp_path: Path) -> None:
    wrong = schema_registry.rsplit("/", 1)[0] + "/nothing"
    with pytest.raises(ConfigurationError, match=r"output\.registry: HTTP 404 .*output\.registry\.url"):
        writers_of(target("avro", wrong), {topic_of(tmp_path): estimate.SCHEMA}, NAMESPACE)


def test_a_reader_with_another_registry_is_told(schema_registry: str, tmp_path: Path) -> None:
    schema, _, row = ROWS["estimate"]
    own, topic = target("avro", schema_registry), topic_of(tmp_path)
    [value] = writers_of(own, {topic: schema}, NAMESPACE)[topic].encode(rows_of(row))
    with pytest.raises(ConfigurationError, match="does not know schema id=2147483000"):
        reader_of(own, schema, NAMESPACE)(value[:1] + (2_147_483_000).to_bytes(4, "big") + value[5:])
