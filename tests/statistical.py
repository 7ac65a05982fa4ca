"""Statistical tests and those of mechanisms/ that have passed on the same code, which `make test` leaves out and `make check` runs.

The former have fixed seeds; mechanisms/ is pure, and Hypothesis draws the same examples for it each time. So the outcome changes
only with the code that a test runs: with mechanisms/, with the test's own file and what it imports from this repository, with the
packages, and with the path through the hot loops. A checksum of these is written down for each file of tests when all of its tests
of this sort have passed (build/statistical.json, which `make clean` removes).
"""

import functools
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from susurrus.agents.operations.compiled import finding
from tests.samples import FACTOR

ROOT = Path(__file__).resolve().parents[1]
STAMPS = ROOT / "build" / "statistical.json"
Due = dict[str, tuple[str, int]]
"""A file of tests -> the checksum of what it runs, and how many tests it has whose outcome changes only with that."""
OF_MECHANISMS = "tests/mechanisms/"


# It finds of each import, wherever it stands, the module and what is taken from it, ten times as fast as Python's own parser.
_IMPORT = re.compile(r"^[ \t]*(?:import ([^\n#]+)|from ([\w.]+) import (\([^)]*\)|[^\n#]+))", re.MULTILINE)


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """The files of this repository that a file names in an import, anywhere in it, with the packages around them."""
    found: set[Path] = set()
    for modules, module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        for name in re.findall(r"[\w.]+", modules or names):
            found.update(_files(name if modules else f"{module}.{name}"))
    return frozenset(found)


@functools.cache
def _files(name: str) -> frozenset[Path]:
    parts = name.removeprefix("susurrus.").split(".")
    # Benchmarks are scripts that import their neighbours.
    places = [root.joinpath(*parts[: n + 1]) for root in (ROOT, ROOT / "benchmarks") for n in range(len(parts))]
    return frozenset(
        file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()
    )


def sources(path: Path) -> list[Path]:
    """What decides the outcome of the tests in a file: itself, what it imports, mechanisms/, the crates, the locked packages."""
    found, waiting = {ROOT / "deploy" / "requirements-dev.lock"}, {path}
    for folder in ("mechanisms", "topics/rust"):
        found.update(each for kind in ("*.py", "*.rs", "*.toml", "*.lock") for each in (ROOT / folder).rglob(kind))
    found = {each for each in found if "target" not in each.relative_to(ROOT).parts}
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= imported(file) - found
    return sorted(found)


@functools.cache
def digest(path: Path) -> bytes:
    return hashlib.blake2b(path.read_bytes()).digest()


def checksum(path: Path) -> str:
    """Return the checksum of the sources with their names, Python's version and the path through the hot loops."""
    whole = hashlib.blake2b(f"{sys.version_info} {finding().level == 'ok'}".encode(), digest_size=16)
    for source in sources(path):
        whole.update(f"\n{source.relative_to(ROOT)} ".encode() + digest(source))
    return whole.hexdigest()


def repeats(nodeid: str, *, statistical: bool) -> bool:
    """Whether the outcome of a test changes only with its code."""
    return statistical or nodeid.startswith(OF_MECHANISMS)


def item_repeats(item: pytest.Item) -> bool:
    """The same of a test that pytest has collected."""
    return repeats(item.nodeid, statistical=item.get_closest_marker("statistical") is not None)


def due(items: Iterable[pytest.Item]) -> Due:
    """Return what is due of a collection that has every test of its files."""
    often = [item for item in items if item_repeats(item) and not item.get_closest_marker("campaign")]
    numbers = Counter(file_of(item.nodeid) for item in often)
    return {name: (checksum(ROOT / name), number) for name, number in numbers.items()}


def file_of(nodeid: str) -> str:
    """The file of a test, as pytest names it: from the root of the repository."""
    return nodeid.partition("::")[0]


class Passed:
    """The checksums on which all tests of a file have passed whose outcome changes only with the code."""

    def __init__(self, stamps: Path = STAMPS) -> None:
        self._stamps = stamps
        self._known: dict[str, str] = json.loads(stamps.read_text()) if stamps.exists() else {}

    def unchanged(self, due: Due) -> set[str]:
        """The files that have passed as they are."""
        return {name for name, (sum_, _) in due.items() if self._known.get(_key(name)) == sum_}

    def write(self, due: Due, passed: Iterable[str]) -> None:
        """Write down the files of which every such test has passed. passed: the names of those that have."""
        numbers = Counter(map(file_of, passed))
        whole = {_key(name): sum_ for name, (sum_, number) in due.items() if numbers[name] == number}
        if whole and FACTOR == 1:
            self._stamps.parent.mkdir(parents=True, exist_ok=True)
            self._stamps.write_text(json.dumps(self._known | whole, indent=1, sort_keys=True))


def _key(name: str) -> str:
    return f"{name}, {'compiled' if finding().level == 'ok' else 'pure Python'}"
