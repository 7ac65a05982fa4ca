"""What `susurrus try` found, for a terminal and as JSON."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.field_table import field_table
from susurrus.agents.cli.letters import printable, printed
from susurrus.agents.operations.advice import NamedField, toml_value
from susurrus.agents.operations.topic_trial import TopicTrial
from susurrus.agents.operations.trying import Fate, RecordPlace
from susurrus.topics.records.reason import Reason

_CONFIDENTIAL: Final = (
    "Exact figures from raw data: for operators inside the trust zone, not for readers of the results. Nothing was published, "
    "charged or written."
)
_FIELDS: Final = 40
"""Fields that are shown."""


def picture(tried: Sequence[TopicTrial], *, values: bool) -> Iterator[Table | Text]:
    """Topic by topic: what becomes of the records, what they are, which fields the file names, and what to write."""
    for number, one in enumerate(tried):
        if number:
            yield Text("")
        yield Text(_head(one), style="bold")
        if one.trial.rows:
            yield _fates(one)
            yield from _reasons(one, values)
            yield from _undecided(one)
            yield from _seen(one, values)
        yield from _waits(one)
        if one.advice:
            yield Text("\nwhat to write", style="bold")
            for line in one.advice:
                yield Text(f"    {printed(line)}")
    yield Text(_CONFIDENTIAL, style="italic")


def _head(one: TopicTrial) -> str:
    rows = "" if one.trial.rows == one.trial.records else f", {one.trial.rows:,} rows by input.each"
    if not one.trial.records and not one.trial.waits:
        return f"{one.topic}: has no records yet"
    return f"{one.topic}: what becomes of the newest {one.trial.records:,} records{rows}"


def _waits(one: TopicTrial) -> Iterator[Text]:
    if one.trial.waits:
        why = "" if one.trial.waiting is None else f": {one.trial.waiting}"
        yield Text(f"{one.trial.waits:,} records cannot be read now{why}")


def _fates(one: TopicTrial) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("because of", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    items = any(place.item is not None for fate in one.trial.fates for place in fate.examples)
    table.add_column("partition:offset" + (":item" if items else "") + " of some", overflow="fold")
    for fate in one.trial.fates:
        reason = "" if fate.reason == Reason.OK else fate.reason.name
        share = f"{100 * one.trial.share(fate.number):.1f} %"
        where = ", ".join(map(_short, fate.examples))
        table.add_row(*map(Text, (fate.outcome, reason, fate.setting, f"{fate.number:,}", share, where)))
    return table


def _short(place: RecordPlace) -> str:
    """A reference inside a topic: partition, offset, item."""
    item = "" if place.item is None else f":{place.item}"
    return f"{place.partition}:{place.offset}{item}"


def _reasons(one: TopicTrial, values: bool) -> Iterator[Text]:
    told: set[Reason] = set()
    for fate in one.trial.refused:
        if fate.reason not in told:
            told.add(fate.reason)
            yield Text.assemble((fate.reason.name, "bold"), f": {fate.reason.message}; {fate.reason.advice}.")
        for place in fate.examples if values else ():
            record = one.records[place.partition, place.offset]
            yield Text.assemble(f"  {_short(place)}: ", printable(record.value))


def _undecided(one: TopicTrial) -> Iterator[Text]:
    if one.trial.before_start:
        yield Text(
            f"{one.trial.before_start:,} of the records are not read: the pipeline began behind them (start.from)"
        )
    for text in one.trial.undecided:
        yield Text(f"not decided: {text}.")


def _seen(one: TopicTrial, values: bool) -> Iterator[Table | Text]:
    found = one.found
    yield Text("\nwhat the records are", style="bold")
    said = [f"{name} = {toml_value(value)}" for name, value in found.layout.items()]
    if found.sniffed:
        yield Text("not as [input] says: " + (", ".join(said) or "no form that is known"))
    elif said:
        yield Text("as [input] says, but " + ", ".join(said))
    else:
        yield Text("as [input] says")
    if found.tombstones:
        yield Text(f"{found.tombstones:,} of {found.records:,} have no value")
    for note in found.notes:
        yield Text(note)
    if found.fields:
        yield field_table(found, most=_FIELDS, values=values)
    if one.fields:
        yield Text("\nthe fields that the file names", style="bold")
        yield _named(one.fields)


def _named(fields: Sequence[NamedField]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("field", overflow="fold")
    table.add_column("named by", overflow="fold")
    for name in ("has it", "null", "absent"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in fields:
        read = one.present + one.null + one.absent
        hint = f"nearest: {printed(one.nearest)}" if one.nearest else "no record has it" if one.unknown else ""
        shares = (_percent(count, one.rows) for count in (one.present, one.null, one.absent))
        names = ", ".join(setting.split(" = ")[0] for setting in one.settings)
        table.add_row(
            Text(one.name), Text(names), *shares, Text(hint if read else "no record can be read", style="yellow")
        )
    return table


def _percent(count: int, rows: int) -> str:
    return f"{100 * count / rows:.1f} %" if rows else ""


def trial_json(tried: Sequence[TopicTrial], *, values: bool) -> dict[str, Any]:
    """Names as documented in docs/how-to/read-any-topic.md."""
    return {"topics": [_topic_json(one, values) for one in tried]}


def _topic_json(one: TopicTrial, values: bool) -> dict[str, Any]:
    trial, found = one.trial, one.found
    return {
        "topic": one.topic,
        "records": trial.records,
        "rows": trial.rows,
        "waits": trial.waits,
        "before_start": trial.before_start,
        "undecided": trial.undecided,
        "outcomes": [_fate_json(one, fate, values) for fate in trial.fates],
        "layout": {"as_configured": not found.sniffed and not found.layout, **found.layout},
        "tombstones": found.tombstones,
        "notes": found.notes,
        "seen": [
            {
                "field": name,
                "types": dict(seen.types),
                "rows": seen.present,
                "null": seen.nulls,
                **({"value": str(seen.value)} if values else {}),
            }
            for name, seen in found.named().items()
        ],
        "named": [
            {
                "field": named.name,
                "settings": named.settings,
                "rows": named.rows,
                "present": named.present,
                "null": named.null,
                "absent": named.absent,
                "nearest": named.nearest or None,
            }
            for named in one.fields
        ],
        "advice": one.advice,
    }


def _fate_json(one: TopicTrial, fate: Fate, values: bool) -> dict[str, Any]:
    def example(place: RecordPlace) -> dict[str, Any]:
        known = {name: value for name, value in place._asdict().items() if value is not None}
        if not values:
            return known
        record = one.records[place.partition, place.offset]
        return {**known, "key": _base64(record.key), "value": _base64(record.value)}

    refused = fate.reason != Reason.OK
    return {
        "outcome": fate.outcome,
        "reason": fate.reason.name if refused else None,
        "meaning": fate.reason.message if refused else None,
        "advice": (fate.reason.advice or None) if refused else None,
        "setting": fate.setting or None,
        "number": fate.number,
        "share": one.trial.share(fate.number),
        "examples": [example(place) for place in fate.examples],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
