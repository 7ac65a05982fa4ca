"""Flink SQL on the output topic, in JSON and in Avro."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recipes.conftest import Published, check_shown
from tests.recipes.programs import java_program, quietly

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first run fetches and builds the program


def run(script: str, directory: Path) -> str:
    """What the statements print."""
    file = directory / "page-views.sql"
    file.write_text(script, encoding="utf-8")
    return quietly([*java_program("flink", "recipes.RunSql"), str(file)])


def test_flink_reads_the_json_output(published: Published, tmp_path: Path) -> None:
    check_shown("flink", run(published.here("flink/page-views.sql"), tmp_path))


def test_flink_reads_the_avro_output(publish: Callable[..., Published], schema_registry: str, tmp_path: Path) -> None:
    """The same rows, so the same output."""
    found = publish({"output": {"format": "avro", "registry": {"url": schema_registry}}})
    script = found.here("flink/page-views-avro.sql")
    assert "http://localhost:8081" in script
    check_shown("flink", run(script.replace("http://localhost:8081", schema_registry), tmp_path))
