"""``susurrus explain``: a pipeline in words, and as TOML. What it costs comes from what ``config check`` shows."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import tomli_w
import typer
from rich.markup import escape
from rich.table import Table

from susurrus.agents.cli.console import ConfigOption, SqlOption, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.config.input import InputSettings
from susurrus.agents.finding import Finding
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.window_memory import limits
from susurrus.agents.pipelines import pipeline_of, tables_of
from susurrus.agents.types.durations import format_duration

_MEASURED: Final = {
    "count": "the number of records",
    "users": "the number of users",
    "sum": "the sum of {value}",
    "mean": "the mean of {value}",
    "variance": "the variance of {value}",
    "stddev": "the standard deviation of {value}",
    "quantiles": "the quantile at {at} of {value}",
    "spread": "the interquartile range of {value}",
    "count_by": "the number of records by {value}, a column for each of the declared values and one for all others",
}


def explain(
    config: ConfigOption = None,
    sql: SqlOption = None,
    toml_only: Annotated[bool, typer.Option("--toml", help="Print the equal TOML file and nothing else.")] = False,
) -> None:
    """Say what is protected, what a row means and how noisy it is, and print the equal TOML."""
    unresolved: list[Finding] = []  # passwords of other machines say nothing about the pipeline
    given = settings_of(config, sql, unresolved=unresolved)
    settings = HistogramSettings.of(given)
    if toml_only:
        typer.echo(toml(tables_of(config, sql=sql)), nl=False)
        return
    pipeline = pipeline_of(settings)
    console = out()
    costs = list(pipeline.summary())
    for title, rows in (
        ("What is protected", list(_protected(settings, pipeline.guarantee()))),
        ("What is read", list(_read(settings))),
        ("What a row means", list(_row(settings))),
        ("How noisy it is", [row for row in costs if row[0] in ("per user", "strategy", *_after_strategy(costs))]),
        ("Before you promise it", [("warning", str(found)) for found in pipeline.promise_findings()]),
    ):
        if not rows:
            continue
        console.print(f"[bold]{title}[/bold]")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for name, text in rows:
            table.add_row(f"  {escape(name)}", escape(text))
        console.print(table)
        console.print()
    console.print(f"[bold]The same as TOML[/bold] (digest {settings.config_digest().hex()[:16]})")
    typer.echo(toml(tables_of(config, sql=sql)), nl=False)


def toml(tables: Mapping[str, Any]) -> str:
    """The tables as a TOML file. Values that may be passwords are left out, and a comment says which."""
    shown = {name: dict(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    hidden: list[str] = []
    _hide(shown.get("kafka"), "kafka", hidden)
    for section in ("input", "output"):
        table = shown.get(section)
        if isinstance(table, dict) and isinstance(table.get("registry"), Mapping):
            table["registry"] = dict(table["registry"])
            _hide(table["registry"], f"{section}.registry", hidden)
    notes = "".join(f"# not shown, it may hold a password: {name}\n" for name in hidden)
    return notes + tomli_w.dumps(shown)


def _hide(table: Any, place: str, hidden: list[str]) -> None:
    """Take out the properties whose values stand in the tables themselves, and an address."""
    if not isinstance(table, dict):
        return
    if "url" in table:
        del table["url"]
        hidden.append(f"{place}.url")
    properties = table.get("properties")
    if isinstance(properties, Mapping):
        kept = {name: of for name, of in properties.items() if isinstance(of, Mapping) and set(of) <= {"file", "env"}}
        hidden.extend(f'{place}.properties."{name}"' for name in properties if name not in kept)
        table["properties"] = kept


def _after_strategy(rows: list[tuple[str, str]]) -> list[str]:
    """The names of what the summary says after the strategy: its costs."""
    names = [name for name, _ in rows]
    return names[names.index("strategy") + 1 :]


def _protected(settings: HistogramSettings, promise: str) -> Iterator[tuple[str, str]]:
    length = settings.window.length_text
    source = settings.input
    named = f"the field {source.user_text} names it"
    if len(source.user_fields) > 1:
        named = f"{source.user_text} together name it"
    elif not isinstance(source.user, str):
        named = f"the value of {source.user_text} names it"
    yield "unit", f"a user, as {named}, in one window of {length}"
    yield "neighbours", "two inputs are neighbours if one has all records of one user in one window more than the other"
    yield "promise", promise
    yield "several windows", "a user who is active in several windows has one such loss in each"


def _read(settings: HistogramSettings) -> Iterator[tuple[str, str]]:
    read = settings.input
    for topic in read.listed:
        yield "topic", f"{topic} ({read.of(topic).format})"
    if read.topic_pattern is not None:
        yield "topics", f"all that match {read.called} when the pipeline begins ({read.format})"
    what = "the field" if isinstance(read.time_field, str) else "the value of"
    time = "the record's own timestamp" if read.time_field is None else f"{what} {read.time_text} ({_written(read)})"
    yield "event time", time
    if read.where is not None:
        yield "filter", f"{read.where} — other records are left out and cost their users nothing"
    for of, name in read.lists_text:
        yield "each", f"one row for each item of {of}{name and f', called {name}'}"
    for part in read.key:
        if not isinstance(part, str):
            yield "computed", f"{part.name} = {part.expression}"
    for file, table in settings.lookup_tables.items():
        yield "lookup table", f"{file}, {table.keys:,} keys; its content may not change while the pipeline runs"


def _written(read: InputSettings) -> str:
    """How event times are written."""
    zone = "" if read.time_zone is None else f", without a zone: {read.time_zone}"
    return (read.time_format or read.time_unit) + zone


def _row(settings: HistogramSettings) -> Iterator[tuple[str, str]]:
    window, bounds = settings.window, settings.bounds
    yield "key", settings.input.key_text
    yield (
        "when",
        f"every {format_duration(window.trigger_every)}, for the window of {window.length_text} so far "
        f"({settings.triggers_text} triggers)",
    )
    by_name = {each.column.name: each for each in settings.layout.published}
    for column in settings.columns:
        parts = column.column().parts()
        published = by_name[parts[0].name]
        value = column.expression or column.field
        shares = " and ".join(f"{share:g}" for share in column.at or ())
        text = _MEASURED.get(column.kind, column.kind).format(value=value, at=shares)
        if column.limits is not None and column.buckets_text is not None:
            lower, upper = column.limits
            names = f"; published as {', '.join(part.name for part in parts)}" if len(parts) > 1 else ""
            yield (
                column.name,
                f"{text}, each value clamped to [{lower:,g}, {upper:,g}] and counted in one of {column.buckets_text}; noisy, with "
                f"an interval that holds it in 95 % of the cases{names}",
            )
            continue
        if column.limits is not None:
            lower, upper = column.limits
            centre = published.column.centre
            most = f"a record counts for {column.magnitude:,g} at most"
            if centre is not None:
                most = f"a record is at most {max(upper - centre, centre - lower):,g} away from the middle, {centre:,g}"
            text += f", each value clamped to [{lower:,g}, {upper:,g}], so that {most}"
        after = published.column.post_processing
        yield column.name, f"{text}; noisy, with its standard error{after and f'; {after}'}"
    if settings.grouping:
        yield "levels", "; ".join(settings.level_names)
        yield "counted", "a record counts at every level whose bounds have room for it, with its key there"
    else:
        each = "one record" if bounds.max_records_per_key == 1 else f"{bounds.max_records_per_key} records"
        yield "counted", f"at most {each} of a user per key; records above the bounds are left out"
    keys = "only the declared keys" if not settings.discover else "keys that enough users share"
    known = "the total" if settings.grouping and not settings.keys_are_declared else "the declared keys"
    declared = f" and {known}" if settings.discover and settings.declared_keys else ""
    yield "which keys", "one, from the first trigger on" if settings.total else f"{keys}{declared}"
    if settings.remember:
        at_least = f"{settings.remember:,} user{'s' * (settings.remember > 1)}"
        yield (
            "remembered",
            f"keys whose last row has at least {at_least} are public from the next window's beginning, at no cost",
        )
    if said := limits(settings):
        yield "memory needs", said
    if settings.follows_persistence:
        yield (
            "shares",
            "the more of a window's rows are of keys that it began with, the less of the next window's budget looks for new keys "
            "before the last trigger, and the more measures there; the promise is the same",
        )
    if settings.evidence_windows > 1:
        yield (
            "over windows",
            f"what up to {settings.evidence_windows} windows measured of a key adds up, so that keys are found which few "
            "users bring in each of them; the promise is the same",
        )
    if settings.top is not None:
        ranking = f"{settings.top.ranking}, in the topic top; made of published rows, so it costs nothing"
        yield "ranking", f"{ranking}; a key that is missing from it may still be large"
    if settings.discover and settings.keys.minimum_users:
        yield "never", f"other keys with {settings.keys.minimum_users} users or fewer"
