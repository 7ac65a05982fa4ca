"""A run of the tests that gets SIGTERM ends as with Ctrl-C: no process and no directory is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from susurrus.agents.broker.leash import birth
from tests.broker import wait_for
from tests.left_behind import ROOT, gone

TEST = """
import os, subprocess, sys
from pathlib import Path
from tests.forked import fork_server
from tests.test_forked import SECRET, waiting

def test_it(tmp_path):
    environment = os.environ | SECRET | {"SUSURRUS__WORKER__DATA_DIRECTORY": str(tmp_path / "state")}
    worker = fork_server().spawn(["worker", "--config", str(waiting(tmp_path))], environment, tmp_path / "log")
    here = Path(os.environ["PIDS"])
    (here / str(worker.pid)).touch()
    code = f"import os, time; open('{here}/' + str(os.getpid()), 'w'); time.sleep(900)"
    subprocess.run([sys.executable, "-c", code])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("everybody", [False, True], ids=["the run", "its group"])
def test_a_run_that_is_terminated_leaves_nothing_behind(everybody: bool, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    pids = tmp_path / "pids"
    pids.mkdir()
    # In the system's folder: the path of a socket must be short.
    temporary = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n1"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ = {**outside, "PYTHONPATH": str(ROOT), "PIDS": str(pids), "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, f"--rootdir={tmp_path}", f"--basetemp={tmp_path}/runs", str(tmp_path)],
        env=environ,
        cwd=tmp_path,
        start_new_session=True,
    ) as run:
        wait_for(lambda: len(list(pids.iterdir())) == 2 or run.poll() is not None, "the test is at work")
        assert run.poll() is None
        left = {int(file.name): birth(int(file.name)) for file in pids.iterdir()}
        assert None not in left.values()
        (os.killpg if everybody else os.kill)(run.pid, signal.SIGTERM)
    wait_for(lambda: all(gone(pid, born) for pid, born in left.items()), "its processes are gone")
    temporary.rmdir()  # which fails if anything is in it
