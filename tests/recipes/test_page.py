"""The page of recipes shows the files as they are."""

import pytest

from tests.docs.test_docs import blocks
from tests.recipes.conftest import PAGE, RECIPES

FILES = sorted(RECIPES.glob("*/*.sql"))


def test_statements_that_are_shown_are_those_of_the_files() -> None:
    texts = [file.read_text(encoding="utf-8") for file in FILES]
    shown = blocks(PAGE, "sql")
    assert shown
    assert [block for block in shown if not any(block in text for text in texts)] == []


@pytest.mark.parametrize("recipe", [path.name for path in RECIPES.iterdir() if path.is_dir()])
def test_every_recipe_is_on_the_page(recipe: str) -> None:
    assert f"]({recipe}/" in PAGE.read_text(encoding="utf-8")
