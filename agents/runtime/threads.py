"""How many threads a worker needs, how many this machine allows it, and what memory they take.

librdkafka starts a thread for each broker and client, and ends the process by an assertion ("failed to create broker thread") where
it cannot have one. So it is looked at before the worker takes partitions from others.
"""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.changelog import RECOVERING
from susurrus.agents.runtime.host import Limit

_WORKER_THREADS: Final = 32
"""Everything but the tasks and their clients: event loop, pages, RocksDB, clients that all tasks share."""
_CLIENT_THREADS: Final = 3
"""The threads of a librdkafka client, beside one for each broker: its main thread, the bootstrap server, the coordinator."""
_RUNNING_THREADS: Final = 24
"""The same where nothing starts or ends; some are those that make transactional calls."""
_WORKER_MEGABYTES: Final = 225
"""Resident memory of a worker without partitions: Python and its libraries, of which 105 MB are their files."""
_TASK_MEGABYTES: Final = 1.0
"""What each partition adds before it has users or keys: a thread, a producer with its threads, a store."""
_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_MAY_EXCEED: Final = 1 << 24
"""CAP_SYS_RESOURCE, which ulimit -u does not bind."""


def threads_needed(tasks: int, brokers: int) -> int:
    """Threads of a worker that runs so many partition tasks: at the most, when all of them recover at once.

    Measured (/proc/PID/task) with 3 to 209 tasks on one and three brokers: 18 or 25, and for each task its own and those of its
    client; a transactional call has one more while it lasts, and all tasks make their first at once. A task that recovers has a
    second client, and so many recover at a time.
    """
    client = brokers + _CLIENT_THREADS
    return _WORKER_THREADS + tasks * (2 + client) + min(tasks, RECOVERING) * client


def size_of_worker(partitions: int, *, stages: int, brokers: int) -> Finding:
    """How many threads a worker with all ``partitions`` runs once they have recovered, and what memory it takes before it has users
    or keys. Decision 53 says why each partition has a producer of its own."""
    tasks = max(partitions, stages)
    threads = _RUNNING_THREADS + tasks * (1 + brokers + _CLIENT_THREADS)
    megabytes = _WORKER_MEGABYTES + _TASK_MEGABYTES * tasks
    return Finding(
        "size of a worker",
        "ok",
        f"one that has all {tasks} partitions would run about {threads:,} threads and take about {megabytes:,.0f} MB; "
        "users, keys, filters and a backlog come on top (docs/operations.md)",
    )


def thread_limit(partitions: int, *, stages: int, brokers: int) -> Limit:
    """What this machine allows a worker with all ``partitions``, and what it needs."""
    tasks = max(partitions, stages)
    allowed, by = min(_limits(), default=(float("inf"), ""))
    return Limit(
        "threads",
        allowed,
        least=threads_needed(stages, brokers),
        enough=threads_needed(tasks, brokers),
        tasks=tasks,
        said=f"threads: {max(0.0, allowed):,.0f} more are allowed here",
        action=f"raise {by}",
    )


def check_threads(partitions: int, *, stages: int, brokers: int) -> None:
    """Checks as `Limit.check` says."""
    thread_limit(partitions, stages=stages, brokers=brokers).check()


def _limits() -> Iterator[tuple[float, str]]:
    """How many more threads each limit allows, and its name. Limits that cannot be read are left out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY and soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
            soft = hard
    if soft != resource.RLIM_INFINITY and not _exempt():
        yield (
            float(soft - _threads_of_user()),
            f"ulimit -u, which is {soft} for all processes of the user (LimitNPROC of systemd, ulimits of a container)",
        )
    for folder in _cgroups():
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / "pids.max").read_text())  # "max" is no number
            yield (
                float(most - int((folder / "pids.current").read_text())),
                f"{folder / 'pids.max'}, which is {most} for the whole group (TasksMax of systemd, --pids-limit of a container, "
                "podPidsLimit of a kubelet)",
            )
    for name in ("threads-max", "pid_max"):
        with contextlib.suppress(OSError, ValueError):
            most = int((_PROC / "sys/kernel" / name).read_text())
            running = int((_PROC / "loadavg").read_text().split()[3].partition("/")[2])
            yield float(most - running), f"kernel.{name}, which is {most} for the whole machine (sysctl)"


def _exempt() -> bool:
    """Whether ulimit -u does not bind this process: root, or a right that goes beyond limits."""
    if os.geteuid() == 0:
        return True
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / "self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & _MAY_EXCEED)
    return False


def _threads_of_user() -> int:
    """Threads of all processes of this user, which ulimit -u counts together."""
    user, found = os.getuid(), 0
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == user:
                    found += len(os.listdir(folder / "task"))
    return found


def _cgroups() -> Iterator[Path]:
    """The control groups of this process that may limit threads, with all above: of version 2, and version 1 (pids)."""
    with contextlib.suppress(OSError):
        for line in (_PROC / "self/cgroup").read_text().splitlines():
            _, kinds, place = line.split(":", 2)
            if kinds and "pids" not in kinds.split(","):
                continue
            root = _CGROUPS / "pids" if kinds else _CGROUPS
            folder = root / place.lstrip("/")
            yield folder
            yield from (above for above in folder.parents if above == root or root in above.parents)
