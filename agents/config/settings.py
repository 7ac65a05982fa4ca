"""The configuration of one pipeline: TOML, then environment overrides, checked as a whole, frozen.

``load_settings`` is the only place where configuration is read; everything else takes a ``Settings``. Durations and
instants are ints of milliseconds, attribute names are the names in the file (``start.from`` is ``start.from_``, since
``from`` is a Python keyword). Fields that change what is published are listed in ``PUBLISHED_FIELDS`` and covered by
``Settings.config_digest()``; all others may change in a rolling upgrade.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from susurrus.agents.config import checks, kafka_properties, secrets
from susurrus.agents.config.explain import explain
from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.sections import (
    BudgetSettings,
    ClockSettings,
    KafkaSettings,
    PipelineSettings,
    Section,
    StartSettings,
    TopicSettings,
    WindowSettings,
    WorkerSettings,
)
from susurrus.agents.histogram import declared
from susurrus.agents.histogram.columns import Column, ColumnSettings, Layout, layout
from susurrus.agents.histogram.privacy import AdaptiveSettings, PrivacySettings
from susurrus.agents.histogram.settings import BoundSettings, KeySettings
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.errors import ConfigurationError

if TYPE_CHECKING:
    from susurrus.mechanisms.histogram.strategy import Plan
    from susurrus.topics.raw import RawSchema

ENVIRONMENT_PREFIX: Final = "SUSURRUS__"
DIGEST_VERSION: Final = 1

PUBLISHED_FIELDS: Final = (
    "pipeline.name",
    "pipeline.kind",
    "input",
    "clock.kind",
    "clock.max_ahead",
    "clock.max_future",
    "clock.until",
    "window.length",
    "window.trigger_every",
    "window.allowed_lateness",
    "window.origin",
    "bounds",
    "columns",
    "keys",
    "privacy.epsilon",
    "privacy.delta",
    "privacy.strategy",
    "privacy.gaussian_delta_fraction",
    "privacy.selection_share",
    "privacy.weighted",
    "privacy.adaptive",
    "privacy.closing",
    "topics.by_user_partitions",
    "topics.bounded_partitions",
    "stream",
    "local",
)
"""Fields that change published data, hence the noise's address: they may not change within an epoch.

All others may change in a rolling upgrade (but for pipeline.prefix, which makes it another pipeline): brokers and their
properties, grace periods (they move public cuts, which are then in the log), publication_pad, secret_file (the secret
itself must stay), budget, replication, retention, worker, input.registry. ``keys.declared_file`` enters by its content,
not its name. ``privacy.adaptive`` and ``privacy.closing`` count where that is the strategy: pipelines older than them go on.
"""


class Settings(Section):
    """The whole configuration of one pipeline."""

    pipeline: PipelineSettings
    """What the pipeline is called and which kind it is."""
    kafka: KafkaSettings = KafkaSettings()
    """How to reach the cluster."""
    input: InputSettings
    """The raw topic and which parts of its records mean what."""
    start: StartSettings = StartSettings()
    """Where a new pipeline begins."""
    clock: ClockSettings = ClockSettings()
    """Which clock decides that a trigger interval is over."""
    window: WindowSettings = WindowSettings()
    """The public calendar of windows and triggers."""
    bounds: BoundSettings = BoundSettings()
    """How much one user may contribute to one window."""
    columns: tuple[ColumnSettings, ...] = (ColumnSettings(name="count"),)
    """The published columns; one COUNT by default."""
    keys: KeySettings = KeySettings()
    """Keys that are public knowledge, and whether others may be discovered."""
    privacy: PrivacySettings = Field(
        default=PrivacySettings.model_construct(epsilon=0.0, delta=0.0),
        validate_default=False,
        json_schema_extra={"default": None},
    )
    """The promise per user and window. Required for kind `histogram`; the other kinds state theirs in their own
    section."""
    budget: BudgetSettings | None = None
    """Optional total for a user active in every window."""
    topics: TopicSettings = TopicSettings()
    """How the topics of the pipeline are created."""
    worker: WorkerSettings = WorkerSettings()
    """One worker process."""
    stream: StreamSettings | None = None
    """Pipeline kind `stream`."""
    local: LocalSettings | None = None
    """Pipeline kind `local`."""

    _directory: Path = PrivateAttr(default=Path())
    _declared: tuple[bytes, ...] = PrivateAttr(default=())

    @property
    def triggers(self) -> int:
        """T: triggers per window, the late ones included."""
        return -(-(self.window.length + self.window.allowed_lateness) // self.window.trigger_every)

    @property
    def layout(self) -> Layout:
        """Which fields are decoded, which columns are measured, which are published."""
        return layout(self.columns)

    @property
    def measured_columns(self) -> tuple[Column, ...]:
        """What the mechanism measures: every column but means, and the sums and counts that means still need."""
        return self.layout.measured

    @property
    def declared_keys(self) -> tuple[bytes, ...]:
        """The declared keys as canonical JSON, from the list or the file, sorted, without duplicates."""
        return self._declared or declared.canonical(self.keys.declared)

    def topic(self, name: str) -> str:
        """The full name of one of the pipeline's own topics: ``<prefix>.<pipeline>.<name>``."""
        return f"{self.pipeline.prefix}.{self.pipeline.name}.{name}"

    def plan(self) -> "Plan":
        """The mechanism's public constants. Raises ConfigurationError where the strategy refuses them."""
        from susurrus.mechanisms.histogram.strategy import Column as MechanismColumn
        from susurrus.mechanisms.histogram.strategy import Plan

        privacy = self.privacy
        ranked = privacy.by_rank or privacy.weighted
        told = ranked if isinstance(ranked, AdaptiveSettings) else privacy.adaptive
        return Plan(
            strategy=self.privacy.strategy,
            triggers=self.triggers,
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            columns=tuple(MechanismColumn(name=c.name, kind=c.measures, bound=c.bound) for c in self.measured_columns),
            max_records=self.bounds.max_records_per_user,
            max_records_per_key=self.bounds.max_records_per_key,
            max_keys=ranked.ranked_keys if privacy.by_rank is not None else self.bounds.max_keys_per_user,
            minimum_users=self.keys.minimum_users,
            discover=self.keys.discover,
            gaussian_delta_fraction=self.privacy.gaussian_delta_fraction,
            selection_share=privacy.selection_share,
            gamma=ranked.gamma,
            prior=ranked.prior,
            lag=told.lag,
            closing_unknown_share=privacy.closing.unknown_share,
            closing_public_share=privacy.closing.public_share,
            closing_keys=privacy.closing.keys,
        )

    def raw_schema(self) -> "RawSchema":
        """How to decode the raw topic's records."""
        from susurrus.topics.raw import RawSchema

        return RawSchema(
            user=self.input.user,
            key=self.input.key,
            values=self.layout.values,
            time=None if self.input.time == "kafka" else self.input.time,
            time_unit=self.input.time_unit,
            null_user=self.input.null_user,
            null_key=self.input.null_key,
            max_key_bytes=self.input.max_key_bytes,
        )

    def config_digest(self) -> bytes:
        """32 bytes over canonical JSON of ``PUBLISHED_FIELDS``: what must not change within an epoch."""
        return hashlib.blake2b(self.published_json().encode(), digest_size=32, person=b"susurrus-config").digest()

    def published_json(self) -> str:
        """What the digest covers, as canonical JSON: sorted names, no spaces."""
        return json.dumps(
            {"version": DIGEST_VERSION, **self.published_fields()},
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=True,
            allow_nan=False,
        )

    def published_fields(self) -> dict[str, Any]:
        """The settings that change published data, by dotted name, as JSON values; durations in milliseconds."""
        everything = self.model_dump(mode="json", by_alias=True)
        everything["keys"] = {
            # Order and duplicates of the declared list change nothing; where it is kept changes nothing either.
            "declared": [key.decode() for key in self.declared_keys],
            "discover": self.keys.discover,
            "minimum_users": self.keys.minimum_users,
        }
        # Where schemas are found changes nothing: an id means one schema for ever.
        del everything["input"]["registry"]
        if everything["stream"] is not None:
            del everything["stream"]["secret_file"]
        fields = {}
        for path in PUBLISHED_FIELDS:
            if path in ("privacy.adaptive", "privacy.closing") and path != f"privacy.{self.privacy.strategy}":
                continue
            value: Any = everything
            for part in path.split("."):
                value = value[part]
            fields[path] = value
        for path in ("privacy.adaptive", "privacy.closing"):
            if path in fields:
                from susurrus.mechanisms.histogram.adaptive import geometric

                # The law itself, not that it is the default: another default must not meet this epoch's noise.
                fields[path]["prior"] = fields[path]["prior"] or geometric(fields[path]["ranked_keys"])
        return fields

    def secret(self, environ: Mapping[str, str] = os.environ) -> bytes:
        """The noise secret. Raises ConfigurationError when there is none or it is too short."""
        path = self.privacy.secret_file if self.stream is None else self.stream.secret_file
        return secrets.load(None if path is None else self._directory / path, environ)

    def librdkafka(self) -> dict[str, Any]:
        """The configuration every confluent-kafka client starts from."""
        return {"bootstrap.servers": self.kafka.bootstrap_servers, **self.kafka.properties}

    def aiokafka(self) -> dict[str, Any]:
        """Keyword arguments every aiokafka client starts from, TLS context included."""
        arguments = kafka_properties.aiokafka(self.kafka.bootstrap_servers, self.kafka.properties)
        if self.kafka.embedded:
            arguments["check_crcs"] = False  # the embedded broker writes commit markers without a checksum
        return arguments

    def faust(self) -> dict[str, Any]:
        """Arguments of ``faust.App`` that say how to reach the cluster: ``broker`` and ``broker_credentials``."""
        servers = [server.strip() for server in self.kafka.bootstrap_servers.split(",")]
        return {
            "broker": [f"aiokafka://{server}" for server in servers],
            "broker_credentials": kafka_properties.faust_credentials(self.kafka.properties),
        }

    @model_validator(mode="before")
    @classmethod
    def _input_of_local(cls, data: Any) -> Any:
        """Kind `local` reads the reports topic, its own: there is no raw topic to name."""
        pipeline = data.get("pipeline") if isinstance(data, Mapping) else None
        if not isinstance(pipeline, Mapping) or pipeline.get("kind") != "local" or "input" in data:
            return data
        default = PipelineSettings.model_fields["prefix"].default
        return {**data, "input": {"topic": f"{pipeline.get('prefix', default)}.{pipeline.get('name')}.reports"}}

    @model_validator(mode="after")
    def _check(self) -> "Settings":
        if found := checks.problems(self):
            raise ValueError("\n".join(found))
        return self


def load_settings(
    path: Path | None, environ: Mapping[str, str] = os.environ, *, unresolved: list[str] | None = None
) -> Settings:
    """Read ``path`` (TOML), lay ``SUSURRUS__SECTION__FIELD`` of the environment over it, resolve secrets, and check.

    Raises ConfigurationError with one line per problem, each naming the field and the fix. Without a path everything
    comes from the environment.
    """
    data: dict[str, Any] = {}
    directory = Path()
    if path is not None:
        directory = path.parent
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigurationError(f'config="{path}": no such file; give the path of a TOML file') from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f'config="{path}": cannot be read ({error}); check its permissions and encoding'
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f'config="{path}": not valid TOML: {error}; correct that line') from None
    return settings_from(_overlaid(data, environ), directory=directory, environ=environ, unresolved=unresolved)


def settings_from(
    data: Mapping[str, Any],
    *,
    directory: Path = Path(),
    environ: Mapping[str, str] = os.environ,
    unresolved: list[str] | None = None,
) -> Settings:
    """Settings of an already parsed configuration; file names in it are relative to ``directory``.

    unresolved: takes what is wrong with passwords kept elsewhere, which is otherwise an error like any other.
    """
    data = dict(data)
    problems: list[str] = []
    for section in _WITH_SECRETS:
        _resolve_properties(data, section, directory, environ, problems if unresolved is None else unresolved)
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        problems += explain(error, Settings)
    if problems:
        raise ConfigurationError("\n".join(problems))
    settings._directory = directory
    if settings.keys.declared_file is not None:
        settings._declared = declared.read(directory / settings.keys.declared_file, len(settings.input.key))
    return settings


_WITH_SECRETS: Final = (("kafka",), ("input", "registry"))
"""Sections with properties of a client, whose values may be secrets kept elsewhere."""


def _resolve_properties(
    data: dict[str, Any],
    section: tuple[str, ...],
    directory: Path,
    environ: Mapping[str, str],
    problems: list[str],
) -> None:
    """Put the values of files and variables at ``<section>.properties``, copying the tables on the way there."""
    table: dict[str, Any] = data
    for name in section:
        if not isinstance(table.get(name), Mapping):
            return
        table[name] = dict(table[name])
        table = table[name]
    if isinstance(table.get("properties"), Mapping):
        place = ".".join((*section, "properties"))
        table["properties"] = properties = kafka_properties.flatten(table["properties"])
        for name, value in properties.items():
            try:
                properties[name] = secrets.resolve(value, f'{place}."{name}"', directory, environ)
            except ConfigurationError as problem:
                problems.append(str(problem))
                properties[name] = ""


def _overlaid(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The file's tables with ``SUSURRUS__A__B=value`` put at a.b; lists and tables are written as JSON."""
    for variable in sorted(environ):
        if not variable.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        parts = [part.lower() for part in variable[len(ENVIRONMENT_PREFIX) :].split("__")]
        if tuple(parts[:-2]) in _WITH_SECRETS and parts[-2] == "properties":
            parts[-1] = parts[-1].replace("_", ".")  # clients' names have dots, which a shell does not allow
        table = data
        for depth, part in enumerate(parts[:-1]):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigurationError(
                    f"{variable}: {'.'.join(parts[: depth + 1])} is not a section; name a field of one"
                )
        text = environ[variable]
        if text.lstrip()[:1] in ("[", "{"):
            try:
                table[parts[-1]] = json.loads(text)
                continue
            except json.JSONDecodeError as error:
                raise ConfigurationError(
                    f"{variable}: not valid JSON ({error.msg}); write lists and tables as JSON"
                ) from None
        table[parts[-1]] = text
    return data
