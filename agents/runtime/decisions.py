"""What a kind of pipeline would make of raw records: decided as its first stage decides it, without a worker, a store or output.

newest records ──Decisions.decide──▶ Decided: a reason for each row      settings ──Decisions.parts──▶ RecordPart: one of them alone

`susurrus try` and preflight ask it (agents/operations/trying.py). Each row is decided by its record, by its stamp, and by what the
ledger says for certain. What depends on other records is not decided, and `undecided` names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from susurrus.agents.config.input import InputSettings
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.runtime.begun import Begun
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.topics.records.fields import Path
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.records.reason import Reason

NOBODY: Final = "$offset"
"""Stands for fields while another setting is looked at: it is always there, and is a number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """What would become of records.

    reason: uint8[n], a Reason of each row, 0 = good. late: bool[n], good rows that are counted as late. read: how many records were
    read; waiting: why the next one was not. record: int64[n], each row's record, and item: int64[n], its place there; None where
    every record is one row.
    """

    reason: npt.NDArray[np.uint8]
    read: int
    waiting: Finding | None = None
    late: Bools | None = None
    record: Int64s | None = None
    item: Int64s | None = None

    @property
    def owner(self) -> Int64s:
        """int64[n]: the record of each row."""
        return np.arange(len(self.reason)) if self.record is None else self.record


class RecordPart(NamedTuple):
    """One setting that names something of a record. scalars, where: what it reads. decide: what becomes of records for this setting
    alone, where they are read by a section `[input]`."""

    setting: str
    scalars: Sequence[Path | ComputedField]
    where: str | None
    decide: Callable[[InputSettings, Sequence[ReadRecord]], Decided]


class Decisions(ABC):
    """Decides raw records as one kind of pipeline does, with its settings."""

    blamed_by: ClassVar[Mapping[Reason, str]] = {}
    """The setting to blame where the record can be read and its parts are good."""
    of_time: ClassVar[frozenset[Reason]] = frozenset()
    """Reasons that a record of another time need not have."""
    never_told: ClassVar[frozenset[Reason]] = frozenset()
    """Of these, the reasons of which preflight says nothing, because another check does, or because they end by themselves."""

    @abstractmethod
    def decide(
        self, source: InputSettings, records: Sequence[ReadRecord], types: Int64s, *, now: int, begun: Begun | None
    ) -> Decided:
        """What would become of records of one raw topic.

        source: `[input]` as it is for this topic. types: int64[n], of the records' time stamps, as `Clock.accepts` has them. now:
        ms. begun: what the ledger says; None where the pipeline has not begun, or that is unknown. Raises ConfigurationError where
        a package or class is missing, or a property is refused.
        """

    @abstractmethod
    def whole(self, source: InputSettings, records: Sequence[ReadRecord]) -> Decided:
        """What becomes of records, or of their items, of which nothing is asked."""

    @abstractmethod
    def parts(self) -> Sequence[RecordPart]:
        """In the order in which a record is decided."""

    def undecided(self, begun: Begun | None) -> Iterator[str]:
        """What is not decided here, a sentence each without its full stop."""
        yield from ()

    def written_by_others(self, records: Sequence[ReadRecord]) -> Sequence[ReadRecord]:
        """The records that are written as `[input]` says; others have a form of the pipeline's own."""
        return records


def called(name: str, what: str | ComputedField) -> str:
    """A setting as messages name it."""
    return f'{name} = "{what}"' if isinstance(what, str) else f"{name} = {{ {what.expression} }}"


def stamps_of(records: Sequence[ReadRecord]) -> Int64s:
    """int64[n]: the records' stamps, in ms."""
    return np.fromiter((record.timestamp for record in records), np.int64, len(records))
