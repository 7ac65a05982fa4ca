"""The program behind tests/forked.py: imports the worker, then forks a child for each connection to its socket.

python -m tests.fork_server SOCKET        until the standard input ends
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

# For the children: what a worker imports when it runs, and what Faust loads late.
import faust.app.router
import faust.assignor.leader_assignor
import faust.tables.manager
import faust.topics  # noqa: F401

import susurrus.agents.cli.given
import susurrus.agents.cli.worker
import susurrus.agents.histogram.services
import susurrus.agents.operations.worker  # noqa: F401
from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.cli.main import app
from susurrus.agents.runtime import crash_points


def _become_worker(request: bytes) -> NoReturn:
    """In the child: what exec would have given it, then the command line, which ends with SystemExit."""
    arguments, environ, log, directory = json.loads(request)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(directory)
    for stream, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_CREAT | os.O_APPEND)):
        file = os.open(log if stream else os.devnull, flags, 0o644)
        os.dup2(file, stream)
        os.close(file)
    os.dup2(1, 2)
    sys.argv = ["susurrus", *arguments]
    importlib.reload(crash_points)  # it reads the environment when it is imported
    app()
    sys.exit(0)


def serve(address: str) -> None:
    """Fork for each connection until the standard input ends."""
    threads = Path("/proc/self/task")
    if threads.is_dir() and len(list(threads.iterdir())) > 1:
        raise RuntimeError("an import has started a thread, and a child of this process would lack it")
    gc.freeze()  # the children share these pages as long as no process writes to them
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then end this process in order
    with contextlib.ExitStack() as own:
        listener = own.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen()
        ended, wakes = (own.enter_context(end) for end in socket.socketpair())
        for end in (ended, wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno())
        selector = own.enter_context(selectors.DefaultSelector())
        for source in (sys.stdin, listener, ended):
            selector.register(source, selectors.EVENT_READ)
        children: dict[int, socket.socket] = {}
        print("ready", flush=True)
        while (sources := [key.fileobj for key, _ in selector.select()]) and sys.stdin not in sources:
            if listener in sources:
                connection, _ = listener.accept()
                with connection.makefile("rb") as stream:
                    request = stream.readline()
                held, hold = os.pipe()
                if (pid := os.fork()) == 0:
                    for inherited in (*children.values(), connection):
                        inherited.close()
                    own.close()
                    os.close(hold)
                    if not os.read(held, 1):  # the server is gone, and nobody would end this process
                        os._exit(1)
                    os.close(held)
                    _become_worker(request)
                children[pid] = connection
                # A signal to the group of the tests ends this process, too, and it could kill nothing any more.
                ends_with_us(pid)
                os.close(held)
                with contextlib.suppress(BrokenPipeError), open(hold, "wb", buffering=0) as told:
                    told.write(b"1")
                connection.sendall(pid.to_bytes(8, "big"))
            if ended in sources:
                ended.recv(4096)
            while children and (gone := os.waitpid(-1, os.WNOHANG))[0]:
                if gone[0] in children:  # else it is the process that holds the leash
                    with children.pop(gone[0]) as connection, contextlib.suppress(OSError):
                        connection.sendall(gone[1].to_bytes(8, "big"))
        for pid in children:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1])
