"""A worker as ``susurrus worker`` runs it, which also writes down when it was handed its first raw records.

Arguments: the configuration, and the file for that time (Unix seconds).
"""

import sys
import time
from pathlib import Path
from typing import Any

from susurrus.agents.histogram.route import Route
from susurrus.agents.operations.worker import run_worker
from susurrus.agents.pipelines import load_settings, pipeline_of
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.stream.stage import Stream

CONFIGURATION, FIRST_READ = Path(sys.argv[1]), Path(sys.argv[2])
SETTINGS = load_settings(CONFIGURATION)
FIRST: type[Route] | type[Stream] = Stream if SETTINGS.pipeline.kind == "stream" else Route
take = FIRST.take


def timed_take(self: Any, batch: Batch) -> None:
    """The first batch with records is the beginning; from then on the original method is back."""
    if batch.records:
        FIRST.take = take  # type: ignore[method-assign]
        FIRST_READ.write_text(str(time.time()))
    take(self, batch)


FIRST.take = timed_take  # type: ignore[method-assign]
run_worker(pipeline_of(SETTINGS), loglevel="warning")
