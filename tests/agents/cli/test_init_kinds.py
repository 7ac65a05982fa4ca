"""`susurrus config init --kind`: for every other kind what it writes passes the check, and what is wrong is said."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.console import FAILED
from susurrus.agents.cli.main import app
from susurrus.agents.pipelines import KINDS, load_settings
from tests.agents.cli.test_init import init
from tests.broker import Broker

OTHERS = [kind for kind, pipeline in KINDS.items() if pipeline.questions]
ANSWERS = {
    "stream": ["--topic", "meters", "--set", "stream.value=watts", "--set", "stream.bound=100"],
    "local": ["--set", "local.bound=10.5"],
}
runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def test_every_kind_but_the_default_lists_its_questions() -> None:
    assert set(OTHERS) == set(ANSWERS) == set(list(KINDS)[1:])
    for kind in OTHERS:
        fields = KINDS[kind].settings_class.model_fields
        assert all(question.section in fields for question in KINDS[kind].questions)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_it_writes_passes_the_check(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.toml"
    written = init(path, "--kind", kind, *ANSWERS[kind], "--no-look", "--yes")
    assert written.exit_code == 0, written.output
    settings = load_settings(path, {})
    assert settings.kind == kind
    assert list(settings.findings()) == []
    checked = runner.invoke(app, ["config", "check", str(path)])
    assert checked.exit_code == 0, checked.output
    text = path.read_text()
    assert all(len(line) < 140 for line in text.splitlines())
    data = tomllib.loads(text)
    if kind == "stream":
        assert data["input"] == {"topic": "meters"}
        assert data["stream"] == {"value": "watts", "bound": 100.0, "epsilon": 1.0, "secret_file": "p.secret"}
        assert data["pipeline"] == {"name": "meters", "kind": "stream"}
    else:
        assert "input" not in data
        assert data["local"] == {"bound": 10.5, "epsilon": 1.0, "interval": "1m"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kind", "none-such"], '--kind "none-such": '),
        (["--kind", "stream", "--user", "u"], "--user: belongs to --kind histogram"),
        (["--set", "stream.value=x"], "--set: belongs to other kinds"),
        (["--kind", "stream", "--topic", "t", "--set", "stream.value"], 'has no value; write name=value'),
        (["--kind", "stream", "--topic", "t", "--set", "stream.fanout=3"], "write other settings into the file"),
        (["--kind", "stream", "--topic", "t", "--set", "stream.value=x"], "--set stream.bound=...: is missing"),
        (["--kind", "local", "--set", "local.bound=much"], '"much": write a number'),
        (["--kind", "local", "--set", "local.bound=-1"], "local.bound"),
        (["--kind", "stream", "--set", "stream.value=x", "--set", "stream.bound=1"], "--topic: is missing"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_missing_or_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    path = tmp_path / "p.toml"
    refused = init(path, *arguments, "--no-look", "--yes")
    assert refused.exit_code == FAILED, refused.output
    assert says in " ".join(refused.stderr.replace("│", " ").split())
    assert not path.exists()


def test_it_looks_at_the_topic_and_asks_with_what_it_finds(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1)
    producer = kafka.producer()
    for number in range(5):
        value = b"\0\0\0\0\1" + json.dumps({"site": "s", "watts": number}).encode()
        producer.produce(topic, value, number.to_bytes(8, "big"))
    producer.flush(20)
    path = tmp_path / "p.toml"
    # brokers, topic; the value is suggested; the stream, the bound, epsilon
    done = init(path, "--kind", "stream", answers=f"{kafka.bootstrap_servers}\n{topic}\n\n$key\n50\n\n")
    assert done.exit_code == 0, done.output
    data = tomllib.loads(path.read_text())
    assert data["input"] == {"topic": topic, "framing": "confluent", "key_format": "int64"}
    assert data["stream"]["value"] == "watts"
    assert data["stream"]["stream"] == "$key"
    tried = runner.invoke(app, ["try", "--config", str(path), "--json"])
    assert tried.exit_code == 0, tried.output
    [found] = json.loads(tried.stdout)["topics"]
    assert [(one["outcome"], one["number"]) for one in found["outcomes"]] == [("kept", 5)]
