"""`make test-pure` repeats every test of topics/ and of formats to which it makes a difference that there are no compiled loops."""

import re
from pathlib import Path

import pytest

from tests.statistical import ROOT, imported

_COMPILED = re.compile(r"\.compiled import |import compiled\b|\bcompiled_user_table\b")
_PROGRAMS = {"avro_programs.py", "json.py", "protobuf_programs.py"}
"""They make the compiled readers of a format, for whoever asks a format for its programs: agents/formats/whole.py."""
TESTS = [
    path for folder in ("topics", "agents/formats") for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
]


def closure(path: Path) -> set[Path]:
    """A file with all files that it imports, and these."""
    found, waiting = set[Path](), {path}
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= imported(file) - found
    return found


def asks(path: Path) -> set[str]:
    """The files by which a test may come to a compiled loop."""
    return {file.name for file in closure(path) if _COMPILED.search(file.read_text(encoding="utf-8"))} - _PROGRAMS


def pure() -> set[str]:
    """The files in the Makefile's HOT_LOOPS."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    [line] = [line for line in lines if line.startswith("HOT_LOOPS := ")]
    return set(line.split()[2:])


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_takes_a_compiled_loop_is_repeated_without(path: Path) -> None:
    """Or it is skipped without them, since it compares the two."""
    compares = "pytestmark = pytest.mark.skipif(compiled is None," in path.read_text(encoding="utf-8")
    assert (str(path.relative_to(ROOT)) in pure()) == (bool(asks(path)) and not compares)


def test_the_closure_finds_what_stands_behind_an_import() -> None:
    tests = ROOT / "tests"
    assert {"record_batch.py", "scanning.py"} <= asks(tests / "topics" / "test_record_batch.py")
    assert "whole.py" in asks(tests / "agents" / "formats" / "test_framing.py")
    assert asks(tests / "topics" / "records" / "test_times.py") == set()
