"""What `make test` leaves out: nothing that a change could have broken."""

import contextlib
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest, statistical
from tests.left_out import CAMPAIGN, FOR_CHECK, UNCHANGED, LeftOut, can_wait
from tests.statistical import ROOT, Passed, checksum, sources
from tests.test_order import Item, item

NOISE = ROOT / "tests" / "mechanisms" / "test_noise.py"
AUDIT = ROOT / "tests" / "audit" / "test_audit.py"
DUE = {"a.py": ("5a", 2)}


def names(path: Path) -> set[str]:
    return {str(source.relative_to(ROOT)) for source in sources(path)}


def test_a_test_depends_on_all_mechanisms_and_on_what_it_imports() -> None:
    assert {"tests/mechanisms/test_noise.py", "tests/samples.py", "mechanisms/noise.py"} < names(NOISE)
    assert {"mechanisms/rust/src/lib.rs", "mechanisms/stream/pak.py", "deploy/requirements-dev.lock"} < names(NOISE)
    assert {"benchmarks/audit_statistics.py", "agents/histogram/route.py", "topics/wire/blocks.py"} < names(AUDIT)
    assert "agents/cli/main.py" not in names(AUDIT)


def test_a_changed_source_is_another_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checksum(NOISE)
    changed = ROOT / "tests" / "samples.py"
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"#" * (self == changed))
    statistical.digest.cache_clear()
    try:
        assert checksum(NOISE) != before
    finally:
        statistical.digest.cache_clear()
    monkeypatch.undo()
    assert checksum(NOISE) == before


def test_a_file_has_passed_when_all_of_its_statistical_tests_have(tmp_path: Path) -> None:
    stamps = tmp_path / "build" / "statistical.json"
    Passed(stamps).write(DUE, ["a.py::1"])
    assert Passed(stamps).unchanged(DUE) == set()
    Passed(stamps).write(DUE, ["a.py::1", "a.py::2", "b.py::1"])
    assert Passed(stamps).unchanged(DUE) == {"a.py"}
    assert Passed(stamps).unchanged({"a.py": ("other", 2)}) == set()
    Passed(stamps).write({"b.py": ("c3", 1)}, ["b.py::1"])
    assert Passed(stamps).unchanged(DUE | {"b.py": ("c3", 1)}) == {"a.py", "b.py"}


def run(
    items: list[Item], passed: Passed, monkeypatch: pytest.MonkeyPatch, named: str = "tests", **options: bool
) -> tuple[LeftOut, list[str]]:
    """What is left of a collection."""
    deselected: list[Item] = []
    config: Any = SimpleNamespace(
        args=[named],
        getoption=lambda name: options.get(name.removeprefix("--"), False),
        hook=SimpleNamespace(pytest_deselected=lambda items: deselected.extend(items)),
    )
    monkeypatch.setattr(statistical, "due", lambda items: DUE)
    plugin, kept = LeftOut(config, passed), list(items)
    plugin.take_out(config, kept)  # type: ignore[arg-type]
    assert len(kept) + len(deselected) == len(items)
    return plugin, [each.nodeid for each in kept]


def summary(plugin: LeftOut) -> list[str]:
    told: list[str] = []
    plugin.pytest_terminal_summary(SimpleNamespace(section=lambda text, **_: told.append(text)))  # type: ignore[arg-type]
    return told


def test_each_run_leaves_out_what_another_one_runs_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Passed(tmp_path / "statistical.json")
    passed.write(DUE, ["a.py::1", "a.py::2"])
    passed = Passed(tmp_path / "statistical.json")
    items = [
        item("a.py::1", "statistical"),
        item("a.py::2", "statistical"),
        item("a.py::3"),
        item("b.py::long", "campaign"),
        item("b.py::wheel", "shipped"),
        item("b.py::page", "thorough"),
    ]
    plugin, kept = run(items, passed, monkeypatch)
    assert kept == ["a.py::3"]
    assert summary(plugin) == [
        *(f"NOT RUN: 1 TESTS {reason}" for reason in FOR_CHECK.values()),
        f"NOT RUN: 2 TESTS {UNCHANGED}",
    ]
    assert "make campaign" in CAMPAIGN  # which is the rule, and no news
    plugin, kept = run(items, passed, monkeypatch, check=True)
    assert kept == ["a.py::1", "a.py::2", "a.py::3", "b.py::wheel", "b.py::page"]
    assert summary(plugin) == []
    assert run(items, passed, monkeypatch, campaign=True)[1] == [
        "a.py::1",
        "a.py::2",
        "a.py::3",
        "b.py::long",
        "b.py::page",
    ]
    assert run(items, passed, monkeypatch, "tests/a.py::1")[1] == [each.nodeid for each in items]
    assert run(items, passed, monkeypatch, "tests/b.py")[1] == ["a.py::3", "b.py::wheel", "b.py::page"]
    assert len(run(items, Passed(tmp_path / "none.json"), monkeypatch)[1]) == 3


def test_only_a_statistical_test_that_passes_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = tmp_path / "statistical.json"
    plugin, _ = run([item("a.py::1", "statistical"), item("a.py::2", "statistical")], Passed(stamps), monkeypatch)

    def report(name: str, when: str, *, passed: bool, keyword: str = "statistical") -> None:
        plugin.pytest_runtest_logreport(
            SimpleNamespace(nodeid=name, when=when, passed=passed, keywords={keyword: 1})  # type: ignore[arg-type]
        )

    def finish() -> set[str]:
        plugin.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()))  # type: ignore[arg-type]
        return Passed(stamps).unchanged(DUE)

    report("a.py::1", "call", passed=True)
    report("a.py::2", "setup", passed=True)
    report("a.py::2", "call", passed=False)
    report("a.py::3", "call", passed=True, keyword="broker")
    assert finish() == set()
    report("a.py::2", "call", passed=True)
    assert finish() == {"a.py"}


def test_a_test_of_the_mechanisms_repeats_as_a_statistical_one_does() -> None:
    tests = [
        item("tests/mechanisms/test_noise.py::1"),
        item("tests/agents/a.py::1"),
        item("tests/agents/a.py::2", "statistical"),
    ]
    assert [statistical.item_repeats(each) for each in tests] == [True, False, True]  # type: ignore[arg-type]


def test_for_want_of_time_only_what_the_check_adds_or_repeats_is_left_out() -> None:
    waiting = [item(f"a.py::{name}", name) for name in (*FOR_CHECK, "statistical")]
    assert all(map(can_wait, waiting))  # type: ignore[arg-type]
    assert not can_wait(item("a.py::1", "broker"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds_left", "waiting", "begins"), [(60, True, True), (-1, True, False), (-1, False, True)]
)
def test_a_check_starts_what_can_wait_while_there_is_time(seconds_left: float, waiting: bool, begins: bool) -> None:
    test: Any = item("a.py::1", *(["statistical"] if waiting else []))
    test.config = SimpleNamespace(
        stash={conftest._DEADLINE: math.inf, conftest._PATIENCE: time.monotonic() + seconds_left}
    )
    with contextlib.nullcontext() if begins else pytest.raises(pytest.skip.Exception, match="no time left"):
        conftest.pytest_runtest_setup(test)
