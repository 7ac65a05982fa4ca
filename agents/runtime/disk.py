"""The directory of a worker's stores, and one look for all of them: can their disk be written, whether or not one has to write?

A store writes when its memory is full, which may be minutes after the disk is. And RocksDB waits a second for each store that it
cannot write, one after the other. So a thread writes a small file now and then. If it cannot, all tasks that fail wait for one and
the same disk, `/healthz` says so at once, and a disk that stays unusable ends the worker with all of its partitions together.
"""

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.store import release_abandoned, usable
from susurrus.mechanisms.errors import StoreUnusable

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 20.0
"""What is wrong with a disk may pass: an operator makes room, a volume comes back."""
ROOM_BYTES: Final = 1 << 20
"""The least room, in bytes. With less a disk is full: no store could write what it has in memory."""
_LOOK_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 1.0
_FILE: Final = ".look"
_BYTES: Final = bytes(4096)


class Disk:
    """The disk of one worker's stores. directory: the worker's own. gives_up: called once, with the reason, when it stays unusable.
    silence: seconds after which a look that has not come back is a failure, too."""

    def __init__(self, directory: Path, *, gives_up: Callable[[Finding], None], silence: float) -> None:
        self._directory = directory
        self._gives_up = gives_up
        self._silence = silence
        self._lock = threading.Lock()
        self._failure: Finding | None = None
        self._since: float | None = None
        """Monotonic time of the first look of a series that failed."""
        self._given_up = False
        self._began: float | None = None
        """Monotonic time at which the look that is under way began."""

    @property
    def finding(self) -> Finding | None:
        """What is wrong with the disk, as of the last look."""
        return self._failure

    def unhealthy(self) -> Finding | None:
        """The same; or that the disk does not come back from a look. Never waits for it."""
        began = self._began
        if not self._failure and began is not None and (silent := time.monotonic() - began) > self._silence:
            text = f"path={self._directory}: the disk has not answered for {silent:.0f} s"
            return Finding("disk", "failure", text, "look at that disk")
        return self._failure

    def watch(self, stopping: threading.Event) -> None:
        """Look again and again, until the event is set."""
        while not stopping.wait(_LOOK_AGAIN_SECONDS if self._failure else _LOOK_SECONDS):
            self.look()

    def look(self) -> Finding | None:
        """Look now, and say what is wrong. Any thread may ask; those that ask during a look wait for it and look once more."""
        with self._lock:
            self._began = time.monotonic()
            try:
                _write(self._directory)
            except StoreUnusable as unusable:
                self._failed(unusable)
            else:
                self._succeeded()
            finally:
                self._began = None
            return self._failure

    def wait(self, stopping: threading.Event, mark_alive: Callable[[], None]) -> None:
        """Waits until the disk can be written again, or the event is set: the one thread's looks decide for all who wait."""
        while self._failure and not stopping.wait(0.5):
            mark_alive()

    def _failed(self, unusable: StoreUnusable) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
            log.warning("%s; all partitions of this worker wait for it", str(unusable))
        self._failure = disk_finding(unusable)
        if now - self._since >= PATIENCE_SECONDS and not self._given_up:
            self._given_up = True
            self._gives_up(self._failure)

    def _succeeded(self) -> None:
        if self._since is not None:
            log.info("the disk of %s can be written again", self._directory)
        self._failure, self._since = None, None
        release_abandoned()


def disk_finding(unusable: StoreUnusable) -> Finding:
    """What is wrong with a disk. It may pass: an operator makes room, a volume comes back."""
    return Finding("disk", "failure", unusable.text, unusable.action, waits=True)


def _write(directory: Path) -> None:
    """Raises StoreUnusable if nothing can be written, or if there is no room for more."""
    file = directory / _FILE
    with usable(directory):
        try:
            with file.open("wb", buffering=0) as opened:
                opened.write(_BYTES)
                os.fsync(opened.fileno())
        finally:
            with contextlib.suppress(OSError):
                file.unlink()
        found = os.statvfs(directory)
    # Root may use what is kept back for it. Some file systems do not say how large they are.
    left = (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize
    if found.f_blocks and left < ROOM_BYTES:
        raise StoreUnusable(errno.ENOSPC, directory, os.strerror(errno.ENOSPC))


def take_directory(directory: Path) -> tuple[Path, Any]:
    """A directory of this worker's own below the configured one, with its lock: workers on one machine never share a store.

    Raises StoreUnusable where the disk cannot be written.
    """
    for number in range(1_000):
        own = directory / f"worker-{number}"
        with usable(own):
            own.mkdir(parents=True, exist_ok=True)
            lock = (own / "lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.close()
                if isinstance(error, BlockingIOError):  # another worker's
                    continue
                raise
        return own, lock
    raise RuntimeError(
        f"worker.data_directory={directory} has 1000 workers already: give each host a directory of its own"
    )
