"""Dead letters for a terminal and as JSON: reasons, references, and raw records where they were asked for."""

import base64
from collections.abc import Iterator
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from susurrus.agents.config.settings import Settings
from susurrus.agents.operations.dead_letters import Letter, RawRecord, Scan, console_command
from susurrus.topics.wire.timestamps import format_time

Shown = list[tuple[Letter, RawRecord | None]]

_LONGEST: Final = 1_000
"""Characters of a value that are shown."""
_PLACES: Final = 6
_CONFIDENTIAL: Final = "Reasons and counts are exact functions of raw data: for people who may see raw events."
COMMAND: Final = "bright_black"
"""Style of a line to copy, which must not be broken."""


def picture(settings: Settings, topic: str, found: Scan, shown: Shown, *, values: bool) -> Iterator[Text | Table]:
    """The whole answer, part by part; at most 80 columns but for commands to copy."""
    if not found.number:
        yield Text(f"No dead letters in {topic}.")
    else:
        number = f"{found.number:,} dead letter{'' if found.number == 1 else 's'}"
        yield Text(f"{number} in {topic}, written {_time(found.first)} to {_time(found.last)}.")
        yield Text()
        yield _reasons(found)
        yield Text()
        for reason, _, _ in found.by_reason():
            yield Text.assemble((reason.name, "bold"), f": {reason.message}. What to do: {reason.advice}.")
        yield Text(
            "A change under [input] changes what is published: it needs a pipeline of a new name, or a new epoch."
        )
    if found.unknown:
        yield Text(
            f"{found.unknown:,} records of the topic are no dead letters of this version; find out who else writes to it."
        )
    if shown:
        yield Text("\nThe newest, and where their records are:")
        yield _references(shown)
        for letter, record in shown if values else ():
            yield Text.assemble((f"{letter.topic} {letter.partition} {letter.offset}: ", "bold"), _record(record))
        if not values:
            yield Text("Show the first of them (raw data; or use --values):")
            yield Text(f"    {console_command(settings, shown[0][0])}", style=COMMAND)
    yield Text(_CONFIDENTIAL, style="italic")


def _time(stamp: int | None) -> str | None:
    return None if stamp is None else format_time(stamp)


def _reasons(found: Scan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("reason", no_wrap=True)
    for name in ("records", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("by partition of the input", overflow="fold")
    several = len(found.topics) > 1
    for reason, number, of in found.by_reason():
        places = [
            f"{f'{topic} ' if several else ''}{partition}: {found.counts[reason, topic, partition]:,}"
            for topic, partition in of[:_PLACES]
        ]
        if len(of) > _PLACES:
            places.append(f"{len(of) - _PLACES} more")
        table.add_row(reason.name, f"{number:,}", f"{100 * number / found.number:.1f} %", ", ".join(places))
    return table


def _references(shown: Shown) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("written", "reason", "topic"):
        table.add_column(name, overflow="fold")
    for name in ("partition", "offset"):
        table.add_column(name, justify="right", no_wrap=True)
    items = any(letter.item is not None for letter, _ in shown)
    if items:
        table.add_column("item", justify="right", no_wrap=True)
    for letter, _ in shown:
        written = format_time(letter.at // 1000 * 1000)
        item = [] if not items else ["" if letter.item is None else str(letter.item)]
        table.add_row(written, letter.reason.name, letter.topic, str(letter.partition), str(letter.offset), *item)
    return table


def _record(record: RawRecord | None) -> str:
    return "the record is gone from the raw topic" if record is None else printable(record.value)


def printable(value: bytes | None) -> str:
    """A record's value for a terminal, which must not obey what a producer wrote."""
    if value is None:
        return "no value"
    text = printed(value[: 4 * _LONGEST].decode("utf-8", "backslashreplace"))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(value):,} bytes)"


def printed(text: str, most: int | None = None) -> str:
    """A text without control characters. most: so many characters of it."""
    return "".join(c if c.isprintable() else "�" for c in text[:most])


def letters_json(topic: str, found: Scan, shown: Shown, values: bool) -> dict[str, Any]:
    """Names as documented in docs/how-to/explain-an-empty-result.md."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    def reference(letter: Letter, record: RawRecord | None) -> dict[str, Any]:
        where: dict[str, Any] = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
        if letter.item is not None:
            where["item"] = letter.item
        known = {"written": format_time(letter.at), "reason": letter.reason.name, "stage": letter.stage, **where}
        if not values:
            return known
        if record is None:
            return {**known, "found": False, "key": None, "value": None}
        return {**known, "found": True, "key": text(record.key), "value": text(record.value)}

    return {
        "topic": topic,
        "number": found.number,
        "first": _time(found.first),
        "last": _time(found.last),
        "unknown": found.unknown,
        "reasons": [
            {
                "reason": reason.name,
                "number": number,
                "share": number / found.number,
                "meaning": reason.message,
                "advice": reason.advice,
                "partitions": [
                    {"topic": topic, "partition": partition, "number": found.counts[reason, topic, partition]}
                    for topic, partition in of
                ],
            }
            for reason, number, of in found.by_reason()
        ],
        "newest": [reference(*entry) for entry in shown],
    }
