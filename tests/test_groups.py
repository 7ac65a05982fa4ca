"""Groups of tests: without them every process of a run starts every kind of broker, and no test would fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_behind import ROOT
from tests.waiting import PATIENCE


def test_xdist_has_read_the_group_of_this_test(request: pytest.FixtureRequest) -> None:
    """The names of grouped tests end in ``@group``. conftest.py puts the tests of a file that needs no broker into a group."""
    grouped = request.config.getoption("dist", "no") == "loadgroup"
    if hasattr(request.config, "workerinput"):
        grouped = request.config.getoption("loadgroup")
    assert request.node.nodeid.endswith(f"@{request.node.location[0]}") == grouped


def test_what_a_group_shares_ends_with_its_last_test(tmp_path: Path) -> None:
    """And not with the run; what comes later and needs it gets another one."""
    (tmp_path / "conftest.py").write_text(
        """
import pytest
from tests.sharing import end_unneeded

@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    result = yield
    end_unneeded(item, nextitem, {"broker"})
    return result

@pytest.fixture(scope="session")
def broker():
    print("starts")
    yield
    print("ends")

@pytest.fixture(scope="module")
def topic(broker):
    print("topic")
    yield
    print("no topic")
"""
    )
    (tmp_path / "test_it.py").write_text(
        """
def test_1(topic): print("1")
def test_2(broker): print("2")
def test_3(): print("3")
def test_4(broker): print("4")
"""
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    said = run.stdout.replace(".", " ").split("[100%]")[0].split()
    assert " ".join(said).startswith("starts topic 1 2 no topic ends 3 starts 4 ends"), run.stdout
