"""A histogram in every output format on a real broker: the same numbers, the same bytes after crashes, and rows with receipts."""

import io
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.agents.formats.outputs import OUTPUT_FORMATS, reader_of
from susurrus.agents.pipelines import pipeline_of
from susurrus.releases import releases
from susurrus.topics import histogram, receipt
from tests.broker import Broker, wait_for
from tests.chaos.conftest import archive
from tests.pipeline import CRASHING, Pipeline, Public, merged
from tests.registry import relay

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("authlib")

ROWS = ("histogram", "latest")
CONFIGURATION: dict[str, Any] = {
    "input": {"key": ["url", "bytes"]},
    "bounds": {"max_records_per_user": 20},
    "privacy": {"strategy": "closing"},
    "columns": [{"name": "visits-per-page", "kind": "count"}, {"name": "kb", "kind": "mean", "field": "bytes", "bound": 9e4}],
}  # fmt: skip


@pytest.fixture(scope="module")
def raw(kafka: Broker, once: Callable[[str, Callable[[], str]], str]) -> str:
    return once("output-formats", lambda: archive(kafka, 1))


def configured(form: str, registry: str) -> dict[str, Any]:
    own = {"format": form} | ({"registry": {"url": registry}} if OUTPUT_FORMATS[form].registered else {})
    return merged(CONFIGURATION, {"output": own})


def run(kafka: Broker, directory: Path, raw: str, overrides: dict[str, Any]) -> tuple[Pipeline, Public]:
    with Pipeline(kafka, directory, raw, overrides) as pipeline:
        pipeline.start()
        pipeline.wait()
        return pipeline, pipeline.public()


def decoded(pipeline: Pipeline, public: Public) -> list[histogram.Row]:
    settings = pipeline.settings
    read = reader_of(settings.output, settings.schemas[settings.topic("histogram")], settings.namespace)
    return [
        histogram.decode_row(read(value)) for part in sorted(public["histogram"]) for _, value, _ in public["histogram"][part]
    ]  # fmt: skip


def bodies(public: Public) -> dict[str, dict[int, list[tuple[bytes, bytes, int]]]]:
    """Without the schema ids, which differ between two pipelines."""
    return {
        name: {part: [(key, value[5:], stamp) for key, value, stamp in rows] for part, rows in public[name].items()}
        for name in ROWS
    }


@pytest.fixture(scope="module")
def plain(kafka: Broker, raw: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, Public]:
    return run(kafka, tmp_path_factory.mktemp("json"), raw, configured("json", ""))


def test_json_follows_the_published_schemas_and_has_receipts(plain: tuple[Pipeline, Public]) -> None:
    pipeline, public = plain
    rows = decoded(pipeline, public)
    assert len(rows) > 20
    assert any(column.direct for row in rows for column in row.values.values())
    check_schemas(pipeline, public)
    check_receipts(pipeline)


@pytest.mark.parametrize("form", [name for name, form in OUTPUT_FORMATS.items() if form.registered])
def test_every_format_has_the_same_numbers_and_the_same_bytes_after_crashes(
    kafka: Broker, schema_registry: str, tmp_path: Path, raw: str, plain: tuple[Pipeline, Public], form: str
) -> None:
    wanted, overrides = decoded(*plain), configured(form, schema_registry)
    calm, published = run(kafka, tmp_path, raw, overrides)
    assert decoded(calm, published) == wanted
    ids = {value[:5] for name in ROWS for part in published[name].values() for _, value, _ in part}
    assert len(ids) == 1
    check_receipts(calm)
    with Pipeline(kafka, tmp_path, raw, merged(overrides, CRASHING)) as pipeline:
        for where in ("release:after-outputs:2", "release:after-commit:3"):
            pipeline.crash(where)
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        pipeline.wait()
        assert bodies(pipeline.public()) == bodies(published)
    [last] = releases(calm.settings, final=True, follow=False)
    rows = {str(row.key): row.values for row in wanted if row.trigger == row.of_triggers}
    assert set(map(str, last.keys)) == set(rows)
    for name, of in last.columns.items():
        values = [rows[str(key)][name] for key in last.keys]
        alone = [value.direct or value for value in values]
        for (estimate, std_error), found in (((of.estimate, of.std_error), values), (of.independent, alone)):
            assert estimate.tolist() == [value.estimate for value in found]
            assert std_error.tolist() == [value.std_error for value in found]
    if form == "avro":
        check_avro(calm, published, schema_registry)


def test_a_worker_waits_for_its_registry_and_one_with_another_configuration_registers_nothing(
    kafka: Broker, schema_registry: str, tmp_path: Path, raw: str
) -> None:
    (port,) = free_ports(1)
    with Pipeline(kafka, tmp_path, raw, configured("avro", f"http://127.0.0.1:{port}")) as pipeline:
        first = pipeline.start()
        wait_for(lambda: "not started yet: output.registry: no answer" in first.tail(), "the worker waits")
        with relay(port, schema_registry) as asked:
            pipeline.wait()
        registered = [one for one in asked if one.startswith("POST /subjects/") and "/versions" in one]
        assert len(registered) == len(ROWS)
        pipeline.data["columns"][0]["name"] = "other"  # another schema, too
        pipeline.write_config()
        with relay(port, schema_registry) as asked:
            second = pipeline.start()
            assert second.process.wait(60) == 2
        assert "configuration changed under the same epoch" in second.tail()
        assert asked
        assert not [one for one in asked if one.startswith("POST /subjects/") and "/versions" in one]


def check_schemas(pipeline: Pipeline, public: Public) -> None:
    """What is written follows the schemas that are published, and has no member that they do not name."""
    import jsonschema  # takes seconds, which every process that collects this file would spend

    instants = jsonschema.FormatChecker([])

    @instants.checks("date-time", ValueError)
    def is_instant(text: str) -> bool:
        return datetime.fromisoformat(text).utcoffset() is not None

    settings = pipeline.settings
    for name in ("histogram", "latest", "progress"):
        text = OUTPUT_FORMATS["json"].text(settings.schemas[settings.topic(name)], settings.namespace)
        validator = jsonschema.Draft202012Validator(closed(json.loads(text)), format_checker=instants)
        for part in public[name].values():
            for _, value, _ in part:
                validator.validate(json.loads(value))


def check_receipts(pipeline: Pipeline) -> None:
    """Every row says what it cost; other topics have no headers."""
    settings = pipeline.settings
    for name in ROWS:
        for message in pipeline.broker.read_all(settings.topic(name)):
            [(header, value)] = message.headers()
            said = receipt.decode(value)
            assert header == "susurrus.receipt"
            assert said == pipeline_of(settings).receipt()
            assert said.digest == settings.config_digest().hex()
            assert (said.epsilon, said.delta, said.window, said.strategy) == (6.0, 1e-9, "1d", "closing")
            assert (said.unit, said.neighbours) == ("user, window", "add or remove")
            assert 0 < (said.mu or 0) < 6
            assert len(value) < 300
    assert all(not message.headers() for message in pipeline.broker.read_all(settings.topic("progress")))


def closed(schema: Any) -> Any:
    """The schema without room for members that it does not name."""
    if isinstance(schema, dict):
        found = {name: closed(value) for name, value in schema.items()}
        return found | {"additionalProperties": False} if "properties" in schema else found
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


def check_avro(pipeline: Pipeline, public: Public, url: str) -> None:
    """A client that has nothing but Kafka and the registry reads the rows."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": url}) as client:
        found = client.get_latest_version(f"{pipeline.settings.topic('histogram')}-value")
    schema = fastavro.parse_schema(json.loads(found.schema.schema_str))
    rows = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        for part in public["histogram"].values()
        for _, value, _ in part
    ]
    assert {row["window_start"].isoformat() for row in rows} == {"1995-08-01T00:00:00+00:00"}
    assert {type(row["key"]["url"]) for row in rows} == {str}
    assert {type(row["key"]["bytes"]) for row in rows} == {int}
    assert all(row["values"]["visits_per_page"]["std_error"] > 0 for row in rows)
