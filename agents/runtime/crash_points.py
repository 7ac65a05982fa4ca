"""Named points in the commit at which a test may kill the worker, or send it another signal.

Off unless SUSURRUS_CRASH_AT is set, as ``stage:point:visit``: with ``bound:after-commit:3`` the worker kills itself (SIGKILL) at
the third visit of that point by a task of that stage. A fourth part names another signal: ``route:after-begin:3:SIGTERM``.
tests/chaos walks through POINTS. A commit with a `kind` is also met under that name: ``release.evidence:after-commit:1``.
The worker itself has one point, ``worker:before-group:1``: it has found all that it needs and has not joined its group.
"""

import os
import signal
import threading

POINTS = (
    "before-begin",
    "after-begin",
    "after-outputs",
    "after-changelog",
    "after-offsets",
    "after-commit",
    "after-store",
)

_lock = threading.Lock()
_visits = 0
_target = os.environ.get("SUSURRUS_CRASH_AT", "")


def reach(stages: tuple[str, ...], point: str) -> None:
    """Send the signal here if this is the visit asked for. stages: the names under which this visit counts."""
    global _visits
    if not _target:
        return
    wanted_stage, wanted_point, visit, *named = _target.split(":")
    if wanted_stage in stages and point == wanted_point:
        with _lock:
            _visits += 1
            if _visits == int(visit):
                os.kill(os.getpid(), signal.Signals[named[0]] if named else signal.SIGKILL)
