"""What a hint names exists: extras, commands, targets of make and files, in the messages of the package and in the docs."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from susurrus.agents.cli import main as cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@functools.cache
def texts() -> list[tuple[str, str]]:
    """(where, text) of every text in the package, the pieces of one put together, and of every page."""
    return [*_texts()]


def _texts() -> Iterator[tuple[str, str]]:
    for folder in ("agents", "mechanisms", "topics"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield (
                        f"{file.relative_to(ROOT)}:{node.lineno}",
                        "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values),
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value
    for page in PAGES:
        yield str(page.relative_to(ROOT)), page.read_text()


def named(pattern: str) -> set[tuple[str, str]]:
    """(name, where) of whatever the pattern's group finds."""
    return {(found, where) for where, text in texts() for found in re.findall(pattern, text, re.MULTILINE)}


def commands(command: Any, name: str = "") -> Iterator[str]:
    """The names of all commands and groups."""
    if name:
        yield name
    for part, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {part}".strip())


def test_extras_exist() -> None:
    found = named(r"(?:susurrus|['\"]\.)\[([a-z,]+)\]") | named(r"[Ee]xtra `([a-z]+)`")
    assert {extra for extra, _ in found} >= {"parquet", "registry"}  # the patterns find what there is
    assert {(e, where) for extras, where in found for e in extras.split(",") if e not in EXTRAS} == set()


def test_a_package_that_is_not_installed_is_named_as_an_installed_user_can_type_it() -> None:
    """`.[extra]` works in a clone only."""
    assert {
        where for _, where in named(r"(pip install ['\"]\.\[)") if where.startswith(("agents", "mechanisms"))
    } == set()


def test_commands_exist() -> None:
    known = set(commands(typer.main.get_command(cli.app)))
    groups = {name.split()[0] for name in known if " " in name}
    found = named(r"`susurrus ((?:[a-z][a-z-]+)(?: [a-z][a-z-]+)?)") | named(r"^ +susurrus ((?:[a-z-]+)(?: [a-z-]+)?)")
    assert len(found) > 50
    unknown = set()
    for name, where in found:
        first, _, second = name.partition(" ")
        if (first in groups and second and f"{first} {second}" not in known) or first not in known:
            unknown.add((name, where))
    assert unknown == set()


def test_options_of_the_commands_that_hints_name_exist() -> None:
    def options(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
        command = command.loaded() if isinstance(command, cli.Unloaded) else command
        yield name, {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)}
        for part, inner in getattr(command, "commands", {}).items():
            yield from options(inner, f"{name} {part}".strip())

    known = dict(options(typer.main.get_command(cli.app)))
    found = named(r"(susurrus [a-z][a-z -]*?(?: --[a-z-]+[^`\n]*)?)`")
    unknown = set()
    for text, where in found:
        words = text.split()[1:]
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0] if words else ""
        used = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        if name in known and not used <= known[name]:
            unknown.add((text, where))
    assert unknown == set()


def test_targets_of_make_exist() -> None:
    found = named(r"`make ([a-z-]+)") | named(r"^ {4}make ([a-z-]+)")
    assert {target for target, _ in found} >= {"test", "install"}
    assert {(target, where) for target, where in found if target not in TARGETS} == set()


def test_files_exist() -> None:
    found = named(
        r"\b((?:docs|agents|tests|mechanisms|topics|benchmarks|deploy)/[\w./-]*\w\.(?:py|md|toml|json|yaml))\b"
    )
    assert len(found) > 50
    # A decision may name a file that the project does without.
    assert {(f, where) for f, where in found if not (ROOT / f).exists() and "decisions" not in where} == set()


def test_nothing_is_installed_with_a_system_s_packages() -> None:
    """Their names differ from system to system, and no test could tell whether one exists."""
    assert named(r"((?:apt|apt-get|brew|dnf|yum) install)") == set()
