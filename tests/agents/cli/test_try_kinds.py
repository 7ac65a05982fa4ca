"""`susurrus try`, preflight's look at records and `config init`: every kind of pipeline, SQL, a schema registry, and a ledger."""

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner, Result

from susurrus.agents.cli.main import app
from susurrus.agents.operations.topic_trial import check_records
from susurrus.agents.pipelines import load_settings, pipeline_of
from susurrus.topics.ledger import Epoch, Start, encode
from susurrus.topics.reports import encode_one
from susurrus.topics.sources import Run
from tests.agents.cli.test_try import Topic
from tests.broker import Broker

HOUR = 3_600_000
runner = CliRunner(env={"COLUMNS": "160", "TERM": "dumb"})


def run(*arguments: str) -> Result:
    return runner.invoke(app, [*arguments])


def outcomes(found: Any) -> list[tuple[str, str | None, int]]:
    return [(one["outcome"], one["reason"], one["number"]) for one in found["outcomes"]]


def words(text: str) -> str:
    """A text of which the lines are broken by a table."""
    return " ".join(text.split())


def test_streams_of_values(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    topic.data |= {
        "pipeline": {"name": "p", "prefix": topic.prefix, "kind": "stream"},
        "input": {"topic": topic.topic},
        "stream": {"value": "watts", "stream": "meter", "bound": 100.0, "epsilon": 1.0},
    }
    del topic.data["privacy"], topic.data["clock"]
    topic.file.write_text(tomli_w.dumps(topic.data))
    topic.write(*[{"meter": "m", "watts": 1.5}] * 3, {"meter": "m", "Watts": 1})
    found = topic.json()
    assert outcomes(found) == [("kept", None, 3), ("dead letter", "MISSING_VALUE", 1)]
    assert found["outcomes"][1]["setting"] == 'stream.value = "watts"'
    assert [one["field"] for one in found["named"]] == ["meter", "watts"]
    assert "MISSING_VALUE" in topic.run().output
    [checked] = check_records(pipeline_of(load_settings(topic.file, {})))
    assert (checked.level, "3 would be kept" in checked.text or "1 of the newest 4" in checked.text) == (
        "warning",
        True,
    )
    other = Topic(kafka, tmp_path)
    other.file.write_text(tomli_w.dumps({**topic.data, "input": {"topic": other.topic}}))
    other.write(*[{"meter": "m", "Watts": 1}] * 5)
    [failed, unknown] = check_records(pipeline_of(load_settings(other.file, {})))
    assert (failed.level, unknown.level) == ("failure", "warning")
    assert 'stream.value = "watts": write Watts instead of watts' in failed.action


def test_reports_of_devices(kafka: Broker, tmp_path: Path) -> None:
    prefix, file = kafka.new_prefix(), tmp_path / "p.toml"
    data = {
        "pipeline": {"name": "p", "prefix": prefix, "kind": "local"},
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "local": {"bound": 10.0, "epsilon": 2.0, "interval": "1m"},
    }
    file.write_text(tomli_w.dumps(data))
    topic, now = kafka.create_topic(f"{prefix}.p.reports", 1), int(time.time() * 1000)
    report = {"phase": 1, "threshold_version": 0, "interval": now - now % 60_000, "code": 1}
    producer = kafka.producer()
    for value in (encode_one(**report), json.dumps(report).encode(), b"nothing", encode_one(**{**report, "phase": 2})):
        producer.produce(topic, value)
    producer.flush(20)
    shown = run("try", "--config", str(file), "--json")
    assert shown.exit_code == 0, shown.output
    [found] = json.loads(shown.stdout)["topics"]
    assert outcomes(found) == [
        ("kept", None, 2), ("dead letter", "NOT_A_REPORT", 1), ("dead letter", "WRONG_THRESHOLD", 1),
    ]  # fmt: skip
    # What susurrus' own clients pack is not looked at as if it were written by others.
    assert {one["field"]: one["rows"] for one in found["seen"]} == dict.fromkeys(report, 1)
    assert not [name for name in kafka.admin().list_topics(timeout=20).topics if name.endswith(".p.threshold")]
    [checked] = check_records(pipeline_of(load_settings(file, {})))
    assert checked.level == "warning"
    assert "2 of the newest 4 records would be dead letters" in checked.text


STATEMENT = """
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, delta = 1e-9, privacy_unit_column = $key)
  lower(page) AS site, COUNT(*) AS visits, SUM(bytes CLAMPED BETWEEN 0 AND 9) AS total
FROM {topic} WHERE "event-type" = 'view' GROUP BY site, TUMBLE(ROWTIME, INTERVAL '1' DAY) EMIT EVERY INTERVAL '1' HOUR
"""


def test_a_statement_in_sql(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    sql, common = tmp_path / "views.sql", tmp_path / "common.toml"
    sql.write_text(STATEMENT.format(topic=f'"{topic.topic}"'))
    kept = ("kafka", "clock")
    common.write_text(tomli_w.dumps({name: topic.data[name] for name in kept}))
    view = {"event-type": "view", "page": "/A", "bytes": 3}
    topic.write(view, {**view, "bytes": "3"}, {**view, "event-type": "buy"}, key=b"ann")
    topic.write(view)
    arguments = ("--sql", str(sql), "--config", str(common))
    shown = run("try", *arguments, "--json")
    assert shown.exit_code == 0, shown.output
    [found] = json.loads(shown.stdout)["topics"]
    assert outcomes(found) == [
        ("kept", None, 1), ("left out", "FILTERED", 1),
        ("dead letter", "VALUE_NOT_A_NUMBER", 1), ("dead letter", "MISSING_USER", 1),
    ]  # fmt: skip
    assert [one["setting"] for one in found["outcomes"]] == [
        None, "input.where", 'columns.field = "bytes"', 'input.user = "$key"',
    ]  # fmt: skip
    assert {"event-type", "page", "bytes"} <= {one["field"].strip('"') for one in found["named"]}
    assert "MISSING_USER" in run("try", *arguments).output
    checked = run("topics", "create", *arguments)
    assert checked.exit_code == 0, checked.output
    checked = run("preflight", *arguments)
    assert "2 of the newest 4 records would be dead letters" in words(checked.output), checked.output


def test_records_whose_schemas_are_in_a_registry(kafka: Broker, schema_registry: str, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic = Topic(kafka, tmp_path)
    schema = {
        "type": "record",
        "name": "Visit",
        "fields": [{"name": "visitor", "type": "string"}, {"name": "page", "type": "string"}],
    }
    key = {"type": "record", "name": "Id", "fields": [{"name": "tenant", "type": "string"}]}
    with SchemaRegistryClient({"url": schema_registry}) as client:
        values, keys = (AvroSerializer(client, json.dumps(one)) for one in (schema, key))
        producer = kafka.producer()
        for number in range(6):
            value = values(
                {"visitor": f"v{number}", "page": "/a"}, SerializationContext(topic.topic, MessageField.VALUE)
            )
            named = keys({"tenant": "t"}, SerializationContext(topic.topic, MessageField.KEY))
            producer.produce(topic.topic, value, named)
        producer.produce(topic.topic, b"\0\0\0\xff\xff1", keys({"tenant": "t"}, SerializationContext("t", "key")))
        producer.flush(20)

    # A file that knows nothing of it is told what to write; what it then says is right.
    told = topic.json()["advice"]
    assert 'input.framing = "confluent"' in told
    assert [one["reason"] for one in topic.json()["outcomes"]] == ["FRAMING_CONFLUENT"]
    path = tmp_path / "init.toml"
    servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic.topic, "--registry", schema_registry)
    written = run("config", "init", "-o", str(path), *servers, "--user", "$key.tenant", "--key", "page", "--yes")
    assert written.exit_code == 0, written.output
    assert "visitor" in written.stderr
    assert "$key.tenant" in written.stderr
    data = tomllib.loads(path.read_text())
    assert data["input"] == {
        "topic": topic.topic, "format": "avro", "key_format": "avro", "user": "$key.tenant", "key": ["page"],
        "registry": {"url": schema_registry},
    }  # fmt: skip
    shown = run("try", "--config", str(path), "--json")
    assert shown.exit_code == 0, shown.output
    [found] = json.loads(shown.stdout)["topics"]
    assert outcomes(found) == [("kept", None, 6), ("dead letter", "UNDECODABLE", 1)]
    assert found["layout"] == {"as_configured": True}
    assert {one["field"]: one["present"] for one in found["named"]} == {"$key.tenant": 6, "page": 6}
    [checked] = check_records(pipeline_of(load_settings(path, {})))
    assert (checked.level, "1 of the newest 7" in checked.text) == ("warning", True)


def test_a_ledger_says_where_the_pipeline_began(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    now = int(time.time() * 1000)
    event = {"user_id": "a", "page": "b"}
    topic.write(*[event] * 2, timestamp=now - 3 * 24 * HOUR)
    topic.write(*[event] * 3, timestamp=now)
    assert outcomes(topic.json()) == [("kept", None, 5)]
    assert any("start.from" in text for text in topic.json()["undecided"])
    ledger = kafka.create_topic(f"{topic.prefix}.p.ledger", 1)
    start = Start(
        first_window=now - now % (24 * HOUR), origin="latest", topic_ids={}, sources=(Run(topic.topic, 0, 2),),
        offsets={0: 1, 1: 0},
    )  # fmt: skip
    producer = kafka.producer()
    for record in (Epoch(epoch="e", created=now, number=1), start):
        key, value = encode(record)
        producer.produce(ledger, value, key)
    producer.flush(20)
    found = topic.json()
    assert outcomes(found) == [("kept", None, 3), ("dead letter", "BEFORE_FIRST_WINDOW", 2)]
    assert found["before_start"] == 1
    shown = words(topic.run().output)
    assert "1 of the records are not read: the pipeline began behind them" in shown
    assert "not decided: caps: which of a user's records count depends on its other records" in shown


@pytest.mark.parametrize("kind", ["stream", "local"])
def test_the_ledger_of_another_kind_is_no_trouble(kafka: Broker, tmp_path: Path, kind: str) -> None:
    """A ledger that cannot be understood says nothing."""
    topic = Topic(kafka, tmp_path)
    own = {
        "stream": {"value": "n", "stream": "s", "bound": 1.0, "epsilon": 1.0},
        "local": {"bound": 1.0, "epsilon": 1.0},
    }
    data = {
        "pipeline": {"name": "p", "prefix": topic.prefix, "kind": kind},
        "kafka": topic.data["kafka"],
        kind: own[kind],
        **({"input": {"topic": topic.topic}} if kind == "stream" else {}),
    }
    topic.file.write_text(tomli_w.dumps(data))
    read = topic.topic if kind == "stream" else kafka.create_topic(f"{topic.prefix}.p.reports", 1)
    ledger = kafka.create_topic(f"{topic.prefix}.p.ledger", 1)
    producer = kafka.producer()
    producer.produce(ledger, b"no record of ours", b"odd")
    producer.produce(read, b"{}")
    producer.flush(20)
    assert [one["number"] for one in topic.json()["outcomes"]] == [1]
