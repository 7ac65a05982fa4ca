"""SIGTERM is for a run of the tests what Ctrl-C is. With its default, a run would leave behind what it has started."""

import contextlib
import os
import signal
from typing import Any, NoReturn

import pytest


class Terminated:
    """A plugin of pytest. With xdist the controller passes the signal on, which may be for it alone."""

    def __init__(self) -> None:
        self._workers: list[int] = []
        # A shell's background jobs ignore SIGINT, and so would every process that a test starts.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, self._interrupt)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """In the controller: a worker has started."""
        self._workers.append(node.gateway._io.popen.pid)

    def _interrupt(self, *_: object) -> NoReturn:
        # A second one, for the group of all processes, must not interrupt the way out. Children do not inherit a function.
        signal.signal(signal.SIGTERM, lambda *_: None)
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise KeyboardInterrupt
