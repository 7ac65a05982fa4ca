"""What the documents show must be true: configurations load, links lead somewhere, tests that are named exist."""

import re
import tomllib
from pathlib import Path

import pytest
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


def test_the_readme_shows_a_configuration_of_every_kind() -> None:
    kinds = {tomllib.loads(block)["pipeline"].get("kind", "histogram") for block in blocks(ROOT / "README.md", "toml")}
    assert kinds == {"histogram", "stream", "local"}


@pytest.mark.parametrize("block", CONFIGURATIONS)
def test_every_configuration_shown_is_valid(block: str, tmp_path: Path) -> None:
    data = tomllib.loads(block)
    (tmp_path / "password").write_text("password")
    properties = data.get("kafka", {}).get("properties", {})
    for name, value in properties.items():
        if isinstance(value, dict):
            properties[name] = {"file": "password"}
    settings = settings_from(data, directory=tmp_path, environ={})
    assert librdkafka(settings.kafka)["bootstrap.servers"]
    if settings.pipeline.kind == "histogram":
        assert settings.plan().epsilon == settings.privacy.epsilon


@pytest.mark.parametrize(("kind", "output"), [("stream", "private-stream"), ("local", "estimate")])
def test_the_readmes_other_kinds_are_explained_as_what_they_are(kind: str, output: str, tmp_path: Path) -> None:
    [block] = [b for b in blocks(ROOT / "README.md", "toml") if tomllib.loads(b)["pipeline"].get("kind") == kind]
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
