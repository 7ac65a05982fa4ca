"""Checks across fields for all kinds of pipelines; each problem is one line that ends with the fix.

The settings of each kind check what only that kind has.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from susurrus.agents.config.calendars import fits
from susurrus.agents.config.fields import ComputedKey
from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.output import OutputSettings
from susurrus.agents.config.sections import TopicSettings, WindowSettings
from susurrus.agents.formats.outputs.json import JsonRows
from susurrus.agents.types.durations import format_duration, parse_duration
from susurrus.mechanisms.histogram.plan import MAX_TRIGGERS
from susurrus.mechanisms.windows import CalendarLength
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.wire.row_schema import RowSchema

_USUAL: Final = tuple(
    map(
        parse_duration,
        (
            "1s",
            "2s",
            "5s",
            "10s",
            "15s",
            "20s",
            "30s",
            "1m",
            "2m",
            "5m",
            "10m",
            "15m",
            "20m",
            "30m",
            "1h",
            "2h",
            "3h",
            "4h",
            "6h",
            "12h",
            "1d",
        ),
    )
)
"""Times between releases that people use."""
_SAME: Final = {CalendarLength.DAY: 86_400_000, CalendarLength.WEEK: 604_800_000}
"""The fixed lengths that calendar lengths have on most days."""

WHOLE: Final = "$value"
"""The path of a whole value, whose items may stand for the record."""


def calendar(window: WindowSettings) -> Iterator[str]:
    """The calendar's lengths must fit each other."""
    if isinstance(window.length, CalendarLength):
        yield from _of_calendar(window, window.length)
    elif window.time_zone is not None:
        same = next((each for each, length in _SAME.items() if length == window.length), CalendarLength.DAY)
        yield (
            f'window.time_zone = "{window.time_zone}": has no meaning with window.length = '
            f'"{format_duration(window.length)}", which is as long every time; write length = "{same}" for a '
            f"{same.value[2:]} of the calendar, or leave time_zone out"
        )
    elif window.length % window.trigger_every:
        yield (
            f'window.trigger_every = "{format_duration(window.trigger_every)}": must divide '
            f'window.length = "{format_duration(window.length)}"; '
            f'use "{format_duration(_divisor(window.length, window.trigger_every))}" or another whole fraction of it'
        )
    elif (triggers := window.calendar.triggers) > MAX_TRIGGERS:
        most = MAX_TRIGGERS * window.length // (window.length + window.allowed_lateness)
        fits = (every for every in _USUAL if every * most >= window.length and window.length % every == 0)
        longer = next(fits, window.length)
        yield (
            f"window.trigger_every: makes triggers={triggers} per window; use at most {MAX_TRIGGERS}, for example trigger_every = "
            f'"{format_duration(longer)}", and remember that fewer mean less noise'
        )


def _of_calendar(window: WindowSettings, length: CalendarLength) -> Iterator[str]:
    """A calendar window has a time zone and no origin, and begins at a trigger."""
    if window.time_zone is None:
        plain = f'; or write length = "{format_duration(_SAME[length])}"' if length in _SAME else ""
        yield (
            f'window.time_zone: is missing; with window.length = "{length}" say on whose clocks windows begin, for example '
            f'time_zone = "Europe/Berlin" or "UTC"{plain}'
        )
        return
    if window.origin:
        yield (
            f'window.origin: has no meaning with window.length = "{length}", which begins at midnight in window.time_zone; '
            "delete it"
        )
    if not fits(length, window.time_zone, window.trigger_every):
        shorter = (each for each in reversed(_USUAL) if each < window.trigger_every)
        fitting = next(each for each in shorter if fits(length, window.time_zone, each))
        yield (
            f'window.trigger_every = "{format_duration(window.trigger_every)}": a window that is {window.length_text} must begin '
            f'at a trigger, also after clocks have changed; use "{format_duration(fitting)}"'
        )
    elif (triggers := window.calendar.triggers) > MAX_TRIGGERS:
        most = window.calendar.windows.lengths[-1] + window.allowed_lateness
        larger = (each for each in _USUAL if -(-most // each) <= MAX_TRIGGERS and fits(length, window.time_zone, each))
        found = next(larger, None)
        use = "a shorter window.allowed_lateness" if found is None else f'trigger_every = "{format_duration(found)}"'
        yield (
            f"window.trigger_every: makes triggers={triggers} per window; use at most {MAX_TRIGGERS}, for example {use}, and "
            "remember that fewer mean less noise"
        )


def _divisor(length: int, wanted: int) -> int:
    """The largest divisor of ``length`` that is at most ``wanted``, among whole fractions that people use."""
    return next((length // parts for parts in range(-(-length // wanted), 100_000) if length % parts == 0), length)


def topics(topics: TopicSettings) -> Iterator[str]:
    """Replicas and acknowledgements must fit each other."""
    if topics.min_insync_replicas > topics.replication_factor:
        yield (
            f"topics.min_insync_replicas = {topics.min_insync_replicas}: more than topics.replication_factor = "
            f"{topics.replication_factor}; use {max(1, topics.replication_factor - 1)}"
        )
    elif topics.replication_factor >= 3 and topics.min_insync_replicas < 2:
        yield (
            f"topics.min_insync_replicas = {topics.min_insync_replicas}: one disk could lose committed triggers, "
            "which would then be published differently; use 2"
        )


def nothing_computed(source: InputSettings, kind: str) -> Iterator[str]:
    """Checks that nothing is filtered or computed: the guarantee of some kinds speaks of every record of the raw topic."""
    names = {
        "user": any(isinstance(part, ComputedField) for part in source.user_fields),
        "where": source.where is not None,
        "key": any(isinstance(part, ComputedKey) for part in source.key),
        "each": bool(source.lists),
        "time": isinstance(source.time_field, ComputedField),
    }
    for name in (name for name, given in names.items() if given):
        yield (
            f'input.{name}: records are neither filtered nor computed nor taken apart with kind "{kind}"; leave it out, or use '
            'kind "histogram"'
        )


def each(source: InputSettings) -> Iterator[str]:
    """Checks the lists that records are taken apart by: every item has a name, and an inner list is in an item of an outer one."""
    called: list[str] = []
    for number, (of, name) in enumerate(source.lists, 1):
        place = f"input.each, number {number}"
        if name is None and (of != WHOLE or len(source.lists) > 1):
            yield f'{place}: as is missing; name an item, for example as = "item", or take the whole value alone: of = "{WHOLE}"'
        elif name in called:
            yield f'{place}: as = "{name}": is an item already; choose another name'
        if isinstance(of, str):
            try:
                first = parse_path(of)[0]
            except ValueError as problem:
                yield f"{place}: of: {problem}"
                continue
            if called and first not in called:
                yield f'{place}: of = "{of}": is in no item of the lists before; begin it with {called[-1]}, as {called[-1]}.items'
        called += [] if name is None else [name]


def one_topic(source: InputSettings, kind: str) -> Iterator[str]:
    """Checks that one raw topic is named: a stream's values stand in one partition, and reports in a topic of their own."""
    for name in ("topics", "topic_pattern", "formats"):
        if getattr(source, name):
            yield f'input.{name}: kind "{kind}" reads one topic; name it as input.topic, or use kind "histogram"'


def names(output: OutputSettings, schemas: Mapping[str, RowSchema]) -> Iterator[str]:
    """Names of columns and parts of keys must differ in formats that allow letters, digits and underscores only."""
    if output.format == JsonRows.name:
        return
    for clash in sorted({clash for schema in schemas.values() for clash in schema.clashes()}):
        yield f'output.format = "{output.format}": {clash} there; rename one of them'
