"""msgspec compiles a record's type on first use, and crashes the process if two threads do so at once (0.22).

So decoders of records are made where modules are loaded, which one thread does, or of types that one object has for itself.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for package in ("agents", "mechanisms", "topics") for path in (ROOT / package).rglob("*.py"))
BUILT_IN = {"Counts"}
"""Types that hold no record."""

RACE = """
import importlib, sys, threading
import msgspec
from susurrus.agents.runtime import changelog

sys.setswitchinterval(1e-6)
for _ in range(40):
    importlib.reload(changelog)  # types that nobody has used
    state = changelog.State(
        epoch="e", changelog_id="c", changelog_next=1, position=1, topic_id="t", meta={}, refresh=changelog.Refresh()
    )
    raw = msgspec.msgpack.encode(state)
    store = type("Held", (), {"meta": lambda self: raw})()
    started, found = threading.Barrier(4), []

    def start():
        log = changelog.Changelog(None, "topic", 0)
        started.wait()
        found.append(log.meta(store))

    threads = [threading.Thread(target=start) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [state] * 4
"""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_thread_compiles_the_type_of_a_record(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msgspec."):
            given = [word.value for word in node.keywords if word.arg == "type"]
            assert {ast.unparse(one) for one in given} <= BUILT_IN, (
                f"line {node.lineno}: make a Decoder where the module loads"
            )


def test_tasks_that_start_at_once_read_their_states() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
