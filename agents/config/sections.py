"""The sections that all kinds of pipelines have, one frozen model each; agents/config/settings.py joins them.

Attribute names are the names in the TOML file. Durations and instants are ints of milliseconds (agents/types/durations.py).
The text under a field is its documentation: ``susurrus config schema`` prints it and docs/configuration.md lists it.
"""

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema

from susurrus.agents.config.calendars import calendar_of
from susurrus.agents.types.durations import Duration, Instant, WindowLength, format_length, parse_instant
from susurrus.agents.types.instants import TimeZone
from susurrus.agents.types.section import InstanceName, Name, PositiveFloat, Section, TopicName
from susurrus.mechanisms.calendar import Calendar
from susurrus.topics.records.zones import local_date, local_text, zone_of


def parse_start(value: Any) -> Any:
    """``earliest``, ``latest`` or an instant. Raises ValueError as `parse_instant`."""
    return value if value in ("earliest", "latest") else parse_instant(value)


class PipelineSettings(Section):
    """What the pipeline is called and which kind it is."""

    name: Name
    """Name of the pipeline; its topics are `<prefix>.<name>.<topic>`."""
    kind: str = "histogram"
    """Which kind of pipeline it is."""
    prefix: TopicName = "susurrus"
    """Common prefix of all topics, so that one prefix ACL covers them."""


_OF_KAFKA: Final = re.compile(r"(?<![\w.])kafka\.(properties|bootstrap_servers)\b")


class ClusterSettings(Section):
    """How to reach a cluster."""

    section: ClassVar[str]
    """What the section is called, for messages."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = "localhost:9092"
    """Comma-separated `host:port` list of brokers."""
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    """Raw librdkafka properties for producers, consumers and admin, translated for Faust's consumer too (SASL, TLS,
    timeouts). A value may be `{ file = "/path" }` or `{ env = "NAME" }`."""

    @property
    def in_process(self) -> bool:
        """Whether the broker is the embedded one, inside this process."""
        return False

    def named(self, text: str) -> str:
        """A message about the settings of `[kafka]`, with the section that these are in."""
        return _OF_KAFKA.sub(rf"{self.section}.\1", text)


class KafkaSettings(ClusterSettings):
    """How to reach the cluster."""

    section: ClassVar[str] = "kafka"

    embedded: bool = False
    """The broker is librdkafka's own, inside the process: for demonstrations and tests only. It does not keep data."""

    @property
    def in_process(self) -> bool:
        """As the file says."""
        return self.embedded


class InputKafkaSettings(ClusterSettings):
    """How to reach the cluster of the raw topics, where it is another one. It is only read."""

    section: ClassVar[str] = "input.kafka"

    bootstrap_servers: Annotated[str, Field(min_length=1)]
    """Comma-separated `host:port` list of its brokers."""


class StartSettings(Section):
    """Where a new pipeline begins. Written to the ledger once; later changes here are ignored with a warning."""

    from_: Annotated[
        Literal["earliest", "latest"] | int,
        Field(alias="from"),
        BeforeValidator(parse_start),
        WithJsonSchema({"type": "string", "examples": ["earliest", "latest", "2026-01-31T00:00:00Z"]}),
    ] = "latest"
    """`earliest`, `latest`, or an instant: the first raw record to read, by its Kafka timestamp."""
    first_window: Instant | None = None
    """Start of the first window to publish; records of earlier windows are bad input. Required with `from =
    "earliest"` and with the clock `replay`; otherwise the window of the start."""
    epoch: Annotated[str, Field(pattern=r"^[0-9a-f]{2,64}$")] | None = None
    """Epoch of a new pipeline, hexadecimal; random by default. Only for repeating a run exactly, in tests: the same
    epoch and secret over different data reveal the difference of the data."""


class ClockSettings(Section):
    """Which clock decides that a trigger interval is over."""

    # The digest of every kind of pipeline covers it, but only a histogram follows it. agents/pipelines.py checks the name, because
    # the registry of clocks is in agents/histogram/clock.py.
    kind: str = "broker"
    """Which clock decides that a trigger interval is over."""
    grace: Duration = 5_000
    """Clocks `broker` and `replay`: a partition passes a boundary when a record stamped this much later is read. In an archive a
    record may be older than one before it by this much; more stops the partition."""
    idle_grace: Duration = 60_000
    """An idle or producer-stamped partition passes a boundary this long after it; at least replica.lag.time.max.ms
    (30 s by default) plus clock skew."""
    max_ahead: Duration = 3_600_000
    """Clock `producer`: a stamp further in the future than this is bad input."""
    until: Instant | None = None
    """Clock `replay`, required: the instant at which the archive ends, from public knowledge. The archive's end closes
    every trigger before it; records behind it are bad input."""
    max_future: Duration = 300_000
    """An event time further beyond the record's stamp than this is bad input. Clocks of two hosts differ: below a second, honest
    records are lost. Each record is judged by its own two numbers, so a larger limit costs no privacy."""


class WindowSettings(Section):
    """The public calendar of windows and triggers."""

    length: WindowLength = 86_400_000
    """Length of a window. One user's contribution to one window is what the guarantee protects. A duration, or with a `time_zone`
    `1 day`, `1 week` (from Monday) or `1 month` of the calendar there."""
    time_zone: TimeZone | None = None
    """On whose clocks calendar windows begin, at midnight: a name of the tz database, such as `Europe/Berlin` or `UTC`."""
    trigger_every: Annotated[Duration, Field(ge=1)] = 900_000
    """Time between releases inside a window; divides `length`. Calendar windows begin at a trigger, also where clocks change."""
    allowed_lateness: Duration = 0
    """How long after its end a window still takes late records, in further triggers."""
    origin: Instant = 0
    """Instant at which some window starts; all others are whole lengths away. Days of a country have a
    `time_zone` instead."""
    publication_pad: Duration = 0
    """Results are published at the trigger time plus this, so that the time of publication says less about the load."""

    @property
    def calendar(self) -> Calendar:
        """The calendar of these settings. Raises ConfigurationError where `trigger_every` does not divide `length`."""
        return calendar_of(self.length, self.time_zone, self.origin, self.trigger_every, self.allowed_lateness)

    @property
    def length_text(self) -> str:
        """The length of windows, for people: `1d`, or `1 day in Europe/Berlin`."""
        return format_length(self.length) + (f" in {self.time_zone}" if self.time_zone else "")

    def instant_text(self, instant: int) -> str:
        """An instant in ms for people: in UTC, or with a time zone as its clocks show it, with the offset."""
        return local_text(self.time_zone, instant)

    def date_of(self, start: int) -> str | None:
        """The first local date of a calendar window that starts then (ms); None for windows of one length."""
        return None if self.time_zone is None else local_date(self.time_zone, start)

    def instant_of(self, text: str) -> int:
        """The instant (ms) that a person names: ISO 8601 with an offset, or a date alone, which is midnight in the time zone of
        windows, without one in UTC. Raises ValueError."""
        if "T" in text or self.time_zone is None:
            return parse_instant(text if "T" in text else f"{text}T00:00:00Z")
        day = (date.fromisoformat(text.strip()) - date(1970, 1, 1)).days
        return int(zone_of(self.time_zone).first_instants(np.array([day]))[0])


class BudgetSettings(Section):
    """Optional total for a user active in every window, over all pipelines of the cluster on one raw topic."""

    epsilon: PositiveFloat
    """Total privacy loss at which the pipeline stops; with `per` that of any such period."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """Total delta at which the pipeline stops; with `per` that of any such period."""
    per: Annotated[Duration, Field(ge=1)] | None = None
    """The budget renews: the total holds for the windows that any period of this length touches, by their event times. A window
    without room is skipped, and windows begin again when there is room. At least `window.length`. Without it the total is for
    life."""


class TopicSettings(Section):
    """How the topics of the pipeline are created. Partition counts cannot change later."""

    charges: TopicName = "susurrus.charges"
    """The log of charges: one for all pipelines of the cluster, whatever their prefix, so that `[budget]` counts them all. Two logs
    on one cluster are two budgets: only where no raw topic, and no reader, is shared."""

    by_user_partitions: Annotated[int, Field(ge=1, le=1024)] = 8
    """Partitions of the topic keyed by user: the most workers that bound contributions at once."""
    bounded_partitions: Annotated[int, Field(ge=1, le=1024)] = 8
    """Partitions of the topics keyed by key: the most workers that release at once."""
    replication_factor: Annotated[int, Field(ge=1, le=100)] = 3
    """Replicas of every topic. Fewer than 3 only on a single broker."""
    min_insync_replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Replicas that must have a record before it counts."""
    retention: Duration | None = None
    """How long `histogram` and `progress` are kept; without a limit by default. `latest` and the outputs of other kinds have
    no limit. Dead letters and reports follow the brokers' default."""


class WorkerSettings(Section):
    """One worker process. Nothing here changes what is published."""

    data_directory: Path = Path("susurrus-data")
    """Local state (RocksDB). A lost directory is restored from the changelogs."""
    max_open_records: Annotated[int, Field(ge=1000)] = 2_000_000
    """Records of the open trigger held in memory per partition before they are spilled to disk. A block of records, which is what
    one commit of the stage before has of a trigger, counts as eight more."""
    dead_letter_values: bool = False
    """Copy the raw value of bad records to the dead-letter topic, not only their position. The values are raw data. Of a record
    that is taken apart, the first dead letter has it."""
    transaction_timeout: Annotated[Duration, Field(ge=1000, le=900_000)] = 30_000
    """After this time the broker aborts the transaction of a dead worker. Readers wait until then."""
    cache_bytes: Annotated[int, Field(ge=8 << 20, le=1 << 40)] = 256 << 20
    """RocksDB's block cache, one for the whole worker. Raise it where a worker keeps tens of millions of keys or users."""
    fetch_bytes: Annotated[int, Field(ge=65_536, le=1 << 28)] = 4 << 20
    """Most bytes that one fetch reads from one partition; a larger record is read alone."""
    session_timeout: Annotated[Duration, Field(ge=1000, le=300_000)] = 10_000
    """After this time without a heartbeat the group gives the worker's partitions to others."""
    instance: InstanceName | None = None
    """Name of this worker in its group (`group.instance.id`), another one for each worker of the pipeline: on Kubernetes the
    pod's name, by `SUSURRUS__WORKER__INSTANCE`. A worker that comes back within `session_timeout` then gets its partitions back,
    and no other partition moves. Letters, digits and `._-`."""
    watchdog: Annotated[Duration, Field(ge=1000)] = 120_000
    """A worker whose task gives no sign of life for this long (ten times as long while it starts) ends itself, so that
    others take over."""
    stop_timeout: Annotated[Duration, Field(ge=1000, le=3_600_000)] = 45_000
    """After SIGTERM or SIGINT a worker ends within this time, if need be without finishing its work; nothing is lost or
    doubled. A service manager must wait longer than this before it kills the process."""
    web_host: str = "127.0.0.1"
    """Address of the worker's pages. They show exact totals, without users and keys: for operators, never for the
    public."""
    web_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port of the worker's pages: `/metrics` for Prometheus, `/healthz` and `/readyz` for Kubernetes, `/` for people. Each
    worker of a machine needs its own; 0 turns the pages off."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages to log."""
    log_format: Literal["text", "json"] = "text"
    """How a line of the log is written: for people, or as one JSON object for programs."""
