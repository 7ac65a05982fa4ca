"""One step of a partition, as a stage hands it to its task: outputs, state and input position, all or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from susurrus.agents.kafka.offset import Offset


@dataclass(frozen=True, slots=True)
class Output:
    """Records for one partition of one topic. ``messages``: dicts of value, and optionally key, timestamp (ms) and headers.

    ``headers``, where given, are one list per message, for messages without their own.
    """

    topic: str
    partition: int
    messages: Sequence[dict[str, Any]]
    headers: list[list[tuple[str, bytes]]] | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How many dead letters there are, by the name of the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedRows:
    """What a commit makes public, for the log: names and public numbers. what: in words. rows: how many.

    facts: the same as members of a JSON line (agents/logs.py has their names).
    """

    what: str
    rows: int
    facts: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(slots=True)
class Commit:
    """One step of a partition, all or nothing: outputs, state and input position."""

    position: Offset
    """The input offset from which a successor must read."""
    meta: dict[str, Any]
    """The stage's small facts; replaces the previous ones."""
    outputs: list[Output] = field(default_factory=list)
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    deletes: list[bytes] = field(default_factory=list)
    drops: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Ranges [start, end) of state keys to delete, before deletes and puts."""
    kind: str = ""
    """What tests call such a commit (crash_points.py), where it has a name."""
    publishes: bool = False
    """Whether it makes results public. For metrics only."""
    released: list[ReleasedRows] = field(default_factory=list)
    """What it makes public. For the log only."""

    def drop(self, start: bytes, end: bytes) -> None:
        """Delete a range, and what this commit puts or deletes in it: puts and deletes would come after the drop."""
        self.drops.append((start, end))
        self.puts = [put for put in self.puts if not start <= put[0] < end]
        self.deletes = [key for key in self.deletes if not start <= key < end]
