"""The section `[[levels]]`, and what the levels of `input.grouping_sets` are: parts of the key, caps, part of the budget.

input.grouping_sets, [[levels]], [bounds] ──levels──▶ a GroupingLevel for each set
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import Field

from susurrus.agents.histogram.sections import BoundSettings
from susurrus.agents.types.section import Positive, Section
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.levels import default_shares
from susurrus.mechanisms.histogram.plan import MAX_LEVELS

TOTAL: Final = "total"
"""What the level without any part of the key is called."""


class LevelSettings(Section):
    """One of `input.grouping_sets`: what it is called, how much of one user counts there, and its part of the budget."""

    key: tuple[str, ...]
    """Which of the grouping sets: its parts of the key, `[]` for the total."""
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None
    """What rows call the level. Default: its parts of the key, joined by `, `; `total` for `[]`."""
    max_records_per_user: Positive | None = None
    """C of this level. Default: `bounds.max_records_per_user`. Users have few countries and many cities: a smaller cap makes the
    level, and so all others, more exact. At `[]`, it is at most `max_records_per_key`."""
    max_records_per_key: Positive | None = None
    """m of this level. Default: `bounds.max_records_per_key`."""
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The level's part of the squared Gaussian budget. Default: what the other levels leave, in proportion to the square root of
    C. `susurrus plan` shows the error of every level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingLevel:
    """One level as it runs.

    parts: which parts of the key it groups by, ascending. max_records, max_records_per_key: its caps. share: of mu^2. discover:
    whether its keys are selected; a level without parts has one key, which is public.
    """

    name: str
    parts: tuple[int, ...]
    max_records: int
    max_records_per_key: int
    share: float
    discover: bool

    def published(self) -> dict[str, Any]:
        """What the digest covers, as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"parts": list(self.parts)}


def places(names: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...]:
    """Where these parts stand in the key, ascending. Raises ValueError for a name that is none of them."""
    return tuple(sorted(list(names).index(name) for name in wanted))


def levels(
    sets: Sequence[Sequence[str]],
    settings: Sequence[LevelSettings],
    bounds: BoundSettings,
    *,
    names: Sequence[str],
    discover: bool,
) -> tuple[GroupingLevel, ...]:
    """The levels of settings without `problems`. names: of the key's parts. Raises ConfigurationError where shares do not fit."""
    given = {places(names, level.key): level for level in settings}
    found: list[GroupingLevel] = []
    wanted: list[float | None] = []
    for key in sets:
        parts = places(names, key)
        of = given.get(parts, LevelSettings(key=tuple(key)))
        per_key = of.max_records_per_key or bounds.max_records_per_key
        records = of.max_records_per_user or bounds.max_records_per_user
        level = GroupingLevel(
            name=of.name or ", ".join(names[at] for at in parts) or TOTAL,
            parts=parts,
            # Without parts there is one key, so no more records count than count of one key.
            max_records=records if parts else min(records, per_key),
            max_records_per_key=per_key,
            discover=discover and bool(parts),
            share=1.0,
        )
        found.append(level)
        wanted.append(of.share)
    shares = default_shares([level.max_records for level in found], wanted)
    return tuple(replace(level, share=share) for level, share in zip(found, shares, strict=True))


def problems(
    sets: Sequence[Sequence[str]], settings: Sequence[LevelSettings], bounds: BoundSettings, names: Sequence[str]
) -> Iterator[str]:
    """What is wrong with grouping sets and levels, one line each."""
    if not sets:
        if settings:
            yield "levels: there is no input.grouping_sets; add it, or delete the section [[levels]]"
        return
    if not names:
        yield "input.grouping_sets: with input.key = [] there is one grouping; leave it out, or name the parts in input.key"
        return
    known = ", ".join(f'"{name}"' for name in names)
    unknown = [name for wanted in sets for name in wanted if name not in names]
    if unknown:
        yield f'input.grouping_sets: "{unknown[0]}" is no part of input.key; use {known}, or add it to input.key'
        return
    if any(len(set(wanted)) < len(wanted) for wanted in sets):
        yield "input.grouping_sets: a set names a part twice; leave one of them out"
        return
    if len(sets) > MAX_LEVELS:
        yield f"input.grouping_sets: there are {len(sets)} sets; use at most {MAX_LEVELS}"
    found = [places(names, wanted) for wanted in sets]
    if len(set(found)) < len(found):
        yield "input.grouping_sets: two sets have the same parts; leave one of them out"
    for name in (name for at, name in enumerate(names) if not any(at in parts for parts in found)):
        yield f'input.key: "{name}" is in none of input.grouping_sets; add it to one of them, or leave it out of input.key'
    if bounds.max_keys_per_user is not None:
        yield "bounds.max_keys_per_user: not with input.grouping_sets; set max_records_per_user of each of [[levels]] instead"
    wrong = list(_of_levels(settings, found, names))
    yield from wrong
    if wrong or len(set(found)) < len(found):
        return
    try:
        resolved = levels(sets, settings, bounds, names=names, discover=True)
    except ConfigurationError as problem:
        yield str(problem)
        return
    called = [level.name for level in resolved]
    for name in sorted({name for name in called if called.count(name) > 1}):
        yield f'levels: two are called "{name}"; give one of them another name in [[levels]]'
    for level in resolved:
        if level.max_records_per_key > level.max_records and level.parts:
            yield (
                f'level "{level.name}": max_records_per_key = {level.max_records_per_key}: more than max_records_per_user = '
                f"{level.max_records}; use at most that"
            )


def _of_levels(
    settings: Sequence[LevelSettings], found: Sequence[tuple[int, ...]], names: Sequence[str]
) -> Iterator[str]:
    """What is wrong with the sections."""
    seen = []
    for number, level in enumerate(settings, start=1):
        if any(name not in names for name in level.key) or places(names, level.key) not in found:
            yield f"levels, number {number}: key = {list(level.key)} is none of input.grouping_sets; correct it"
            continue
        seen.append(places(names, level.key))
        if seen.count(seen[-1]) > 1:
            yield f"levels, number {number}: there is another one with the same key; keep one of them"
