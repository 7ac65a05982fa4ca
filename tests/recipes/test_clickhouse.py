"""ClickHouse's Kafka engine, in chdb."""

from pathlib import Path

import pytest
from pyarrow import parquet

from tests.recipes.conftest import RECIPES, Published, check_shown
from tests.recipes.programs import python_environment, quietly

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first run fetches and builds the program


def test_the_kafka_engine_fills_the_table(published: Published, tmp_path: Path) -> None:
    script = tmp_path / "page-views.sql"
    script.write_text(published.here("clickhouse/page-views.sql"), encoding="utf-8")
    keys = parquet.read_table(published.export).num_rows + 1  # and the next day's
    program = [python_environment("clickhouse"), str(RECIPES / "clickhouse" / "run.py"), str(script), str(keys)]
    check_shown("clickhouse", quietly(program))
