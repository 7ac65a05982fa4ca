"""A partition that a stage reads, and one fetch of it, as the transport hands it to a task and the task to its stage.

They stand apart from `transport` so that a stage, and with it every configuration, loads without Faust.
"""

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from susurrus.agents.formats.waiting import Fetch
from susurrus.agents.kafka.offset import Offset


class InputPartition(NamedTuple):
    """A partition of a topic that a stage reads. It equals Faust's own pair (`faust.types.TP`), which is a tuple, too."""

    topic: str
    partition: int


@dataclass(eq=False, slots=True, weakref_slot=True)
class Batch:
    """What one fetch brought of one partition: every committed record with start <= offset < end."""

    start: Offset
    end: Offset
    fetched: Fetch | list[Any] = field(repr=False)  # raw data: a log message must never show it
    generation: int
    at_end: bool = False
    """Whether the fetch brought all that could be read when it was answered."""
    finished: bool = False
    offered: bool = False
    """Whether an agent has handed it to a task. The task then always finishes it."""
    born: float = field(default_factory=time.monotonic)

    @property
    def records(self) -> list[Any]:
        """Returns the batch's records, parsed when this is first called. Raises UnreadableBatch."""
        if not isinstance(self.fetched, list):
            self.fetched = self.fetched.records()  # the record batches are not needed any more
        return self.fetched

    def cut(self, start: Offset) -> None:
        """Leave out the records before an offset."""
        fetched = self.fetched
        if not isinstance(fetched, list):
            self.fetched = fetched.since(start)
        elif fetched and fetched[0].offset < start:
            self.fetched = [record for record in fetched if record.offset >= start]

    def finish(self) -> None:
        """Give the records back; called once the task has turned them into columns."""
        self.fetched = []
        self.finished = True
