"""Worker processes that start at once: a server that has imported the worker forks a child for each.

A worker started from the command line spends more than a second with imports, and the tests start some two hundred. The server
(tests/fork_server.py) imports the same modules once and then waits on a socket; it has one thread, no client of Kafka and no
event loop. For every connection it forks a child with an environment, a log and a process group of its own, tells its process
id, and later its exit status. A child is a process as any other: it can be killed, frozen and limited by its id.

The server ends with the process that started it, however that ends, and kills what is left of its children. Where it is killed
itself, its leash ends them (agents/broker/leash.py).
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60.0


class Child:
    """A forked process, with what tests use of subprocess.Popen."""

    def __init__(self, connection: socket.socket) -> None:
        self._answers = connection
        self.returncode: int | None = None
        self.pid = self._answer(START_SECONDS)

    def _answer(self, seconds: float | None) -> int:
        self._answers.settimeout(seconds)
        word = self._answers.recv(8)
        if len(word) != 8:
            raise RuntimeError("the fork server is gone; its last words are on the standard error stream")
        return int.from_bytes(word, "big", signed=True)

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal; None while it runs."""
        with contextlib.suppress(BlockingIOError):
            self._receive(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended. Raises subprocess.TimeoutExpired."""
        try:
            return self._receive(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("susurrus worker", timeout or 0.0) from None

    def _receive(self, seconds: float | None) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(self._answer(seconds))
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens to a process that has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server's process, as its starter sees it."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fork-server-")
        self._address = f"{self._directory.name}/socket"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SUSURRUS_")}
        if "SUSURRUS_COMPILED" in os.environ:  # decides which loops the server imports, so that its children have them
            environment["SUSURRUS_COMPILED"] = os.environ["SUSURRUS_COMPILED"]
        # OpenBLAS would start threads when it is imported, and only the thread that forks lives on in the child.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", self._address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
        )
        atexit.register(self.close)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the fork server ended with exit code {self._process.wait()}")

    def spawn(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> Child:
        """``susurrus`` with these arguments, in this environment; both output streams go to the log."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        connection.sendall(json.dumps([list(arguments), dict(environ), str(log), os.getcwd()]).encode() + b"\n")
        return Child(connection)

    def close(self) -> None:
        """End the server and all of its children."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._directory.cleanup()


@functools.cache
def fork_server() -> ForkServer:
    """The one of this process, started when it is first asked for."""
    return ForkServer()
