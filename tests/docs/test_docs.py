"""What the documents show must be true: configurations load, links lead somewhere, tests that are named exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.pipelines import settings_from

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TESTS = {path: path.read_text() for path in ROOT.glob("tests/**/*.py")}


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


CONFIGURATIONS = [
    pytest.param(block, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(blocks(document, "toml"))
]


def kind_of(block: str) -> str:
    return str(tomllib.loads(block)["pipeline"].get("kind", "histogram"))


@pytest.mark.parametrize(
    ("page", "kind"), [("README.md", "histogram"), ("docs/streams.md", "stream"), ("docs/topl.md", "local")]
)
def test_there_is_a_configuration_of_every_kind(page: str, kind: str) -> None:
    assert kind in map(kind_of, blocks(ROOT / page, "toml"))


def test_the_readmes_pipeline_has_ten_lines() -> None:
    [block] = blocks(ROOT / "README.md", "toml")
    assert len(block.splitlines()) == 10


def test_every_command_is_listed() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    tree: Any = typer.main.get_command(app)
    for name, command in tree.commands.items():
        for sub in getattr(command, "commands", {"": None}):
            assert f"susurrus {name} {sub}".strip() in text or (name == "kafka" and f"`{sub}`" in text), f"{name} {sub}"


@pytest.mark.parametrize("block", CONFIGURATIONS)
def test_every_configuration_shown_is_valid(block: str, tmp_path: Path) -> None:
    data = tomllib.loads(block)
    (tmp_path / "password").write_text("password")
    [countries] = blocks(ROOT / "docs" / "expressions.md", "csv")
    (tmp_path / "countries.csv").write_text(countries)
    properties = data.get("kafka", {}).get("properties", {})
    for name, value in properties.items():
        if isinstance(value, dict):
            properties[name] = {"file": "password"}
    settings = settings_from(data, directory=tmp_path, environ={})
    assert librdkafka(settings.kafka)["bootstrap.servers"]
    if settings.pipeline.kind == "histogram":
        assert settings.plan().epsilon == settings.privacy.epsilon


@pytest.mark.parametrize(
    ("page", "kind", "output"), [("streams.md", "stream", "private-stream"), ("topl.md", "local", "estimate")]
)
def test_the_other_kinds_are_explained_as_what_they_are(page: str, kind: str, output: str, tmp_path: Path) -> None:
    block = next(b for b in blocks(ROOT / "docs" / page, "toml") if kind_of(b) == kind)
    (tmp_path / "pipeline.toml").write_text(block)
    result = CliRunner().invoke(app, ["config", "check", str(tmp_path / "pipeline.toml")])
    assert result.exit_code == 0
    assert f".{output}" in result.output
    assert ".histogram" not in result.output
    assert "The guarantee" in result.output
    assert ("noise secret" in result.output) == (kind == "stream")  # local noise is the devices'


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text)
    missing = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_that_are_named_exist(document: Path) -> None:
    text = document.read_text()
    everything = "".join(TESTS.values())
    functions = {name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in everything}
    files = {name for name in re.findall(r"\b(test_\w+\.py)", text) if not any(p.name == name for p in TESTS)}
    paths = {path for path in re.findall(r"\btests/[\w/]+\.(?:py|json)", text) if not (ROOT / path).exists()}
    assert not functions | files | paths


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_shown_are_python(document: Path) -> None:
    for number, block in enumerate(blocks(document, "python")):
        compile(block, f"{document.name}-{number}", "exec")
