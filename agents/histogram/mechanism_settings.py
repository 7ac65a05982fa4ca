"""The sections of a histogram, and the mechanism that they ask for: columns, levels, declared keys, strategy, plan.

settings.py adds what is checked, what the digest covers, and the topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, PrivateAttr, model_validator

from susurrus.agents.config.fields import ComputedKey
from susurrus.agents.config.settings import Settings
from susurrus.agents.expressions.computation import lookups_of
from susurrus.agents.expressions.lookup import LookupTables, read_tables
from susurrus.agents.histogram import declared, level_keys, level_settings
from susurrus.agents.histogram.clock import HistogramClockSettings
from susurrus.agents.histogram.column_settings import ColumnSettings
from susurrus.agents.histogram.columns import COLUMNS, ColumnKind, Layout, fields_of, layout_of
from susurrus.agents.histogram.level_settings import GroupingLevel, LevelSettings
from susurrus.agents.histogram.privacy import PrivacySettings
from susurrus.agents.histogram.sections import BoundSettings, HistogramWindowSettings, KeySettings
from susurrus.agents.histogram.top_settings import TopSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.persistence import TENTHS
from susurrus.mechanisms.histogram.plan import Column as PlanColumn
from susurrus.mechanisms.histogram.plan import Level as PlanLevel
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import Choice, default_strategy, strategy_named
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics.records.raw import WHOLE_KEY, ComputedField, RawSchema

DEFAULT_REMEMBER: Final = 6
"""Users: `keys.remember`, where a window can hand keys on and the file says nothing."""


class MechanismSettings(Settings):
    """The sections of a histogram, and what they mean for its mechanism."""

    clock: HistogramClockSettings = HistogramClockSettings()
    """Which clock decides that a trigger interval is over."""
    window: HistogramWindowSettings = HistogramWindowSettings()
    """The public calendar of windows and triggers."""
    bounds: BoundSettings = BoundSettings()
    """How much one user may contribute to one window."""
    columns: tuple[ColumnSettings, ...] = (ColumnSettings(name="count"),)
    """The published columns; one COUNT by default."""
    levels: tuple[LevelSettings, ...] = ()
    """The groupings of `input.grouping_sets`, where they need more than defaults."""
    keys: KeySettings = KeySettings()
    """Keys that are public knowledge, and whether others may be discovered."""
    top: TopSettings | None = None
    """Optional ranking of the published rows."""
    privacy: PrivacySettings = Field(examples=[{"epsilon": 6.0, "delta": 1e-9}])
    """The promise per user and window."""

    _declared: tuple[bytes, ...] = PrivateAttr(default=())
    _lookup_tables: LookupTables = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_key(cls, tables: Any) -> Any:
        """With one key for all records, a user has no more records that count than records of a key. So this is the default of
        the other cap, which the noise follows."""
        if (
            isinstance(tables, Mapping)
            and isinstance(given := tables.get("input"), Mapping)
            and given.get("key") in ([], ())
        ):
            bounds = tables.get("bounds", {})
            if isinstance(bounds, Mapping):
                of_key = bounds.get("max_records_per_key", BoundSettings().max_records_per_key)
                return {**tables, "bounds": {"max_records_per_user": of_key, **bounds}}
        return tables

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As of every section. What follows from the fields is computed anew."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @property
    def total(self) -> bool:
        """Whether nothing is grouped by: all records have one key."""
        return self.input.grouped_by_nothing

    @property
    def discover(self) -> bool:
        """Whether keys that are not declared may be published. The one key of all records is declared."""
        return self.keys.discover and not self.total

    @cached_property
    def layout(self) -> Layout:
        """Which fields are decoded, which columns are measured, which are published."""
        caps = [level.max_records_per_key for level in self.grouping] or [self.bounds.max_records_per_key]
        return layout_of(
            self.published_columns,
            one_record=max(caps) == 1,
            unit_variances=self._unit_variances,
        )

    def _unit_variances(self, measured: tuple[ColumnKind, ...]) -> Sequence[float] | None:
        """See `UnitVariances`; with grouping sets, of the level that keeps the most records. None where the strategy refuses the
        other constants, which is reported elsewhere."""
        try:
            plan = self._plan_of(measured)
            if plan.levels:
                plan = max(plan.level_plans(), key=lambda level: level.max_records)
            return strategy_named(plan.strategy).unit_variances(plan)
        except ConfigurationError:
            return None

    @property
    def measured_columns(self) -> tuple[ColumnKind, ...]:
        """What the mechanism measures: every column but means, and the sums and counts that means still need."""
        return self.layout.measured

    @property
    def published_columns(self) -> tuple[ColumnKind, ...]:
        """What is published, a column each: of several quantiles, one for each."""
        return tuple(part for column in self.columns for part in column.column().parts())

    @property
    def choice(self) -> Choice:
        """The strategy that runs: the one that the file names, else the default of these settings.

        Raises ConfigurationError where the file names none and there is no calendar.
        """
        if not self.input.grouping_sets:
            return self._choice(self.bounds.max_records_per_key, discover=self.discover)
        # What needs most of the pipeline stands for all: feedback, parameters of its own.
        choices = list(map(self.level_choice, self.grouping))
        return next((each for each in choices if strategy_named(each.name).feedback), choices[0])

    def _choice(self, records_per_key: int, *, discover: bool) -> Choice:
        if self.privacy.named is not None:
            return Choice(self.privacy.named)
        measured = (PlanColumn(name=column.name, kind=COLUMNS[column.kind].measures) for column in self.columns)
        return default_strategy(
            triggers=self.calendar.all_triggers[0],
            most_triggers=self.calendar.triggers,
            counts_users=any(column.counts_users(records_per_key) for column in measured),
            discover=discover,
            max_keys=self.bounds.max_keys_per_user,
        )

    def level_choice(self, level: GroupingLevel) -> Choice:
        """The strategy of one level: a level whose keys are all declared selects none, whatever the file names."""
        if not level.discover:
            return default_strategy(
                triggers=self.calendar.all_triggers[0],
                most_triggers=self.calendar.triggers,
                counts_users=True,
                discover=False,
                max_keys=None,
            )
        return self._choice(level.max_records_per_key, discover=True)

    @cached_property
    def grouping(self) -> tuple[GroupingLevel, ...]:
        """The levels of `input.grouping_sets`; none where the key is the only grouping."""
        if not self.input.grouping_sets:
            return ()
        return level_settings.levels(
            self.input.grouping_sets,
            self.levels,
            self.bounds,
            names=self.input.key_names,
            discover=self.discover,
        )

    @property
    def level_names(self) -> tuple[str, ...]:
        """What rows call the levels; none where the key is the only grouping."""
        return tuple(level.name for level in self.grouping)

    @property
    def strategy(self) -> type[Strategy[Any]]:
        """The class of the strategy that runs."""
        return strategy_named(self.choice.name)

    @property
    def declared_keys(self) -> tuple[bytes, ...]:
        """The declared keys as canonical JSON, from the list, the file or the product, sorted, without duplicates; the one key of
        all records where nothing is grouped by. With grouping sets: those of every level, as the pipeline knows them inside.
        """
        if self.total:
            return (WHOLE_KEY,)
        if self.keys.product and not self._declared:
            whole = declared.combined(self.keys.product, self.input.key_names)
        else:
            whole = self._declared or declared.canonical(self.keys.declared)
        if not self.input.grouping_sets:
            return whole
        return level_keys.declared(whole, self.level_parts)

    @property
    def remembers(self) -> bool:
        """Whether a window could hand keys on: published keys come back to the bounds, and a column counts users."""
        return self.strategy.feedback and self.counts_users

    @property
    def counts_users(self) -> bool:
        """Whether a column counts users, at one of the levels at least."""
        caps = [level.max_records_per_key for level in self.grouping] or [self.bounds.max_records_per_key]
        measured = [PlanColumn(name=f"{at}", kind=column.measures) for at, column in enumerate(self.measured_columns)]
        return any(column.counts_users(cap) for cap in caps for column in measured)

    @property
    def remember(self) -> int:
        """How many users a key's last row needs, so that the key is public in the next window; 0: none is."""
        given = DEFAULT_REMEMBER if self.keys.remember is None else self.keys.remember
        return given if given and self.remembers else 0

    @property
    def measures_at_the_end(self) -> bool:
        """Whether the strategy measures users' lists at a window's last trigger, so that windows can add up."""
        parameters = self.privacy.parameters_of(self.strategy)
        return self.discover and self.strategy.looks_back(parameters)

    @property
    def evidence_windows(self) -> int:
        """How many windows add up; 1: none but the present one."""
        return self.keys.evidence_windows if self.measures_at_the_end else 1

    @cached_property
    def follows_persistence(self) -> bool:
        """Whether a window's shares follow how much of earlier ones lasted: keys are remembered, and the shares are defaults."""
        return self.remember > 0 and self.plan().follows_persistence

    @property
    def keys_are_declared(self) -> bool:
        """Whether the file declares any key."""
        return bool(self._declared or self.keys.declared or self.keys.product)

    @property
    def level_parts(self) -> tuple[tuple[int, ...], ...]:
        """By level, which parts of the key it groups by."""
        return tuple(level.parts for level in self.grouping)

    @property
    def lookup_tables(self) -> LookupTables:
        """The files that expressions look something up in, by their names."""
        return self._lookup_tables

    def plan(self) -> Plan:
        """The mechanism's public constants, for windows of the usual length. Raises ConfigurationError where the strategy refuses
        them."""
        return self._plan_of(self.measured_columns)

    def _plan_of(self, measured: tuple[ColumnKind, ...]) -> Plan:
        privacy, strategy, levels = self.privacy, self.strategy, self.grouping
        return Plan(
            strategy=strategy.name,
            parameters=privacy.parameters_of(strategy),
            triggers=self.triggers,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            columns=tuple(
                PlanColumn(name=c.name, kind=c.measures, bound=c.bound, buckets=c.width, weight=c.weight)
                for c in measured
            ),
            max_records=max((level.max_records for level in levels), default=self.bounds.max_records_per_user),
            max_records_per_key=1 if levels else self.bounds.max_records_per_key,
            max_keys=self.bounds.max_keys_per_user,
            minimum_users=self.keys.minimum_users,
            evidence_windows=self.evidence_windows,
            discover=self.discover,
            gaussian_delta_fraction=privacy.gaussian_delta_fraction,
            selection_share=privacy.selection_share,
            levels=tuple(map(self._level, levels)),
        )

    def _level(self, level: GroupingLevel) -> PlanLevel:
        strategy = strategy_named(self.level_choice(level).name)
        return PlanLevel(
            name=level.name,
            strategy=strategy.name,
            parameters=self.privacy.parameters_of(strategy).within(level.max_records),
            max_records=level.max_records,
            max_records_per_key=level.max_records_per_key,
            discover=level.discover,
            share=level.share,
        )

    def plans(self) -> tuple[Plan, ...]:
        """The plan for every T that a window may have, from the smallest, and for every kappa, where shares follow earlier windows.
        Raises as `plan`."""
        plan = self.plan()
        kappas = range(TENTHS + 1) if self.follows_persistence else (0,)
        return tuple(
            replace(plan.at_persistence(kappa), triggers=triggers)
            for triggers in self.calendar.all_triggers
            for kappa in kappas
        )

    def raw_schema(self) -> RawSchema:
        """How to decode the raw topic's records."""
        return RawSchema(
            user=self.input.user_fields,
            key=tuple(ComputedField(p.expression) if isinstance(p, ComputedKey) else p for p in self.input.key),
            values=fields_of([column.column() for column in self.columns]),
            time=self.input.time_field,
            time_unit=self.input.time_unit,
            time_format=self.input.time_format,
            time_zone=self.input.time_zone,
            null_user=self.input.null_user,
            null_key=self.input.null_key,
            empty_user=self.input.empty_user,
            max_key_bytes=self.input.max_key_bytes,
        )

    def read_files(self, directory: Path) -> None:
        """Read the lookup tables, and the declared keys, where they are in a file; combine those of a product once. Raises
        ConfigurationError that names the file's line."""
        super().read_files(directory)
        self._lookup_tables = read_tables(lookups_of(self.raw_schema().scalars, self.input.where), directory)
        if self.keys.product:
            self._declared = declared.combined(self.keys.product, self.input.key_names)
        if self.keys.declared_file is not None:
            self._declared = declared.read(directory / self.keys.declared_file, len(self.input.key))
