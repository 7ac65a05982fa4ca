"""What makes a worker unhealthy, the first reason first. test_web.py has silence, the loop and the pages."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.health import Health
from tests.agents.runtime.guarded import Handed, task_in


def test_a_worker_is_unhealthy_while_a_task_cannot_use_the_disk() -> None:
    task = task_in("running", alive_at=time.monotonic())
    handed = Handed(task)
    asyncio.run(handed.assign())
    disk: Any = SimpleNamespace(unhealthy=lambda: None)
    health = Health(handed.group, disk, 120.0, threading.Event())
    assert health.unhealthy() is None
    task.recovery.disk_finding = Finding("disk", "failure", "errno=ENOSPC path=/disk: full", "make room")
    assert health.unhealthy() == "raw-0: errno=ENOSPC path=/disk: full; make room"
    disk.unhealthy = lambda: Finding("disk", "failure", "path=/disk: full", "make room")
    assert health.unhealthy() == "path=/disk: full; make room"
    health.gave_up = "raw-0: no room"
    assert health.unhealthy() == "raw-0: no room"
