"""The kind `histogram`: private counts, sums, means, variances and quantiles per key.

raw ──route──▶ by-user ──bound──▶ bounded ──release──▶ histogram, latest, progress
                                             └──▶ candidates ──rank──▶ top, with a section [top]
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from confluent_kafka.admin import AdminClient

from susurrus.agents.config import meaning
from susurrus.agents.config.fields import ComputedKey
from susurrus.agents.display.board import Board
from susurrus.agents.display.view import View, Wanted
from susurrus.agents.expressions.computation import expression_names, paths_of
from susurrus.agents.finding import Finding
from susurrus.agents.histogram import window_memory
from susurrus.agents.histogram.about_columns import about_columns
from susurrus.agents.histogram.board import HistogramBoard
from susurrus.agents.histogram.column_settings import ColumnSettings
from susurrus.agents.histogram.explanation import findings
from susurrus.agents.histogram.new_beginning import NEW_EPOCH, HistogramBeginning
from susurrus.agents.histogram.public_progress import PublicProgress
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.rolling_releases import RollingReader
from susurrus.agents.histogram.same_time import triggers_to_end
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.view import HistogramView, RollingHistogramView
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.raw_topics import visible
from susurrus.agents.kafka.requests import REQUEST_SECONDS, settings_of
from susurrus.agents.runtime.decisions import Decisions
from susurrus.agents.runtime.facts import Facts, NewestRelease, Outcome
from susurrus.agents.runtime.initial_offsets import Origin
from susurrus.agents.runtime.new_beginning import FirstWindow, NewBeginning
from susurrus.agents.runtime.pipeline import Pipeline, StageSpec
from susurrus.agents.runtime.rows import ReleaseSource, Start
from susurrus.agents.runtime.services import Services
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram import rest
from susurrus.mechanisms.histogram.persistence import TENTHS
from susurrus.mechanisms.histogram.registry import better_for, built
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics import receipt
from susurrus.topics.records.fields import Path
from susurrus.topics.spec import HISTOGRAM
from susurrus.topics.wire.timestamps import format_time

FOLLOWS = (
    "of the budget follow how much of the window before had lasted, in tenths; the numbers above hold where nothing had, as in the "
    "first window"
)


class HistogramPipeline(Pipeline[HistogramSettings]):
    """Windows of raw events by user, published at public triggers."""

    description = "Private counts, sums, means, variances and quantiles per key."
    settings_class = HistogramSettings
    output = HISTOGRAM
    way_out = NEW_EPOCH
    initializer = ("release", 0)
    outcomes = (
        Outcome("read", {"route": ("in",)}),
        Outcome("kept", {"bound": ("kept",)}),
        Outcome("capped", {"route": ("capped",), "bound": ("capped",)}),
        Outcome("late", {"route": ("late",)}),
        Outcome("filtered", {"route": ("filtered",)}),
        Outcome("skipped", {"route": ("skipped",)}, rare=True),
        Outcome("dead letters", {"route": ("dead_letter",)}),
    )
    released = (("release", "triggers"), ("release", "rows"))

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """route on every raw partition, bound by user, release by key; rank of all keys, where there is a ranking."""
        # Who reads results, or asks what a pipeline promises, loads no stage.
        from susurrus.agents.histogram.bound import BoundStage
        from susurrus.agents.histogram.rank import RankStage
        from susurrus.agents.histogram.release import ReleaseStage
        from susurrus.agents.histogram.route import RouteStage

        topic = self.settings.topic
        ranking = (StageSpec("rank", topic("candidates"), "rank-changelog", RankStage, purge=True),)
        return (
            StageSpec("route", None, "route-changelog", RouteStage, purge=False),
            StageSpec("bound", topic("by-user"), "bound-changelog", BoundStage, purge=True),
            StageSpec("release", topic("bounded"), "release-changelog", ReleaseStage, purge=True),
            *(() if self.settings.top is None else ranking),
        )

    @cached_property
    def strategy(self) -> Strategy[Any]:
        """The mechanism, of windows of the usual length. Its accounting is solved once. Raises ConfigurationError where it refuses
        its numbers, for any length that a window may have, and for any kappa that its shares may follow."""
        settings = self.settings
        plan = settings.plan()
        # Every noise grows or falls with kappa. So what is possible at both ends is possible between them.
        ends = (0, TENTHS) if settings.follows_persistence else (0,)
        for triggers in settings.calendar.all_triggers:
            for kappa in ends:
                built(replace(plan.at_persistence(kappa), triggers=triggers))
        return built(plan)

    @property
    def fields(self) -> Sequence[Path]:
        """The fields of user, key, values and time, and those of expressions."""
        return paths_of(self.settings.raw_schema().scalars, self.settings.input.where)

    def digest(self) -> bytes:
        """The configuration's digest, and those of the plans of all lengths that a window may have, and of all kappas."""
        parts = (super().digest(), *(plan.digest() for plan in self.settings.plans()))
        return hashlib.blake2b(b"".join(parts), digest_size=32, person=b"susurrus-digest").digest()

    def services(self) -> Services[HistogramSettings]:
        """Returns `HistogramServices`: what the tasks of every kind share, and the strategy."""
        # For the stages only, as above.
        from susurrus.agents.expressions.shared import SharedComputation
        from susurrus.agents.histogram.feedback import PublishedKeys
        from susurrus.agents.histogram.feedback_reader import PublishedKeysReader
        from susurrus.agents.histogram.services import HistogramServices

        settings, strategy = self.settings, self.strategy
        common = super().services()
        published_keys = reader = None
        if strategy.feedback:
            published_keys = PublishedKeys(
                settings.topic("published-keys"),
                partitions=settings.topics.bounded_partitions,
                calendar=common.calendar,
                config_digest=common.config_digest,
            )
            reader = PublishedKeysReader(common.clients, published_keys)
        return HistogramServices(
            settings,
            common.clients,
            common.ledger,
            common.calendar,
            common.config_digest,
            common.secret,
            strategy=strategy,
            computation=SharedComputation(settings.raw_schema().scalars, settings.input.where, settings.lookup_tables),
            public_progress=self._progress(common.clients),
            published_keys=published_keys,
            published_keys_reader=reader,
        )

    def published_before(self, clients: Clients) -> str:
        """The newest trigger in the topic of progress."""
        progress = self._progress(clients)
        progress.refresh()
        said = progress.newest()
        if said is None:
            return ""
        return f"topic={progress.topic} shows trigger={said.trigger} of window={format_time(said.window)}"

    def _progress(self, clients: Clients) -> PublicProgress:
        return PublicProgress(clients, self.settings.topic("progress"), self.settings.calendar)

    def guarantee(self) -> str:
        """Per user and window."""
        return self.strategy.guarantee.sentence()

    def per_window(self) -> Guarantee:
        """The strategy's guarantee."""
        return self.strategy.guarantee

    def promise_findings(self, users: int | None = None) -> list[Finding]:
        """Warns of epsilon, delta, and what windows cost together."""
        privacy = self.settings.privacy
        return [
            *meaning.of_epsilon("privacy.epsilon", privacy.epsilon),
            *meaning.of_delta("privacy.delta", privacy.delta, users),
            *meaning.of_windows(self.settings, self.per_window()),
            *meaning.of_event_time(self.settings),
        ]

    def receipt(self) -> receipt.Receipt:
        """Per user and window."""
        promise = self.strategy.guarantee
        return receipt.Receipt(
            epsilon=promise.epsilon,
            delta=promise.delta,
            mu=promise.mu,
            unit=promise.unit,
            neighbours=promise.neighbours,
            window=self.settings.window.length_text,
            strategy=self.strategy.plan.strategy,
            digest=self.settings.config_digest().hex(),
            schema=receipt.VERSION,
        )

    def summary(self) -> Iterator[tuple[str, str]]:
        """User, key, columns, calendar, bounds, beginning, promise, strategy and what it costs."""
        settings = self.settings
        window, start, privacy = settings.window, settings.start, settings.privacy
        yield "user, key", f"{settings.input.user_text}, {settings.input.key_text}"
        if settings.grouping:
            yield "levels", "; ".join(settings.level_names)
        if settings.input.where is not None:
            yield "only where", settings.input.where
        for of, name in settings.input.lists_text:
            yield "one row for each", f"item of {of}{name and f', called {name}'}"
        for part in settings.input.key:
            if isinstance(part, ComputedKey):
                yield "computed", f"{part.name} = {part.expression}"
        read, texts = expression_names(settings.raw_schema().scalars, settings.input.where)
        if read:
            yield "fields read", f"{', '.join(read)} (by expressions; upper and lower case matter)"
        if texts:
            yield "texts", f"{', '.join(texts)} (in expressions)"
        for file, table in settings.lookup_tables.items():
            yield "lookup table", f"{file}: {table.keys:,} keys, sha256 {table.sha256[:16]}"
        columns = (f"{column.name} ({column.kind}{_range(column)})" for column in settings.columns)
        yield "columns", ", ".join(columns)
        yield (
            "windows",
            f"{window.length_text}{'' if window.time_zone else f' from {format_time(window.origin)}'}, "
            f"{settings.triggers_text} triggers {format_duration(window.trigger_every)} apart",
        )
        yield from (("per user", said) for said in self._caps())
        if settings.remember:
            what = f"keys of {settings.remember:,} users or more in a window's last row"
            yield "remembered", f"{what} are public in the next window"
        begins = start.from_ if isinstance(start.from_, str) else format_time(start.from_)
        first = "" if start.first_window is None else f", first window {window.instant_text(start.first_window)}"
        yield "begins", f"{begins}{first} (clock: {settings.clock.kind})"
        yield "privacy", f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g}"
        choice = settings.choice
        why = "as configured" if choice.reason is None else f"the default: {choice.reason}"
        yield "strategy", f"{choice.name}, {why}"
        if choice.reason is not None:
            yield from (("consider", sentence) for sentence in better_for(settings.plan()))
        if settings.top is not None:
            yield "ranking", f"{settings.top.ranking}: a key that is missing from it may still be large"
        grids = {column.name: column.grid for column in settings.measured_columns}
        yield from self.strategy.costs(grids)
        if settings.follows_persistence:
            yield "shares", FOLLOWS
            lasting = built(settings.plan().at_persistence(TENTHS))
            yield from (("if all lasts", f"{subject}: {sentence}") for subject, sentence in lasting.costs(grids))
        yield from about_columns(settings.layout, self.strategy)
        if window.rolling:
            costs = rest.costs(self.strategy, window.triggers_to_end)
            yield "rolling view", f"the last {window.length_text} at every trigger, {costs}"

    def _caps(self) -> Iterator[str]:
        """What counts of one user in a window, by level where there are several."""
        names = self.settings.level_names or ("",)
        for name, level in zip(names, self.strategy.by_level, strict=True):
            plan, ledger = level.plan, level.bounding.ledger
            records = f"at most {plan.max_records} record{'' if plan.max_records == 1 else 's'}"
            if ledger is not None:
                records += f" at the first trigger, where they cost most, and {ledger.most_records} if they come late"
            level_text = f"{name}: " if name else ""
            yield f"{level_text}{records}, {plan.max_records_per_key} per key and window"

    def progress(self, first_window: int | None, charged: int, charged_all: int) -> str:
        """The first window, and the windows charged."""
        first = "" if first_window is None else f" · first window {self.settings.window.instant_text(first_window)}"
        others = f", {charged_all - charged:,} more by others on this topic" if charged_all > charged else ""
        return f"{first} · {charged:,} window{'' if charged == 1 else 's'} charged{others}"

    def explain(self, facts: Facts) -> Iterator[Finding]:
        """See explanation.py."""
        return findings(self.settings, lambda: self.strategy, facts)

    def start_over(self, facts: Facts) -> tuple[str, ...]:
        """A histogram that reads from the beginning needs its first window."""
        first = facts.now if facts.first_window is None else facts.first_window
        start = self.settings.calendar.window_start(self.settings.calendar.window_at(first))
        shown = self.settings.window.instant_text(start)
        return (*super().start_over(facts), f'first_window = "{shown}"  # or an earlier start of a window')

    def new_beginning(self, first_window: FirstWindow, origin: Origin | None) -> NewBeginning:
        """See new_beginning.py."""
        return HistogramBeginning(self.settings, self.per_window(), first_window, origin)

    def newest_release(self, clients: Clients, epoch: str) -> NewestRelease | None:
        """What the topic of progress says."""
        progress = self._progress(clients)
        progress.refresh()
        return progress.release(epoch)

    def memory(self, newest: NewestRelease | None) -> Mapping[str, Any] | None:
        """See window_memory.py."""
        return window_memory.as_json(self.settings, newest)

    def memory_sentences(self, newest: NewestRelease | None) -> Sequence[str]:
        """See window_memory.py."""
        settings = self.settings
        said = window_memory.sentence(settings, newest), window_memory.present_limits(settings, newest)
        return [*filter(None, said)]

    def check_topics(
        self, admin: AdminClient, raw_topics: Sequence[str] | None = None, raw_admin: AdminClient | None = None
    ) -> list[Finding]:
        """Checks the raw topics as well: do they stamp their records as the clock expects?"""
        there = admin if raw_admin is None else raw_admin  # a client is false while it has nothing to send
        if raw_topics is None:
            raw_topics = visible(self.settings, there.list_topics(timeout=REQUEST_SECONDS).topics)
        own = super().check_topics(admin, raw_topics, there)  # first, for it says where a raw topic is missing
        return [*(found for topic in raw_topics for found in _raw_topic(self.settings, there, topic)), *own]

    def decisions(self, clients: Clients) -> Decisions:
        """See decisions.py."""
        from susurrus.agents.histogram.decisions import HistogramDecisions  # only who tries records needs it

        return HistogramDecisions(self.settings)

    def view(self, wanted: Wanted) -> Callable[[], View]:
        """See view.py."""
        has = ("window", "level", "number", "rolling view", *(() if self.settings.top is None else ("top",)))
        wanted.check(self.settings.kind, [each.column.name for each in self.settings.layout.published], *has)
        if wanted.rolling:
            self._has_rolling("--rolling")
            if wanted.top:
                raise ConfigurationError(
                    "--top: the ranking is of windows, not of the rolling view; leave one of the two out"
                )
        levels = self.settings.level_names
        if wanted.level is not None and wanted.level not in levels:
            known = (
                f"use one of {', '.join(map(json.dumps, levels))}" if levels else "there is one grouping; leave it out"
            )
            raise ConfigurationError(f'--level="{wanted.level}": there is no such level; {known}')
        view = RollingHistogramView if wanted.rolling else HistogramView
        return partial(
            view,
            self.settings,
            window=wanted.window,
            column=wanted.column,
            level=wanted.level,
            top=wanted.top,
            number=wanted.number or "smoothed",
        )

    def _has_rolling(self, asked: str) -> None:
        """Raises ConfigurationError where there is no rolling view. asked: how it was asked for."""
        if not self.settings.window.rolling:
            raise ConfigurationError(
                f"{asked}: the pipeline has no rolling view; set window.rolling = true, or leave it out"
            )

    def board(self, *, windows: int, curve_bytes: int) -> Board:
        """See board.py."""
        return HistogramBoard(self.settings, self.guarantee(), keep=windows, curve_bytes=curve_bytes)

    def releases(
        self, *, start: Start, window: WindowStart | None, final: bool, rolling: bool = False
    ) -> ReleaseSource:
        """Every complete release, of windows or of the rolling view."""
        reader = RollingReader if rolling else ReleaseReader
        if rolling:
            self._has_rolling("rolling=True")
        calendar = self.settings.calendar

        def last(of_window: int, of_triggers: int) -> int:
            """The last release of a window; of the rolling view, that at its end."""
            if not rolling:
                return of_triggers
            return triggers_to_end(calendar, calendar.window_at(of_window))

        def wanted(of_window: int, trigger: int, of_triggers: int) -> bool:
            return window in (None, of_window) and (not final or trigger == last(of_window, of_triggers))

        everything = window is None and not final
        since = None if window is None else window + self.settings.window.trigger_every  # the time of its first trigger
        return reader(self.settings, start=start, wanted=None if everything else wanted, since=since)


def _range(column: ColumnSettings) -> str:
    """What a column of a field is computed from, and where its values are clamped."""
    if column.limits is None:
        return ""
    low, high = column.limits
    if column.buckets_text is not None:
        return f" of {column.field or column.expression} in {low:g} to {high:g}, {column.buckets_text}"
    limits = f"±{high:g}" if low == -high and column.lower is None else f"{low:g} to {high:g}"
    return f" of {column.field or column.expression} in {limits}"


def _raw_topic(settings: HistogramSettings, admin: AdminClient, topic: str) -> Iterator[Finding]:
    config = settings_of(admin, topic)
    if "compact" in config["cleanup.policy"].split(","):
        yield Finding(
            topic,
            "failure",
            f"cleanup.policy={config['cleanup.policy']}, and one user's record could remove another's, which no noise hides",
            "feed the pipeline from a topic with cleanup.policy=delete",
        )
    if not settings.clock.chosen.live and config["retention.ms"] != "-1":
        yield Finding(
            topic,
            "failure",
            f"retention.ms={config['retention.ms']}, and an archive's old records would be deleted on arrival",
            "set it to -1",
        )
    wrong = list(settings.raw_topic_findings(topic, config))
    yield from wrong
    if not wrong:
        yield Finding(topic, "ok", f" (raw, {config['message.timestamp.type']})")
