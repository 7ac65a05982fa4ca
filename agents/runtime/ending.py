"""How a worker process ends: its exit codes, and the last resort if it does not end in time.

    0     stopped by SIGTERM or SIGINT, in order
    2     an operator must change something before a restart
    70    a task hangs (the watchdog, agents/runtime/watchdog.py)
    74    the local disk cannot be used: start it again, elsewhere or later
    143   stopped by SIGTERM (130: SIGINT), but not in time, mostly because a broker did not answer
    1     the same, where a library kept the exit code from being set; or Faust crashed

An end that is not in order loses nothing: what was not committed is read again. A process has one set of signal handlers, so there
is one ``ENDING``. It learns of a signal at once, even while the main thread is inside a library that does not return.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import threading
import time
from typing import Final, NoReturn

from susurrus.agents import logs

log = logging.getLogger(__name__)

FAILED: Final = 1
MISCONFIGURED: Final = 2
"""The exit code of a wrong configuration, and of every command that an operator can make work (agents/cli/console.py)."""
TASK_HANGS: Final = 70
"""EX_SOFTWARE of sysexits.h."""
DISK_UNUSABLE: Final = 74
"""EX_IOERR of sysexits.h."""
_SECONDS: Final = 45.0
_BACKSTOP_SECONDS: Final = 3.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """The end of a process, from the moment it is asked for."""

    def __init__(self) -> None:
        self.seconds = _SECONDS
        """The time from being asked to end to the last resort (``worker.stop_timeout``)."""
        self.exit_code = 0
        """The exit code of an end that the worker itself asked for; 0 otherwise."""
        self._deadline: float | None = None
        self._lock = threading.RLock()
        self._heard: tuple[int, int] | None = None
        self._passed_on = -1

    def listen(self) -> None:
        """Learn of signals from now on; called by the main thread, and again after a library has set its own listener.

        A crash inside a library says in which lines of code the threads were; the trace holds no values.
        """
        if self._heard is None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # no stderr to write to
                faulthandler.enable()
            self._heard = os.pipe()
            for end in self._heard:
                os.set_blocking(end, end == self._heard[0])
            threading.Thread(target=self._hear, args=(self._heard[0],), name="signals", daemon=True).start()
        before = signal.set_wakeup_fd(self._heard[1], warn_on_full_buffer=False)
        if before != self._heard[1]:
            self._passed_on = before

    def _hear(self, reader: int) -> None:
        """Read the numbers of signals. C writes them to the pipe even while Python is busy. The event loop gets them passed on."""
        while heard := os.read(reader, 64):
            for number in heard:
                if number in _SIGNALS:
                    self.begin(128 + number)
            if self._passed_on >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._passed_on, heard)

    def leave(self, number: int, _: object = None) -> NoReturn:
        """Signal handler of a process that has not begun any work: it exits at once with code 0.

        An exception would do so only where the interrupted code lets it through: confluent-kafka makes a SystemError of it.
        """
        os._exit(0)

    def cut(self, code: object) -> NoReturn:
        """Exit now, without the interpreter's own end. For a thread that is still inside a library: Python would end it where it
        is, and C++ takes that for a crash (SIGABRT)."""
        logging.shutdown()
        os._exit(code if isinstance(code, int) else FAILED if code else 0)

    def begin(self, late_code: int, *, seconds: float | None = None) -> None:
        """The process is about to end. If it still runs after so many seconds, it is ended with ``late_code``. Once only."""
        seconds = self.seconds if seconds is None else min(seconds, self.seconds)
        with self._lock:
            if self._deadline is not None:
                return
            # Python's threads no longer run while the interpreter shuts down, and a library may hang there as well.
            with contextlib.suppress(OSError, ValueError):
                faulthandler.dump_traceback_later(
                    seconds + _BACKSTOP_SECONDS, exit=True, file=os.open(os.devnull, os.O_WRONLY)
                )
            self._deadline = time.monotonic() + seconds
        threading.Thread(target=self._last_resort, args=(late_code,), name="last-resort", daemon=True).start()

    def give_up(self, exit_code: int, *, seconds: float) -> None:
        """End this process in order, as after SIGTERM, but with this exit code."""
        self.exit_code = exit_code
        self.begin(exit_code, seconds=seconds)
        os.kill(os.getpid(), signal.SIGTERM)

    def left(self) -> float:
        """Seconds until the last resort; before an end is asked for, ``self.seconds``."""
        with self._lock:
            return self.seconds if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _last_resort(self, code: int) -> None:
        time.sleep(self.left())
        log.critical(
            "not ended in time (worker.stop_timeout), so the worker ends now, exit code %d; what was not committed is read again",
            code,
        )
        logs.where_threads_are()
        os._exit(code)


ENDING: Final = Ending()
