"""Processes that end with the one that started them, however that ends: also when it is killed, or dies with its terminal.

    process = subprocess.Popen(...)
    ends_with_us(process.pid)

A pipe is the leash. Its one end is in the owner, and is closed by the system when the owner is gone. The other end is the standard
input of a process beside them, which then ends what it was told of. That works on Linux and macOS, for any program, also for one
that is stopped, and does not depend on the thread that started it (Linux's PR_SET_PDEATHSIG does).
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

GRACE_SECONDS: Final = 5.0
"""What a process has to end in order, before it is killed."""


class _Leash:
    """The process beside this one, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keeper: subprocess.Popen[bytes] | None = None

    def hold(self, pid: int) -> None:
        """End this process when the calling one is gone."""
        born = birth(pid)
        if born is None:  # it has ended already
            return
        with self._lock:
            if self._keeper is None:
                # The first one is among its arguments: were the owner killed before it could tell of it, nobody would end it.
                self._keeper = subprocess.Popen(
                    [sys.executable, "-m", "susurrus.agents.broker.leash", str(pid), born],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # a signal to the owner's group or terminal is not for it
                )
                atexit.register(self._close)
                return
            assert self._keeper.stdin is not None
            self._keeper.stdin.write(f"{pid} {born}\n".encode())
            self._keeper.stdin.flush()

    def _close(self) -> None:
        if self._keeper is not None:
            self._keeper.communicate()  # closes its standard input

    def forget(self) -> None:
        """Called in a forked child, whose own leash this is not: with its copy of the pipe, the owner's death would not be
        noticed."""
        if self._keeper is not None and self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                os.close(self._keeper.stdin.fileno())
            self._keeper.returncode = 0  # no child of this process
        self.__init__()  # type: ignore[misc]  # another thread may have held the lock


_LEASH: Final = _Leash()
os.register_at_fork(after_in_child=_LEASH.forget)


def ends_with_us(pid: int) -> None:
    """SIGTERM this process when the calling one is gone, and SIGKILL it :data:`GRACE_SECONDS` later.

    To be called after it was started and before anybody waits for it.
    It ends those that still run when the calling one ends in order, too.
    """
    _LEASH.hold(pid)


def birth(pid: int) -> str | None:
    """When a process was started, as the system tells it, so that a recycled id is not taken for it; None when it has ended."""
    if Path("/proc/self/stat").exists():
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else fields[18]
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = shown.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else "-".join(started.split())


def keep(first: int, born: str) -> None:
    """Read further processes from the standard input until it ends, then end them and the first one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    held = {first: born}
    for line in sys.stdin:
        pid, born = line.split()
        held[int(pid)] = born
    deadline = time.monotonic() + GRACE_SECONDS
    number = signal.SIGTERM
    while held := {pid: born for pid, born in held.items() if birth(pid) == born}:
        for pid in held:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if number is signal.SIGKILL:
            time.sleep(0.05)
            continue
        while time.monotonic() < deadline and any(birth(pid) == born for pid, born in held.items()):
            time.sleep(0.05)
        number = signal.SIGKILL


if __name__ == "__main__":
    keep(int(sys.argv[1]), sys.argv[2])
