"""The programs of docs/reading.md, and the one on Arrow tables of the recipes, print what the pages show."""

import contextlib
import io
from pathlib import Path

import pytest

from susurrus.releases import releases
from tests.docs.test_docs import ROOT, blocks
from tests.recipes.conftest import PAGE, Published, check_shown

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first test of all recipes also runs the pipeline
READING = ROOT / "docs" / "reading.md"


def printed(page: Path, part: str, published: Published) -> str:
    """What the one Python program with this part prints, when it reads the pipeline that was published."""
    [program] = [block for block in blocks(page, "python") if part in block]
    assert '"pipeline.toml"' in program
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(program.replace('"pipeline.toml"', repr(str(published.config))), {})
    return output.getvalue()


def test_three_lines(published: Published) -> None:
    """The page shows what the loop prints last, before it waits."""
    *_, last = releases(published.config, follow=False)
    check_shown("releases", last.table(limit=5, width=80), READING)


def test_sums(published: Published) -> None:
    check_shown("sums", printed(READING, "add_windows(days", published), READING)


def test_what_a_release_has(published: Published) -> None:
    [program] = [block for block in blocks(READING, "python") if "day.to_pandas()" in block]
    names: dict[str, object] = {}
    code = program.replace('"pipeline.toml"', repr(str(published.config))).replace("2026-01-01", "1995-08-01")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)
    assert len(names["day"]) > 20  # type: ignore[arg-type]


def test_arrow_tables(published: Published) -> None:
    check_shown("arrow", printed(PAGE, "day.to_arrow()", published))
