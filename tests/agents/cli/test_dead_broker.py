"""Every command whose brokers are away ends, in seconds, with one sentence that says what to do; and with exit code 2."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from susurrus.agents.broker.network import free_ports
from susurrus.agents.cli import main as cli
from susurrus.agents.config import secrets
from susurrus.agents.operations.pulse import Pulse
from susurrus.agents.pipelines import load_settings
from tests.agents.cli.test_main import one_line
from tests.broker import wait_for

KINDS = {
    "histogram": """
[input]
topic = "raw"
user = "host"
key = ["url"]
[privacy]
epsilon = 6.0
delta = 1e-9
secret_file = "secret"
""",
    "stream": """
[input]
topic = "raw"
[stream]
bound = 100.0
epsilon = 1.0
secret_file = "secret"
""",
    "local": """
[local]
bound = 100.0
epsilon = 1.0
""",
}
ASKS = {
    "acls": ("histogram", "--apply", "--worker", "w"),
    "dead-letters": ("histogram",),
    "ledger new-epoch": ("histogram", "--yes"),
    "ledger show": ("histogram",),
    "plan": ("histogram", "--raw-records", "9"),
    "report": ("local",),
    "status": ("histogram",),
    "topics add-input": ("histogram", "more"),
    "topics check": ("histogram",),
    "topics create": ("histogram",),
    "try": ("histogram",),
    "tune": ("histogram", "--yes"),
    "watch": ("histogram",),
}
"""Commands that ask brokers: the kind of pipeline, and what to call them with."""
OTHERWISE = {"config check", "dashboard", "explain", "preflight", "topics schema", "worker"}
"""Commands that ask no broker; `preflight`, which shows the sentence in its table; a worker and a dashboard, which wait."""
runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})


def pipeline_file(directory: Path, kind: str, servers: str) -> Path:
    if not (directory / "secret").exists():
        secrets.create(directory / "secret")
    file = directory / "p.toml"
    head = f'[pipeline]\nname = "p"\nkind = "{kind}"\n[kafka]\nbootstrap_servers = "{servers}"\n'
    file.write_text(head + KINDS[kind], encoding="utf-8")
    return file


@contextmanager
def dead(how: str) -> Iterator[str]:
    """The address of a port that nobody listens at (closed), or where somebody listens and never answers (silent)."""
    if how == "closed":
        (port,) = free_ports(1)
        yield f"127.0.0.1:{port}"
    else:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            yield f"127.0.0.1:{mute.getsockname()[1]}"


def with_config(command: Any, name: str = "") -> Iterator[str]:
    """The names of all commands that take --config."""
    if hasattr(command, "commands"):
        for part, inner in command.commands.items():
            yield from with_config(inner, f"{name} {part}".strip())
    elif any("--config" in parameter.opts for parameter in command.loaded().params):
        yield name


def test_it_is_known_of_every_command_whether_it_asks_brokers() -> None:
    assert set(with_config(typer.main.get_command(cli.app))) == ASKS.keys() | OTHERWISE


@pytest.mark.parametrize(("command", "how"), [*((name, "closed") for name in ASKS), ("watch", "silent")])
def test_a_command_says_one_sentence_and_ends(tmp_path: Path, command: str, how: str) -> None:
    kind, *options = ASKS[command]
    with dead(how) as servers:
        arguments = [*command.split(), "--config", str(pipeline_file(tmp_path, kind, servers)), *options]
        result = runner.invoke(cli.app, arguments, input="1\n")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    said = one_line(result.stderr).removeprefix("The configuration needs a change ")
    assert said.startswith(f'kafka.bootstrap_servers="{servers}": ')
    assert said.endswith("or correct it")
    assert said.count(": ") == 1


@pytest.mark.parametrize("kind", ["stream", "local"])
@pytest.mark.parametrize("options", [(), ("--once",), ("--export", "csv", "--output", "-")], ids=" ".join)
def test_watch_does_so_for_every_kind(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    file = pipeline_file(tmp_path, kind, f"127.0.0.1:{port}")
    result = runner.invoke(cli.app, ["watch", "--config", str(file), *options])
    assert result.exit_code == 2, result.output
    assert "start the brokers, or correct it" in one_line(result.stderr)


@pytest.mark.parametrize("command", ["watch", "worker"])
def test_a_process_writes_nothing_else_to_the_terminal(tmp_path: Path, command: str) -> None:
    """librdkafka writes from C, which a test inside the process does not see. A worker waits, and says so once."""
    (port,) = free_ports(1)
    file = pipeline_file(tmp_path, "histogram", f"127.0.0.1:{port}")
    with subprocess.Popen(
        [sys.executable, "-m", "susurrus.agents.cli", command, "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"COLUMNS": "1000", "PATH": ""},
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if command == "worker" and "nothing listens at" in line:
                process.terminate()
    assert process.returncode == (0 if command == "worker" else 2)
    said = one_line("".join(lines))
    assert said.count("nothing listens at") == 1, said
    assert len(lines) <= 3
    assert "Traceback" not in said
    assert "rdkafka" not in said


def test_brokers_that_go_away_later_are_noticed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = load_settings(pipeline_file(tmp_path, "histogram", f"127.0.0.1:{port}"), {})
    with Pulse(settings) as pulse:
        assert pulse.text == ""
        wait_for(lambda: "nothing listens at" in pulse.text, "the pulse has noticed")
