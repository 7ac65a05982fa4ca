"""The watchdog ends a worker in which a task hangs: its heartbeats would go on and keep the partition from other workers.

It has a thread of its own, takes no lock and waits for nothing else. So it notices whenever the whole process stood still (SIGSTOP,
a paused container or machine), and does not take that for a hang.
"""

import logging
import os
import threading
import time

from susurrus.agents.logs import where_threads_are
from susurrus.agents.runtime.ending import TASK_HANGS
from susurrus.agents.runtime.group import Group

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = 5.0


class Watchdog:
    """Watches the tasks of a worker. limit: seconds of silence that a task may keep (``worker.watchdog``)."""

    def __init__(self, group: Group, limit: float) -> None:
        self._group = group
        self._limit = limit

    def watch(self, stopping: threading.Event) -> None:
        """Look again and again, until the event is set."""
        awake = time.monotonic()
        while not stopping.wait(_LOOK_SECONDS):
            silent = {place: task.silent_for(self._limit) for place, task in self._group.tasks.items()}
            before, awake = awake, time.monotonic()
            if awake > before + _PAUSE_SECONDS:
                log.warning("the worker stood still for a while and goes on")
                for task in self._group.tasks.values():
                    task.alive_at = awake
                continue
            for place, seconds in silent.items():
                if seconds is not None:
                    log.critical("%s-%d has hung for %.0f s; the worker ends", place.topic, place.partition, seconds)
                    where_threads_are()
                    os._exit(TASK_HANGS)
