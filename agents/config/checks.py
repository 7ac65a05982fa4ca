"""What one field alone cannot show: checks across the sections of a configuration, each problem one line that ends
with the fix."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from susurrus.agents import formats
from susurrus.agents.config import kafka_properties
from susurrus.agents.config.durations import format_duration
from susurrus.agents.histogram import columns
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.timestamps import format_time

if TYPE_CHECKING:
    from susurrus.agents.config.settings import Settings

MAX_TRIGGERS: Final = 2_048


def problems(settings: "Settings") -> list[str]:
    """Everything that is wrong with the settings as a whole, in the order of the sections."""
    found = [*kafka_properties.problems(settings.kafka.properties), *_calendar(settings), *_topics(settings)]
    if settings.pipeline.kind == "histogram":
        bounds = settings.bounds
        return [
            *found,
            *_input(settings),
            *_bounds(settings),
            *columns.problems(settings.columns, records=bounds.max_records_per_key * bounds.max_records_per_user),
            *_keys(settings),
            *_privacy(settings),
        ]
    return [*found, *_other_kind(settings)]


def _calendar(settings: "Settings") -> Iterator[str]:
    window, start = settings.window, settings.start
    if window.length % window.trigger_every:
        yield (
            f'window.trigger_every = "{format_duration(window.trigger_every)}": must divide '
            f'window.length = "{format_duration(window.length)}"; '
            f'use "{format_duration(_divisor(window.length, window.trigger_every))}" or another whole fraction of it'
        )
    if settings.triggers > MAX_TRIGGERS:
        yield (
            f"window.trigger_every: makes triggers={settings.triggers} per window; use at most {MAX_TRIGGERS}, "
            "and remember that fewer mean less noise"
        )
    if settings.pipeline.kind != "histogram":
        return
    until = settings.clock.until
    if until is not None and settings.clock.kind != "replay":
        yield f'clock.until: has no meaning for clock.kind = "{settings.clock.kind}"; leave it out'
    if until is None and settings.clock.kind == "replay":
        yield (
            'clock.until: is missing; with clock.kind = "replay" say where the archive ends, so that nobody\'s last record '
            "decides which triggers are published"
        )
    if until is not None and start.first_window is not None and until <= start.first_window:
        yield f'clock.until = "{format_time(until)}": is not after start.first_window; correct one of them'
    if isinstance(start.from_, int) and settings.clock.kind == "producer":
        yield (
            f'start.from = "{format_time(start.from_)}": is looked up by time stamps, and producers choose these with '
            'clock.kind = "producer", so one forged stamp could decide which of everybody\'s records count; use "latest", or '
            '"earliest" with start.first_window'
        )
    if start.first_window is None:
        if start.from_ == "earliest":
            yield (
                'start.first_window: is missing; with start.from = "earliest" say where the first window starts, '
                "so that no old record can decide it"
            )
        elif settings.clock.kind == "replay":
            yield ('start.first_window: is missing; with clock.kind = "replay" say where the archive begins')
    elif offset := (start.first_window - window.origin) % window.length:
        yield (
            f'start.first_window = "{format_time(start.first_window)}": is not the start of a window; '
            f'use "{format_time(start.first_window - offset)}", or move window.origin'
        )


def _divisor(length: int, wanted: int) -> int:
    """The largest divisor of ``length`` that is at most ``wanted``, among whole fractions that people use."""
    return next((length // parts for parts in range(-(-length // wanted), 100_000) if length % parts == 0), length)


def _topics(settings: "Settings") -> Iterator[str]:
    topics = settings.topics
    if topics.min_insync_replicas > topics.replication_factor:
        yield (
            f"topics.min_insync_replicas = {topics.min_insync_replicas}: more than topics.replication_factor = "
            f"{topics.replication_factor}; use {max(1, topics.replication_factor - 1)}"
        )
    elif topics.replication_factor >= 3 and topics.min_insync_replicas < 2:
        yield (
            f"topics.min_insync_replicas = {topics.min_insync_replicas}: one disk could lose committed triggers, "
            "which would then be published differently; use 2"
        )


def _input(settings: "Settings") -> Iterator[str]:
    key = settings.input.key
    if not settings.input.user:
        yield 'input.user: is missing; name the field that identifies the user, for example user = "user_id"'
    if not key:
        yield 'input.key: is missing; name the fields to group by, for example key = ["url"]'
    if len(set(key)) < len(key):
        yield "input.key: names a field twice; leave one of them out"
    yield from formats.problems(settings.input)


def _bounds(settings: "Settings") -> Iterator[str]:
    bounds = settings.bounds
    if bounds.max_records_per_key > bounds.max_records_per_user:
        yield (
            f"bounds.max_records_per_key = {bounds.max_records_per_key}: more than bounds.max_records_per_user = "
            f"{bounds.max_records_per_user}; use at most that"
        )
    if bounds.max_keys_per_user is not None and settings.privacy.by_rank is not None:
        name = settings.privacy.strategy
        yield f'bounds.max_keys_per_user: not with strategy "{name}"; use privacy.{name}.ranked_keys instead'


def _keys(settings: "Settings") -> Iterator[str]:
    keys, arity = settings.keys, len(settings.input.key)
    if keys.declared and keys.declared_file:
        yield "keys.declared_file: there is keys.declared too; keep one of them"
    if not keys.discover and not keys.declared and not keys.declared_file:
        yield "keys.discover = false: nothing would be published; declare keys, or set discover = true"
    if any((len(key) if isinstance(key, tuple) else 1) != arity for key in keys.declared):
        yield f"keys.declared: every key needs as many parts as input.key, which has {arity}; correct the list"


def _privacy(settings: "Settings") -> Iterator[str]:
    if "privacy" not in settings.model_fields_set:
        yield "privacy: is missing; state the promise, for example [privacy] epsilon = 6.0, delta = 1e-9"
    elif settings.budget is not None:
        for name in ("epsilon", "delta"):
            total, window = getattr(settings.budget, name), getattr(settings.privacy, name)
            if total < window:
                yield f"budget.{name} = {total:g}: less than one window's privacy.{name} = {window:g}; raise it"


def _other_kind(settings: "Settings") -> Iterator[str]:
    kind = settings.pipeline.kind
    if getattr(settings, kind) is None:
        yield f'{kind}: is missing; pipeline.kind = "{kind}" needs a [{kind}] section'
    if kind == "stream" and settings.stream is not None:
        from susurrus.agents.stream.mechanism import law_of

        try:
            law_of(settings.stream)
        except ConfigurationError as error:
            yield str(error)
    local = settings.local
    if kind == "local" and local is not None and (local.refresh is None) != (local.phase1_share == 0):
        yield (
            "local.refresh, local.phase1_share: one needs the other; set both to renew the threshold, or leave both out"
        )
    if kind == "local":
        for name in sorted(formats.SETTINGS & settings.input.model_fields_set):
            yield f'input.{name}: has no meaning for kind "local", whose reports have a format of their own; leave it out'
    else:
        yield from formats.problems(settings.input)
    for name in ("bounds", "columns", "keys", "privacy"):
        if name in settings.model_fields_set:
            yield f'{name}: belongs to kind "histogram"; state the promise in [{kind}] and leave this out'
