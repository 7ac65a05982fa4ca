"""Defects of what a release remembers and shows, planted in the pipeline; audit_windows.py has those of the mechanism alone.

They use exact counts, which no stage that makes a list has at hand, so the scenario's input says them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_inputs import Input, Scenario

from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.shown_rows import ShownRows
from susurrus.agents.histogram.table import SortedRows
from susurrus.mechanisms.histogram.smoothing import LEAST_SHOWN

DEFECTS = {
    "list from exact counts": "keys are remembered by how many users they had, and not by their rows",
    "shown by exact counts": "a remembered key's row is shown where it had enough users",
}


@contextmanager
def remembers_exact_counts(scenario: Scenario, given: Input, defect: str) -> Iterator[None]:
    """Plants one of `DEFECTS` in a pipeline whose only key is that of the scenario's input."""
    triggers, choose = scenario.plan["triggers"], Memory._chosen
    first, second = (sum((trigger - 1) // triggers == window for trigger in given.trigger) for window in range(2))

    def chosen(memory: Memory, rows: SortedRows) -> Remembered:
        with patch.object(memory, "_least", -(2**31)):
            everything = choose(memory, rows)
        return everything.take(np.full(len(everything), first >= memory._least))

    def large(_: ShownRows, rows: SortedRows, level: Any) -> npt.NDArray[np.bool_]:
        return second >= np.maximum(LEAST_SHOWN, rows.std_errors[:, 0])

    with ExitStack() as stack:
        if defect == "list from exact counts":
            stack.enter_context(patch.object(Memory, "_chosen", chosen))
        if defect == "shown by exact counts":
            stack.enter_context(patch.object(ShownRows, "_large", large))
        yield
