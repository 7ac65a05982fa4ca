"""DuckDB on the Parquet export."""

import duckdb
import pytest

from tests.recipes.conftest import RECIPES, Published, check_shown

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first test of all recipes also runs the pipeline


def test_duckdb_reads_the_export(published: Published) -> None:
    script = (RECIPES / "duckdb" / "page-views.sql").read_text(encoding="utf-8")
    queries = script.replace("page-views.parquet", str(published.export)).split(";\n")[:-1]
    with duckdb.connect() as connection:
        shown = [str(connection.sql(query)) for query in queries]
    check_shown("duckdb", "\n".join(shown))
