"""ledger: what a pipeline is, what it has charged, what it refuses. Compacted, one partition, internal.

Keys: "epoch", "config", "start", "sources/<number>", "raw-topic/<topic>", "started/<stage>/<partition>", "window/<window>",
"digest/<partition>/<window>/<trigger>", "event-level/<partition>", "published/<partition>", "refusal/<stage>/<partition>",
"status/<stage>/<partition>". Windows in keys are RFC 3339. Values are JSON with a schema number. A tombstone withdraws a record
(a refusal that was solved). Written by the fenced task release-0; sources by route-0; event-level, published, refusals and
status by the partition they name; raw-topic by `susurrus topics add-input`."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, get_args

import msgspec

from susurrus.topics.sources import Run, SourceMap
from susurrus.topics.wire.json_rows import decoder
from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.timestamps import format_time

VERSION = 1


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    name: ClassVar[str]
    """Key of the record, with its fields in braces."""
    schema: int = VERSION


class Epoch(_Record, frozen=True, kw_only=True):
    """One life of the pipeline's noise. epoch: random id, hex. number: 1, 2, …; each epoch is a new privacy spend."""

    name: ClassVar[str] = "epoch"
    epoch: str
    number: int = 1
    created: int


FINGERPRINT = "secret_fingerprint"
"""Field of a Config that is no setting: it tells whether two secrets are the same."""


class Config(_Record, frozen=True, kw_only=True):
    """fields: the settings that change published data. digest: 32 bytes, hex; another one in the same epoch is refused."""

    name: ClassVar[str] = "config"
    digest: str
    fields: dict[str, Any]


class Start(_Record, frozen=True, kw_only=True):
    """Where the epoch in force began, written once for each.

    first_window: start in ms. origin: "earliest", "latest" or the time asked for. topic_ids: the ids of the raw topics, by name.
    sources: the raw partitions and their numbers (sources.py). offsets: first raw offset by the source's number. internal: full
    name of an internal topic -> first offset by partition; what is below belongs to an earlier epoch and is never read. A topic or
    partition that is not named begins at 0.
    """

    name: ClassVar[str] = "start"
    first_window: int
    origin: str
    topic_ids: dict[str, str]
    sources: tuple[Run, ...]
    offsets: dict[int, int]
    internal: dict[str, dict[int, int]] = {}


class SourcesRecord(_Record, frozen=True, kw_only=True):
    """The sources from an interval on, as source 0 announced them. A new source joins at from_interval.

    number: how many there are. sources: all of them, the earlier ones first. topic_ids: the ids of raw topics that are new.
    offsets: the first offset of sources that do not begin at 0, by number.
    """

    name: ClassVar[str] = "sources/{number}"
    number: int
    from_interval: int
    sources: tuple[Run, ...]
    topic_ids: dict[str, str] = {}
    offsets: dict[int, int] = {}


class AddedTopic(_Record, frozen=True, kw_only=True):
    """An operator has asked for a raw topic more. Its partitions become sources when source 0 announces them. at: ms."""

    name: ClassVar[str] = "raw-topic/{topic}"
    topic: str
    at: int


class Started(_Record, frozen=True, kw_only=True):
    """Says that a partition has committed before: an empty changelog is then a loss, not a beginning."""

    name: ClassVar[str] = "started/{stage}/{partition}"
    stage: str
    partition: int


class WindowDecision(_Record, frozen=True, kw_only=True):
    """Whether a window begins, where the budget renews: nothing of it is used before this is known. window: start in ms. begun:
    False where it is skipped. epoch: in which that was decided; in another one it means nothing."""

    name: ClassVar[str] = "window/{window}"
    window: int
    begun: bool
    epoch: str


class Digest(_Record, frozen=True, kw_only=True):
    """Link of a partition's chain over its exact input, keyed with the noise secret: a reader cannot try a guess on it.

    Internal all the same: that two links are equal, or not, is a function of raw data.
    """

    name: ClassVar[str] = "digest/{partition}/{window}/{trigger}"
    partition: int
    window: int
    trigger: int
    digest: str
    rows: int = 0


class EventLevel(_Record, frozen=True, kw_only=True):
    """What one event costs in a stream pipeline. It is never added to what a user's window costs.

    Written in the transaction of the partition's first release. Neighbours: the value of one event, at a public
    position of its stream, replaced.
    """

    name: ClassVar[str] = "event-level/{partition}"
    partition: int
    method: str
    epsilon: float
    delta: float
    unit: str = "event"


class PublishedPosition(_Record, frozen=True, kw_only=True):
    """How far a partition of streams has published, and from what. Written in the transaction of every commit that writes rows.

    begins: the raw offset at which its chain begins. position: the raw offset below which every record has had its effect. digest:
    the chain up to there, over the exact values, 32 bytes, hex; keyed with the noise secret, so a reader cannot try a guess on it.
    row: the fingerprint of the last public row, 16 bytes, hex, keyed likewise; empty before there is one.
    """

    name: ClassVar[str] = "published/{partition}"
    partition: int
    begins: int
    position: int
    digest: str
    row: str = ""


class RefusalRecord(_Record, frozen=True, kw_only=True):
    """Why a partition does not go on, and the way out. waits: it tries again by itself. No user, no key."""

    name: ClassVar[str] = "refusal/{stage}/{partition}"
    stage: str
    partition: int
    cause: str
    action: str
    waits: bool = False
    at: int


class Status(_Record, frozen=True, kw_only=True):
    """What a partition is doing. stalled: cause, or empty. action: the way out. waits: it may pass by itself. interval: last
    closed trigger interval. counters: operator-only totals. next: input offset taken last plus one. position: of the last
    commit."""

    name: ClassVar[str] = "status/{stage}/{partition}"
    stage: str
    partition: int
    state: str
    worker: str = ""
    position: int = -1
    next: int = -1
    interval: int | None = None
    stalled: str = ""
    action: str = ""
    waits: bool = False
    at: int = 0
    counters: dict[str, int] = {}


LedgerRecord = (
    Epoch
    | Config
    | Start
    | SourcesRecord
    | AddedTopic
    | Started
    | WindowDecision
    | Digest
    | EventLevel
    | PublishedPosition
    | RefusalRecord
    | Status
)

_KINDS: dict[str, type[LedgerRecord]] = {kind.name.partition("/")[0]: kind for kind in get_args(LedgerRecord)}
_DECODERS = {kind: decoder(kind, "ledger record", VERSION) for kind in _KINDS.values()}


def sources_of(records: Iterable[LedgerRecord]) -> SourceMap | None:
    """The sources that a ledger's records name, the announced ones among them; None where no epoch has begun."""
    records = list(records)
    start = next((record for record in records if isinstance(record, Start)), None)
    announced = [record for record in records if isinstance(record, SourcesRecord)]
    newest = max(announced, key=lambda record: record.number, default=start)
    return None if start is None or newest is None else SourceMap(newest.sources)


def raw_topic_ids(records: Iterable[LedgerRecord]) -> dict[str, str]:
    """The id of every raw topic that a ledger's records name."""
    ids: dict[str, str] = {}
    for record in records:
        if isinstance(record, Start | SourcesRecord):
            ids |= record.topic_ids
    return ids


def key_of(record: LedgerRecord) -> str:
    """The name under which a record is kept."""
    fields = msgspec.structs.asdict(record)
    return record.name.format_map(
        fields | {"window": format_time(record.window)} if isinstance(record, Digest | WindowDecision) else fields
    )


def changed_fields(
    config: Config | None, fields: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> list[str]:
    """The settings in which a pipeline's configuration and a worker's published fields differ, sorted: their names, and what the
    pipeline has, where that is a text or a number. defaults: values that stand for the default, by name."""
    fields = msgspec.json.decode(msgspec.json.encode(fields))  # as the ledger reads them: JSON has no tuples
    theirs = {} if config is None else {name: value for name, value in config.fields.items() if name != FINGERPRINT}
    changed = sorted(name for name in fields.keys() | theirs.keys() if fields.get(name) != theirs.get(name))
    by_default = {name for name, value in (defaults or {}).items() if name in theirs and theirs[name] == value}
    return [
        name + (" (the pipeline has the default)" if name in by_default else _had(theirs.get(name))) for name in changed
    ]


def _had(value: Any) -> str:
    return f" (the pipeline has {msgspec.json.encode(value).decode()})" if isinstance(value, str | int | float) else ""


def digest_key(partition: int, window: int, trigger: int) -> bytes:
    """Key of one link of a release partition's chain; window: start in ms."""
    return f"digest/{partition}/{format_time(window)}/{trigger}".encode()


def decision_key(window: int) -> bytes:
    """Key of the record that says whether a window (start in ms) begins."""
    return f"window/{format_time(window)}".encode()


def added_topic_key(topic: str) -> bytes:
    """Key of the record with which an operator has added a raw topic."""
    return f"raw-topic/{topic}".encode()


def encode(record: LedgerRecord) -> tuple[bytes, bytes]:
    """Key and value."""
    return key_of(record).encode(), msgspec.json.encode(msgspec.to_builtins(record, str_keys=True), order="sorted")


def decode(key: bytes, value: bytes | None) -> LedgerRecord | None:
    """The record, or None for a tombstone. Raises MalformedRecord, also when key and value name different things."""
    try:
        name = key.decode()
        kind = _KINDS[name.partition("/")[0]]
    except (UnicodeDecodeError, KeyError):
        raise MalformedRecord(f"ledger key={key!r} names no kind of record") from None
    if name.count("/") != kind.name.count("/"):
        raise MalformedRecord(f"ledger key={name!r} has the wrong number of parts")
    if not value:
        return None
    record = _DECODERS[kind](value)
    try:
        named = key_of(record)
    except ValueError as error:  # a window that is no instant
        raise MalformedRecord(f"ledger record: {error}") from None
    if named != name:
        raise MalformedRecord(f"ledger key={name!r} holds the record of {named!r}")
    return record
