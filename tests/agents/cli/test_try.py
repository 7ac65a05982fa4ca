"""`susurrus try` on a real broker: what it says, that it writes nothing, and that no value is shown unless asked for."""

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner, Result

from susurrus.agents.cli.console import FAILED
from susurrus.agents.cli.main import app
from susurrus.agents.operations.preflight import run
from susurrus.agents.operations.topic_trial import check_records
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from tests.broker import Broker
from tests.pipeline import merged

NOW = int(time.time() * 1000)
runner = CliRunner(env={"COLUMNS": "160", "TERM": "dumb"})


class Topic:
    """A raw topic with records, and the file of a pipeline on it."""

    def __init__(self, kafka: Broker, directory: Path, **source: Any) -> None:
        self.kafka, self.topic = kafka, kafka.create_topic(f"raw-{kafka.new_prefix()}", 2)
        self.prefix, self.file = kafka.new_prefix(), directory / "p.toml"
        self.data: dict[str, Any] = {
            "pipeline": {"name": "p", "prefix": self.prefix},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
            "input": {"topic": self.topic, "user": "user_id", "key": ["page"], **source},
            "clock": {"kind": "producer"},
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
        }
        self.file.write_text(tomli_w.dumps(self.data))

    def write(self, *values: Any, partition: int = 0, **more: Any) -> None:
        producer = self.kafka.producer()
        for value in values:
            packed = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.topic, packed, partition=partition, **more)
        producer.flush(20)

    def run(self, *arguments: str) -> Result:
        return runner.invoke(app, ["try", "--config", str(self.file), *arguments])

    def json(self, *arguments: str) -> Any:
        found = self.run("--json", *arguments)
        assert found.exit_code == 0, found.output
        [topic] = json.loads(found.stdout)["topics"]
        return topic


def test_what_becomes_of_records_and_nothing_is_written(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    topic.write(*[{"user_id": f"alice-{number}", "page": "/secret"} for number in range(7)])
    topic.write({"user_id": None, "page": "/secret"}, b"no json alice", None, partition=1)
    shown = topic.run()
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())
    assert "what becomes of the newest 10 records" in said
    assert "kept 7 70.0 % 0:0, 0:1, 0:2" in said
    assert 'dead letter MISSING_USER input.user = "user_id" 1 10.0 % 1:0' in said
    assert "NOT_JSON: the value is not one JSON value; let the producer" in said
    assert "user_id text 8, 1 null" in said
    assert "1 of 10 have no value" in said
    assert "alice" not in shown.output
    assert "/secret" not in shown.output
    found = topic.json()
    assert "alice" not in json.dumps(found)
    assert [(one["outcome"], one["reason"], one["number"]) for one in found["outcomes"]] == [
        ("kept", None, 7), ("dead letter", "MISSING_USER", 1), ("dead letter", "NOT_JSON", 1), ("dead letter", "TOMBSTONE", 1),
    ]  # fmt: skip
    assert found["outcomes"][1]["examples"] == [{"topic": topic.topic, "partition": 1, "offset": 0}]
    assert found["named"][0] == {
        "field": "user_id", "settings": ['input.user = "user_id"'], "rows": 10, "present": 7, "null": 1, "absent": 0,
        "nearest": None,
    }  # fmt: skip
    admin = kafka.admin()
    assert not [name for name in admin.list_topics(timeout=20).topics if name.startswith(topic.prefix)]
    assert not [one.group_id for one in admin.list_consumer_groups().result().valid if topic.prefix in one.group_id]


def test_a_producer_writes_nothing_to_the_terminal(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    topic.write({"user\x1b[2J_id": "a", "[red]page": "b", "\x9b2J": 1}, headers=[("\x1b]0;x\x07", b"h")])
    shown = topic.run()
    assert shown.exit_code == 0, shown.output
    assert not {character for character in shown.output if not character.isprintable()} - {"\n"}
    assert "[red]page" in shown.output


def test_topics_with_formats_of_their_own(kafka: Broker, tmp_path: Path) -> None:
    topic, other = Topic(kafka, tmp_path), Topic(kafka, tmp_path)
    del other.data["input"]["topic"]
    other.data["input"] |= {"topics": [topic.topic, other.topic], "formats": {other.topic: {"format": "json-lines"}}}
    other.file.write_text(tomli_w.dumps(other.data))
    topic.write({"user_id": "a", "page": "b"})
    other.write(gzip.compress(b'{"user_id": "a", "page": "b"}'))
    found = json.loads(other.run("--json").stdout)["topics"]
    assert [[(one["outcome"], one["reason"]) for one in each["outcomes"]] for each in found] == [
        [("kept", None)], [("dead letter", "COMPRESSED")],
    ]  # fmt: skip
    assert f'input.formats."{other.topic}".compression = "auto"' in found[1]["advice"]


def test_values_are_shown_to_who_asks_for_them(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    topic.write({"user_id": "alice", "page": ["/a", "\x1b[31m"]}, b"no json \x1b[31m", key=b"k")
    shown = topic.run("--show-values")
    assert "no json �[31m" in shown.output
    assert '"alice"' in shown.output
    assert "\x1b" not in shown.output
    values = {one["reason"]: one["examples"][0]["value"] for one in topic.json("--show-values")["outcomes"]}
    assert values["NOT_JSON"] == "bm8ganNvbiAbWzMxbQ=="


def test_only_the_newest_records_and_what_to_write(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    assert "has no records yet" in topic.run().output
    topic.write(*[{"user_id": "a", "page": "b"}] * 5, timestamp=NOW - 60_000)
    topic.write(*[{"User_Id": "a", "page": "b"}] * 3, headers=[("tenant", b"t")], timestamp=NOW - 30_000)
    found = topic.json("--records", "3")
    assert found["records"] == 3
    assert found["advice"] == ['input.user = "user_id": write User_Id instead of user_id']
    assert {one["field"] for one in found["seen"]} == {"User_Id", "page", "$headers.tenant"}
    assert "write User_Id instead of user_id" in topic.run("--records", "3").output
    assert topic.json()["records"] == 8


def test_items_and_another_kind(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, each={"of": "items", "as": "item"}, key=["item.sku"])
    topic.write({"user_id": "a", "items": [{"sku": "x"}, {"sku": []}]})
    found = topic.json()
    assert (found["records"], found["rows"]) == (1, 2)
    assert found["outcomes"][1]["examples"] == [{"topic": topic.topic, "partition": 0, "offset": 0, "item": 1}]
    assert "0:0:1" in topic.run().output
    stream = merged(topic.data, {"pipeline": {"kind": "stream"}})
    del stream["privacy"], stream["clock"]
    stream["input"] = {"topic": topic.topic}
    stream["stream"] = {"value": "n", "bound": 1.0, "epsilon": 1.0, "method": "laplace"}
    topic.file.write_text(tomli_w.dumps(stream))
    refused = topic.run()
    assert refused.exit_code == FAILED


@pytest.mark.parametrize(
    ("good", "bad", "level", "says"),
    [
        (0, 0, "ok", "there is no record yet"),
        (20, 1, "ok", "20 would be kept, 1 dead letters"),
        (8, 2, "warning", "2 of the newest 10 records would be dead letters, MISSING_USER (the user is missing"),
        (0, 4, "failure", "all 4 newest records would be dead letters, MISSING_USER"),
    ],
)  # fmt: skip
def test_preflight_fails_where_all_records_would_be_dead_letters(
    kafka: Broker, tmp_path: Path, good: int, bad: int, level: str, says: str
) -> None:
    topic = Topic(kafka, tmp_path)
    topic.write(*[{"user_id": "a", "page": "b"}] * good, *[{"userId": "a", "page": "b"}] * bad)
    [first, *others] = check_records(pipeline_of(settings_from(topic.data, environ={})))
    assert (first.subject, first.level) == ("records", level)
    assert says in first.text
    if level == "failure":
        assert 'input.user = "user_id": write userId instead of user_id' in first.action
        assert [one.level for one in others] == ["warning"]
        assert "has user_id (input.user" in others[0].text
        assert others[0].text.endswith("the nearest is userId")
    else:
        assert not others


def test_what_this_machine_lacks_is_unknown_to_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*arguments: Any) -> Any:
        raise ConfigurationError("input.format: needs a package", "install it")

    monkeypatch.setattr(run, "check_records", lacks)
    data = {
        "pipeline": {"name": "p"},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topic": "raw", "user": "u", "key": ["k"]},
        "clock": {"kind": "producer"},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
    }
    pipeline = pipeline_of(settings_from(data, environ={}))
    [found] = run._check_records(pipeline, ["raw"])
    assert (found.level, found.action) == ("unknown", "install it")
