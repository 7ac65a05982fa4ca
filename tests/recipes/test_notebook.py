"""The Jupyter notebook, run as `jupyter execute` does; it is committed with what it shows."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.conftest import RECIPES, Published
from tests.recipes.programs import python_environment, quietly

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first run fetches and builds the program

NOTEBOOK = RECIPES / "notebook" / "page-views.ipynb"


def outputs(notebook: Path) -> list[list[dict[str, Any]]]:
    """What each cell shows, by the type of the content."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [[output["data"] for output in cell["outputs"]] for cell in cells if cell["cell_type"] == "code"]


def without_times(notebook: Path) -> str:
    """The notebook's text, which would otherwise say when each cell ran."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        cell["metadata"].pop("execution", None)
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def test_the_notebook_shows_what_it_is_committed_with(published: Published, tmp_path: Path) -> None:
    execute = Path(python_environment("notebook")).with_name("jupyter-execute")
    notebook = Path(shutil.copy(NOTEBOOK, tmp_path))
    shutil.copy(published.export, tmp_path / "page-views.parquet")
    quietly([str(execute), "--inplace", str(notebook)])
    table, picture, sums = outputs(notebook)
    assert "image/png" in picture[0]
    if os.environ.get("SUSURRUS_WRITE_RECIPES") == "1":
        NOTEBOOK.write_text(without_times(notebook), encoding="utf-8")
    committed = outputs(NOTEBOOK)
    shown = [cell[0]["text/plain"] for cell in (committed[0], committed[2])]
    assert shown == [table[0]["text/plain"], sums[0]["text/plain"]]
