"""What a worker needs of its machine: a directory that it can write, and enough open files.

Both are checked before anything else. A wrong mount or a small limit then ends the worker with one sentence and exit code 2.
Otherwise a task would fail at its first write, after the worker has taken partitions from workers that could run them.
"""

import contextlib
import errno
import fcntl
import logging
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from susurrus.agents.finding import Finding, refuse
from susurrus.agents.runtime.changelog import RECOVERING
from susurrus.agents.runtime.store import OPEN_TABLES
from susurrus.mechanisms.errors import ConfigurationError

log = logging.getLogger(__name__)

CONNECTIONS: Final = 32
"""The most connections to a worker's pages at a time (agents/operations/web.py). One more closes the oldest, so slow clients
cannot keep a probe out."""
_FEW_TABLES: Final = 16
"""What a store of usual size has open."""
_STORE_FILES: Final = 6
_SHARED_CLIENTS: Final = 4
"""The clients of the supervisor, the ledger, the raw topic's consumer and the probe."""
_WORKER_FILES: Final = 32 + CONNECTIONS + 16
"""Everything else: log, locks, event loops, a schema registry; and the pages, with their backlog."""
_ROOM_BYTES: Final = 1 << 20
_ADVICE: Final = {
    errno.ENOTDIR: "a file is in the way; name a directory",
    errno.EEXIST: "a file is in the way; name a directory",
    errno.EROFS: "mount a volume there that can be written, or name another directory",
    errno.ENOSPC: "free some space, or name a directory on another disk; what is there may be deleted while no worker runs",
    errno.EDQUOT: "free some space, or name a directory on another disk; what is there may be deleted while no worker runs",
    errno.ENOLCK: "name a directory on a local file system, with locks (flock)",
    errno.ENOTSUP: "name a directory on a local file system, with locks (flock)",
    errno.EIO: "the disk is broken; name a directory on another one",
}


@contextlib.contextmanager
def data_directory(directory: Path) -> Iterator[None]:
    """Make ``worker.data_directory``, and test that it can be written, synced and locked. The block then uses it.

    Raises ConfigurationError for every failure there, in the block, too.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _try(directory / f".check-{os.getpid()}")
    except OSError as error:
        raise _problem(directory, error) from None
    try:
        yield
    except OSError as error:
        if error.filename is None or not Path(error.filename).is_relative_to(directory):
            raise
        raise _problem(directory, error) from None


def _problem(directory: Path, error: OSError) -> ConfigurationError:
    advice = _ADVICE.get(error.errno or 0, f"let user {os.getuid()} write there, or name another directory")
    inside = error.filename is not None and Path(error.filename).parent not in (directory, directory.parent)
    place = f" (at {error.filename})" if inside else ""
    return ConfigurationError(f'worker.data_directory="{directory}": {error.strerror}{place}', advice)


def _try(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = memoryview(bytes(_ROOM_BYTES))
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def files_needed(tasks: int, brokers: int, *, tables: int) -> int:
    """Open files of a worker that runs so many partition tasks, each store with so many tables open.

    Measured (/proc/PID/fd) with 6 and 18 tasks on one and three brokers: a librdkafka client has 3 files for each broker and 5
    more; a task has a client and its store, and another client while it recovers, which so many do at a time.
    """
    client = 3 * brokers + 5
    clients = _SHARED_CLIENTS + tasks + min(tasks, RECOVERING)
    return _WORKER_FILES + clients * client + tasks * (_STORE_FILES + tables)


@dataclass(frozen=True, slots=True)
class Limit:
    """What the machine allows a worker, infinite where nothing limits it, and what it needs for one partition of each stage (least)
    and for all (enough). said: what is allowed, in words. action: what raises the limit."""

    subject: str
    allowed: float
    least: int
    enough: int
    tasks: int
    said: str
    action: str

    @property
    def finding(self) -> Finding:
        """A failure where a worker could not run one partition of each stage, a warning where not all of them."""
        if self.allowed >= self.enough:
            limit = "no limit" if self.allowed == float("inf") else self.said
            text = f"{limit}, up to {self.enough:,} needed where one worker has all {self.tasks} partitions"
            return Finding(self.subject, "ok", text)
        more = f" and up to {self.enough:,} for all {self.tasks} partitions" if self.enough > self.least else ""
        text = f"{self.said}, but a worker needs {self.least:,} for one partition of each stage{more}"
        if self.allowed < self.least:
            return Finding(self.subject, "failure", text, self.action)
        return Finding(self.subject, "warning", text, f"{self.action}, or start more workers")

    def check(self) -> None:
        """Raises ConfigurationError where `finding` is a failure, and logs a warning."""
        if (found := self.finding).level == "failure":
            refuse([found])
        if found.level == "warning":
            log.warning("%s", found)


def file_limit(partitions: int, *, stages: int, brokers: int) -> Limit:
    """What this machine allows a worker with all ``partitions``, and what it needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tasks = max(partitions, stages)
    allowed = float("inf") if hard == resource.RLIM_INFINITY else hard
    return Limit(
        "open files",
        allowed,
        least=files_needed(stages, brokers, tables=_FEW_TABLES),
        enough=files_needed(tasks, brokers, tables=_FEW_TABLES),
        tasks=tasks,
        said=f"ulimit -n: at most {allowed:,.0f} open files are allowed",
        action="raise the hard limit (ulimit -Hn, LimitNOFILE of systemd, ulimits of a container)",
    )


def raise_file_limit(partitions: int, *, stages: int, brokers: int) -> None:
    """Raise the soft limit of open files to what a worker with all ``partitions`` may need, as far as the hard one allows.

    Raises ConfigurationError where that is not enough for one partition of each stage; warns where not for all of them.
    """
    found = file_limit(partitions, stages=stages, brokers=brokers)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = int(min(found.allowed, files_needed(found.tasks, brokers, tables=OPEN_TABLES)))
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        log.info("ulimit -n raised from %d to %d", soft, wanted)
    found.check()
