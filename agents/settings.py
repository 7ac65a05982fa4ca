"""The configuration of one pipeline: TOML, then environment overrides, checked as a whole, frozen.

``load_settings`` is the only place where configuration is read. Everything else takes a ``Settings``: durations and instants
are ints of milliseconds, attribute names are the names in the file (``start.from`` is ``start.from_``, a Python keyword).
Two digests' worth of difference matter to privacy: fields that change what is published are in ``PUBLISHED_FIELDS`` and in
``Settings.config_digest()``; all others may change in a rolling upgrade.
"""

import difflib
import hashlib
import json
import math
import os
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator
from susurrus.agents import kafka_properties, secrets
from susurrus.agents.durations import format_duration, format_instant
from susurrus.agents.sections import (
    BoundSettings,
    BudgetSettings,
    ClockSettings,
    ColumnSettings,
    InputSettings,
    KafkaSettings,
    KeySettings,
    LocalSettings,
    PipelineSettings,
    PrivacySettings,
    Section,
    StartSettings,
    StreamSettings,
    TopicSettings,
    WindowSettings,
    WorkerSettings,
)
from susurrus.mechanisms.errors import ConfigurationError

if TYPE_CHECKING:
    from susurrus.mechanisms.strategy import Plan
    from susurrus.topics.raw import RawSchema

ENVIRONMENT_PREFIX: Final = "SUSURRUS__"
DIGEST_VERSION: Final = 1
MAX_USERS_PER_WINDOW: Final = 2**32
"""Users of one window for which sums are guaranteed to fit 64 bits."""

PUBLISHED_FIELDS: Final = (
    "pipeline.name",
    "pipeline.kind",
    "input",
    "clock.kind",
    "clock.max_ahead",
    "clock.max_future",
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
    "topics.by_user_partitions",
    "topics.bounded_partitions",
    "stream",
    "local",
)
"""Fields that change published data, hence the noise's address: they may not change within an epoch.

All others may change in a rolling upgrade: the prefix, brokers and their properties, grace periods (they move public cuts, which
are then in the log), publication_pad, secret_file (the secret itself must stay), budget, replication, retention, worker.
``keys.declared_file`` enters by its content, not its name.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredColumn:
    """A column the mechanism measures. ``bound`` and sums are in integer grid units; ``grid`` turns them into the
    field's unit."""

    name: str
    kind: Literal["count", "users", "sum"]
    bound: int
    grid: float
    value: int | None
    """Index into the decoded record's values (``Settings.value_fields``); None for counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumn:
    """A column of the output. ``source`` indexes the measured columns; a mean also divides by the measured
    ``divisor``."""

    name: str
    source: int
    divisor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueColumn:
    """A numeric field of the raw record: clamped to ±bound, rounded to multiples of grid; ``limit`` = floor(bound /
    grid)."""

    path: str
    bound: float
    grid: float

    @property
    def limit(self) -> int:
        return math.floor(self.bound / self.grid)


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
    columns: tuple[ColumnSettings, ...] = (ColumnSettings(name="count", kind="count"),)
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
    _declared: tuple[Any, ...] = PrivateAttr(default=())

    # ---- derived -----------------------------------------------------------------------------------------------------

    @property
    def triggers(self) -> int:
        """T: triggers per window, the late ones included."""
        return -(-(self.window.length + self.window.allowed_lateness) // self.window.trigger_every)

    @property
    def value_fields(self) -> tuple[ValueColumn, ...]:
        """The distinct numeric fields to decode, in order of first use."""
        return tuple(dict.fromkeys(_value(column) for column in self.columns if column.field is not None))

    @property
    def measured_columns(self) -> tuple[MeasuredColumn, ...]:
        """What the mechanism measures: every column but means, and for means a sum and a count unless a column already is that.

        Sharing is free: a mean computed from columns that are published anyway is post-processing and buys no second noise.
        """
        return self._layout()[0]

    @property
    def published_columns(self) -> tuple[PublishedColumn, ...]:
        """The output's columns in the order of the configuration."""
        return self._layout()[1]

    def _layout(self) -> tuple[tuple[MeasuredColumn, ...], tuple[PublishedColumn, ...]]:
        values = self.value_fields
        measured: list[MeasuredColumn] = []

        def measure(name: str, kind: Literal["count", "users", "sum"], value: ValueColumn | None) -> int:
            index = None if value is None else values.index(value)
            for position, column in enumerate(measured):
                if (column.kind, column.value) == (kind, index):
                    return position
            measured.append(
                MeasuredColumn(
                    name=name,
                    kind=kind,
                    bound=value.limit if value else 1,
                    grid=value.grid if value else 1.0,
                    value=index,
                )
            )
            return len(measured) - 1

        sources: dict[str, tuple[int, int | None]] = {}
        for column in self.columns:
            if column.kind != "mean":
                sources[column.name] = (
                    measure(column.name, column.kind, _value(column) if column.field else None),
                    None,
                )
        for column in self.columns:
            if column.kind == "mean":
                total = measure(f"{column.name}/sum", "sum", _value(column))
                sources[column.name] = (total, measure(f"{column.name}/count", "count", None))
        published = tuple(
            PublishedColumn(name=column.name, source=sources[column.name][0], divisor=sources[column.name][1])
            for column in self.columns
        )
        return tuple(measured), published

    @property
    def declared_keys(self) -> tuple[Any, ...]:
        """The declared keys as JSON values (tuples are composite keys), from the list or the file, without
        duplicates."""
        return self._declared or self.keys.declared

    def topic(self, name: str) -> str:
        """The full name of one of the pipeline's own topics: ``<prefix>.<pipeline>.<name>``."""
        return f"{self.pipeline.prefix}.{self.pipeline.name}.{name}"

    def plan(self) -> "Plan":
        """The mechanism's public constants. Raises ConfigurationError where the strategy refuses them."""
        from susurrus.mechanisms.strategy import Column, Plan

        weighted = self.privacy.strategy == "weighted"
        return Plan(
            strategy=self.privacy.strategy,
            triggers=self.triggers,
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            columns=tuple(Column(name=c.name, kind=c.kind, bound=c.bound) for c in self.measured_columns),
            max_records=self.bounds.max_records_per_user,
            max_records_per_key=self.bounds.max_records_per_key,
            max_keys=self.privacy.weighted.ranked_keys if weighted else self.bounds.max_keys_per_user,
            minimum_users=self.keys.minimum_users,
            discover=self.keys.discover,
            gaussian_delta_fraction=self.privacy.gaussian_delta_fraction,
            selection_share=self.privacy.selection_share,
            gamma=self.privacy.weighted.gamma,
            prior=self.privacy.weighted.prior,
        )

    def raw_schema(self) -> "RawSchema":
        """How to decode the raw topic's records."""
        from susurrus.topics.raw import RawSchema, ValueField

        return RawSchema(
            user=self.input.user,
            key=self.input.key,
            values=tuple(ValueField(path=v.path, bound=v.bound, grid=v.grid) for v in self.value_fields),
            time=None if self.input.time == "kafka" else self.input.time,
            time_unit=self.input.time_unit,
            null_user=self.input.null_user,
            null_key=self.input.null_key,
        )

    def config_digest(self) -> bytes:
        """32 bytes over canonical JSON of ``PUBLISHED_FIELDS``: what must not change within an epoch."""
        return hashlib.blake2b(self.published_json().encode(), digest_size=32, person=b"susurrus-config").digest()

    def published_json(self) -> str:
        """What the digest covers, as canonical JSON: sorted names, no spaces, durations in milliseconds."""
        everything = self.model_dump(mode="json", by_alias=True)
        everything["keys"] = {
            # Order and duplicates of the declared list change nothing; where it is kept changes nothing either.
            "declared": sorted({json.dumps(key, separators=(",", ":")) for key in self.declared_keys}),
            "discover": self.keys.discover,
            "minimum_users": self.keys.minimum_users,
        }
        fields = {"version": DIGEST_VERSION}
        for path in PUBLISHED_FIELDS:
            value: Any = everything
            for part in path.split("."):
                value = value[part]
            fields[path] = value
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)

    def secret(self, environ: Mapping[str, str] = os.environ) -> bytes:
        """The noise secret. Raises ConfigurationError when there is none or it is too short."""
        path = self.privacy.secret_file
        return secrets.load(None if path is None else self._directory / path, environ)

    def librdkafka(self) -> dict[str, Any]:
        """The configuration every confluent-kafka client starts from."""
        return {"bootstrap.servers": self.kafka.bootstrap_servers, **self.kafka.properties}

    def aiokafka(self) -> dict[str, Any]:
        """Keyword arguments every aiokafka client starts from, TLS context included."""
        return kafka_properties.aiokafka(self.kafka.bootstrap_servers, self.kafka.properties)

    def faust(self) -> dict[str, Any]:
        """Arguments of ``faust.App`` that say how to reach the cluster: ``broker`` and ``broker_credentials``."""
        servers = [server.strip() for server in self.kafka.bootstrap_servers.split(",")]
        return {
            "broker": [f"aiokafka://{server}" for server in servers],
            "broker_credentials": kafka_properties.faust_credentials(self.kafka.properties),
        }

    # ---- checks across fields ----------------------------------------------------------------------------------------

    @model_validator(mode="after")
    def _check(self) -> "Settings":
        problems = [*kafka_properties.problems(self.kafka.properties), *self._calendar(), *self._topics()]
        if self.pipeline.kind == "histogram":
            problems += [*self._histogram(), *self._columns()]
        else:
            problems += self._other_kind()
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _calendar(self) -> list[str]:
        window, start = self.window, self.start
        found = []
        if window.length % window.trigger_every:
            below = max(
                d for d in range(1, window.length // max(1, window.trigger_every) + 2) if window.length % d == 0
            )
            found.append(
                f'window.trigger_every = "{format_duration(window.trigger_every)}": must divide '
                f'window.length = "{format_duration(window.length)}"; '
                f'use "{format_duration(window.length // below)}" or another whole fraction'
            )
        if self.triggers > 1_000_000:
            found.append(
                f"window.trigger_every: {self.triggers} triggers per window; use at most 1,000,000, fewer cost less noise"
            )
        if self.pipeline.kind == "local":
            return found
        if start.first_window is None:
            if start.from_ == "earliest":
                found.append(
                    'start.first_window: is missing; with start.from = "earliest" say where the first window starts, '
                    "so that an old record cannot decide it"
                )
            elif self.clock.kind == "replay":
                found.append(
                    'start.first_window: is missing; with clock.kind = "replay" say where the archive\'s first window starts'
                )
        elif (start.first_window - window.origin) % window.length:
            aligned = start.first_window - (start.first_window - window.origin) % window.length
            found.append(
                f'start.first_window = "{format_instant(start.first_window)}": is not the start of a window; '
                f'use "{format_instant(aligned)}", or move window.origin'
            )
        return found

    def _topics(self) -> list[str]:
        topics = self.topics
        if topics.min_insync_replicas > topics.replication_factor:
            return [
                f"topics.min_insync_replicas = {topics.min_insync_replicas}: more than topics.replication_factor = "
                f"{topics.replication_factor}; use at most {max(1, topics.replication_factor - 1)}"
            ]
        if topics.replication_factor >= 3 and topics.min_insync_replicas < 2:
            return [
                f"topics.min_insync_replicas = {topics.min_insync_replicas}: one broker's disk could lose committed "
                "triggers, which would then be published differently; use 2"
            ]
        return []

    def _histogram(self) -> list[str]:
        found = []
        if not self.input.user:
            found.append(
                'input.user: is missing; name the field that identifies the user, for example user = "user_id"'
            )
        if not self.input.key:
            found.append('input.key: is missing; name the fields to group by, for example key = ["url"]')
        if len(set(self.input.key)) < len(self.input.key):
            found.append("input.key: names a field twice; leave one of them out")
        if "privacy" not in self.model_fields_set:
            found.append("privacy: is missing; state the promise, for example [privacy] epsilon = 6.0, delta = 1e-9")
            return found
        bounds, keys, privacy, budget = self.bounds, self.keys, self.privacy, self.budget
        if bounds.max_records_per_key > bounds.max_records_per_user:
            found.append(
                f"bounds.max_records_per_key = {bounds.max_records_per_key}: more than bounds.max_records_per_user = "
                f"{bounds.max_records_per_user}; use at most that"
            )
        if bounds.max_keys_per_user is not None and privacy.strategy == "weighted":
            found.append('bounds.max_keys_per_user: not with strategy "weighted"; use privacy.weighted.ranked_keys')
        if keys.declared and keys.declared_file:
            found.append("keys.declared_file: there is keys.declared too; keep one of them")
        if not keys.discover and not keys.declared and not keys.declared_file:
            found.append("keys.discover = false: nothing would be published; declare keys, or set discover = true")
        arity = len(self.input.key)
        if any((len(key) if isinstance(key, tuple) else 1) != arity for key in keys.declared):
            found.append(f"keys.declared: every key needs as many parts as input.key, which has {arity}")
        if budget and budget.epsilon < privacy.epsilon:
            found.append(
                f"budget.epsilon = {budget.epsilon:g}: less than one window's privacy.epsilon = {privacy.epsilon:g}; raise it"
            )
        if budget and budget.delta < privacy.delta:
            found.append(
                f"budget.delta = {budget.delta:g}: less than one window's privacy.delta = {privacy.delta:g}; raise it"
            )
        return found

    def _columns(self) -> list[str]:
        found = []
        names = [column.name for column in self.columns]
        if not self.columns:
            found.append('columns: is empty; add at least [[columns]] name = "visits", kind = "count"')
        for name in sorted({name for name in names if names.count(name) > 1}):
            found.append(f'columns: two are called "{name}"; rename one')
        for index, column in enumerate(self.columns):
            place = f'columns.{index} ("{column.name}")'
            if column.kind in ("count", "users"):
                extra = [name for name in ("field", "bound", "grid") if getattr(column, name) is not None]
                found += [f'{place}: {name} has no meaning for kind = "{column.kind}"; leave it out' for name in extra]
                continue
            missing = [name for name in ("field", "bound") if getattr(column, name) is None]
            found += [f'{place}: {name} is missing; kind = "{column.kind}" needs it' for name in missing]
            if missing:
                continue
            value = _value(column)
            if not 1 <= value.limit < 2**53:
                found.append(
                    f"{place}: grid = {value.grid:g} against bound = {value.bound:g}; use a grid between bound / 2^20 and bound"
                )
            elif (
                self.bounds.max_records_per_key * self.bounds.max_records_per_user * MAX_USERS_PER_WINDOW * value.limit
                >= 2**63
            ):
                found.append(
                    f"{place}: sums could leave 64 bits (m * C * 2^32 users * floor(bound / grid) >= 2^63); use a coarser grid, "
                    f"at least {_coarsest(self.bounds, value):g}, or lower bounds.max_records_per_user"
                )
        return found

    def _other_kind(self) -> list[str]:
        kind = self.pipeline.kind
        found = (
            []
            if getattr(self, kind) is not None
            else [f'{kind}: is missing; pipeline.kind = "{kind}" needs a [{kind}] section']
        )
        for name in ("bounds", "columns", "keys", "privacy"):
            if name in self.model_fields_set:
                found.append(f'{name}: belongs to kind "histogram"; state the promise in [{kind}] and leave this out')
        return found


def _value(column: ColumnSettings) -> ValueColumn:
    if column.field is None or column.bound is None:
        raise ConfigurationError(
            f'column "{column.name}": field and bound are missing; kind = "{column.kind}" needs them'
        )
    grid = column.grid if column.grid is not None else column.bound * 2.0**-10
    return ValueColumn(path=column.field, bound=column.bound, grid=grid)


def _coarsest(bounds: BoundSettings, value: ValueColumn) -> float:
    return value.bound / (
        (2**63 - 1) // (bounds.max_records_per_key * bounds.max_records_per_user * MAX_USERS_PER_WINDOW) or 1
    )


# ---- loading -------------------------------------------------------------------------------------------------------------


def load_settings(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read ``path`` (TOML), lay the environment's ``SUSURRUS__SECTION__FIELD`` over it, resolve secrets by file, and check.

    Raises ConfigurationError with one line per problem, each naming the field and the fix. Without a path everything comes
    from the environment.
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
    return settings_from(_overlaid(data, environ), directory=directory, environ=environ)


def settings_from(
    data: Mapping[str, Any], *, directory: Path = Path(), environ: Mapping[str, str] = os.environ
) -> Settings:
    """Settings of an already parsed configuration; file names in it are relative to ``directory``."""
    data = dict(data)
    kafka = data.get("kafka")
    if isinstance(kafka, Mapping) and isinstance(kafka.get("properties"), Mapping):
        flat = kafka_properties.flatten(kafka["properties"])
        resolved = {
            name: secrets.resolve(value, f'kafka.properties."{name}"', directory, environ)
            for name, value in flat.items()
        }
        data["kafka"] = {**kafka, "properties": resolved}
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(error))) from None
    settings._directory = directory
    if settings.keys.declared_file is not None:
        settings._declared = _read_declared(directory / settings.keys.declared_file, len(settings.input.key))
    return settings


def _overlaid(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The file's tables with ``SUSURRUS__A__B=value`` put at a.b; lists and tables are written as JSON."""
    for variable in sorted(environ):
        if not variable.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        parts = [part.lower() for part in variable[len(ENVIRONMENT_PREFIX) :].split("__")]
        if parts[:2] == ["kafka", "properties"] and len(parts) == 3:
            parts[2] = parts[2].replace("_", ".")  # librdkafka's names have dots, which a shell does not allow
        table = data
        for depth, part in enumerate(parts[:-1]):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigurationError(
                    f"{variable}: {'.'.join(parts[: depth + 1])} is not a section; name a field, lists as JSON in one variable"
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


def _read_declared(path: Path, arity: int) -> tuple[Any, ...]:
    keys: dict[str, Any] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError(
            f'keys.declared_file = "{path}": cannot be read; give a UTF-8 file of JSON lines'
        ) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            key = json.loads(line)
        except json.JSONDecodeError:
            raise ConfigurationError(
                f'keys.declared_file = "{path}": line {number} is not JSON; write one scalar or array a line, texts in quotes'
            ) from None
        parts = key if isinstance(key, list) else [key]
        if len(parts) != arity or any(isinstance(part, dict | list) for part in parts):
            raise ConfigurationError(
                f'keys.declared_file = "{path}": line {number} is not a key of {arity} scalar part(s) as input.key has; correct it'
            )
        keys[json.dumps(key)] = tuple(key) if isinstance(key, list) else key
    if not keys:
        raise ConfigurationError(f'keys.declared_file = "{path}": is empty; list at least one key, or leave it out')
    return tuple(keys.values())


# ---- errors ----------------------------------------------------------------------------------------------------------------


def _explain(error: ValidationError) -> list[str]:
    """One line per problem: the field, what is wrong with it, what to write instead. Values of properties are never
    shown."""
    lines = []
    for problem in error.errors():
        location = [part for part in problem["loc"] if part not in ("literal['earliest','latest']", "int")]
        place = ".".join(str(part) for part in location)
        context = problem.get("ctx", {})
        match problem["type"]:
            case "extra_forbidden":
                known = _fields_at(location[:-1])
                close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
                hint = f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(known)}"
                lines.append(f"{place}: unknown field; {hint}")
            case "missing":
                lines.append(f"{place}: is missing; add it")
            case "value_error" if not location:
                lines += str(context["error"]).splitlines()
            case kind:
                shown = "" if "properties" in location else f" = {_shown(problem['input'])}"
                reason = str(context["error"]) if kind == "value_error" else _reason(kind, problem["msg"], context)
                lines.append(f"{place}{shown}: {reason}")
    return list(dict.fromkeys(lines))


def _reason(kind: str, message: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "literal_error":
            return f"use {context['expected']}"
        case "string_pattern_mismatch":
            return "use letters, digits, - and _ (topic names also .), starting with a letter or digit"
        case "float_parsing" | "float_type":
            return "write a number"
        case "int_parsing" | "int_type" | "int_from_float":
            return "write a whole number"
        case "bool_parsing" | "bool_type":
            return "write true or false"
        case "string_type":
            return "write a text in quotes"
        case "tuple_type":
            return "write a list in brackets"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "write a section (a TOML table)"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return message.replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(location: list[Any]) -> list[str]:
    """The names a section knows, found by walking the models along the error's location."""
    model: type[BaseModel] | None = Settings
    for part in location:
        if model is None or isinstance(part, int):
            continue
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        model = None if field is None else _model_in(field.annotation)
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := _model_in(part))), None)
