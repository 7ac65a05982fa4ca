"""Checks across fields that only a histogram has; each problem is one line that ends with the fix.

agents/config/checks.py has those of all kinds of pipelines, settings.py puts both together.
"""

import json
from collections.abc import Iterator
from typing import Any

from susurrus.agents import formats
from susurrus.agents.config import checks
from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.sections import BudgetSettings, StartSettings, WindowSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.language import parse
from susurrus.agents.formats import reading
from susurrus.agents.histogram import declared
from susurrus.agents.histogram.clock import HistogramClockSettings
from susurrus.agents.histogram.privacy import PrivacySettings
from susurrus.agents.histogram.sections import BoundSettings, HistogramWindowSettings, KeySettings
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics.records.raw import ComputedField, RawSchema


def start(clock: HistogramClockSettings, window: WindowSettings, start: StartSettings) -> Iterator[str]:
    """The first window must be one of the calendar, and the clock must know where to begin."""
    yield from clock.chosen.problems(clock, start)
    if start.first_window is None:
        if start.from_ == "earliest":
            yield (
                'start.first_window: is missing; with start.from = "earliest" say where the first window starts, '
                "so that no old record can decide it"
            )
    elif not any(checks.calendar(window)):
        begins = window.calendar.window_start(window.calendar.window_at(start.first_window))
        if begins != start.first_window:
            move = ", or move window.origin" if window.time_zone is None else ""
            yield (
                f'start.first_window = "{window.instant_text(start.first_window)}": is not the start of a window; '
                f'use "{window.instant_text(begins)}"{move}'
            )


def fields(source: InputSettings, schema: RawSchema) -> Iterator[str]:
    """User, key, filter and lists must be there, and of fields that the formats can read. schema: what is decoded of a record."""
    key, total = source.key, source.grouped_by_nothing
    if not source.user:
        yield 'input.user: is missing; name the field that identifies the user, for example user = "user_id"'
    if not key and not total:
        yield (
            'input.key: is missing; name the fields to group by, for example key = ["url"], or write key = [] for one total over '
            "all records"
        )
    if len(set(source.key_names)) < len(key):
        yield "input.key: has two parts of one name; leave one of them out, or rename it"
    elif source.user and (key or total):
        try:
            computation = Computation(schema.scalars, source.where)
        except ValueError as problem:
            yield f"input: {problem}"
        else:
            yield from reading.problems(source, computation.paths)
            computation.close()
        if all(isinstance(p, ComputedField) and not parse(p.expression).fields for p in source.user_fields):
            named = source.user_text
            yield f"input.user: {named} names no field, so all records would be of one user; name what says who it is"
    yield from checks.each(source)
    yield from source.time_problems()
    for path, written in source.each_format.items():
        yield from (problem.replace("input.", f"{path}.") for problem in formats.problems(written))


def bounds(bounds: BoundSettings, *, total: bool) -> Iterator[str]:
    """A user's records of one key are among its records. total: all records have one key, so both caps are the same."""
    if total and bounds.max_records_per_user > bounds.max_records_per_key:
        yield (
            f"bounds.max_records_per_user = {bounds.max_records_per_user}: with input.key = [] there is one key, of which "
            f"bounds.max_records_per_key = {bounds.max_records_per_key} count, and a higher cap only adds noise; leave it out, or "
            "raise max_records_per_key"
        )
    if bounds.max_records_per_key > bounds.max_records_per_user:
        yield (
            f"bounds.max_records_per_key = {bounds.max_records_per_key}: more than bounds.max_records_per_user = "
            f"{bounds.max_records_per_user}; use at most that"
        )


def keys(keys: KeySettings, source: InputSettings) -> Iterator[str]:
    """Declared keys stand in one place and have the parts of input.key; something must be published."""
    parts, places = len(source.key), ("declared", "declared_file", "product")
    given = [f"keys.{name}" for name in places if getattr(keys, name)]
    if not parts:
        yield from (f"{name}: with input.key = [] there is one key, which is published; leave it out" for name in given)
        return
    if len(given) > 1:
        yield f"{given[-1]}: there is {given[0]} too; keep one of them"
    if not keys.discover and not given:
        yield "keys.discover = false: nothing would be published; declare keys, or set discover = true"
    if keys.product and set(keys.product) != set(source.key_names):
        named = ", ".join(map(json.dumps, source.key_names))
        yield f"keys.product: names {', '.join(map(json.dumps, keys.product))}; give values for each part of input.key: {named}"
    for name in (name for name, values in keys.product.items() if not values):
        yield f"keys.product.{name}: has no values, so there would be no keys; list at least one"
    if (number := declared.number_of_combinations(keys.product)) > declared.MOST_COMBINATIONS:
        yield (
            f"keys.product: makes {number:,} keys, and at most {declared.MOST_COMBINATIONS:,} are possible; list those that can "
            "occur in keys.declared_file, or group by fewer fields"
        )
    if any((len(key) if isinstance(key, tuple) else 1) != parts for key in keys.declared):
        yield f"keys.declared: every key needs as many parts as input.key, which has {parts}; correct the list"


def strategy(chosen: type[Strategy[Any]], bounds: BoundSettings, privacy: PrivacySettings) -> Iterator[str]:
    """What a strategy has a parameter of its own for is not set beside it. chosen: the strategy that runs."""
    share, place = privacy.selection_share, f"privacy.{chosen.name}"
    if bounds.max_keys_per_user is not None and chosen.ranked_by:
        yield f'bounds.max_keys_per_user: not with strategy "{chosen.name}"; use {place}.{chosen.ranked_by} instead'
    if share != Plan.selection_share and chosen.shared_by:
        other = ", or name another privacy.strategy" if privacy.named is None else ""
        yield (
            f'privacy.selection_share = {share:g}: strategy "{chosen.name}" has shares of its own; '
            f"use {place}.{chosen.shared_by} instead{other}"
        )


def rolling(window: HistogramWindowSettings, chosen: type[Strategy[Any]]) -> Iterator[str]:
    """A rolling view needs rows that follow every trigger, and a trigger between two windows. chosen: the strategy that runs."""
    if not window.rolling or any(checks.calendar(window)):
        return
    if not chosen.repeats:
        yield (
            f'window.rolling: not with strategy "{chosen.name}", whose rows stay as they were until their key is released again; '
            "choose another privacy.strategy, or leave it out"
        )
    if window.length == window.trigger_every:
        yield (
            "window.rolling: a window's only release is the last window.length already; leave it out, or use a shorter "
            "window.trigger_every"
        )


def budget(total: BudgetSettings | None, privacy: PrivacySettings, window: WindowSettings) -> Iterator[str]:
    """A budget allows one window at least, and renews no faster than windows come."""
    if total is None:
        return
    if total.per is not None and not any(checks.calendar(window)):
        longest = window.calendar.windows.lengths[-1]
        if total.per < longest:
            yield (
                f'budget.per = "{format_duration(total.per)}": is shorter than window.length = "{window.length_text}"; use at '
                f'least "{format_duration(longest)}"'
            )
    for name in ("epsilon", "delta"):
        whole, one = getattr(total, name), getattr(privacy, name)
        if whole < one:
            yield f"budget.{name} = {whole:g}: less than one window's privacy.{name} = {one:g}; raise it"
