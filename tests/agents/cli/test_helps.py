"""Help pages that can be read at 80 columns, and what a shell completes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from susurrus.agents.cli.helps import summary, unwrapped
from susurrus.agents.cli.main import COMMANDS, Command, Unloaded, app


def pages(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group by its words."""
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from pages(inner, (*path, name))


PAGES = list(pages(typer.main.get_command(app)))


@pytest.mark.parametrize("path", PAGES, ids=" ".join)
@pytest.mark.parametrize("width", [80, 100])
def test_a_page_fits_is_aligned_and_breaks_no_line_of_its_own(path: tuple[str, ...], width: int) -> None:
    result = CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"}).invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.output.splitlines()]
    assert max(map(len, lines)) <= width
    assert len(lines) <= (60 if width == 80 else 50)
    for word in ("<bool>", "<str>", "<path>", "<int>", "<float>", "list["):
        assert word not in result.output
    # Text outside the frames: a line ends early only where a paragraph does.
    prose = [line for line in lines if line and not re.match(r"[│╭╰]", line)]
    for line, following in pairwise(lines):
        if line in prose and following in prose and not line.startswith(" Usage"):
            first = following.split()[0]
            assert len(line) + 1 + len(first) > width - 1, (line, following)


def test_the_list_says_one_clause_of_each() -> None:
    assert summary("Show what runs; exit code 1 while something needs an operator.\n\nMore.") == "Show what runs."
    assert summary("Print the kafka-acls.sh commands") == "Print the kafka-acls.sh commands."
    assert summary("") == ""


@pytest.mark.parametrize("entry", [entry for entry in COMMANDS if entry.module], ids=lambda entry: str(entry.path))
def test_the_table_says_of_a_command_what_its_docstring_says(entry: Command) -> None:
    command = Unloaded(entry.path.split()[-1], entry).loaded()
    assert entry.help == summary(command.help)


def test_paragraphs_are_joined_and_examples_kept() -> None:
    assert unwrapped("One\n    two.\n\n    Three\n    four.") == "One two.\n\nThree four."
    example = "One.\n\n    Two.\n\n        susurrus demo\n        susurrus watch\n    "
    assert unwrapped(example) == "One.\n\nTwo.\n\n    susurrus demo\n    susurrus watch"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("susurrus wor", {"worker"}),
        ("susurrus config i", {"init"}),
        ("susurrus worker --log-level ", {"debug", "info", "warning", "error"}),
        ("susurrus watch --export p", {"parquet"}),
        ("susurrus topics schema --format ", {"json", "avro", "protobuf"}),
        ("susurrus config init --no", {"--no-look"}),
        ("susurrus worker --config pi", set()),  # nothing of ours: the shell completes files
    ],
)
def test_a_shell_completes(words: str, found: set[str]) -> None:
    environ = {"_SUSURRUS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", "from susurrus.agents.cli.main import app; app(prog_name='susurrus')"],
        env={**os.environ, **environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert set(done.stdout.split()) == found, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    environ = {**os.environ, "_SUSURRUS_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", "from susurrus.agents.cli.main import app; app(prog_name='susurrus')"],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "_SUSURRUS_COMPLETE" in done.stdout
    if shell == "bash":
        assert "-o default" in done.stdout  # file names where there is nothing else
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
