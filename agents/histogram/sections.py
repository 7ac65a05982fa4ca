"""The sections that only a histogram has: bounds and keys, and its window. columns.py and privacy.py have the others."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from susurrus.agents.config.sections import WindowSettings
from susurrus.agents.types.section import Positive, Section


class HistogramWindowSettings(WindowSettings):
    """The public calendar of windows and triggers."""

    rolling: bool = False
    """Also publish a rolling view at every trigger, in the topic `rolling`: the last `length`, from rows that are published. It
    costs no budget, and may be switched on and off while the pipeline runs: docs/rolling.md."""

    @property
    def triggers_to_end(self) -> int:
        """Triggers of a window of the usual length until its end, without those for late records."""
        return self.calendar.windows.usual // self.trigger_every


class BoundSettings(Section):
    """How much one user may contribute to one window. Public constants: choose them without looking at the data, or by
    `susurrus tune`, which looks privately and is charged."""

    max_records_per_user: Positive = 32
    """C: how many records of one user count in one window, the first ones by trigger and position. A higher cap keeps more data
    and adds more noise. With strategy closing, C is a budget: a record at a window's first trigger costs 1, a later one less. So
    a user keeps C records or more; `config check` says how many."""
    max_records_per_key: Positive = 1
    """m: records kept per user and key; 1 counts each user at most once per key."""
    max_keys_per_user: Positive | None = None
    """Optional cap on distinct keys per user and window; lowers the noise where users have few keys but many records.
    Strategies that rank a user's keys have a parameter for that instead."""


def _key(value: Any) -> Any:
    scalars = value if isinstance(value, list | tuple) else [value]
    finite = (not isinstance(item, float) or math.isfinite(item) for item in scalars)
    if not all(finite) or not all(item is None or isinstance(item, str | bool | int | float) for item in scalars):
        raise ValueError("write each key as a JSON scalar, or as a list of scalars for a composite key")
    return tuple(value) if isinstance(value, list) else value


def _part(value: Any) -> Any:
    if isinstance(value, list | tuple):
        raise ValueError("write each value as a JSON scalar")
    return _key(value)


class KeySettings(Section):
    """Keys that are public knowledge, and whether others may be discovered."""

    declared: tuple[
        Annotated[Any, BeforeValidator(_key), WithJsonSchema({"description": "a JSON scalar, or a list of them"})], ...
    ] = ()
    """Keys published from the first trigger on without selection, also without data, at no cost in delta. The list
    must not come from the data being protected, other than through published outputs."""
    declared_file: Path | None = None
    """The same list from a file, one JSON scalar or array a line; a relative path starts at the configuration file."""
    product: dict[
        str, tuple[Annotated[Any, BeforeValidator(_part), WithJsonSchema({"description": "a JSON scalar"})], ...]
    ] = Field(default_factory=dict)
    """The same list as all combinations of values: `{ country = ["DE", "FR"], device = ["phone", "desktop"] }` declares four
    keys. It names each part of `input.key` once, in any order."""
    discover: bool = True
    """Whether keys that are not declared may be published, after selection. `false` needs declared keys and spends all
    of delta on the values."""
    remember: Annotated[int, Field(ge=0)] | None = None
    """Keys whose last row in a window is at least this many users are public from the beginning of the next window on. They need no
    selection, until a window ends with a smaller row. Their rows are drawn to those of the window before, and shown where they are
    large enough to mean something (docs/which-number.md). It costs no budget, because all of that follows from released rows
    (docs/guarantees/memory.md, docs/guarantees/smoothing.md). 0: every window begins with the declared keys alone. Only with a
    strategy that needs the published keys, such as closing, and with a column that counts users: there the default is 6."""
    evidence_windows: Literal[1, 2, 4] = 1
    """How many windows' measurements of a key that none of them has published add up at the last trigger: 1, 2 or 4. A key that too
    few users bring in any one window is then found after several. The promise is the same (docs/guarantees/evidence.md), but rare
    keys become visible that were hidden by their rarity alone. Only with a last look, that is with strategy closing."""
    minimum_users: Annotated[int, Field(ge=0)] = 0
    """Never publish an undeclared key with this many distinct users or fewer, for any noise. A key that is remembered from the
    window before (`remember`) had more of them when it was published first."""
