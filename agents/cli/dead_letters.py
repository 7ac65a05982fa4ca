"""``susurrus dead-letters``: which records were refused, why, where they are, and what to do about it."""

import base64
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out, settings_of
from susurrus.agents.types.durations import parse_duration, parse_instant
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.reason import Reason
from susurrus.topics.timestamps import format_time

if TYPE_CHECKING:  # slow to load, so the command does it itself
    from susurrus.agents.config.settings import Settings
    from susurrus.agents.kafka.clients import Clients
    from susurrus.agents.operations.dead_letters import Letter, RawRecord, Scan

    Shown = list[tuple[Letter, RawRecord | None]]

MOST_SHOWN = 1_000
_LONGEST = 1_000
"""Characters of a value that are shown."""
_CONFIDENTIAL = "Reasons and counts are exact functions of raw data: for people who may see raw events."
_RAW = (
    "These are raw data: users, keys and values as the producers wrote them. What is printed here has left the protection of the "
    "raw topic, and so has every copy of it."
)


def dead_letters(
    config: ConfigOption = None,
    sql: SqlOption = None,
    since: Annotated[
        str | None, typer.Option(help="Only letters written since an instant, or for a duration up to now: 2h.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Only letters with this reason, such as NOT_JSON.")] = None,
    show: Annotated[
        int, typer.Option(min=0, max=MOST_SHOWN, help="How many of the newest letters to list, with where their records are.")
    ] = 5,
    values: Annotated[
        bool,
        typer.Option(
            "--values", help="Print the refused records themselves, which are raw data. Asks, unless worker.dead_letter_values is set."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --values: do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show why records were refused: reasons, counts, where to look, and what to do. Prints no record unless told to.

    Reads the dead-letter topic to its present end, however long it is.
    """
    settings = settings_of(config, sql)
    wanted = _reason(reason)
    now = int(time.time() * 1000)
    after = None if since is None else _since(since, now)
    from susurrus.agents.kafka.clients import clients_of  # slow to load
    from susurrus.agents.operations.brokers import reach
    from susurrus.agents.operations.dead_letters import scan
    from susurrus.topics.spec import DEAD_LETTER

    reach(settings)
    if values:
        _consent(settings, yes)
    clients = clients_of(settings, quiet=True)
    topic = settings.topic(DEAD_LETTER.name)
    try:
        with err().status(f"reading {topic}") as status:  # shows in a terminal only
            found = scan(
                clients,
                topic,
                since=after,
                reason=wanted,
                show=show,
                values=values,
                progress=lambda read, everything: status.update(f"reading {topic}: {read:,} of {everything:,}"),
            )
        shown = list(_with_records(clients, found, values))
    finally:
        clients.close()
    if as_json:
        typer.echo(json.dumps(_as_json(topic, found, shown, values), indent=2))
        return
    console = out()
    for part in picture(settings, topic, found, shown, values=values):
        console.print(part, soft_wrap=isinstance(part, Text) and part.style == "bright_black")


def _reason(name: str | None) -> Reason | None:
    names = {each.name: None for each in Reason if each not in (Reason.OK, Reason.FILTERED)}
    if name is not None and name.upper() not in names:
        raise ConfigurationError(f'--reason="{name}": {use_one_of(names)}')
    return None if name is None else Reason[name.upper()]


def _since(text: str, now: int) -> int:
    """An instant in ms, given as such or as how long ago."""
    try:
        return now - parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_instant(text)
    except ValueError as error:
        raise ConfigurationError(f'--since="{text}": {error}, or for how long, such as "2h"') from None


def _consent(settings: "Settings", yes: bool) -> None:
    """Say what printing values means, and ask where the configuration has not opted in. Raises typer.Abort."""
    err().print(Text(_RAW, style="yellow"))
    if settings.worker.dead_letter_values or yes:
        return
    err().print("worker.dead_letter_values is not set: the dead letters have no values, and they are read from the raw topic.")
    typer.confirm("Print raw records?", abort=True, err=True)


def _with_records(clients: "Clients", found: "Scan", values: bool) -> "Iterator[tuple[Letter, RawRecord | None]]":
    """The newest letters, with their records where values are wanted: as the letter carries it, else from the raw topic."""
    from susurrus.agents.operations.dead_letters import RawRecord, raw_records

    if not values:
        yield from ((letter, None) for letter in found.newest)
        return
    bare = [letter for letter in found.newest if letter.value is None and letter.key is None]
    raw = {(letter.topic, letter.partition, letter.offset): record for letter, record in raw_records(clients, bare)}
    for letter in found.newest:
        if letter in bare:
            yield letter, raw[letter.topic, letter.partition, letter.offset]
        else:
            yield letter, RawRecord(letter.at, letter.key, letter.value)


def picture(
    settings: "Settings", topic: str, found: "Scan", shown: "Shown", *, values: bool
) -> Iterator[Text | Table]:
    """The whole answer, part by part; at most 80 columns but for commands to copy."""
    if not found.number:
        yield Text(f"No dead letters in {topic}.")
    else:
        assert found.first is not None and found.last is not None  # there are letters
        yield Text(
            f"{found.number:,} dead letter{'' if found.number == 1 else 's'} in {topic}, written {format_time(found.first)} to "
            f"{format_time(found.last)}."
        )
        yield _reasons(found)
        for reason, _, _ in found.by_reason():
            yield Text.assemble((reason.name, "bold"), f": {reason.message}. What to do: {reason.advice}.")
        yield Text("A change under [input] changes what is published: it needs a pipeline of a new name, or a new epoch.")
    if found.unknown:
        yield Text(f"{found.unknown:,} records of the topic are no dead letters of this version; find out who else writes to it.")
    if shown:
        yield Text("\nThe newest, and where their records are:")
        yield _references(shown)
        for letter, record in shown if values else ():
            yield Text.assemble((f"{letter.topic} {letter.partition} {letter.offset}: ", "bold"), _printable(record))
        if not values:
            from susurrus.agents.operations.dead_letters import console_command

            yield Text("Show the first of them (raw data; or use --values):")
            yield Text(f"    {console_command(settings, shown[0][0])}", style="bright_black")
    yield Text(_CONFIDENTIAL, style="italic")


def _reasons(found: "Scan") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("reason", no_wrap=True)
    for name in ("records", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("by partition of the input", overflow="fold")
    for reason, number, partitions in found.by_reason():
        places = [f"{p}: {found.counts[reason, p]:,}" for p in partitions[:6]]
        if len(partitions) > 6:
            places.append(f"{len(partitions) - 6} more")
        table.add_row(reason.name, f"{number:,}", f"{100 * number / found.number:.1f} %", ", ".join(places))
    return table


def _references(shown: "Shown") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("written", "reason", "topic"):
        table.add_column(name, overflow="fold")
    for name in ("partition", "offset"):
        table.add_column(name, justify="right", no_wrap=True)
    for letter, _ in shown:
        written = format_time(letter.at // 1000 * 1000)
        table.add_row(written, letter.reason.name, letter.topic, str(letter.partition), str(letter.offset))
    return table


def _printable(record: "RawRecord | None") -> str:
    """A record for a terminal, which must not obey what a producer wrote."""
    if record is None:
        return "the record is gone from the raw topic"
    if record.value is None:
        return "no value"
    text = record.value[: 4 * _LONGEST].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else "�" for c in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(record.value):,} bytes)"


def _as_json(topic: str, found: "Scan", shown: "Shown", values: bool) -> dict[str, Any]:
    """Names as documented in docs/how-to/explain-an-empty-result.md."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    def reference(letter: "Letter", record: "RawRecord | None") -> dict[str, Any]:
        where = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
        known = {"written": format_time(letter.at), "reason": letter.reason.name, "stage": letter.stage, **where}
        if not values:
            return known
        if record is None:
            return {**known, "found": False, "key": None, "value": None}
        return {**known, "found": True, "key": text(record.key), "value": text(record.value)}

    return {
        "topic": topic,
        "number": found.number,
        "first": None if found.first is None else format_time(found.first),
        "last": None if found.last is None else format_time(found.last),
        "unknown": found.unknown,
        "reasons": [
            {
                "reason": reason.name,
                "number": number,
                "share": number / found.number,
                "meaning": reason.message,
                "advice": reason.advice,
                "partitions": {str(partition): found.counts[reason, partition] for partition in partitions},
            }
            for reason, number, partitions in found.by_reason()
        ],
        "newest": [reference(*entry) for entry in shown],
    }
