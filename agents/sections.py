"""The sections of the configuration, one frozen model each; agents/settings.py joins them and checks them against
each other.

Attribute names are the names in the TOML file. Durations and instants are ints of milliseconds (agents/durations.py).
The text under a field is its documentation: ``susurrus config schema`` prints it and docs/configuration.md lists it.
"""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from susurrus.agents.durations import Duration, Instant, parse_instant

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=80)]
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", min_length=1, max_length=249)]
Positive = Annotated[int, Field(ge=1)]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


PositiveFloat = Annotated[float, Field(gt=0), AfterValidator(_finite)]
Epsilon = Annotated[float, Field(gt=0, le=100), AfterValidator(_finite)]
Delta = Annotated[float, Field(gt=0, le=0.01)]


class Section(BaseModel):
    """Frozen, no unknown fields, documentation under each field."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True, validate_default=True
    )


class PipelineSettings(Section):
    """What the pipeline is called and which kind it is."""

    name: Name
    """Name of the pipeline; its topics are `<prefix>.<name>.<topic>`."""
    kind: Literal["histogram", "stream", "local"] = "histogram"
    """`histogram`: private counts, sums and means per key. `stream`: private real-valued streams (ToPS, PAK). `local`:
    local privacy (ToPL)."""
    prefix: TopicName = "susurrus"
    """Common prefix of all topics, so that one prefix ACL covers them."""


class KafkaSettings(Section):
    """How to reach the cluster."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = "localhost:9092"
    """Comma-separated `host:port` list of brokers."""
    embedded: bool = False
    """The broker is librdkafka's own, inside the process: for demonstrations and tests only, it keeps no promise."""
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    """Raw librdkafka properties for producers, consumers and admin, translated for Faust's consumer too (SASL, TLS,
    timeouts). A value may be `{ file = "/path" }` or `{ env = "NAME" }`."""


def _web_addresses(value: str) -> str:
    for url in value.split(","):
        if not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", url.strip()):
            raise ValueError("write http://host:port or https://host:port; credentials go to input.registry.properties")
    return value


def _class(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("write package.module:Message")
    return value


class RegistrySettings(Section):
    """The schema registry that knows the schemas of Avro records. Where it is may change; what it knows may not."""

    url: Annotated[str, AfterValidator(_web_addresses)]
    """Its address; several, separated by commas, are tried in turn."""
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    """Properties of confluent-kafka's SchemaRegistryClient, such as `basic.auth.user.info` and `ssl.ca.location`. A
    value may be `{ file = "/path" }` or `{ env = "NAME" }`."""
    patience: Duration = 10_000
    """How long after a record was written its schema may be registered: a record whose schema is unknown holds up its
    partition until then, and is bad input after that. More than the clocks of workers, brokers and registry differ."""


class InputSettings(Section):
    """The raw topic and which parts of its records mean what."""

    topic: TopicName
    """The existing topic of raw events. It is only read."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """How records are written. `avro` and `protobuf`: in Confluent's wire format, and Susurrus is installed with
    its extra `registry` (`pip install '.[registry]'`). Only kind `histogram` reads them."""
    message: Annotated[str, AfterValidator(_class)] | None = None
    """`protobuf`: the class that protoc generated, as `package.module:Message`, on PYTHONPATH. Fields are resolved by
    it, so no registry is asked."""
    registry: RegistrySettings | None = None
    """`avro`: where schemas are found."""
    user: str = ""
    """Field that identifies the user, the unit of privacy; a dotted path reaches into objects. Required for kind
    `histogram`."""
    key: tuple[str, ...] = ()
    """Fields to group by; several make a composite key. Required for kind `histogram`."""
    time: str = "kafka"
    """Field with the event time, or `kafka` for the record's own timestamp."""
    time_unit: Literal["s", "ms", "us", "ns", "iso"] = "ms"
    """Unit of the time field; `iso` is ISO 8601 text. Without meaning for `time = "kafka"`."""
    null_user: Literal["dead-letter", "value"] = "dead-letter"
    """What becomes of records whose user is null: set aside, or all treated as one user called null."""
    null_key: Literal["dead-letter", "value"] = "value"
    """What becomes of records whose key is null: counted under the key null, or set aside."""
    max_key_bytes: Annotated[int, Field(ge=1, le=65_536)] = 4096
    """Longer keys and user ids (canonical JSON, UTF-8 bytes) go to the dead-letter topic."""


class StartSettings(Section):
    """Where a new pipeline begins. Written to the ledger once; later changes here are ignored with a warning."""

    from_: Annotated[
        Literal["earliest", "latest"] | int,
        Field(alias="from"),
        BeforeValidator(lambda value: value if value in ("earliest", "latest") else parse_instant(value)),
        WithJsonSchema({"type": "string", "examples": ["earliest", "latest", "2026-01-31T00:00:00Z"]}),
    ] = "latest"
    """`earliest`, `latest`, or an instant: the first raw record to read, by its Kafka timestamp."""
    first_window: Instant | None = None
    """Start of the first window to publish; records of earlier windows are bad input. Required with `from =
    "earliest"` and with the clock `replay`; otherwise the window of the start."""
    epoch: Annotated[str, Field(pattern=r"^[0-9a-f]{2,64}$")] | None = None
    """Epoch of a new pipeline, hexadecimal; random by default. Only for repeating a run exactly, in tests: the same
    epoch and secret over different data give the difference of the data away."""


class ClockSettings(Section):
    """Which clock decides that a trigger interval is over."""

    kind: Literal["broker", "producer", "replay"] = "broker"
    """`broker`: the raw topic is stamped by the broker (LogAppendTime). `producer`: stamps are the producers'
    (CreateTime) and not trusted. `replay`: an archive sorted by time in each partition; its end closes everything.
    Its topic needs retention.ms = -1, for old stamps would expire at once."""
    grace: Duration = 5_000
    """Clock `broker`: a partition passes a boundary when a record stamped this much later is read."""
    idle_grace: Duration = 60_000
    """An idle or producer-stamped partition passes a boundary this long after it; at least replica.lag.time.max.ms
    (30 s by default) plus clock skew."""
    max_ahead: Duration = 3_600_000
    """Clock `producer`: a stamp further in the future than this is bad input."""
    until: Instant | None = None
    """Clock `replay`, required: the instant at which the archive ends, from public knowledge. The archive's end closes
    every trigger before it; records behind it are bad input."""
    max_future: Duration = 0
    """An event time further beyond the record's stamp than this is bad input."""


class WindowSettings(Section):
    """The public calendar of windows and triggers."""

    length: Annotated[Duration, Field(ge=1)] = 86_400_000
    """Length of a window. One user's contribution to one window is what the guarantee protects."""
    trigger_every: Annotated[Duration, Field(ge=1)] = 900_000
    """Time between releases inside a window; divides `length`."""
    allowed_lateness: Duration = 0
    """How long after its end a window still takes late records, in further triggers."""
    origin: Instant = 0
    """Instant at which some window starts; all others are whole lengths away. For days in another time zone, midnight
    there."""
    publication_pad: Duration = 0
    """Results are published at the trigger time plus this, so that the time of publication says less about the load."""


class BoundSettings(Section):
    """How much one user may contribute to one window. Public constants: choose them without looking at the data."""

    max_records_per_user: Positive = 32
    """C: records kept per user and window, the first ones by trigger and position. More keeps more data, at more
    noise."""
    max_records_per_key: Positive = 1
    """m: records kept per user and key; 1 counts each user at most once per key."""
    max_keys_per_user: Positive | None = None
    """Optional cap on distinct keys per user and window; lowers the noise where users have few keys but many records.
    Not for strategies `weighted`, `adaptive` and `closing`."""


class ColumnSettings(Section):
    """One published column."""

    name: Name
    """Name of the column in the output."""
    kind: Literal["count", "users", "sum", "mean"] = "count"
    """`count`: kept records. `users`: distinct users. `sum`: of `field`. `mean`: of `field`, from a sum and a count."""
    field: str | None = None
    """`sum` and `mean`: the numeric field, a dotted path."""
    bound: PositiveFloat | None = None
    """`sum` and `mean`: values are clamped to [-bound, bound] before anything else. Public: choose it without looking
    at the data."""
    grid: PositiveFloat | None = None
    """`sum` and `mean`: values are rounded to multiples of this, so that sums are exact. Default: bound / 1024."""


def _key(value: Any) -> Any:
    scalars = value if isinstance(value, list | tuple) else [value]
    finite = (not isinstance(item, float) or math.isfinite(item) for item in scalars)
    if not all(finite) or not all(item is None or isinstance(item, str | bool | int | float) for item in scalars):
        raise ValueError("write each key as a JSON scalar, or as a list of scalars for a composite key")
    return tuple(value) if isinstance(value, list) else value


class KeySettings(Section):
    """Keys that are public knowledge, and whether others may be discovered."""

    declared: tuple[
        Annotated[Any, BeforeValidator(_key), WithJsonSchema({"description": "a JSON scalar, or a list of them"})], ...
    ] = ()
    """Keys published from the first trigger on without selection, also without data, at no cost in delta. The list
    must not come from the data being protected, other than through published outputs."""
    declared_file: Path | None = None
    """The same list from a file, one JSON scalar or array a line; a relative path starts at the configuration file."""
    discover: bool = True
    """Whether keys that are not declared may be published, after selection. `false` needs declared keys and spends all
    of delta on the values."""
    minimum_users: Annotated[int, Field(ge=0)] = 0
    """Never publish an undeclared key with this many distinct users or fewer, whatever the noise says."""


class WeightedSettings(Section):
    """Parameters of strategy `weighted`."""

    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.65
    """Exponent of the selection strategy."""
    ranked_keys: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Keys per user, in order of first occurrence, that carry weight in the selection."""
    prior: tuple[PositiveFloat, ...] | None = None
    """Decreasing weights by rank, from public knowledge; by default the strategy's own."""


class AdaptiveSettings(Section):
    """Parameters of strategy `adaptive`."""

    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.65
    """Exponent of the selection strategy."""
    ranked_keys: Annotated[int, Field(ge=1, le=65_536)] = 8
    """Keys per user, of those not published yet and in order of first occurrence, that carry weight in the selection."""
    prior: tuple[PositiveFloat, ...] | None = None
    """Decreasing weights by rank, from public knowledge; by default each is 0.6 of the one before."""
    lag: Annotated[int, Field(ge=1, le=1024)] = 1
    """Triggers from a key's publication until its records need no selection. Bounding waits for what was published so
    many triggers before: more than 1 lets the stages work further apart, and finds fewer keys."""


class ClosingSettings(AdaptiveSettings):
    """Parameters of strategy `closing`: those of `adaptive`, and of the measurement at a window's last trigger."""

    unknown_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Share of the squared Gaussian budget for keys that are still not published before the last trigger. More finds more
    keys at the end of a window, and fewer before."""
    public_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the squared Gaussian budget for measuring the published keys once more."""
    keys: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Keys per user, of those still not published and in order of first occurrence, that are measured at the last trigger."""


class PrivacySettings(Section):
    """The promise, per user and window, under adding or removing all of one user's records in one window."""

    epsilon: Epsilon
    """Privacy loss per user and window."""
    delta: Delta
    """Probability with which the loss may exceed epsilon; far below one over the number of users."""
    strategy: Literal["toeplitz", "weighted", "adaptive", "closing", "dp-sqlp"] = "toeplitz"
    """`toeplitz`: one mechanism for selection and values. `weighted`: separate selection by ranked weights. `adaptive`:
    the same, with weights for keys that are not published yet only. `closing`: the same, and one more measurement at a
    window's last trigger. `dp-sqlp`: the paper's binary tree, for comparison."""
    gaussian_delta_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of delta for the Gaussian noise; the rest pays for the selection of keys."""
    selection_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the squared Gaussian budget for selection where it is measured separately. With strategy `closing`: of what
    the measurement at the last trigger leaves."""
    weighted: WeightedSettings = WeightedSettings()
    """Parameters of strategy `weighted`."""
    adaptive: AdaptiveSettings = AdaptiveSettings()
    """Parameters of strategy `adaptive`."""
    closing: ClosingSettings = ClosingSettings()
    """Parameters of strategy `closing`."""
    secret_file: Path | None = None
    """File with the noise secret (hexadecimal, base64 or raw, at least 32 bytes), the same for all workers; a relative
    path starts at the configuration file. Without it: the variable SUSURRUS_SECRET."""

    @property
    def by_rank(self) -> WeightedSettings | AdaptiveSettings | None:
        """The section of a strategy that ranks a user's keys."""
        sections: dict[str, WeightedSettings | AdaptiveSettings] = {
            "weighted": self.weighted,
            "adaptive": self.adaptive,
            "closing": self.closing,
        }
        return sections.get(self.strategy)


class BudgetSettings(Section):
    """Optional total for a user active in every window, over all pipelines of this prefix on one raw topic."""

    epsilon: PositiveFloat
    """Total privacy loss at which the pipeline stops."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """Total delta at which the pipeline stops."""


class TopicSettings(Section):
    """How the topics of the pipeline are created. Partition counts cannot change later."""

    by_user_partitions: Annotated[int, Field(ge=1, le=1024)] = 8
    """Partitions of the topic keyed by user: the most workers that bound contributions at once."""
    bounded_partitions: Annotated[int, Field(ge=1, le=1024)] = 8
    """Partitions of the topics keyed by key: the most workers that release at once."""
    replication_factor: Annotated[int, Field(ge=1, le=100)] = 3
    """Replicas of every topic. Fewer than 3 only on a single broker."""
    min_insync_replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Replicas that must have a record before it counts."""
    retention: Duration | None = None
    """How long `histogram` and `progress` are kept; for ever by default. `latest` and the outputs of other kinds stay for
    ever, dead letters and reports as long as the brokers' default says."""


class WorkerSettings(Section):
    """One worker process. Nothing here changes what is published."""

    data_directory: Path = Path("susurrus-data")
    """Local state (RocksDB); can be lost, it is restored from the changelogs."""
    max_open_records: Annotated[int, Field(ge=1000)] = 2_000_000
    """Records of the open trigger held in memory per partition before they are spilled to disk."""
    dead_letter_values: bool = False
    """Copy the raw value of bad records to the dead-letter topic, instead of only where they are. They are raw data."""
    transaction_timeout: Annotated[Duration, Field(ge=1000, le=900_000)] = 30_000
    """After this the broker aborts the transaction of a dead worker; until then its readers wait."""
    cache_bytes: Annotated[int, Field(ge=8 << 20, le=1 << 40)] = 256 << 20
    """RocksDB's block cache, one for the whole worker. Raise it where a worker keeps tens of millions of keys or users."""
    fetch_bytes: Annotated[int, Field(ge=65_536, le=1 << 28)] = 4 << 20
    """Most bytes that one fetch brings of one partition; a record larger than that is still read, alone."""
    session_timeout: Annotated[Duration, Field(ge=1000, le=300_000)] = 10_000
    """After this without a heartbeat the group gives a dead worker's partitions to others."""
    watchdog: Annotated[Duration, Field(ge=1000)] = 120_000
    """A worker whose task gives no sign of life for this long (ten times as long while it starts) ends itself, so that
    others take over."""
    stop_timeout: Annotated[Duration, Field(ge=1000, le=3_600_000)] = 45_000
    """A worker that is told to stop (SIGTERM, SIGINT) has ended after this, in order or not; nothing is lost or doubled either
    way. Let whoever stops it wait longer before it kills."""
    web_host: str = "127.0.0.1"
    """Address of the worker's pages. They show exact totals, without users and keys: for operators, never for the
    public."""
    web_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port of the worker's pages: `/metrics` for Prometheus, `/healthz` and `/readyz` for Kubernetes, `/` in words. Each
    worker of a machine needs its own; 0 serves none."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages to log."""


class StreamSettings(Section):
    """Pipeline kind `stream`: private real-valued streams, event-level."""

    method: Literal["tops", "tops-paper", "pak"] = "tops"
    """`tops`: ToPS with filter and adaptive split. `tops-paper`: as published. `pak`: a running sum after every value."""
    value: str = "value"
    """Field with the value, a dotted path."""
    stream: str | None = None
    """Field with the stream id; without it the Kafka key of a record is the id of its stream."""
    bound: PositiveFloat
    """Values are clamped to [0, bound]. Public: choose it without looking at the data."""
    grid: PositiveFloat | None = None
    """Values are rounded to multiples of it; by default bound / 4096."""
    epsilon: Epsilon
    """Privacy loss per event."""
    delta: Delta | None = None
    """`pak` only; 2^-20 by default. `tops` has none."""
    holdout: Positive = 65_536
    """m: values read for the threshold before the first release."""
    range_limit: Annotated[int, Field(ge=2, le=2**32)] = 1 << 20
    """`tops`: the longest range of values that sums will be asked for."""
    fanout: Annotated[int, Field(ge=2, le=256)] = 16
    """`tops`: children per node of the hierarchy."""
    smoothing: Annotated[int, Field(ge=0, le=16)] | None = None
    """`tops`: released pieces hold fanout^smoothing values; by default chosen from epsilon and range_limit."""
    smoother: Literal["recent", "mean", "median", "moving-average", "exponential"] = "mean"
    """`tops`: how a value is guessed before its piece is released."""
    horizon: Annotated[int, Field(ge=2, le=2**40)] | None = None
    """`pak`: n, values per stream for which the noise is planned; longer streams begin a new tree."""
    tail_start: Annotated[float, Field(gt=0, lt=0.5)] = 0.005
    """`pak`: the share of values beyond which their distribution is taken to decay at least exponentially; public."""
    secret_file: Path | None = None
    """File with the noise secret, as privacy.secret_file of a histogram; without it SUSURRUS_SECRET is read."""


class LocalSettings(Section):
    """Pipeline kind `local`: reports perturbed by the clients, event-level."""

    bound: PositiveFloat
    """Values are clamped to [0, bound] by the client."""
    epsilon: Epsilon
    """Privacy loss per report."""
    holdout: Positive = 65_536
    """m: reports of phase 1 read for the threshold."""
    slot: Annotated[Duration, Field(ge=1)] = 60_000
    """Length of the time slots for which sums are published."""
    lateness: Duration = 30_000
    """A slot is published this long after its end; reports that come later go to the dead-letter topic."""
    scale: Literal["log", "linear"] = "log"
    """Domain of the phase 1 reports; `log` also resolves values far below the bound. The clients' must be the same."""
    horizon: Positive = 1 << 20
    """Reports expected under one threshold: more of them make truncation matter more than noise."""
    refresh: Annotated[Duration, Field(ge=1)] | None = None
    """Choose a new threshold this often, from fresh phase 1 reports; needs `phase1_share`. By default the first one
    stays."""
    phase1_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the reports that stay phase 1 once there is a threshold; they are missing from the sums' count."""
