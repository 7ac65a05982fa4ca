"""A sample of the raw topic that is one window: what belongs to it is a function of each record and of public instants alone.

So one user's records decide nothing about whether other users' are in the sample, as docs/guarantees/quantile.md needs.
"""

from collections.abc import Sequence

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.planning.raw_topic import Slice, stamped, trusted
from susurrus.agents.planning.sample import Progress, Sample, read_slice
from susurrus.agents.types.durations import parse_instant
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.topics import ledger
from susurrus.topics.wire.packing import MalformedRecord

MOST_RECORDS = 50_000_000
"""The most records of one sample, so that it fits into memory."""


def window_named(settings: HistogramSettings, text: str, now: int, clients: Clients | None) -> WindowStart:
    """The window that `--window` names: `first`, `last`, `current`, or an instant in it. now: ms. clients: None where no broker is
    asked when the pipeline began.

    Raises ConfigurationError where there is no such window.
    """
    calendar, clock = settings.calendar, settings.clock
    if text == "first":
        first = settings.start.first_window
        if first is None and clients is not None:
            first = _begun(settings, clients)
        if first is None:
            raise ConfigurationError(
                "--window first: start.first_window is not set, and the pipeline has not begun; name an instant, or `last`"
            )
        return calendar.window_start(calendar.window_at(first))
    if text == "last":
        if clock.until is not None:
            return calendar.window_start(calendar.window_at(clock.until - 1))
        over = calendar.window_at(now - settings.window.allowed_lateness - settings.closing_delay)
        return calendar.window_start(calendar.preceding(over))
    if text == "current":
        if not clock.chosen.live:
            raise ConfigurationError("--window current: an archive has none; name `first`, `last` or an instant")
        return calendar.window_start(calendar.window_at(now))
    try:
        zone = settings.window.time_zone  # with one, a date alone says which instant is meant
        instant = parse_instant(text) if zone is None else settings.window.instant_of(text)
        return calendar.window_start(calendar.window_at(instant))
    except ValueError as error:
        raise ConfigurationError(f"--window {text}: is not first, last or current, and no instant: {error}") from None


def _begun(settings: HistogramSettings, clients: Clients) -> int | None:
    """The first window of a pipeline that has begun, from its ledger."""
    topic = settings.topic("ledger")
    if not clients.partitions(topic):
        return None
    first = None
    for key, value, _ in clients.read(topic, group="tune"):
        try:
            record = ledger.decode(key, value)
        except MalformedRecord:
            continue  # a newer version's record
        if isinstance(record, ledger.Start):
            first = record.first_window
    return first


def read_window(
    settings: HistogramSettings,
    start: WindowStart,
    clients: Clients,
    *,
    topics: Sequence[str] | None = None,
    wide: bool = False,
    progress: Progress = lambda done, total: None,
) -> Sample:
    """The window's records: event time in the window, stamped as the clock expects and from its start to its end and the allowed
    lateness. topics: the raw topics that are read; by default those that the pipeline has now.

    Raises ConfigurationError where the window holds more than MOST_RECORDS, SusurrusError where it has no good record,
    KafkaException.
    """
    clock, end = settings.clock, settings.calendar.end_of(start)
    until = end + settings.window.allowed_lateness

    def choose(clients: Clients, topics: Sequence[str]) -> Slice:
        # Where producers choose the stamps, a single one must not end the sample for all others.
        beyond = (1 << 45) if clock.chosen.forgeable else until + clock.grace
        chosen = trusted(clients, stamped(clients, topics, start, beyond), clock.chosen)
        if chosen.records > MOST_RECORDS:
            raise ConfigurationError(
                f"--window {settings.window.instant_text(start)}: up to {chosen.records:,} records of {settings.input.called} "
                f"would be read, and at most {MOST_RECORDS:,} are; give a file with all records of some of the users "
                "instead (--sample)"
            )
        return chosen

    called = f"topic={settings.input.called}, window {settings.window.instant_text(start)}"
    found = read_slice(settings, choose, wide, clients, progress, topics=topics, stamped=(start, until), called=called)
    if not len(sample := found.between(start, end)):
        raise SusurrusError(f"{called}: has no good record; name another with --window")
    return sample
