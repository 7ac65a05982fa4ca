"""Flink SQL on the output topic."""

from pathlib import Path

from tests.recipes.conftest import Published, check_shown
from tests.recipes.programs import java_program, quietly


def test_flink_reads_the_json_output(published: Published, tmp_path: Path) -> None:
    script = tmp_path / "page-views.sql"
    script.write_text(published.here("flink/page-views.sql"), encoding="utf-8")
    check_shown("flink", quietly([*java_program("flink", "recipes.RunSql"), str(script)]))
