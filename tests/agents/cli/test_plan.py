"""``susurrus plan``: what it prints, that it warns, that it never needs the secret, and how it fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from susurrus.agents.cli import main as cli
from susurrus.agents.kafka.embedded import EmbeddedBroker

CONFIG = """
[pipeline]
name = "page-views"
[kafka]
bootstrap_servers = "127.0.0.1:1"
[kafka.properties]
"client.id" = { file = "/nowhere/password" }
[input]
topic = "raw"
user = "host"
key = ["url"]
[window]
length = "1d"
trigger_every = "2h"
[[columns]]
name = "visits"
kind = "count"
[[columns]]
name = "bytes"
kind = "sum"
field = "bytes"
bound = 100
[privacy]
epsilon = 6.0
delta = 1e-6
secret_file = "/nowhere/secret"
"""
STREAM = """
[pipeline]
name = "power"
kind = "stream"
[input]
topic = "raw"
[stream]
bound = 100
epsilon = 0.5
"""
SCHEMA = {"schema", "pipeline", "private", "input", "constants", "seeds", "runs", "why", "preferred", "preferred_by"}


FORGETS = "[keys]\nremember = 0\n"


def susurrus(*arguments: object, width: int = 100) -> Result:
    runner = CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"})
    return runner.invoke(cli.app, ["plan", *map(str, arguments)])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A quiet key, and one that every host has."""
    path = tmp_path / "sample.jsonl"
    records = [
        {"host": f"h{host}", "url": url, "bytes": 90 + host % 20, "t": 1_767_225_600 + host * 80}
        for host in range(1000)
        for url in ("/", f"/rare/{host % 300}")
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in [*records, {"url": "/", "bytes": 1, "t": 1}]))
    return path


def from_sample(config: Path, sample: Path, *more: object, width: int = 100) -> Result:
    given = ("-c", config, "--sample", sample, "--sample-time", "t", "--sample-time-unit", "s", "--seeds", 1)
    return susurrus(*given, *more, width=width)


@pytest.mark.parametrize("width", [80, 100])
def test_a_plan_from_a_sample_fits_the_terminal_and_warns_first(config, sample, width):
    found = from_sample(config, sample, "--what-if", "C=2,32", "--what-if", "m=1,99", width=width)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "This forecast is not private" in lines[0]
    said = " ".join(" ".join(lines).replace("│", " ").split())
    for part in (
        "outside the guarantee",
        "2,000 records, 1,000 users, 301 keys",
        "left out of 2,001 records read: 1 ",
        "runs closing, the default",
        "forecast prefers",
        "Users from which a key appears",
        "Standard error of bytes",
        "Keys by their users",
        "The bounds of bytes change 45.0% of the values",
        "by-user",
        "worker process",
        "What if",
        "C = 2, m = 99: bounds.max_records_per_key",
    ):
        assert part in said, part
    # Keys are never named: the plan is about sizes.
    assert "/rare" not in said
    assert "Traceback" not in found.output


def test_without_data_it_says_what_the_configuration_says(config):
    found = susurrus("-c", config, "--what-if", "epsilon=1,6")
    assert found.exit_code == 0
    assert "not private" not in found.stdout
    assert "give --users (a synthetic law)" in found.stdout
    assert "keys published" not in found.stdout


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=pytest.fail)
    return found


def test_the_json_document_has_every_number(config, sample):
    found = document(from_sample(config, sample, "--json", "--what-if", "C=4"))
    assert set(found) >= {*SCHEMA, "consider", "strategies", "what_if"}
    assert found["private"] is True
    assert found["input"]["records_dropped"] == {"MISSING_USER": 1}
    assert [each["strategy"] for each in found["strategies"]] == [
        "toeplitz",
        "closing",
        "dp-sqlp",
    ]
    closing = next(each for each in found["strategies"] if each["strategy"] == found["runs"])
    assert closing["triggers"] == [1, 3, 6, 9, 12]
    assert len(closing["users_to_appear"]["0.95"]) == 5
    end = closing["outcome"]["triggers"][-1]
    assert end["keys"]["mean"] == pytest.approx(1, abs=1)
    assert set(end["columns"]) == {"visits", "bytes"}
    assert set(closing["outcome"]["volumes"]) >= {"topic_bytes", "state_bytes", "workers"}
    assert found["what_if"][0]["changes"] == {"C": 4}
    assert found["what_if"][0]["forecast"]["outcome"]["kept"] == 1


def test_a_law_is_not_private_and_can_be_scaled(config):
    small, large = (
        document(
            susurrus("-c", config, "--users", users, "--keys", 50, "--seeds", 1, "--strategy", "toeplitz", "--json")
        )
        for users in (200, 5000)
    )
    assert [each["strategy"] for each in small["strategies"]] == ["toeplitz", "closing"]
    keys = [each["strategies"][-1]["outcome"]["triggers"][-1]["keys"]["mean"] for each in (small, large)]
    assert small["private"] is False
    assert keys[0] < keys[1] <= 50


def test_a_share_of_the_users_is_scaled_up_and_says_how_far_that_misleads(config, sample):
    found = from_sample(config, sample, "--sample-share", 0.5, "--strategy", "toeplitz")
    assert found.exit_code == 0, found.output
    said = " ".join(found.stdout.split())
    assert "4,000 records, 2,000 users" in said
    assert "how far copies mislead, tried on the sample itself" in said


def test_a_pipeline_that_remembers_has_a_seventh_window(config, sample):
    config.write_text(config.read_text() + "[keys]\nremember = 6\n")
    law = ("-c", config, "--users", 4000, "--keys", 500, "--zipf-shift", 50, "--seeds", 1, "--strategy", "closing")
    found = susurrus(*law, width=80)
    assert found.exit_code == 0, found.output
    assert max(map(len, found.stdout.splitlines())) <= 80
    said = " ".join(found.stdout.split())
    assert "Once windows remember: the first and the 7th, of visits" in said
    assert "10.0% of the keys swap places with each other (which is assumed: --churn)" in said
    later = document(susurrus(*law, "--churn", 0.25, "--json"))["later"]
    assert (later["window"], later["column"], later["churn"], later["measured"]) == (7, "visits", 0.25, False)
    assert [view["trigger"] for view in later["first"]] == [3, 6, 9, 12]
    assert later["later"][0]["usable"] > later["first"][0]["usable"]
    assert later["remembered"] > 0
    assert document(susurrus("-c", config, "--json"))["later"] is None, "without data there is no forecast"


@pytest.mark.parametrize("name", ["plan.png", "plan.svg"])
def test_a_plot_is_written(config, tmp_path, name):
    found = susurrus("-c", config, "--users", 500, "--seeds", 1, "--strategy", "toeplitz", "--plot", tmp_path / name)
    assert found.exit_code == 0, found.output
    assert (tmp_path / name).stat().st_size > 5_000
    assert susurrus("-c", config, "--strategy", "toeplitz", "--plot", tmp_path / f"none-{name}").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sample", "x.jsonl", "--users", "5"), "--sample: there is --users, too; give one of them"),
        (("--sample", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--users", "0"), "users=0: must be at least 1"),
        (("--strategy", "best"), "choose one of toeplitz"),
        (("--what-if", "x=1"), "what-if=x=1"),
        (("--plot", "plan.bmp"), "let its name end in .png"),
        (("--plot", "/nowhere/plan.png"), "its directory does not exist"),
        (("--users", "5", "--sample-share", "0.5"), "--sample-share: scales or reads a sample"),
        (("--sample", "x.jsonl", "--zipf", "2"), "--zipf: describes a law"),
        (("--churn", "0.1"), "--churn: describes how windows follow each other"),
        (("--users", "5", "--churn", "0.1"), "--churn: windows do not remember the ones before"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(config, arguments, said):
    config.write_text(config.read_text() + FORGETS)
    found = susurrus("-c", config, *arguments)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.replace("│", " ").split())


def test_a_missing_plotting_library_names_the_extra(config, monkeypatch):
    monkeypatch.setattr("susurrus.agents.planning.plot.find_spec", lambda name: None)
    found = susurrus("-c", config, "--plot", "plan.png")
    assert found.exit_code == 2
    assert 'pip install "susurrus[plot]"' in found.stderr


def test_other_kinds_have_their_standard_errors(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(STREAM)
    found = susurrus("-c", path, width=80)
    assert found.exit_code == 0, found.output
    assert max(map(len, found.stdout.splitlines())) <= 80
    assert "the longest range" in found.stdout
    assert "docs/plan.md" in found.stdout.replace("\n", " ")
    rows = document(susurrus("-c", path, "--json"))["std_errors"]
    assert [row["values"] for row in rows] == sorted(row["values"] for row in rows)
    refused = susurrus("-c", path, "--users", 5)
    assert refused.exit_code == 2
    assert "leave --users out" in " ".join(refused.stderr.replace("│", " ").split())


def test_the_newest_records_of_the_raw_topic_are_a_sample(tmp_path):
    from confluent_kafka import Producer

    with EmbeddedBroker() as broker:
        broker.create("raw")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for host in range(400):
            value = json.dumps({"host": f"h{host}", "url": "/", "bytes": 1}).encode()
            producer.produce("raw", value, timestamp=1_767_225_600_000 + host)
        producer.flush(30)
        path = tmp_path / "p.toml"
        text = CONFIG.replace("127.0.0.1:1", broker.bootstrap_servers).replace('"client.id"', '"#"')
        text = text.replace('[kafka.properties]\n"#" = { file = "/nowhere/password" }\n', "embedded = true\n")
        path.write_text(text + '[clock]\nkind = "producer"\n')
        found = document(susurrus("-c", path, "--raw-records", 300, "--seeds", 1, "--strategy", "toeplitz", "--json"))
    assert found["private"] is True
    assert found["input"]["windows"][0]["records"] == 300
