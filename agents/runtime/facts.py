"""What a pipeline's tasks have counted, added up, and what follows from it for the result: for operators inside the trust zone.

    status records of the ledger ──▶ Facts ──▶ Pipeline.explain, agents/operations/explanation.py ──▶ Finding, …

Every kind of pipeline says what can become of a record of its input (``Pipeline.outcomes``), and what keeps a result empty or thin
(``Pipeline.explain``). The numbers are exact functions of raw data.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WORTH_TELLING: Final = 0.05
"""A cause that takes less than this share of the records is in the table of outcomes only."""


class PartitionTotal(NamedTuple):
    """A total over the partitions of a stage. number: over those that say it, None where none does. partial: some do not say it."""

    number: int | None = None
    partial: bool = False

    def __str__(self) -> str:
        """``1,234``, ``1,234+?`` where some partitions do not say it, ``?``."""
        return "?" if self.number is None else f"{self.number:,}" + ("+?" if self.partial else "")


def total_of(counts: Iterable[PartitionTotal]) -> PartitionTotal:
    """The sum as far as it is known."""
    counts = list(counts)
    numbers = [count.number for count in counts if count.number is not None]
    partial = len(numbers) < len(counts) or any(count.partial for count in counts)
    return PartitionTotal(sum(numbers), partial) if numbers else PartitionTotal()


def added(counters: Iterable[Mapping[str, int]]) -> dict[str, PartitionTotal]:
    """The totals of one stage from the counters of its partitions. A partition that lacks a name does not know that total."""
    of_partitions = list(counters)
    names = dict.fromkeys(name for one in of_partitions for name in one)
    return {
        name: PartitionTotal(
            sum(one.get(name, 0) for one in of_partitions), any(name not in one for one in of_partitions)
        )
        for name in names
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What can become of a record of the input. counters: stage -> names of the counters that add up to it; a name that begins
    with ``-`` is subtracted, because its records are among those of the others. rare: people are told only where there are any."""

    name: str
    counters: Mapping[str, tuple[str, ...]]
    rare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMemory:
    """What a window has from those before it, as its newest release says in public. window: start in ms. remembered: keys that it
    began with, of all partitions; None where nothing is remembered, or while a partition has not said it. persistence: kappa, 0 to
    1; None where shares follow nothing."""

    window: int
    remembered: int | None
    persistence: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRelease:
    """What readers see. interval: the last one that all partitions have published. trigger, of_triggers: of its window.
    rows: of all partitions. memory: of its window; None where windows have nothing of earlier ones."""

    interval: int
    trigger: int
    of_triggers: int
    rows: int
    memory: WindowMemory | None = None


_UNKNOWN: Final = PartitionTotal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What findings follow from, of one moment.

    now: ms. began: the ledger has a start. first_window: its start in ms. origin: where the epoch began to read, "earliest",
    "latest" or an instant in ms as text; before the beginning, what the settings say. skipped: records of the raw topic before
    that place, None where it is unknown. unread: records of the first stage's input that are not read yet, None likewise.
    written: offsets that the first stage's input has given in its life, None where that is unknown. deleted: those of them that the
    epoch could have read and that are deleted. read: records read. published: rows. totals: stage ->
    name -> total. closed: stage -> partition -> last closed trigger interval. held: stage -> partition -> why it does not run.
    newest: the newest release, where the kind announces it in public. reasons: newest dead letters by the name of their reason.
    """

    now: int
    began: bool = True
    first_window: int | None = None
    origin: str = ""
    skipped: int | None = None
    unread: int | None = None
    written: int | None = None
    deleted: int = 0
    read: PartitionTotal = _UNKNOWN
    published: PartitionTotal = _UNKNOWN
    totals: Mapping[str, Mapping[str, PartitionTotal]] = field(default_factory=dict)
    closed: Mapping[str, Mapping[int, int | None]] = field(default_factory=dict)
    held: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    newest: NewestRelease | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)

    def total(self, stage: str, *names: str) -> PartitionTotal:
        """The sum of a stage's totals; names as in an `Outcome`. A difference is unknown where one of its parts is."""
        totals = self.totals.get(stage, {})
        plus = total_of(totals.get(name, PartitionTotal()) for name in names if not name.startswith("-"))
        subtracted = [totals.get(name[1:], PartitionTotal()) for name in names if name.startswith("-")]
        if not subtracted:
            return plus
        minus = total_of(subtracted)
        if plus.number is None or any(count.number is None for count in subtracted):
            return PartitionTotal()
        # Tasks report one after the other, so a part may be ahead of the whole.
        return PartitionTotal(max(0, plus.number - (minus.number or 0)), plus.partial or minus.partial)

    def known(self, stage: str, *names: str) -> int:
        """The same as far as it is known; 0 where nothing is."""
        return self.total(stage, *names).number or 0

    def number_of(self, outcome: Outcome) -> PartitionTotal:
        """Records with this outcome, over all stages."""
        return total_of(self.total(stage, *names) for stage, names in outcome.counters.items())

    def share(self, number: int) -> float:
        """The share in all records that there are: read, waiting to be read, or before the start."""
        everything = (self.read.number or 0) + (self.unread or 0) + (self.skipped or 0)
        return min(1.0, number / everything) if everything else 0.0

    def of_read(self, number: int) -> str:
        """``all 200 records read``, or ``3 of 200 records read (1.5 %)``."""
        read = max(number, self.read.number or 0)
        return (
            f"all {records(read)} read"
            if number == read
            else f"{number:,} of {records(read)} read ({percent(number / read)})"
        )

    @property
    def nothing_published(self) -> bool:
        """Whether the pipeline has released nothing, as far as is known."""
        return not self.published.number

    def last_closed(self, stage: str) -> int | None:
        """The last interval that all partitions of a stage have closed; None while one of them has not said so."""
        found = list(self.closed.get(stage, {}).values())
        known = [interval for interval in found if interval is not None]
        return min(known) if known and len(known) == len(found) else None


def percent(share: float) -> str:
    """A share in words: never 0 % or 100 % where it is not."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    if 0.9995 <= share < 1:
        return "more than 99.9 %"
    return f"{100 * share:.3g} %" if share < 0.1 or share == 1 else f"{100 * share:.1f} %"


def records(number: int) -> str:
    """A number of records in words."""
    return f"{number:,} record{'' if number == 1 else 's'}"
