"""A child ends with the process that started it, however that ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from susurrus.agents.broker import leash
from susurrus.agents.broker.leash import birth, ends_with_us
from tests.broker import wait_for
from tests.left_behind import ROOT, gone

OWNER = """
import subprocess, sys
from susurrus.agents.broker.leash import ends_with_us
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
ends_with_us(child.pid)
print(child.pid, flush=True)
sys.stdin.readline()
"""
OBEYS = "import time; print(flush=True); time.sleep(900)"
IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEYS}"
STOPPED = "import os, signal; print(flush=True); os.kill(os.getpid(), signal.SIGSTOP)"


def started(child: str) -> tuple["subprocess.Popen[str]", int, str]:
    """An owner with a child, the child's id and its birth."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    born = birth(pid)
    assert born is not None
    return owner, pid, born


@pytest.mark.parametrize("child", [OBEYS, IGNORES, STOPPED], ids=["obeys", "ignores", "stopped"])
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None], ids=str)
def test_a_child_ends_with_its_owner(death: signal.Signals | None, child: str) -> None:
    owner, pid, born = started(child)
    with owner:
        if death is None:
            owner.communicate("end in order\n")
        else:
            owner.send_signal(death)
        owner.wait()
    wait_for(lambda: gone(pid, born), "the child is gone")


def test_children_outlive_one_another_and_end_together(tmp_path: Path) -> None:
    """One that has ended is no obstacle, and one that was forked from a thread is held as well: a prctl would end it with that."""
    code = f"""
import subprocess, sys, threading
from susurrus.agents.broker.leash import ends_with_us
pids = []
def start():
    child = subprocess.Popen([sys.executable, "-c", {OBEYS!r}], stdout=subprocess.DEVNULL)
    ends_with_us(child.pid)
    pids.append(child)
for _ in range(3):
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
pids[1].kill()
pids[1].wait()
ends_with_us(pids[1].pid)
print(*(child.pid for child in pids), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as owner:
        assert owner.stdout is not None
        first, _, third = map(int, owner.stdout.readline().split())
        births = {pid: birth(pid) for pid in (first, third)}
        assert None not in births.values()
        time.sleep(0.2)
        assert [birth(pid) for pid in births] == list(births.values())
        owner.kill()
    wait_for(lambda: all(gone(pid, born) for pid, born in births.items()), "both are gone")


def test_a_forked_child_does_not_hold_the_leash_of_its_parent() -> None:
    """Its copy of the pipe would keep the others alive."""
    code = f"""
import os, subprocess, sys, time
from susurrus.agents.broker.leash import ends_with_us
child = subprocess.Popen([sys.executable, "-c", {OBEYS!r}], stdout=subprocess.DEVNULL)
ends_with_us(child.pid)
if (forked := os.fork()) == 0:
    time.sleep(900)
print(child.pid, forked, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as owner:
        assert owner.stdout is not None
        pid, forked = map(int, owner.stdout.readline().split())
        born = birth(pid)
        owner.kill()
    try:
        wait_for(lambda: gone(pid, born), "the child is gone")
        os.kill(forked, 0)  # the other one, which nobody holds, is not
    finally:
        os.kill(forked, signal.SIGKILL)


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    yield process
    process.kill()
    process.wait()


def test_a_recycled_id_is_left_alone(stranger: "subprocess.Popen[bytes]") -> None:
    """The keeper is told of a process with this id that was born at another time."""
    keeper = [sys.executable, "-m", "susurrus.agents.broker.leash", str(stranger.pid), "1"]
    subprocess.run(keeper, input=f"{stranger.pid} 1\n", text=True, check=True, cwd=ROOT)
    assert stranger.poll() is None
    subprocess.run(keeper, input=f"{stranger.pid} {birth(stranger.pid)}\n", text=True, check=True, cwd=ROOT)
    assert stranger.wait() == -signal.SIGTERM


def test_a_process_that_has_ended_has_no_birth() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: birth(process.pid) is None, "it is a zombie")
    process.wait()
    assert birth(process.pid) is None
    assert birth(os.getpid()) == birth(os.getpid()) is not None


def test_where_there_is_no_proc_ps_tells_the_birth(
    monkeypatch: pytest.MonkeyPatch, stranger: "subprocess.Popen[bytes]"
) -> None:
    class NoProc(type(Path())):  # type: ignore[misc]
        def exists(self, **options: bool) -> bool:
            return False

    monkeypatch.setattr(leash, "Path", NoProc)
    born = birth(stranger.pid)
    assert born is not None
    assert " " not in born
    assert birth(stranger.pid) == born
    stranger.kill()
    wait_for(lambda: birth(stranger.pid) is None, "it is a zombie")


def test_an_ended_process_needs_no_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    monkeypatch.setattr(subprocess, "Popen", None)
    ends_with_us(process.pid)
