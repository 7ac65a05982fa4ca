"""``susurrus dead-letters``: which records were refused, why, where they are, and what to do about it."""

import json
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.cli.letters import COMMAND, letters_json, picture
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.dead_letters import Letter, RawRecord, Scan, raw_records, scan
from susurrus.agents.types.durations import parse_duration, parse_instant
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.reason import Reason
from susurrus.topics.spec import DEAD_LETTER

MOST_SHOWN = 1_000
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
        int,
        typer.Option(
            min=0, max=MOST_SHOWN, help="How many of the newest letters to list, with where their records are."
        ),
    ] = 5,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Print the refused records themselves, which are raw data. Asks, unless worker.dead_letter_values is set.",
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

    reach_both(settings)
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
        typer.echo(json.dumps(letters_json(topic, found, shown, values), indent=2))
        return
    console = out()
    for part in picture(settings, topic, found, shown, values=values):
        console.print(part, soft_wrap=isinstance(part, Text) and part.style == COMMAND)


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


def _consent(settings: Settings, yes: bool) -> None:
    """Say what printing values means, and ask where the configuration has not opted in. Raises typer.Abort."""
    err().print(Text(_RAW, style="yellow"))
    if settings.worker.dead_letter_values or yes:
        return
    err().print(
        "worker.dead_letter_values is not set: the dead letters have no values, and they are read from the raw topic."
    )
    typer.confirm("Print raw records?", abort=True, err=True)


def _with_records(clients: Clients, found: Scan, values: bool) -> Iterator[tuple[Letter, RawRecord | None]]:
    """The newest letters, with their records where values are wanted: as the letter carries it, else from the raw topic."""
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
