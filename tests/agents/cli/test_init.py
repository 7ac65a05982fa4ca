"""`susurrus config init`: what it writes passes the check, never replaces a file, and shows no value."""

import gzip
import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from susurrus.agents.cli.console import FAILED
from susurrus.agents.cli.main import app
from susurrus.agents.histogram.mechanism_settings import DEFAULT_REMEMBER
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import load_settings
from tests.broker import Broker

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
NEEDED = ["--topic", "web-requests", "--user", "host", "--key", "url"]


def init(path: Path, *arguments: str, answers: str | None = None) -> Result:
    return runner.invoke(app, ["config", "init", "--output", str(path), *arguments], input=answers)


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--key", r"geo.country", "--name", "visits", "--window", "1h", "--trigger", "5m"],
        ["--sum", "bytes", "--upper", "5000"],
        ["--sum", "records", "--lower=-5", "--upper", "3", "--epsilon", "2", "--delta", "1e-7"],
        ["--registry", "http://registry:8081"],
        ["--topic", 'odd.topic_name-"'[:-1], "--user", 'a"b\\c'],
    ],
    ids=str,
)
def test_what_it_writes_passes_the_check(tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "pipeline.toml"
    written = init(path, *NEEDED, "--no-look", "--yes", *more)
    assert written.exit_code == 0, written.output
    settings = load_settings(path, {})
    assert list(settings.findings()) == []
    checked = runner.invoke(app, ["config", "check", str(path)])
    assert checked.exit_code == 0, checked.output
    secret = runner.invoke(app, ["config", "secret", str(tmp_path / "pipeline.secret")])
    assert secret.exit_code == 0
    assert settings.secret({})  # beside the file, as it says
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert all(len(line) < 140 for line in text.splitlines())


def test_the_answers_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    assert init(path, *NEEDED, "--no-look", "--yes", "--sum", "bytes", "--lower", "1", "--upper", "9").exit_code == 0
    data = tomllib.loads(path.read_text())
    assert data["input"] == {"topic": "web-requests", "user": "host", "key": ["url"]}
    assert data["pipeline"] == {"name": "web-requests"}
    assert data["columns"][1] == {"name": "bytes", "kind": "sum", "field": "bytes", "lower": 1, "upper": 9}
    assert data["clock"] == {"kind": "producer"}
    assert data["privacy"]["secret_file"] == "p.secret"


def test_what_windows_remember_is_in_comments_that_hold(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    assert init(path, *NEEDED, "--no-look", "--yes").exit_code == 0
    text = path.read_text()
    before = load_settings(path, {})
    assert isinstance(before, HistogramSettings)
    assert (before.remember, before.evidence_windows) == (DEFAULT_REMEMBER, 1)
    lines = ("[keys]", "remember = 6", "evidence_windows = 4")
    for line in lines:
        text = text.replace(f"\n# {line} #", f"\n{line} #")
    assert all(f"\n{line} #" in text for line in lines)
    path.write_text(text)
    after = load_settings(path, {})
    assert isinstance(after, HistogramSettings)
    assert (after.remember, after.evidence_windows) == (DEFAULT_REMEMBER, 4)
    assert list(after.findings()) == []


def test_days_of_a_time_zone(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    done = init(path, "--no-look", "--yes", *NEEDED, "--window", "1 day", "--time-zone", "Europe/Berlin")
    assert done.exit_code == 0, done.output
    assert tomllib.loads(path.read_text())["window"] == {
        "length": "1 day",
        "time_zone": "Europe/Berlin",
        "trigger_every": "15m",
    }


def test_it_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("mine")
    refused = init(path, *NEEDED, "--no-look", "--yes")
    assert refused.exit_code == FAILED
    assert "is never replaced" in refused.stderr
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--yes", "--user", "host", "--key", "url"], "--topic: is missing"),
        (["--yes", "--topic", "t", "--key", "url"], "--user: is missing"),
        (["--yes", "--topic", "t", "--user", "host"], "--key: is missing"),
        (["--yes", *NEEDED, "--sum", "bytes"], "--upper: is missing; a sum needs a public upper bound"),
        (["--yes", *NEEDED, "--window", "7"], 'window.length = "7": has no unit'),
        (["--yes", *NEEDED, "--window", "1 day"], "--time-zone: is missing"),
        (["--yes", *NEEDED, "--time-zone", "UTC"], "window.time_zone"),
        (["--yes", *NEEDED, "--epsilon", "0"], "privacy.epsilon = 0"),
        ([], "there is no terminal to ask; give it, and --yes"),
    ],
    ids=str,
)
def test_what_is_missing_or_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    path = tmp_path / "p.toml"
    refused = init(path, "--no-look", *arguments)
    assert refused.exit_code == FAILED, refused.output
    assert says in " ".join(refused.stderr.replace("│", " ").split())
    assert not path.exists()


def test_brokers_that_do_not_answer_do_not_stop_it(tmp_path: Path) -> None:
    done = init(tmp_path / "p.toml", *NEEDED, "--yes", "--bootstrap-servers", "127.0.0.1:1")
    assert done.exit_code == 0
    assert "the topic is not looked at" in done.stderr
    assert (tmp_path / "p.toml").exists()


@pytest.mark.parametrize(("stamps", "clock"), [("CreateTime", "producer"), ("LogAppendTime", "broker")])
def test_it_looks_at_the_topic_and_asks_with_what_it_finds(
    kafka: Broker, tmp_path: Path, stamps: str, clock: str
) -> None:
    topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 2, {"message.timestamp.type": stamps})
    producer = kafka.producer()
    for number in range(30):
        value = {
            "at": "2026",
            "visitor": f"alice-{number}",
            "geo": {"country": "CH", "a.b": 1.5},
            "page": "/secret",
            "n": None,
        }
        producer.produce(topic, json.dumps(value), partition=number % 2)
    producer.flush(20)
    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    path = tmp_path / "p.toml"
    # topic, user (suggested), key (suggested), window, trigger, no sum, epsilon
    done = init(path, *servers, answers=f"{topic}\n\n\n1h\n5m\n\n2\n")
    assert done.exit_code == 0, done.output
    for field, kind in (
        ("at", "text"),
        ("visitor", "text"),
        ("geo.country", "text"),
        (r"geo.a\.b", "number"),
        ("n", "null"),
    ):
        assert re.search(rf"^{re.escape(field)} +{kind} +10 *$", done.stderr, re.MULTILINE), done.stderr
    assert "alice" not in done.output
    assert "/secret" not in done.output
    data = tomllib.loads(path.read_text())
    assert data["input"] == {"topic": topic, "user": "visitor", "key": ["geo.country"]}
    assert data["clock"]["kind"] == clock
    assert data["window"] == {"length": "1h", "trigger_every": "5m"}
    assert data["privacy"]["epsilon"] == 2
    shown = init(
        tmp_path / "q.toml", *servers, "--topic", topic, "--user", "usr", "--key", "page", "--yes", "--show-values"
    )
    assert '"/secret"' in shown.stderr
    assert "no record that was looked at has usr" in shown.stderr
    missing = init(tmp_path / "r.toml", *servers, *NEEDED, "--topic", "none-such", "--yes")
    assert "topic=none-such does not exist: correct input.topic" in missing.stderr


@pytest.mark.parametrize(
    ("values", "key", "headers", "arguments", "source"),
    [
        (
            "now",
            (7).to_bytes(8, "big"),
            [("user-id", b"ann")],
            ["--user", "$key", "--key", "page", "--time", "ts"],
            {
                "compression": "auto", "key_format": "int64", "user": "$key", "key": ["page"], "time": "ts", "time_unit": "s",
            },
        ),
        (
            [b'[{"u": "a", "k": 1}, {"u": "b", "k": 2}]'],
            None,
            [],
            ["--user", "u", "--key", "k"],
            {"each": {"of": "$value"}, "user": "u", "key": ["k"]},
        ),
        (
            [b"ann\t/a", b"bob\t/b"],
            None,
            [("user-id", b"ann")],
            ["--user", "$headers.user-id", "--key", "field_2"],
            {
                "format": "csv", "columns": ["field_1", "field_2"], "delimiter": "\t",
                "user": "$headers.user-id", "key": ["field_2"],
            },
        ),
    ],
)  # fmt: skip
def test_what_the_look_recognises_is_in_the_file_and_passes_the_check(
    kafka: Broker, tmp_path: Path, values: Any, key: Any, headers: Any, arguments: list[str], source: Any
) -> None:
    topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1)
    if values == "now":
        # A minute ahead: `try` below must not find that the record's window has ended in between.
        values = [gzip.compress(json.dumps({"page": "/a", "ts": int(time.time()) + 60}).encode())] * 3
    producer = kafka.producer()
    for value in values:
        producer.produce(topic, value, key=key, headers=headers)
    producer.flush(20)
    path = tmp_path / "p.toml"
    done = init(path, "--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic, "--yes", *arguments)
    assert done.exit_code == 0, done.output
    assert "note: no record" not in done.stderr
    assert tomllib.loads(path.read_text())["input"] == {"topic": topic, **source}
    checked = runner.invoke(app, ["config", "check", str(path)])
    assert checked.exit_code == 0, checked.output
    tried = runner.invoke(app, ["try", "--config", str(path), "--json"])
    [found] = json.loads(tried.stdout)["topics"]
    assert [one["outcome"] for one in found["outcomes"]] == ["kept"], tried.stdout


def test_it_asks_for_the_event_time_where_a_field_may_have_it(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1)
    producer = kafka.producer()
    producer.produce(topic, json.dumps({"user": "ann", "page": "/a", "at": "2026-10-01T00:00:00Z"}))
    producer.flush(20)
    path = tmp_path / "p.toml"
    # topic, user, key, time, window, trigger, no sum, epsilon
    done = init(path, "--bootstrap-servers", kafka.bootstrap_servers, answers=f"{topic}\nuser\npage\nat\n1h\n5m\n\n2\n")
    assert done.exit_code == 0, done.output
    data = tomllib.loads(path.read_text())
    assert data["input"] == {"topic": topic, "user": "user", "key": ["page"], "time": "at", "time_unit": "iso"}
