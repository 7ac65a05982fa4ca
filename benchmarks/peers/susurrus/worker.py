"""A worker as ``susurrus worker`` runs it, which also writes down when it was handed its first raw records.

Its threads tell the kernel their names, so that /proc says what each of them costs. Arguments: the configuration, the file
for that time (Unix seconds), the level of the log, and the SQL file, if there is one.
"""

import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import Any

from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.operations.worker import run_worker
from susurrus.agents.pipelines import load_settings, pipeline_of
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.stream.stage import StreamStage

CONFIGURATION, FIRST_READ = Path(sys.argv[1]), Path(sys.argv[2])
SETTINGS = load_settings(CONFIGURATION, sql=Path(sys.argv[4]) if len(sys.argv) > 4 else None)
FIRST: type[RouteStage] | type[StreamStage] = StreamStage if SETTINGS.pipeline.kind == "stream" else RouteStage
take = FIRST.take


def timed_take(self: Any, batch: Batch) -> None:
    """The first batch with records is the beginning; from then on the original method is back."""
    if not isinstance(batch.fetched, list) or batch.fetched:  # asking for records would parse them
        FIRST.take = take  # type: ignore[method-assign]
        FIRST_READ.write_text(str(time.time()))
    take(self, batch)


def name_threads() -> None:
    """Give each thread the name that Python has for it, as long as the process runs."""
    named: set[int] = set()
    while True:
        for thread in threading.enumerate():
            tid = thread.native_id
            if tid is not None and tid not in named:
                named.add(tid)
                name = "main" if thread is threading.main_thread() else thread.name
                name = "aiokafka" if type(thread).__name__ == "WorkerThread" else name  # Faust's only other thread
                with contextlib.suppress(OSError):  # it has just ended
                    Path(f"/proc/self/task/{tid}/comm").write_text(name[:15])
        time.sleep(0.25)


threading.Thread(target=name_threads, name="names", daemon=True).start()
FIRST.take = timed_take  # type: ignore[method-assign]
run_worker(pipeline_of(SETTINGS), loglevel=sys.argv[3])
