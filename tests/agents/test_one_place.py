"""Columns and clocks are known to their classes alone, formats to their files, kinds of pipeline to their folders: no other module
of agents/ names one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from susurrus.agents.formats import FORMATS
from susurrus.agents.histogram.clock import CLOCKS
from susurrus.agents.histogram.columns import COLUMNS
from susurrus.agents.pipelines import KINDS

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
    if "columns" not in (path.stem, path.parent.name):
        assert not {*asked(module, "kind"), *asked(module, "measures")} & set(COLUMNS)
        literals = [set(texts(node)) for node in ast.walk(module) if isinstance(node, ast.Subscript)]
        assert all(len(names & set(COLUMNS)) < 2 for names in literals)
    if path.name != "clock.py":
        assert not set(asked(module, "kind")) & set(CLOCKS)
        assert not set(texts(module)) & (set(CLOCKS) - {"broker"})  # which is also a setting of Kafka's clients
    if not {"formats", "outputs"} & {path.parent.name}:
        assert not set(asked(module, "format")) & set(FORMATS)
        # Of these words one is also a mode of pydantic, one a form of exports, and one what people write.
        assert not set(texts(module)) & (set(FORMATS) - {"json", "csv", "text"})


FOLDERS = set(KINDS)
CLASSES = {name for kind in KINDS.values() for name in (kind.__name__, kind.settings_class.__name__)} | {
    "HistogramServices"
}


def kinds_asked(module: ast.AST) -> Iterator[str]:
    """Kinds that are compared with, classes of kinds that an object is tested for, and tables of several kinds."""
    yield from set(asked(module, "kind")) & FOLDERS
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            yield from {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)} & CLASSES
        if isinstance(node, ast.Dict):
            named = {key.value for key in node.keys if isinstance(key, ast.Constant)} & FOLDERS
            named |= {
                part.id for key in node.keys if key is not None for part in ast.walk(key) if isinstance(part, ast.Name)
            } & CLASSES
            if len(named) > 1:
                yield from named
        if isinstance(node, ast.match_case):
            yield from {part.id for part in ast.walk(node.pattern) if isinstance(part, ast.Name)} & CLASSES


@pytest.mark.parametrize(
    "code",
    [
        'if settings.kind == "stream": pass',
        "isinstance(settings, LocalSettings)",
        "isinstance(settings, (int, HistogramSettings))",
        "VIEWS = {'stream': 1, 'local': 2}",
        "BOARDS = {StreamSettings: 1, LocalSettings: 2}",
        "match settings:\n case StreamSettings(): pass",
    ],
)
def test_who_asks_for_a_kind_is_found(code: str) -> None:
    assert list(kinds_asked(ast.parse(code)))


@pytest.mark.parametrize("path", sorted(AGENTS.rglob("*.py")), ids=lambda path: str(path.relative_to(AGENTS)))
def test_no_module_outside_its_folder_asks_for_a_kind_of_pipeline(path: Path) -> None:
    place = path.relative_to(AGENTS)
    if place.parts[0] not in FOLDERS and place != Path("pipelines.py"):
        assert not list(kinds_asked(ast.parse(path.read_text(encoding="utf-8"))))


def test_the_page_asks_for_no_kind() -> None:
    text = (AGENTS / "dashboard" / "page" / "main.js").read_text(encoding="utf-8")
    assert not [kind for kind in KINDS if kind in text]
