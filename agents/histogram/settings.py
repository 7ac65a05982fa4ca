"""The configuration of a histogram as a whole: its sections (mechanism_settings.py), checked, with its digest and its topics."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from susurrus.agents.config.checks import calendar
from susurrus.agents.config.idle import Idle, fields
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.histogram import checks, level_settings, top_settings
from susurrus.agents.histogram.column_settings import DEFAULT_STEPS, counted_apart, problems
from susurrus.agents.histogram.columns.centred import half_range
from susurrus.agents.histogram.mechanism_settings import MechanismSettings
from susurrus.agents.histogram.names import findings_of_names
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.persistence import LEAST_ROW, TENTHS
from susurrus.mechanisms.histogram.registry import STRATEGIES
from susurrus.mechanisms.histogram.smoothing import CONSTANTS as SMOOTHING_CONSTANTS
from susurrus.topics import histogram, progress, rolling, top
from susurrus.topics.records.raw import ValueField
from susurrus.topics.spec import (
    HISTOGRAM,
    HISTOGRAM_TOPICS,
    LATEST,
    PROGRESS,
    PUBLISHED_KEYS,
    ROLLING,
    TOP,
    TOP_TOPICS,
    TopicSpec,
)
from susurrus.topics.wire.row_schema import RowSchema
from susurrus.topics.wire.timestamps import format_time

FEW_STEPS: Final = 64
"""A range of which one half has fewer steps of the default grid is warned of."""
DAY: Final = 86_400_000


class HistogramSettings(MechanismSettings):
    """The whole configuration of a histogram."""

    kind = "histogram"
    computes = True
    several_topics = True
    published: ClassVar[tuple[str, ...]] = (
        *Settings.published,
        "bounds",
        "columns",
        "levels",
        "keys",
        "top",
        "privacy.epsilon",
        "privacy.delta",
        "privacy.strategy",
        "privacy.gaussian_delta_fraction",
        "privacy.selection_share",
    )
    """``keys.declared_file`` enters by its content, not its name; ``privacy.strategy`` by the name of the strategy that runs. Of
    the strategies' sections that of this one is covered, as its parameters' ``published`` values."""
    secret_field = "privacy.secret_file"

    @property
    def closing_delay(self) -> int:
        """Release waits for the later of the cut and the pad."""
        return max(self.clock.idle_grace, self.window.publication_pad)

    @property
    def raw_topic_settings(self) -> dict[str, str]:
        """Stamped as the clock expects; an archive is kept."""
        clock = self.clock.chosen
        stamped = {} if (kind := clock.topic_type()) is None else {"message.timestamp.type": kind}
        return stamped if clock.live else {**stamped, "retention.ms": "-1"}

    def raw_topic_findings(self, topic: str, found: Mapping[str, str]) -> Iterator[Finding]:
        """A clock that does not fit the stamps would make every record a dead letter."""
        stamped = found.get("message.timestamp.type")
        if stamped is not None and self.clock.chosen.topic_type() not in (stamped, None):
            yield Finding(topic, "failure", *self.clock.chosen.misfit(stamped))

    def start_findings(self, now: int, first_window: int | None = None) -> Iterator[Finding]:
        """Rows carry the times of their triggers: Kafka deletes those of an archive at once that is older than their retention."""
        first, kept = self.start.first_window if first_window is None else first_window, self.topics.retention
        if self.clock.chosen.live or first is None or kept is None:
            return
        last = (
            self.calendar.end_of(self.calendar.window_start(self.calendar.window_at(first)))
            + self.window.allowed_lateness
        )
        if now - last >= kept:
            days = format_duration((-(-(now - first) // DAY) + 1) * DAY)
            yield Finding(
                "start",
                "failure",
                f'topics.retention = "{format_duration(kept)}", but rows of the first window are stamped {format_time(last)} or '
                "earlier, and Kafka deletes them as soon as they are written",
                f'set topics.retention above the age of the archive and the time for which you need its rows (about "{days}"), '
                "or leave it out",
            )

    @property
    def max_future(self) -> int:
        """How far, in ms, an event may lie beyond its stamp; 0 where the stamp is the event time."""
        return 0 if self.input.time_field is None else self.clock.max_future

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The topics of a histogram; more with feedback on published keys, with a ranking and with a rolling view."""
        feedback = (PUBLISHED_KEYS,) if self.strategy.feedback else ()
        ranking = () if self.top is None else TOP_TOPICS
        view = (ROLLING,) if self.window.rolling else ()
        return *HISTOGRAM_TOPICS, *feedback, *ranking, *view, *self.standing_topics

    @property
    def schemas(self) -> dict[str, RowSchema]:
        """The schemas of the output. Rows have the same schema in both of their topics."""
        published, dated = self.published_columns, self.window.time_zone is not None
        names = [column.name for column in published]
        intervals = {column.name for column in published if column.has_interval}
        levels = bool(self.input.grouping_sets)
        rows = histogram.schema(self.input.key_names, names, intervals, dated=dated, levels=levels)
        of = {HISTOGRAM: rows, LATEST: rows, PROGRESS: progress.SCHEMA}
        if self.top is not None:
            of[TOP] = top.schema(self.input.key_names, names, intervals, dated=dated)
        if self.window.rolling:
            of[ROLLING] = rolling.schema(self.input.key_names, names, intervals)
        return {self.topic(spec.name): schema for spec, schema in of.items()}

    def published_fields(self) -> dict[str, Any]:
        """The settings that decide what is published. Of the privacy sections only the strategy's own counts; keys count by their
        canonical form."""
        fields = super().published_fields()
        fields["keys"] = {
            # Order and duplicates of the declared list change nothing; where it is kept changes nothing either.
            "declared": [key.decode() for key in self.declared_keys],
            "discover": self.discover,
            "minimum_users": self.keys.minimum_users,
        }
        if self.remember:
            fields["keys"]["remember"] = self.remember
            fields["keys"]["smoothing"] = str(SMOOTHING_CONSTANTS)
        if self.evidence_windows > 1:
            fields["keys"]["evidence_windows"] = self.evidence_windows
        if self.follows_persistence:
            fields["keys"]["lasting"] = {"least_row": LEAST_ROW, "steps": TENTHS}  # the plans' digests cover the shares
        centres = {each.column.name: each.column.centre for each in self.layout.published}
        fields["columns"] = [
            column.published()
            | ({} if (centre := centres[column.column().parts()[0].name]) is None else {"centre": centre})
            for column in self.columns
        ]
        if self.top is None:
            del fields["top"]  # as before there were rankings
        fields |= {f"lookup('{file}')": table.sha256 for file, table in self.lookup_tables.items()}
        del fields["levels"]
        if levels := self.grouping:
            fields["levels"] = [
                level.published() for level in levels
            ]  # as they run, whatever the file leaves to defaults
        strategy = self.strategy
        # The default enters by its name: who writes it down changes nothing.
        fields["privacy.strategy"] = strategy.name
        if parameters := self.privacy.parameters_of(strategy).published():
            fields[f"privacy.{strategy.name}"] = parameters
        return fields

    @classmethod
    def is_published(cls, path: str) -> bool:
        """Whether a setting is published; a strategy's parameters are, where it is the strategy that runs."""
        section, _, name = path.partition(".")
        return super().is_published(path) or (section == "privacy" and name.partition(".")[0] in STRATEGIES)

    def in_digest(self, path: str) -> bool:
        """Whether a setting counts for the digest. Of the strategies' sections, that of the one that runs does."""
        section, _, name = path.partition(".")
        if path == "keys.remember":
            return self.remember > 0
        if path == "keys.evidence_windows":
            return self.evidence_windows > 1
        if section == "privacy" and name.partition(".")[0] in STRATEGIES:
            return name.partition(".")[0] == self.choice.name
        return super().in_digest(path)

    def idle(self) -> Iterator[Idle]:
        """The settings without effect: of the clock, the event time and selection, and sections of strategies that do not run."""
        yield from self.clock.chosen.idle()
        if self.input.time_field is None:
            yield from fields(
                "input", ["time_unit", "time_format", "time_zone"], 'input.time = "kafka"', "a field as input.time"
            )
            yield from fields("clock", ["max_future"], 'input.time = "kafka"', "a field as input.time")
        if not self.discover:
            under, instead = "keys.discover = false", "keys.discover = true"
            if self.total:
                under, instead = "input.key = []", "fields to group by"
                yield from fields("keys", ["discover"], under, instead)
                yield from fields("bounds", ["max_keys_per_user"], under, instead)
                yield from fields("input", ["null_key"], under, instead)
            yield from fields("keys", ["minimum_users"], under, instead)
            yield from fields("privacy", ["gaussian_delta_fraction"], under, instead)
        if self._default_unknown:
            return
        choice = self.choice
        under = f'privacy.strategy = "{choice.name}"'
        if choice.reason is not None:
            under += f", the default ({choice.reason})"
        learning = next(name for name, kind in STRATEGIES.items() if kind.feedback)
        if not self.strategy.feedback:
            yield Idle("keys.remember", under, f'privacy.strategy = "{learning}"')
        elif not self.counts_users:
            yield Idle("keys.remember", "columns of which none counts users", 'a column of kind "users"')
        if not self.measures_at_the_end:
            instead = f'privacy.strategy = "{learning}" with its last look'
            yield Idle("keys.evidence_windows", under if not self.strategy.feedback else "unknown_share = 0", instead)
        for name in STRATEGIES:
            if name != choice.name and self.privacy.has_section(name):
                yield Idle(f"privacy.{name}", under, f'privacy.strategy = "{name}"')

    def findings(self) -> Iterator[Finding]:
        """What every kind has, names of fields, and weights without effect."""
        yield from super().findings()
        if self.window.rolling and self.top is not None:
            yield Finding(
                "settings",
                "warning",
                "top: the ranking is of windows so far, and not of the rolling view (window.rolling, in SQL HOP)",
                "take the first rows of the view where you read it: releases(rolling=True), only_whole(), largest()",
            )
        yield from findings_of_names(self.input, self.columns, self.raw_schema().scalars)
        yield from counted_apart(self.columns)
        for place, column in enumerate(self.columns):
            value = column.column().field
            if isinstance(value, ValueField) and column.grid is None and half_range(value) < FEW_STEPS:
                width = (value.highest - value.lowest) * value.grid
                yield Finding(
                    "settings",
                    "warning",
                    f'columns: the values of "{column.name}" are rounded to multiples of {value.grid:g}, which is coarse for a '
                    f"range of {width:g}",
                    f"set its grid, for example grid = {width / 2 / DEFAULT_STEPS:.1g}",
                )
            if column.weight != 1 and self._shares() == self._shares(without_weight=place):
                yield Finding(
                    "settings",
                    "warning",
                    f'columns: weight = {column.weight:g} of "{column.name}" changes nothing, because strategy '
                    f'"{self.strategy.name}" shares or fixes its noise',
                    "leave it out; susurrus explain shows the shares",
                )

    def _shares(self, without_weight: int | None = None) -> tuple[float, ...]:
        """What each measured column has of the budget; as if the column at a place had no weight. () where the plan is refused."""
        columns = [
            column.model_copy(update={"weight": 1.0}) if place == without_weight else column
            for place, column in enumerate(self.columns)
        ]
        try:
            return self.strategy.shares(self.model_copy(update={"columns": tuple(columns)}).plan())
        except ConfigurationError:
            return ()

    def problems(self) -> list[str]:
        """The problems of these settings, in the order of the sections."""
        return [
            *super().problems(),
            *checks.start(self.clock, self.window, self.start),
            *checks.fields(self.input, self.raw_schema()),
            *checks.bounds(self.bounds, total=self.total),
            *self._level_problems,
            *problems(self.columns, records=self._records),
            *checks.keys(self.keys, self.input),
            *(() if self._default_unknown else checks.rolling(self.window, self.strategy)),
            *(() if self._default_unknown else checks.strategy(self.strategy, self.bounds, self.privacy)),
            *checks.budget(self.budget, self.privacy, self.window),
            *self._of_top(),
            *self._not_with_levels(),
        ]

    def _not_with_levels(self) -> Iterator[str]:
        """What is about one grouping."""
        if self.input.grouping_sets and self.top is not None:
            yield (
                "top: not with input.grouping_sets, for rows of different levels are about the same records; rank a level where "
                "you read it (release.level), or leave one of the two out"
            )
        if self.input.grouping_sets and self.window.rolling:
            yield "window.rolling: not with input.grouping_sets; leave one of the two out"

    def _of_top(self) -> Iterator[str]:
        if self.top is not None:
            columns = [column.name for column in self.published_columns]
            repeats = self._default_unknown or self.strategy.repeats
            yield from top_settings.problems(
                self.top, columns, key_bytes=self.input.max_key_bytes, grouped=not self.total, repeats=repeats
            )

    @property
    def _default_unknown(self) -> bool:
        """Whether there is no default strategy, because there is no calendar or there are no levels, which is reported already."""
        return (self.privacy.named is None and any(calendar(self.window))) or bool(self._level_problems)

    @property
    def _level_problems(self) -> list[str]:
        names = self.input.key_names if self.input.key else ()
        return list(level_settings.problems(self.input.grouping_sets, self.levels, self.bounds, names))

    @property
    def _records(self) -> int:
        """m * C, as ``ColumnKind.problems`` has it, with the most records of one user and window that the strategy may keep."""
        bounds = self.bounds
        strategy = None if any(calendar(self.window)) or self._level_problems else self.strategy
        caps = [(bounds.max_records_per_key, bounds.max_records_per_user)]
        for level in self.levels:
            per_key = level.max_records_per_key or bounds.max_records_per_key
            caps.append((per_key, level.max_records_per_user or bounds.max_records_per_user))
        return max(
            per_key * (records if strategy is None else strategy.longest(self.calendar.triggers, records))
            for per_key, records in caps
        )
