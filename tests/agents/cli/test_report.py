"""`susurrus report`: numbers in, reports out, and nothing else."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.topics.reports import decode
from tests.broker import Broker

LOCAL = """
[pipeline]
name = "meters"
kind = "local"
prefix = "{prefix}"
[kafka]
bootstrap_servers = "{servers}"
embedded = true
[local]
epsilon = 1.0
bound = 100.0
"""


def run(broker: str, prefix: str, text: str, *options: str):  # type: ignore[no-untyped-def]
    arguments = ["report", "--bootstrap-servers", broker, "--pipeline", "meters", "--prefix", prefix]
    return CliRunner().invoke(app, [*arguments, "--epsilon", "1", "--bound", "100", *options], input=text)


def test_each_line_becomes_a_report_and_bad_lines_are_only_counted(embedded: Broker, tmp_path: Path) -> None:
    prefix = embedded.new_prefix()
    for topic in ("reports", "threshold"):  # the embedded broker makes a topic when it is asked for
        embedded.admin().list_topics(f"{prefix}.meters.{topic}", timeout=10)
    config = tmp_path / "p.toml"
    config.write_text(LOCAL.format(prefix=prefix, servers=embedded.bootstrap_servers))
    text = "1.5\n\n 42 \nsecret-31.4\n7e1\n"
    result = CliRunner().invoke(app, ["report", "--config", str(config)], input=text)
    assert result.exit_code == 1
    assert "3 reports acknowledged" in result.output
    assert "1 lines were no finite numbers" in result.output
    assert "31.4" not in result.output
    payloads = [message.value() for message in embedded.read_all(f"{prefix}.meters.reports")]
    reports, good = decode(payloads)
    assert good.all()
    assert reports.phase.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--interval", "soon"], "--interval"), (["--scale", "cubic"], "scale"), (["--epsilon", "0"], "epsilon=0")],
)
def test_wrong_options_are_reported(options: list[str], says: str) -> None:
    result = run("127.0.0.1:1", "t", "1\n", *options)
    assert result.exit_code == 2
    assert says in result.output


def test_without_brokers_and_configuration_it_asks_for_one() -> None:
    result = CliRunner().invoke(app, ["report"], input="1\n")
    assert result.exit_code == 2
    assert "--config" in result.output


def test_without_its_topic_nothing_is_perturbed(kafka: Broker) -> None:
    result = run(kafka.bootstrap_servers, kafka.new_prefix(), "1\n")
    assert result.exit_code == 2
    said = " ".join(result.output.replace("│", " ").split())
    assert "does not exist: create it with `susurrus topics create`" in said
