"""Reports as records in JSON, Avro and Protobuf, by clients of others, beside packed ones; and estimates in the same formats."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.local.reader import read_estimates
from susurrus.agents.local.reports import PATHS, ReportFormat, joined
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.reports import decode, encode_one
from tests.broker import Broker
from tests.local_pipeline import client_of, local_pipeline, until, values
from tests.registry import LateRegistry

fastavro = pytest.importorskip("fastavro")
msgpack = pytest.importorskip("msgpack")
schema_registry_module = pytest.importorskip("confluent_kafka.schema_registry")

REPORT = {
    "type": "record",
    "name": "Report",
    "fields": [
        {"name": "phase", "type": "int"},
        {"name": "threshold_version", "type": ["null", "long"], "default": None},
        {"name": "interval", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "code", "type": "long"},
    ],
}
KNOWN, LATE = 1, 2
FORMS = ("json", "msgpack", "avro", "protobuf")
"""Formats whose fields are integers: lines of text have none."""
MODULE = '''
"""What protoc makes of a message Report, without protoc."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="client_report.proto", package="client", syntax="proto3")
message = file.message_type.add(name="Report")
for number, name in enumerate(("phase", "threshold_version", "interval", "code"), start=1):
    message.field.add(name=name, number=number, label=1, type=3)  # optional int64
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Report = message_factory.GetMessageClass(pool.FindMessageTypeByName("client.Report"))
'''


@pytest.fixture
def report_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "client_report_pb2.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import client_report_pb2  # type: ignore[import-not-found]

    return client_report_pb2.Report


def writer(form: str, report_class: Any) -> Callable[..., bytes]:
    """A client's own way to write a report."""

    def write(schema: int = KNOWN, **report: Any) -> bytes:
        prefix = b"\0" + schema.to_bytes(4, "big")
        if form == "json":
            return json.dumps(report).encode()
        if form == "msgpack":
            return bytes(msgpack.packb(report))
        if form == "protobuf":
            return prefix + b"\0" + bytes(report_class(**report).SerializeToString())
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(REPORT), report)
        return prefix + out.getvalue()

    return write


def source(form: str, registry: str = "http://localhost:1") -> dict[str, Any]:
    of = {"avro": {"registry": {"url": registry}}, "protobuf": {"message": "client_report_pb2:Report"}}
    return {"format": form, **of.get(form, {})}


class Registries:
    """`[input]` as a format needs it, with a registry whose clock is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        registry = LateRegistry(
            SimpleNamespace(references=[], schema_str=json.dumps(REPORT)), {KNOWN: 0.0, LATE: 10.0}, lambda: self.now
        )
        monkeypatch.setattr(schema_registry_module, "SchemaRegistryClient", registry)

    def reader(self, form: str) -> ReportFormat:
        from susurrus.agents.pipelines import settings_from

        data = {
            "pipeline": {"name": "m", "kind": "local"},
            "input": source(form),
            "local": {"bound": 1.0, "epsilon": 1.0},
        }
        return ReportFormat(decoder_of(settings_from(data, environ={}).input, PATHS))


@pytest.mark.parametrize("form", FORMS)
def test_records_are_the_reports_that_packed_ones_are(
    monkeypatch: pytest.MonkeyPatch, report_class: Any, form: str
) -> None:
    write, reader = writer(form, report_class), Registries(monkeypatch).reader(form)
    reports = [
        {"phase": 1, "threshold_version": 0, "interval": 1_767_225_600_000, "code": 7},
        {"phase": 2, "threshold_version": 3, "interval": 1_767_225_660_000, "code": 2**40 + 1},
        {"phase": 2, "threshold_version": 2**32 - 1, "interval": 1_767_225_660_001, "code": 2**63 - 1},
    ]
    packed = [encode_one(**report) for report in reports]
    written = [write(**report) for report in reports]
    mixed = [packed[0], written[1], None, written[0], packed[2], b"hello", b"", written[2]]
    found = joined(reader.read(mixed, lambda row: False))
    assert found == [packed[0], packed[1], None, packed[0], packed[2], None, None, packed[2]]
    assert decode(found)[1].tolist() == [True, True, False, True, True, False, False, True]
    assert joined(reader.read(packed, lambda row: False)) == packed


def test_records_with_what_is_no_report_are_none(monkeypatch: pytest.MonkeyPatch, report_class: Any) -> None:
    write, reader = writer("json", report_class), Registries(monkeypatch).reader("json")
    good = {"phase": 1, "interval": 1_767_225_600_000, "code": 7}
    bad: list[dict[str, Any]] = [
        {"phase": 3}, {"phase": True}, {"phase": "1"}, {"code": -1}, {"code": 2**64}, {"code": 1.5}, {"interval": None},
        {"interval": 2**63}, {"threshold_version": -1}, {"threshold_version": 2**32},
    ]  # fmt: skip
    payloads = [write(**good), *(write(**good | wrong) for wrong in bad)]
    found = joined(reader.read(payloads, lambda row: False))
    assert found == [encode_one(threshold_version=0, **good), *([None] * len(bad))]


def test_a_report_whose_schema_comes_late_holds_up_those_behind_it(
    monkeypatch: pytest.MonkeyPatch, report_class: Any
) -> None:
    registries = Registries(monkeypatch)
    write, reader = writer("avro", report_class), registries.reader("avro")
    report = {"phase": 2, "threshold_version": 1, "interval": 1_767_225_600_000, "code": 7}
    packed = encode_one(**report)
    payloads = [write(**report), packed, write(LATE, **report), packed, write(**report)]
    asked: list[int] = []
    assert joined(reader.read(payloads, lambda row: bool(asked.append(row)))) == [packed] * 2
    assert "does not know schema id=2" in str(reader.waits)
    assert asked == [2]
    assert joined(reader.read(payloads, lambda row: True)) == [packed, packed, None, packed, packed]
    registries.now = 20.0
    assert joined(reader.read(payloads, lambda row: False)) == [packed] * 5
    assert reader.waits is None


@pytest.mark.parametrize("form", [form for form in FORMS if form in OUTPUT_FORMATS])
def test_every_report_counts_once_whoever_wrote_it(
    kafka: Broker, schema_registry: str, tmp_path: Path, report_class: Any, form: str
) -> None:
    """Packed reports and records in the configured format; estimates in that format, too."""
    output = {"format": form} | ({} if form == "json" else {"registry": {"url": schema_registry}})
    overrides = {"input": source(form, schema_registry), "output": output}
    write, schema = writer(form, report_class), KNOWN
    # On a busy machine, half a second may pass between a report's time and its arrival.
    with (
        local_pipeline(kafka, tmp_path, overrides, holdout=500, lateness="10s") as pipeline,
        client_of(pipeline) as client,
    ):
        settings = pipeline.settings
        if form == "avro":
            with schema_registry_module.SchemaRegistryClient({"url": schema_registry}) as registry:
                schema = registry.register_schema(
                    f"{settings.topic('reports')}-value", schema_registry_module.Schema(json.dumps(REPORT), "AVRO")
                )
        client.report_batch(values(600, 1))
        client.flush(30)
        # A fork of this process would not find the client's class.
        pipeline.start(SUSURRUS_TEST_FORK="0", PYTHONPATH=str(tmp_path))
        until(lambda: client.phase == 2, pipeline)
        [message, *_] = kafka.read_all(settings.topic("threshold"))
        threshold = threshold_codec.decode(message.value())
        hybrid, dice = Hybrid(threshold.epsilon, threshold.alpha), np.random.default_rng(5)
        producer, now = kafka.producer(), int(time.time() * 1000)
        for value in dice.uniform(0, 1, 300).tolist():
            report = {"phase": 2, "threshold_version": 1, "interval": now, "code": int(hybrid.randomise_one(value))}
            producer.produce(settings.topic("reports"), write(schema, **report), partition=0)
        producer.flush(30)
        client.report_batch(values(200, 2))
        client.flush(30)
        until(lambda: sum(row.count for row in read_estimates(settings)) >= 500, pipeline)
        rows = read_estimates(settings)
        assert sum(row.count for row in rows) == 500
        assert {type(row.sum.std_error) for row in rows} == {float}
        first = kafka.read_all(settings.topic("estimate"))[0]
        assert (first.value()[:1] == b"{") == (form == "json")
        [(name, receipt)] = first.headers()
        assert (name, json.loads(receipt)["unit"]) == ("susurrus.receipt", "report")
        assert not kafka.read_all(settings.topic("dead-letter"))
