"""What a worker says of itself to the service that restarts workers: whether it is healthy, and whether it is ready.

Any thread may ask. Nothing here takes a lock, so that it also answers while something hangs.
"""

import threading

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.disk import Disk
from susurrus.agents.runtime.group import Group

_LOOP_SECONDS = 3.0


class Health:
    """The judgement on one worker. limit: seconds of silence that a task may keep (``worker.watchdog``)."""

    def __init__(self, group: Group, disk: Disk, limit: float, stopping: threading.Event) -> None:
        self._group = group
        self._disk = disk
        self._limit = limit
        self._stopping = stopping
        self.gave_up = ""
        """Why this worker ends without a signal; empty if it does not."""
        self.waits_for: Finding | None = None
        """What the worker waits for before it joins the group (agents/operations/probe.py)."""

    def unhealthy(self) -> str | None:
        """Why this process should be restarted, or None. A restart helps neither a refusal nor a broker that is away."""
        if self.gave_up:
            return self.gave_up
        if found := self._disk.unhealthy():
            return str(found)
        for task in self._group.tasks.values():
            if found := task.recovery.disk_finding:
                return f"{task.name}: {found}"
            if (silent := task.silent_for(self._limit)) is not None:
                return f"{task.name} has hung for {silent:.0f} s"
        loop = self._group.loop
        if loop is None or self._stopping.is_set():
            return None
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return None  # the loop has been closed: the process is about to end
        return None if answered.wait(_LOOP_SECONDS) else f"the event loop has not answered for {_LOOP_SECONDS:.0f} s"

    def unready(self) -> str | None:
        """What this worker still has to do before it is ready, or None. A rolling upgrade waits for it."""
        if self.waits_for:
            return str(self.waits_for)
        if self._group.generation < 0:
            return "waiting for the consumer group"
        starting = [task.name for task in self._group.tasks.values() if task.state == "starting"]
        return f"starting: {', '.join(sorted(starting))}" if starting else None
