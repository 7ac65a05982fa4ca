"""docs/configuration.md is what the models say, and its example is a configuration that works."""

from pathlib import Path

import pytest

from susurrus.agents.cli.reference import EXAMPLE, markdown
from susurrus.agents.config.settings import Settings
from susurrus.agents.pipelines import KINDS, load_settings
from susurrus.agents.types.section import Section

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


SECTIONS = sorted(
    (model for model in Section.__subclasses__() if model.__module__.startswith("susurrus")),
    key=lambda model: model.__name__,
)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run: susurrus config reference > docs/configuration.md"


@pytest.mark.parametrize("section", SECTIONS)
def test_no_field_is_missing(section: type[Section]) -> None:
    if issubclass(section, Settings):
        return
    page = markdown()
    for name, field in section.model_fields.items():
        if field.description and f".{name}]`" not in page:  # a section of its own has its model's text
            assert f"| `{field.alias or name}` |" in page
            assert " ".join(field.description.split()).replace("|", "\\|") in page


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p")
    text = EXAMPLE.replace("/run/secrets/kafka", str(tmp_path / "password"))
    (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "p.toml", {})
    assert [column.bound for column in settings.measured_columns] == [1, 1000]


@pytest.mark.parametrize(
    ("kind", "path", "is_published"),
    [
        ("histogram", "input.topic", True),
        ("histogram", "input.registry.url", False),
        ("histogram", "privacy.epsilon", True),
        ("histogram", "privacy.secret_file", False),
        ("histogram", "keys.declared_file", True),
        ("histogram", "clock.grace", False),
        ("stream", "stream.bound", True),
        ("stream", "stream.secret_file", False),
        ("local", "local.interval", True),
    ],
)
def test_fixed_follows_the_digest(kind: str, path: str, is_published: bool) -> None:
    assert KINDS[kind].settings_class.is_published(path) == is_published
