"""A column kind and a clock are known to their class alone, and a format to its file: no other module of agents/ names one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from susurrus.agents.formats import FORMATS
from susurrus.agents.histogram.clock import CLOCKS
from susurrus.agents.histogram.columns import COLUMNS

AGENTS = Path(__file__).parents[2] / "agents"


def asked(module: ast.AST, what: str) -> Iterator[str]:
    """Texts with which ``x.what`` is compared or matched, and those of Literals with more than one of them."""
    for node in ast.walk(module):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            parts = [node.subject, *(case.pattern for case in node.cases)]
        if any(isinstance(part, ast.Attribute) and part.attr == what for part in parts):
            for part in parts:
                yield from texts(part)


def texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


@pytest.mark.parametrize("path", sorted(AGENTS.rglob("*.py")), ids=lambda path: str(path.relative_to(AGENTS)))
def test_no_other_module_asks_for_a_column_kind_a_clock_or_a_format(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    if path.name != "columns.py":
        assert not {*asked(module, "kind"), *asked(module, "measures")} & set(COLUMNS)
        literals = [set(texts(node)) for node in ast.walk(module) if isinstance(node, ast.Subscript)]
        assert all(len(names & set(COLUMNS)) < 2 for names in literals)
    if path.name != "clock.py":
        assert not set(asked(module, "kind")) & set(CLOCKS)
        assert not set(texts(module)) & (set(CLOCKS) - {"broker"})  # which is also a setting of Kafka's clients
    if not {"formats", "outputs"} & {path.parent.name}:
        assert not set(asked(module, "format")) & set(FORMATS)
        assert not set(texts(module)) & (set(FORMATS) - {"json"})  # which is also what pydantic calls a mode
