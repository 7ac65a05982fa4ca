"""A demonstration that is killed leaves no process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from susurrus.agents.broker.leash import birth
from tests.broker import wait_for
from tests.left_behind import children, gone

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds children in /proc")


@pytest.mark.thorough
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM], ids=str)
def test_the_worker_ends_with_the_demonstration(death: signal.Signals, tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as said:
        demo = subprocess.Popen(
            [sys.executable, "-m", "susurrus.agents.cli", "demo"],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=said,
            stderr=said,
            cwd=tmp_path,
        )
    try:
        words = ("worker", "susurrus.agents.broker.leash")
        wait_for(lambda: all(children(demo.pid, word) for word in words), "the worker and its keeper run")
        births = {pid: birth(pid) for word in words for pid in children(demo.pid, word)}
        assert len(births) == 2
    finally:
        demo.send_signal(death)
        demo.wait()
    wait_for(lambda: all(gone(pid, born) for pid, born in births.items()), "the worker and its keeper are gone")
