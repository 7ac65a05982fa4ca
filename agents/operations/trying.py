"""What would become of a raw topic's newest records, decided as a pipeline's first stage decides it, without writing anything.

newest records ──the kind's decisions (runtime/decisions.py)──▶ a reason for each row ──▶ Trial: kept, late, left out, refused

A refused row is decided again for one setting alone, and then for the next: the first that refuses it for the same reason is to
blame. It is exact raw data, so it is for operators inside the trust zone; it has references to records and no values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from susurrus.agents.config.fields import said
from susurrus.agents.config.input import InputSettings
from susurrus.agents.finding import Finding
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.runtime.begun import Begun
from susurrus.agents.runtime.decisions import Decided, Decisions
from susurrus.mechanisms.arrays import Int64s
from susurrus.topics.records.reason import LEFT_OUT, Reason

Outcome = Literal["kept", "late", "left out", "dead letter"]
EXAMPLES: Final = 3
"""References to records, for each thing that became of some."""


class RecordPlace(NamedTuple):
    """Where a record is. item: which of its items is meant, where it was taken apart."""

    topic: str
    partition: int
    offset: int
    item: int | None = None


@dataclass(slots=True)
class Fate:
    """What became of some rows. setting: which setting of the file is to blame, as it stands there; empty where none is."""

    outcome: Outcome
    reason: Reason = Reason.OK
    setting: str = ""
    number: int = 0
    examples: list[RecordPlace] = field(default_factory=list)


@dataclass(slots=True)
class Trial:
    """What became of ``records`` records, which are ``rows`` rows. waiting: why the others, ``waits``, cannot be decided now.
    before_start: how many of them the pipeline does not read, as it begins behind them. undecided: what is not decided, a sentence
    each."""

    records: int = 0
    rows: int = 0
    fates: list[Fate] = field(default_factory=list)
    waits: int = 0
    waiting: Finding | None = None
    before_start: int = 0
    undecided: list[str] = field(default_factory=list)

    def number(self, *outcomes: Outcome) -> int:
        """Rows of some outcomes."""
        return sum(fate.number for fate in self.fates if fate.outcome in outcomes)

    def share(self, number: int) -> float:
        """Of all rows, 0 to 1."""
        return number / self.rows if self.rows else 0.0

    @property
    def refused(self) -> list[Fate]:
        """Dead letters, the commonest first."""
        return [fate for fate in self.fates if fate.outcome == "dead letter"]


def try_records(
    decisions: Decisions,
    source: InputSettings,
    records: Sequence[ReadRecord],
    types: Int64s,
    *,
    now: int,
    begun: Begun | None = None,
) -> Trial:
    """What would become of records of one raw topic. The parameters and errors are those of `Decisions.decide`."""
    found = decisions.decide(source, records, types, now=now, begun=begun)
    trial = Trial(
        records=found.read,
        rows=len(found.reason),
        waits=len(records) - found.read,
        waiting=found.waiting,
        undecided=list(decisions.undecided(begun)),
    )
    if begun is not None:
        places = ((record.topic, record.partition, record.offset) for record in records[: found.read])
        trial.before_start = sum(begun.is_before_start(*place) for place in places)
    owner = found.owner
    blamed = _blamed(decisions, source, records, found)
    fates: dict[tuple[Outcome, Reason, str], Fate] = {}
    for row, why in enumerate(map(Reason, found.reason.tolist())):
        outcome = _outcome(why, late=found.late is not None and bool(found.late[row]))
        setting = blamed.get(row, "") if outcome == "dead letter" else _left_out_by(source, why)
        fate = fates.setdefault((outcome, why, setting), Fate(outcome, why, setting))
        fate.number += 1
        if len(fate.examples) < EXAMPLES:
            record = records[int(owner[row])]
            item = None if found.item is None or found.item[row] < 0 else int(found.item[row])
            fate.examples.append(RecordPlace(record.topic, record.partition, record.offset, item))
    trial.fates = _in_order(fates.values())
    return trial


_ORDER: Final[tuple[Outcome, ...]] = ("kept", "late", "left out", "dead letter")


def _in_order(fates: Iterable[Fate]) -> list[Fate]:
    return sorted(fates, key=lambda fate: (_ORDER.index(fate.outcome), -fate.number))


def merged(trials: Sequence[Trial]) -> Trial:
    """The trials of several topics as one."""
    fates: dict[tuple[Outcome, Reason, str], Fate] = {}
    for one in (fate for trial in trials for fate in trial.fates):
        into = fates.setdefault((one.outcome, one.reason, one.setting), Fate(one.outcome, one.reason, one.setting))
        into.number += one.number
        into.examples = [*into.examples, *one.examples][:EXAMPLES]
    return Trial(
        records=sum(trial.records for trial in trials),
        rows=sum(trial.rows for trial in trials),
        fates=_in_order(fates.values()),
        waits=sum(trial.waits for trial in trials),
        waiting=next((trial.waiting for trial in trials if trial.waiting is not None), None),
        before_start=sum(trial.before_start for trial in trials),
        undecided=list(dict.fromkeys(text for trial in trials for text in trial.undecided)),
    )


def _outcome(why: Reason, *, late: bool) -> Outcome:
    if why in LEFT_OUT:
        return "left out"
    if why != Reason.OK:
        return "dead letter"
    return "late" if late else "kept"


def _left_out_by(source: InputSettings, why: Reason) -> str:
    if why == Reason.FILTERED:  # an envelope leaves out what is no row
        by = ["input.where"] * (source.where is not None) + ["input.envelope"] * (source.envelope != Bare.name)
        return " or ".join(by)
    return "input.each" if why == Reason.NO_ITEMS else ""


def _blamed(
    decisions: Decisions, source: InputSettings, records: Sequence[ReadRecord], found: Decided
) -> dict[int, str]:
    """Which setting is to blame, for rows that one is to blame for."""
    owner, item, reason = found.owner, found.item, found.reason
    bad = [row for row, why in enumerate(map(Reason, reason.tolist())) if why != Reason.OK and why not in LEFT_OUT]
    if not bad:
        return {}
    numbers = sorted({int(owner[row]) for row in bad})
    some = [records[number] for number in numbers]
    place = {number: at for at, number in enumerate(numbers)}
    left = {(place[int(owner[row])], -1 if item is None else int(item[row])): row for row in bad}
    blamed: dict[int, str] = {}

    def look(setting: str, alone: Decided) -> None:
        of = alone.owner
        for row, why in enumerate(alone.reason.tolist()):
            at = (int(of[row]), -1 if alone.item is None else int(alone.item[row]))
            if at in left and why == reason[left[at]]:
                blamed[left[at]] = setting
                del left[at]

    look("", decisions.whole(source, some))  # the whole record, or an item
    if source.each:
        whole = {row for row in blamed if item is not None and item[row] < 0}
        unread = decisions.whole(source.model_copy(update={"each": ()}), some)
        for row in whole:
            if unread.reason[place[int(owner[row])]] != reason[row]:
                blamed[row] = f"input.each = {' > '.join(said(step.of) for step in source.each)}"
    for part in decisions.parts():
        if left:
            look(part.setting, part.decide(source, some))
    for row in left.values():
        blamed[row] = decisions.blamed_by.get(Reason(int(reason[row])), "")
    return {row: setting for row, setting in blamed.items() if setting}
