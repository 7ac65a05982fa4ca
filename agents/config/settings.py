"""The configuration of one pipeline, as far as all kinds of pipelines share it: checked as a whole, frozen.

Each kind extends ``Settings`` by its own sections (agents/{histogram,stream,local}/settings.py). agents/pipelines.py chooses
the class by ``pipeline.kind``; agents/config/load.py reads files and variables. Durations and instants are ints of milliseconds,
attribute names are the names in the file (``start.from`` is ``start.from_``, since ``from`` is a Python keyword).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import PrivateAttr, model_validator

from susurrus.agents.config import checks, idle, kafka_checks, secrets
from susurrus.agents.config.calendars import FITS_FROM
from susurrus.agents.config.format_settings import FormatSettings
from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.output import OutputSettings
from susurrus.agents.config.sections import (
    BudgetSettings,
    ClockSettings,
    ClusterSettings,
    KafkaSettings,
    PipelineSettings,
    StartSettings,
    TopicSettings,
    WindowSettings,
    WorkerSettings,
)
from susurrus.agents.finding import Finding
from susurrus.agents.formats import FORMATS
from susurrus.agents.types.section import Section
from susurrus.mechanisms.calendar import Calendar, WindowStart
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.windows import CalendarLength
from susurrus.topics.records.zones import Zone
from susurrus.topics.spec import DEAD_LETTER, LEDGER, SOURCES, TopicSpec, topic_name
from susurrus.topics.wire.row_schema import RowSchema, identifier

DIGEST_VERSION: Final = 1


class Settings(Section):
    """The sections of every kind of pipeline. Only the kinds' own classes are ever loaded."""

    kind: ClassVar[str] = ""
    """The value of ``pipeline.kind`` that chooses this class."""
    published: ClassVar[tuple[str, ...]] = (
        "pipeline.name",
        "pipeline.kind",
        "input",
        "clock.kind",
        "clock.max_ahead",
        "clock.max_future",
        "clock.until",
        "window.length",
        "window.time_zone",
        "window.trigger_every",
        "window.allowed_lateness",
        "window.origin",
        "topics.by_user_partitions",
        "topics.bounded_partitions",
    )
    """Sections and fields that change published data and so the addresses of the noise. They may not change in an epoch.

    All others may change in a rolling upgrade (except pipeline.prefix, which makes it another pipeline): brokers and their
    properties, grace periods (they move public cuts, which are then in the log), publication_pad, secret_file (the secret
    itself must stay), budget, replication, retention, output (the same numbers in other bytes), worker.
    """
    not_published: ClassVar[tuple[str, ...]] = ("input.registry", "input.topics", "input.kafka")
    """Fields inside ``published`` that do not change published data. A schema id means the same schema in every registry. Of
    several topics the first stands for all as ``input.topic``, since others may be added: the ledger says which there are, and
    compares. So it does for the topics' ids, which no other cluster has."""
    published_if_set: ClassVar[tuple[str, ...]] = (
        *("input.where", "input.empty_user", "input.each", "input.key_format", "input.grouping_sets"),
        *("input.framing", "input.schema_file", "input.envelope", "input.decimals"),
        *("input.time_format", "input.time_zone", "window.time_zone"),
        *("input.columns", "input.delimiter", "input.quote", "input.pattern"),
        *("input.compression", "input.max_value_bytes", "input.encoding"),
        *("input.topic_pattern", "input.formats"),
    )
    """Fields of ``published``, or inside it, that enter only where they have not their default: otherwise all is as before there
    were any."""
    digest_of_default: ClassVar[Mapping[str, Any]] = {"clock.max_future": 0}
    """What stands in the digest for the default of a field whose default was another one before: what pipelines have that began
    with the old default. They go on with the new one. Who sets the old value explicitly has it there as a text."""
    secret_field: ClassVar[str | None] = None
    """The field that names the file with the noise secret; None where the pipeline draws no noise."""
    computes: ClassVar[bool] = False
    """Whether records may be filtered, and keys computed."""
    not_tuned: ClassVar[str] = ""
    """Why `susurrus tune` has nothing to recommend, and what to do instead; empty where it has."""
    reads_raw: ClassVar[bool] = True
    """Whether the input belongs to other producers: it must exist and is only read."""
    several_topics: ClassVar[bool] = False
    """Whether one pipeline may read several raw topics."""

    pipeline: PipelineSettings
    """What the pipeline is called and which kind it is."""
    kafka: KafkaSettings = KafkaSettings()
    """How to reach the cluster."""
    input: InputSettings
    """The raw topic and which parts of its records mean what."""
    output: OutputSettings = OutputSettings()
    """How released rows are written."""
    start: StartSettings = StartSettings()
    """Where a new pipeline begins."""
    clock: ClockSettings = ClockSettings()
    """Which clock decides that a trigger interval is over."""
    window: WindowSettings = WindowSettings()
    """The public calendar of windows and triggers."""
    budget: BudgetSettings | None = None
    """Optional total for a user active in every window."""
    topics: TopicSettings = TopicSettings()
    """How the topics of the pipeline are created."""
    worker: WorkerSettings = WorkerSettings()
    """One worker process."""

    _directory: Path = PrivateAttr(default=Path())

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """The same settings, for code of one kind. Raises ConfigurationError where they are of another kind."""
        if not isinstance(settings, cls):
            raise ConfigurationError(
                f'pipeline.kind = "{settings.kind}": this needs a pipeline of kind "{cls.kind}"',
                "give its configuration",
            )
        return settings

    @property
    def triggers(self) -> int:
        """T: triggers per window, the late ones included. Where windows differ in length, that of most windows."""
        window = self.window
        return -(-(self.calendar.windows.usual + window.allowed_lateness) // window.trigger_every)

    @property
    def triggers_text(self) -> str:
        """How many triggers windows have, for people: `96`, or `92 to 100`."""
        found = self.calendar.all_triggers
        return f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"

    @property
    def some_window(self) -> WindowStart:
        """The first window, where the settings name it, or else any: for examples and estimates."""
        first = self.start.first_window
        if first is None:
            first = FITS_FROM if isinstance(self.window.length, CalendarLength) else self.window.origin
        return self.calendar.window_start(self.calendar.window_at(first))

    @property
    def calendar(self) -> Calendar:
        """The pipeline's public calendar."""
        return self.window.calendar

    @property
    def closing_delay(self) -> int:
        """How long after its end, in ms, an interval is closed at the latest, if nothing holds it back."""
        return self.clock.idle_grace

    @property
    def raw_topic_settings(self) -> dict[str, str]:
        """Settings of Kafka that the raw topic must have; its producers create it."""
        return {}

    def raw_topic_findings(self, topic: str, found: Mapping[str, str]) -> Iterator[Finding]:
        """Why no epoch may begin on a raw topic with these settings in Kafka: what it has that does not fit."""
        yield from ()

    def start_findings(self, now: int, first_window: int | None = None) -> Iterator[Finding]:
        """Why no epoch may begin at this instant (ms), whatever Kafka has. first_window: the epoch's, its start in
        ms; None for that of the settings."""
        yield from ()

    @property
    def application(self) -> str:
        """Consumer group, and what transactional ids begin with: prefix and pipeline, so that one prefix ACL covers them."""
        return f"{self.pipeline.prefix}.{self.pipeline.name}"

    def topic(self, name: str) -> str:
        """The full name of one of the pipeline's own topics: ``<prefix>.<pipeline>.<name>``."""
        return topic_name(self.pipeline.prefix, self.pipeline.name, name)

    def is_own(self, topic: str) -> bool:
        """Whether a topic, by its full name, is one of the pipeline's, or the shared one with the charges."""
        return topic.startswith(self.topic("")) or topic == self.topics.charges

    @property
    def raw_kafka(self) -> ClusterSettings:
        """How to reach the cluster that has the raw topics."""
        return self.clusters[-1]

    @property
    def clusters(self) -> tuple[ClusterSettings, ...]:
        """How to reach the pipeline's own cluster, and that of the raw topics where it is another one."""
        return (self.kafka,) if self.input.kafka is None else (self.kafka, self.input.kafka)

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The pipeline's own topics; here those that every kind has."""
        return LEDGER, DEAD_LETTER, *self.standing_topics

    @property
    def standing_topics(self) -> tuple[TopicSpec, ...]:
        """The topic that stands for raw topics on another cluster; none where they are on the same."""
        return () if self.input.kafka is None else (SOURCES,)

    @property
    def namespace(self) -> str:
        """What the names of types in Avro and Protobuf begin with."""
        return ".".join(identifier(part) for part in self.application.split(".") if part)

    @property
    def schemas(self) -> dict[str, RowSchema]:
        """The values of the public topics, by full topic name."""
        return {}

    def idle(self) -> Iterator[idle.Idle]:
        """Settings that have no effect under the chosen options."""
        yield from ()

    def findings(self) -> Iterator[Finding]:
        """What an operator may not expect of settings that are not refused: warnings."""
        yield from (one for one in idle.findings(self) if one.level == "warning")
        for path, written in self.input.each_format.items():
            if written.registry is None and "registry" in FORMATS[written.format].options:
                yield Finding(
                    "settings",
                    "warning",
                    f"{path}.registry: without one, types with the same place in other .proto files are read as {path}.message = "
                    f'"{written.message}", too',
                    "set it, unless all records of the topic are of one file",
                )
        if self.output.registry is not None and not self.output.registered:
            yield Finding(
                "settings",
                "warning",
                f'output.registry: is not asked with output.format = "{self.output.format}"',
                'choose output.format = "avro" or "protobuf" if rows shall have a schema',
            )

    def problems(self) -> list[str]:
        """Everything that is wrong with the settings as a whole, one line each that ends with the fix."""
        return [
            *(problem for kafka in self.clusters for problem in kafka_checks.problems(kafka)),
            *([] if self.input.kafka is None else self._of_two_clusters()),
            *checks.calendar(self.window),
            *checks.topics(self.topics),
            *self.output.problems(),
            *checks.names(self.output, self.schemas),
            *(str(one) for one in idle.findings(self) if one.level == "failure"),
            *([] if self.computes else checks.nothing_computed(self.input, self.kind)),
            *([] if self.several_topics else checks.one_topic(self.input, self.kind)),
        ]

    def _of_two_clusters(self) -> Iterator[str]:
        """What keeps the raw topics from being on another cluster."""
        if not self.reads_raw:
            yield f'input.kafka: pipeline.kind = "{self.kind}" reads a topic of its own; leave it out'
        elif self.kafka.embedded:
            yield "input.kafka: does not go with kafka.embedded = true; leave one of the two out"
        for topic in filter(self.is_own, self.input.listed):
            yield f'input: topic="{topic}" is the name of one of the pipeline\'s own topics; name a topic of raw events'

    @classmethod
    def is_published(cls, path: str) -> bool:
        """Whether the configuration digest covers a field, given as ``section.field``."""
        parents = {path[:end] for end, mark in enumerate(path + ".") if mark == "."}
        return bool(parents & set(cls.published)) and not parents & set(cls.not_published)

    def in_digest(self, path: str) -> bool:
        """Whether the digest of these settings covers a field or section; ``is_published`` speaks of all settings of a kind."""
        return self.is_published(path) or (path == "input.registry" and self._types_by_registry)

    def published_fields(self) -> dict[str, Any]:
        """The settings that change published data, by dotted name, as JSON values; durations in milliseconds."""
        everything = self.model_dump(mode="json", by_alias=True)
        for path in self.not_published:
            section, field = path.split(".")
            if path == "input.registry" and self._types_by_registry:
                everything[section][field] = True  # that there is one decides what is read; where it is does not
            else:
                del everything[section][field]
        everything["input"]["topic"] = next(iter(self.input.listed), "")
        everything["input"]["formats"] = {topic: _written(of) for topic, of in self.input.formats.items()}
        left_out = set()
        for path in self.published_if_set:
            section, field = path.split(".")
            if getattr(getattr(self, section), field) == self._default_of(section, field):
                left_out.add(path)
                del everything[section][field]
        if (text := self.input.schema_text) is not None:
            everything["input"]["schema_file"] = hashlib.blake2b(text, digest_size=16).hexdigest()  # not its name
        fields = {}
        for path in (each for each in self.published if each not in left_out):
            value: Any = everything
            for part in path.split("."):
                value = value[part]
            fields[path] = value
        for path, stored in self.digest_of_default.items():
            section, field = path.split(".")
            if fields[path] == self._default_of(section, field):
                fields[path] = stored
            elif fields[path] == stored:
                fields[path] = str(stored)
        if self.input.time_zone is not None:
            fields["input.time_zone.rules"] = Zone(self.input.time_zone).rules
        if self.window.time_zone is not None:
            fields["window.time_zone.rules"] = Zone(self.window.time_zone).rules
        return fields

    def _default_of(self, section: str, field: str) -> Any:
        of = type(getattr(self, section)).model_fields[field]
        return of.get_default(call_default_factory=True, validated_data={})

    @property
    def _types_by_registry(self) -> bool:
        return _asks_for_types(self.input)

    def published_json(self) -> str:
        """What the digest covers, as canonical JSON: sorted names, no spaces."""
        return json.dumps(
            {"version": DIGEST_VERSION, **self.published_fields()},
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=True,
            allow_nan=False,
        )

    def config_digest(self) -> bytes:
        """32 bytes over canonical JSON of ``published_fields``: what must not change within an epoch."""
        return hashlib.blake2b(self.published_json().encode(), digest_size=32, person=b"susurrus-config").digest()

    def secret(self, environ: Mapping[str, str] = os.environ) -> bytes:
        """The noise secret; empty where the pipeline draws no noise.

        Raises ConfigurationError when there is none or it is too short.
        """
        return b"" if self.secret_field is None else secrets.load(self.secret_path, environ, self.secret_field)

    @property
    def secret_path(self) -> Path | None:
        """The file of the noise secret; None where it comes from the environment, or where there is none."""
        if self.secret_field is None:
            return None
        section, field = self.secret_field.split(".")
        path: Path | None = getattr(getattr(self, section), field)
        return None if path is None else self._directory / path

    def read_files(self, directory: Path) -> None:
        """Read what a section keeps in another file. File names are relative to ``directory``. Raises ConfigurationError."""
        self._directory = directory
        self.input.read_files(directory)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if found := self.problems():
            raise ValueError("\n".join(found))
        return self


def _written(settings: FormatSettings) -> dict[str, Any]:
    """How a topic is written, as far as that is not the default, as JSON values: a schema by its content."""
    defaults = {
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in type(settings).model_fields.items()
    }
    given = {name for name, default in defaults.items() if getattr(settings, name) != default}
    found = settings.model_dump(mode="json", include=given - {"registry"})
    if settings.schema_text is not None:
        found["schema_file"] = hashlib.blake2b(settings.schema_text, digest_size=16).hexdigest()
    return {**found, "registry": True} if _asks_for_types(settings) else found


def _asks_for_types(written: FormatSettings) -> bool:
    """Whether a registry decides what is read: that there is one changes published data, and where it is does not."""
    return written.registry is not None and "registry" in FORMATS[written.format].options
