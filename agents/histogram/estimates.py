"""One release of a histogram as a reader has it: columns of estimates, and what can be computed from them.

docs/sums.md says which noises are independent, what a sum contains, and where the standard errors come from.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from susurrus.agents.frames import (
    Frame,
    Tabular,
    interval_text,
    json_of,
    key_text,
    margin_of,
    measured_text,
    number,
    text_table,
)
from susurrus.agents.histogram.column_estimates import Estimates as Estimates
from susurrus.agents.histogram.column_estimates import Rows as Rows
from susurrus.agents.histogram.column_estimates import ShownNumber as ShownNumber
from susurrus.mechanisms import propagation
from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.mechanisms.propagation import Computed
from susurrus.mechanisms.ranking import RowRanking
from susurrus.topics.records.zones import local_date, local_text

Keys = Callable[[Any], bool] | Collection[Any] | str | int | float | bool | None
"""Which rows: None for all; one key; a list or set of keys; or a function of a key that says whether it is wanted. A key of several
parts is a tuple of them. The key null is [None]."""


@dataclass(frozen=True, slots=True)
class Combined:
    """A number computed from released ones. keys: how many keys it is about."""

    estimate: float
    std_error: float
    keys: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Lower and upper end, for normal noise. Raises ConfigurationError for a confidence outside (0, 1)."""
        margin = margin_of(confidence) * self.std_error
        return self.estimate - margin, self.estimate + margin

    def __str__(self) -> str:
        estimate, margin = measured_text(self.estimate, self.std_error, margin_of(0.95))
        return f"{estimate} ± {margin} (95 %), {self.keys:,} key{'' if self.keys == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedLevel:
    """One grouping of a release. parts: which parts of the key it groups by. single: whether a user counts for one key there at
    most. of_users: the columns that count distinct users there."""

    parts: tuple[int, ...]
    single: bool = False
    of_users: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Release(Tabular):
    """One release of a window: what had come until its trigger, by key. Times in ms since the Unix epoch.

    time_zone: on whose clocks the window is a day, a week or a month; None for windows of one length. fields: names of the
    key's parts. keys: n scalars, or lists where the key has several parts, in the order of their JSON. columns: by name, n
    estimates each. ranking: of the configuration, for `top`; None where it has none. levels: of a pipeline with grouping sets, by
    name; row_levels: the level of each row. remembered: how many keys the window has of the one before it, shown or not; None where
    nothing is remembered. persistence: how much of an earlier window had lasted, 0 to 1; None where shares do not follow it.

    A release of a pipeline with grouping sets has rows of all levels, which overlap: `level` takes one of them, and
    what is computed from rows is asked of that.
    """

    window_start: int
    window_end: int
    trigger_time: int
    trigger: int
    of_triggers: int
    epoch: str
    epoch_number: int
    strategy: str
    fields: tuple[str, ...]
    keys: list[Any]
    columns: Mapping[str, Estimates]
    ranking: RowRanking | None = None
    time_zone: str | None = None
    levels: Mapping[str, ReleasedLevel] = field(default_factory=dict)
    row_levels: list[str] | None = None
    remembered: int | None = None
    persistence: float | None = None

    @property
    def window_date(self) -> str | None:
        """The first local date of a calendar window, such as 2026-10-25; None for windows of one length."""
        return None if self.time_zone is None else local_date(self.time_zone, self.window_start)

    overlaps: ClassVar[bool] = False
    """Whether it covers records that releases of other windows cover, too."""

    @property
    def final(self) -> bool:
        """Whether this is the window's last release."""
        return self.trigger == self.of_triggers

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: Any) -> bool:
        return _name(key) in self._places

    def __repr__(self) -> str:
        start = local_text(self.time_zone, self.window_start)
        return (
            f"Release(window_start={start}, trigger={self.trigger}, of_triggers={self.of_triggers}, keys={len(self)})"
        )

    # ---- which number ------------------------------------------------------------------------------------------------

    def showing(self, number: ShownNumber) -> Self:
        """The same with another number shown, in tables, orders and frames: "estimate" without rows of earlier windows, "direct"
        from each row's own stream alone. Without it a row shows its smoothed number, where it has one. Sums are the same."""
        return replace(self, columns={name: replace(of, number=number) for name, of in self.columns.items()})

    # ---- levels ------------------------------------------------------------------------------------------------------

    def level(self, name: str) -> "Release":
        """The rows of one level, with its parts of the key; the total has the key []. Raises ConfigurationError."""
        of = self._level(name)
        assert self.row_levels is not None
        rows = np.flatnonzero([level == name for level in self.row_levels])
        several = len(self.fields) > 1
        parts = [self.keys[row] if several else [self.keys[row]] for row in rows.tolist()]
        keys = [[key[at] for at in of.parts] for key in parts]
        return replace(
            self,
            fields=tuple(self.fields[at] for at in of.parts),
            keys=[key[0] for key in keys] if len(of.parts) == 1 else keys,
            columns={name: each.take(rows) for name, each in self.columns.items()},
            levels={},
            row_levels=None,
        )

    @cached_property
    def shown_keys(self) -> list[Any]:
        """The keys as boards and tables show them: with levels, the level and its parts, which tell rows apart."""
        if self.row_levels is None:
            return self.keys
        several = len(self.fields) > 1
        shown = []
        for level, key in zip(self.row_levels, self.keys, strict=True):
            parts = key if several else [key]
            of = self.levels.get(level)
            shown.append([level, *(parts if of is None else (parts[at] for at in of.parts))])
        return shown

    def other(self, parent: str, children: str, column: str | None = None) -> "Release":
        """What each key of the level `parent` has beyond its published children of the level `children`, with its error.

        The rest is of keys that are not published, and of records that count at the parent alone because of caps. It may be below
        zero, by noise or by caps. column: by default the first. Raises ConfigurationError where there is no such rest.
        """
        whole, part, name = self._level(parent), self._level(children), self._column(column)
        if not set(whole.parts) < set(part.parts):
            raise ConfigurationError(
                f'other("{parent}", "{children}"): the second does not group by all of the first and more; name a parent and a '
                "level below it"
            )
        if name in whole.of_users | part.of_users and not (part.single and {name} <= whole.of_users & part.of_users):
            raise ConfigurationError(
                f'column="{name}": counts distinct users, who count once for the parent and once for each child; use a column that '
                "adds up: a sum, or a count with max_records_per_key above 1 at both levels"
            )
        above, below = self.level(parent), self.level(children)
        at = [part.parts.index(place) for place in whole.parts]
        places = above._places
        children_keys = [key if len(part.parts) > 1 else [key] for key in below.keys]
        owner = np.array([places.get(_key_name([key[i] for i in at]), -1) for key in children_keys], np.intp)
        rows = np.flatnonzero(owner >= 0)  # a child may be published whose parent is not
        estimates, errors = below._additive(name).summands
        left = propagation.remainder(above._additive(name).summands, (estimates[rows], errors[rows]), owner[rows])
        return replace(above, columns={name: Estimates(*left)})

    def _level(self, name: str) -> ReleasedLevel:
        if not self.levels or self.row_levels is None:
            raise ConfigurationError("the release has one grouping; input.grouping_sets makes several")
        if name not in self.levels:
            known = ", ".join(f'"{each}"' for each in self.levels)
            raise ConfigurationError(f'level="{name}": there is none; use one of {known}')
        return self.levels[name]

    # ---- as a table --------------------------------------------------------------------------------------------------

    def head(self) -> dict[str, Any]:
        """What all rows have in common, as JSON values."""
        return {
            "window_start": local_text(self.time_zone, self.window_start),
            "window_end": local_text(self.time_zone, self.window_end),
            **({} if self.window_date is None else {"window_date": self.window_date}),
            "trigger": self.trigger,
            "of_triggers": self.of_triggers,
            "trigger_time": local_text(self.time_zone, self.trigger_time),
            "final": self.final,
            "strategy": self.strategy,
            "epoch": self.epoch,
            "epoch_number": self.epoch_number,
        }

    def frame(self, confidence: float = 0.95) -> Frame:
        """A row per key, named as in `exported`, and the ends of each interval."""
        return self._frame({}, confidence)

    def exported(self) -> Frame:
        """What `susurrus watch --export` writes: a row per key, with the whole key as JSON in ``key``, and without intervals."""
        return self._frame({"key": [json_of(key) for key in self.keys]}, None)

    def _frame(self, key: Mapping[str, list[Any]], confidence: float | None) -> Frame:
        """A row per key. key: columns beside its parts. confidence: of the intervals; None for no intervals.

        A part of the key that is called like another column gets the name ``key_<name>``.
        """
        n = len(self)
        instants = self._instants()
        trigger_time = instants.pop("trigger_time")
        first: dict[str, Any] = {
            **instants,
            **self._dated(n),
            "trigger": np.full(n, self.trigger),
            "of_triggers": np.full(n, self.of_triggers),
            "trigger_time": trigger_time,
            **({} if self.row_levels is None else {"level": self.row_levels}),
            **key,
        }
        values: dict[str, Any] = {}
        for name, of in self.columns.items():
            values |= of.named(name, confidence)
        last: dict[str, Any] = {"strategy": [self.strategy] * n, "epoch": [self.epoch] * n}
        taken = first.keys() | values.keys() | last.keys()
        parts = {f"key_{name}" if name in taken else name: part for name, part in self._parts().items()}
        # A part whose new name is taken, too, has no column; what `exported` has in `key` holds its value.
        return Frame({**first, **parts, **values, **last}, frozenset((*instants, "trigger_time")), self.time_zone)

    def _dated(self, n: int) -> dict[str, list[str]]:
        """The column of the window's date, where it has one."""
        return {} if (date := self.window_date) is None else {"window_date": [date] * n}

    def _instants(self) -> dict[str, npt.NDArray[np.int64]]:
        """The instants of each row in ms, by name; trigger_time is one of them."""
        names = ("window_start", "window_end", "trigger_time")
        return {name: np.full(len(self), getattr(self, name), np.int64) for name in names}

    def notes(self, rows: Sequence[int]) -> list[str] | None:
        """What a table says of each of some rows, beside their key; None where there is nothing to say of any."""
        return None

    def table(
        self, limit: int = 20, *, column: str | None = None, confidence: float = 0.95, width: int | None = None
    ) -> str:
        """The largest rows of a column (by default the first), with error bars. width: of the terminal, by default as it is."""
        by, reach, heading = self._column(column), margin_of(confidence), f"± {100 * confidence:.4g} %"
        order = self.largest(limit, by)
        numbers: list[tuple[str, list[str]]] = []
        for name in self.names(by):
            measured = [self.columns[name].at(row) for row in order]
            cells = [
                (number(of.estimate), interval_text(of))
                if of.lower is not None
                else measured_text(of.estimate, of.std_error, reach)
                for of in measured
            ]
            numbers += [(name, [cell[0] for cell in cells]), (heading, [cell[1] for cell in cells])]
        parts = {name: [key_text(part[row]) for row in order] for name, part in self._parts().items()}
        level = {} if self.row_levels is None else {"level": [self.row_levels[row] for row in order]}
        labels = {**level, **parts}
        if (notes := self.notes(order)) is not None:
            labels["counted"] = notes
        title = " · ".join(filter(None, (self.caption(len(order)), self.numbers_shown)))
        return text_table(title, labels, numbers, width)

    def largest(self, limit: int | None = None, column: str | None = None) -> list[int]:
        """The places of the rows with the largest shown numbers of a column, by default the first; in this order, ties by key."""
        order = np.argsort(-self.columns[self._column(column)].shown[0], kind="stable")
        return list(map(int, order[: None if limit is None else max(0, limit)]))

    def names(self, first: str | None = None) -> list[str]:
        """The names of the columns, one of them in front."""
        return sorted(self.columns, key=lambda name: name != first)

    def caption(self, shown: int) -> str:
        """Which window, how far, and how many keys. shown: how many of them a table shows."""
        state = "final" if self.final else f"trigger {self.trigger} of {self.of_triggers}"
        cut = f", {shown:,} shown" if shown < len(self) else ""
        start = local_text(self.time_zone, self.window_start)
        return f"window {start} · {state} · {len(self):,} keys published{cut}"

    @property
    def numbers_shown(self) -> str:
        """Which numbers are shown: nothing where rows have one each; how many of the rows are smoothed, if they are."""
        columns = self.columns.values()
        some = [of.smoothed_rows for of in columns if of.smoothed_rows is not None]
        shown = next((of.number for of in columns), "smoothed")
        if shown == "smoothed":
            return f"{int(np.logical_or.reduce(some).sum()):,} smoothed" if some else ""
        if shown == "direct":
            return "direct" if some or any(of.direct is not None for of in columns) else ""
        return "not smoothed" if some else ""

    def _parts(self) -> dict[str, list[Any]]:
        """The parts of the keys by name."""
        if len(self.fields) == 1:
            return {self.fields[0]: self.keys}
        return {name: [key[at] for key in self.keys] for at, name in enumerate(self.fields)}

    def top(self, ranking: RowRanking | None = None) -> "TopRelease":
        """The first rows, as the topic `top` has them. ranking: another one than the configuration's.

        Post-processing: it costs no privacy. A key that is not in it may still be large. Raises ConfigurationError where there is
        no ranking, or no such column.
        """
        chosen = self.ranking if ranking is None else ranking
        if chosen is None:
            raise ConfigurationError(
                "top: the pipeline has no ranking", "add a section [top] to its file, or use largest(limit, column)"
            )
        for name in chosen.columns:
            self._column(name)
        rows = chosen.first({name: self.columns[name].shown[0] for name in chosen.columns})
        own = {field.name: getattr(self, field.name) for field in fields(Release)}
        columns = {name: of.take(rows) for name, of in self.columns.items()}
        keys = [self.keys[row] for row in rows.tolist()]
        return TopRelease(
            **own
            | {"keys": keys, "columns": columns, "ranking": chosen, "of_keys": getattr(self, "of_keys", len(self))}
        )

    # ---- computed from several rows ----------------------------------------------------------------------------------

    def total(self, column: str | None = None, keys: Keys = None) -> Combined:
        """The sum of a column (by default the first) over keys, by default all that are published.

        It estimates what the caps kept of these keys, without bias if noise of its own selected them (docs/sums.md says with which
        strategies, and what is done about remembered keys). A user counts once for each of the keys. What is not published is not
        in it. Raises ConfigurationError for a column that cannot be added, SusurrusError for a key that is not published.
        """
        estimates, errors = self._additive(self._column(column)).summands
        rows = self._rows(keys)
        return Combined(*propagation.total(estimates[rows], errors[rows]), len(rows))

    def share(self, keys: Keys, column: str | None = None) -> Combined:
        """What keys have of a column's sum over all *published* keys, between 0 and 1 but for noise.

        Raises ConfigurationError and SusurrusError as `total`, and SusurrusError where the sum is not clear of 0.
        """
        name = self._column(column)
        estimates, errors = self._additive(name).summands
        rows = self._rows(keys)
        part = np.zeros(len(self), np.bool_)
        part[rows] = True
        return self._ratio(name, propagation.share(estimates, errors, part), len(rows))

    def mean(self, column: str, keys: Keys = None) -> Combined:
        """The mean of a mean column over all records of keys: each key counts by its number of records.

        Raises ConfigurationError where the column is no mean or its count is not published, SusurrusError as `share`.
        """
        name = self._column(column)
        of = self.columns[name]
        if of.additive:
            raise ConfigurationError(f'column="{name}": is no mean; use total("{name}")')
        if of.divisor is None:
            raise ConfigurationError(
                f'column="{name}": is no mean, or its count is not published, and a mean over keys needs it; add a column that '
                "counts records to the pipeline"
            )
        # A mean was divided by the row's own count, but counts add up as all sums do.
        counts, count_errors = self.columns[of.divisor].independent
        added, _ = self.columns[of.divisor].summands
        means, errors = of.independent
        rows = self._rows(keys)
        distances: Floats = means[rows].astype(np.float64) - of.centre
        found = propagation.pooled_mean(distances, errors[rows], counts[rows], count_errors[rows], added=added[rows])
        if found is not None:
            found = found._replace(estimate=of.centre + found.estimate)
        return self._ratio(of.divisor, found, len(rows))

    def _ratio(self, whole: str, found: Computed | None, keys: int) -> Combined:
        if found is None:
            raise SusurrusError(
                f'column="{whole}": its sum is less than {propagation.LEAST_DENOMINATOR:g} standard errors above 0, and a quotient '
                "by it would mean nothing; wait for a later trigger, or take more keys"
            )
        return Combined(*found, keys)

    def _column(self, column: str | None) -> str:
        if column is None:
            return next(iter(self.columns))
        if column not in self.columns:
            raise ConfigurationError(f'column="{column}": there is none; use one of {", ".join(self.columns)}')
        return column

    def _additive(self, name: str) -> Estimates:
        of = self.columns[name]
        if of.additive:
            return of
        if of.divisor is not None:
            raise ConfigurationError(
                f'column="{name}": means do not add up; use mean("{name}"), which weighs by {of.divisor}'
            )
        raise ConfigurationError(
            f'column="{name}": does not add up over keys, or is of another configuration; for a mean over keys add a column that '
            "counts records to the pipeline, and use mean"
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        if self.row_levels is not None:
            known = ", ".join(f'"{each}"' for each in self.levels)
            raise ConfigurationError(
                f"the release has rows of several levels; take one first: release.level(...) of {known}"
            )
        return {_name(key): row for row, key in enumerate(self.keys)}

    def _rows(self, keys: Keys) -> Rows:
        """Where keys stand. Raises SusurrusError where one is not published."""
        if self.row_levels is not None or keys is not None:
            places = self._places
        if keys is None:
            return np.arange(len(self))
        if callable(keys):
            return np.flatnonzero([bool(keys(key)) for key in self.keys])
        wanted = {_name(key) for key in _several(keys)}
        missing = len(wanted - places.keys())
        if missing:
            raise SusurrusError(
                f"keys: {missing} of {len(wanted)} are not published in this release; their numbers are not known, and not 0: "
                "leave out what is not in the release (`key in release`), and say so"
            )
        return np.array(sorted(places[name] for name in wanted), np.intp)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TopRelease(Release):
    """The first rows of a release, in the order of its ranking. of_keys: how many keys the release has."""

    ranking: RowRanking
    of_keys: int

    def largest(self, limit: int | None = None, column: str | None = None) -> list[int]:
        """The numbers of the first rows: they are in the order of the ranking."""
        return list(range(len(self)))[: None if limit is None else max(0, limit)]

    def names(self, first: str | None = None) -> list[str]:
        """The names of the columns, that of the ranking in front by default."""
        return super().names(self._column(first))

    def caption(self, shown: int) -> str:
        """Which window, how far, what is first, and of how many keys."""
        state = "final" if self.final else f"trigger {self.trigger} of {self.of_triggers}"
        rows = f"{len(self):,} of {self.of_keys:,} published keys"
        cut = f", {shown:,} shown" if shown < len(self) else ""
        start = local_text(self.time_zone, self.window_start)
        return f"window {start} · {state} · {self.ranking} · {rows}{cut}"

    def _column(self, column: str | None) -> str:
        return super()._column(self.ranking.order_by if column is None else column)

    def _frame(self, key: Mapping[str, list[Any]], confidence: float | None) -> Frame:
        return super()._frame({"rank": list(range(1, len(self) + 1)), **key}, confidence)


def add_windows(releases: Iterable[Release], column: str | None = None, keys: Keys = None) -> Combined:
    """The sum of `Release.total` over releases of different windows, whose noises are independent.

    keys: in the result, each key counts once for each window. Raises SusurrusError where two releases are of one window, whose
    triggers cover the same records, and as `Release.total` does: also where a window has not published a key.
    """
    seen: set[int] = set()
    parts = []
    for release in releases:
        if release.overlaps:
            end = local_text(release.time_zone, release.trigger_time)
            raise SusurrusError(
                f"period ending {end}: a rolling view covers records that other windows and periods "
                "cover, too, so it cannot be added to them; add final releases of windows"
            )
        if release.window_start in seen:
            start = local_text(release.time_zone, release.window_start)
            raise SusurrusError(
                f"window={start}: is there twice; releases of one window cover the same records, so "
                "take one of each window, for example the final one"
            )
        seen.add(release.window_start)
        parts.append(release.total(column, keys))
    return Combined(
        sum(part.estimate for part in parts),
        math.hypot(*(part.std_error for part in parts)),
        sum(part.keys for part in parts),
    )


def _key_name(parts: list[Any]) -> str:
    """The name of a key with these parts."""
    return _name(parts[0] if len(parts) == 1 else parts)


def _several(keys: Any) -> Iterable[Any]:
    return keys if isinstance(keys, Iterable) and not isinstance(keys, str | bytes | tuple) else [keys]


def _name(key: Any) -> str:
    """What tells a key from others: 1, "1" and true are three keys, 1 and 1.0 are one."""
    if isinstance(key, list | tuple):
        return f"[{','.join(map(_name, key))}]"
    if isinstance(key, np.generic):
        key = key.item()
    return json_of(int(key) if isinstance(key, float) and key.is_integer() else key)
