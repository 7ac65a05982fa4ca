"""The numbers of sources: which partition of which raw topic each one is.

A source is one partition of one raw topic. Blocks of by-user, ticks, changelogs and positions know it by its number, and bound
takes a user's records in the order (source, raw offset). So a number never changes and is never given twice: sources are only added
behind those that there are. The ledger keeps the numbers (ledger.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Run(NamedTuple):
    """Neighbouring partitions of a raw topic that have neighbouring numbers. first: the first partition. partitions: how many."""

    topic: str
    first: int
    partitions: int


@dataclass(frozen=True, slots=True)
class SourceMap:
    """All sources: the numbers of a run follow those of the run before it, from 0 on."""

    runs: tuple[Run, ...] = ()

    @classmethod
    def of(cls, runs: Iterable[Iterable[object]]) -> "SourceMap":
        """The map of runs as JSON or a commit has them."""
        return cls(tuple(Run(str(topic), int(str(first)), int(str(number))) for topic, first, number in runs))

    def __len__(self) -> int:
        """How many sources there are."""
        return sum(run.partitions for run in self.runs)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(topic, partition) of every source, in the order of their numbers."""
        for run in self.runs:
            yield from ((run.topic, partition) for partition in range(run.first, run.first + run.partitions))

    @property
    def topics(self) -> tuple[str, ...]:
        """The raw topics, in the order of their first sources."""
        return tuple(dict.fromkeys(run.topic for run in self.runs))

    def partitions(self, topic: str) -> int:
        """How many partitions of a topic are sources."""
        return sum(run.partitions for run in self.runs if run.topic == topic)

    def place(self, number: int) -> tuple[str, int] | None:
        """(topic, partition) of a source; None where no source has the number."""
        before = 0
        for run in self.runs:
            if before <= number < before + run.partitions:
                return run.topic, run.first + number - before
            before += run.partitions
        return None

    def number(self, topic: str, partition: int) -> int | None:
        """The number of a source; None where the partition is none."""
        before = 0
        for run in self.runs:
            if run.topic == topic and run.first <= partition < run.first + run.partitions:
                return before + partition - run.first
            before += run.partitions
        return None

    def grown(self, topic: str, partitions: int) -> "SourceMap":
        """The map with all of a topic's partitions, of which there are so many. The new ones come behind all others."""
        first = self.partitions(topic)
        return self if partitions <= first else SourceMap((*self.runs, Run(topic, first, partitions - first)))
