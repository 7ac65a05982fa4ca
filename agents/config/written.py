"""Durations and instants in what people wrote: texts, because a bare number hides its unit.

Code that makes sections itself gives ints of milliseconds (agents/types/durations.py), and so do the defaults. Only the tables of
a file, of variables or of a statement come through here.
"""

import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, BeforeValidator

from susurrus.agents.config.explain import model_in, quoted
from susurrus.agents.config.sections import parse_start
from susurrus.agents.types.durations import format_duration, parse_duration, parse_instant, parse_length
from susurrus.topics.wire.timestamps import EARLIEST, LATEST, format_time


def bare_numbers(tables: Mapping[str, Any], model: type[BaseModel], place: str = "") -> Iterator[str]:
    """One line for each duration or instant that is a bare number: what it would have meant, and what to write."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        value, where = tables.get(key), f"{place}{key}"
        if isinstance(value, Mapping):
            if (inner := model_in(field.annotation)) is not None:
                yield from bare_numbers(value, inner, f"{where}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            annotation = field.rebuild_annotation()
            if is_duration(annotation):
                if value != 0:  # which is the same in every unit
                    yield f"{where} = {quoted(value)}: {_duration(key, value)}"
            elif is_instant(annotation):
                yield f"{where} = {quoted(value)}: {_instant(key, value)}"


def is_duration(annotation: Any) -> bool:
    """Whether a field of this type is a duration, or may be one."""
    return not {parse_duration, parse_length}.isdisjoint(_parsers(annotation))


def is_instant(annotation: Any) -> bool:
    """Whether a field of this type is an instant, or may be one."""
    return not {parse_instant, parse_start}.isdisjoint(_parsers(annotation))


def _parsers(annotation: Any) -> Iterator[Callable[..., Any]]:
    """The functions that read values of a type, its parts included."""
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, BeforeValidator):
            yield mark.func
    for part in typing.get_args(annotation):
        yield from _parsers(part)


def _duration(name: str, value: float) -> str:
    if value < 0 or value != int(value):
        return f'has no unit; write {name} = "15m", with ms, s, m, h, d or w'
    seconds = format_duration(int(value) * 1000)
    return (
        f'has no unit, and would mean {int(value)} milliseconds; write {name} = "{int(value)}ms", or {name} = "{seconds}" '
        f"for {int(value)} seconds"
    )


def _instant(name: str, value: float) -> str:
    said = "is a bare number"
    if value == int(value) and EARLIEST <= value <= LATEST:
        said = f"would mean {format_time(int(value))}, in milliseconds since 1970"
        if EARLIEST <= value * 1000 <= LATEST:
            return f'{said}; write {name} = "{format_time(int(value) * 1000)}" if these are seconds'
        return f'{said}; write {name} = "{format_time(int(value))}"'
    return f'{said}; write {name} = "2026-01-31T00:00:00Z"'
