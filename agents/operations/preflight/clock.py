"""The clocks: this machine's beside the brokers' and beside the newest record's time stamp.

Kafka has no request for its time. But a coordinator stamps what it writes to the transaction log with its own clock, and the
probe of the right on transactions makes it write.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from susurrus.agents.finding import Finding, Level
from susurrus.agents.kafka.requests import REQUEST_SECONDS, answer_of
from susurrus.agents.operations.preflight.topics import partitions_of
from susurrus.agents.operations.rights import transactions
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.types.durations import format_duration

_LOG: Final = "__transaction_state"
_WARN: Final = 2_000
"""ms. Clocks that ntpd or chrony keeps differ by far less."""
_SLACK: Final = 500
"""ms between a broker's clock reading and ours that the requests themselves may take."""


def check_brokers_clock(pipeline: Pipeline[Any], admin: AdminClient) -> Iterator[Finding]:
    """How far is this machine's clock from a broker's? Decides when an idle partition passes a boundary (clock.idle_grace)."""
    settings = pipeline.settings
    before = time.time() * 1000
    if transactions(settings, settings.application):
        yield Finding("clock", "unknown", "the right on transactions is missing (above)", "grant it first")
        return
    after = time.time() * 1000
    try:
        stamp = _newest(admin, _LOG)
    except KafkaException as error:
        yield Finding("clock", "unknown", error.args[0].name(), f"for this check, give this user Describe on {_LOG}")
        return
    if stamp is None or stamp < before - 3_600_000:
        yield Finding("clock", "unknown", f"{_LOG} has no new record", "compare the clocks yourself")
        return
    ahead = before - _SLACK - stamp if stamp < before - _SLACK else min(0.0, after + _SLACK - stamp)
    level: Level = "ok" if abs(ahead) < _WARN else "warning" if abs(ahead) < settings.clock.idle_grace else "failure"
    if level == "ok":
        yield Finding("clock", "ok", f"within {_WARN / 1000:.0f} s of the broker's")
    else:
        way = "ahead of" if ahead > 0 else "behind"
        yield Finding(
            "clock",
            level,
            f"this machine is {format_duration(int(abs(ahead)))} {way} the broker",
            "synchronise both (chrony, systemd-timesyncd). "
            f"clock.idle_grace={format_duration(settings.clock.idle_grace)} must cover the difference",
        )


def check_stamps(admin: AdminClient, raw_topics: Sequence[str]) -> Iterator[Finding]:
    """Does the newest raw record lie in the future? Then triggers would close too early for others."""
    for topic in raw_topics:
        yield _stamps(admin, topic)


def _stamps(admin: AdminClient, topic: str) -> Finding:
    stamp = _newest(admin, topic)
    if stamp is None:
        return Finding("time stamps", "ok", f"{topic} has no record yet")
    ahead = int(stamp - time.time() * 1000)
    if ahead > _WARN:
        return Finding(
            "time stamps",
            "warning",
            f"the newest record of {topic} is stamped {format_duration(ahead)} in the future",
            "correct the clock of its producer, or of this machine",
        )
    return Finding("time stamps", "ok", f"no record of {topic} is in the future")


def _newest(admin: AdminClient, topic: str) -> int | None:
    """The largest time stamp in a topic (ms); None where it has no record. Raises KafkaException without the right to ask."""
    places = {TopicPartition(topic, number): OffsetSpec.max_timestamp() for number in partitions_of(admin, topic)}
    asked = admin.list_offsets(places, request_timeout=REQUEST_SECONDS)
    stamps = [answer_of(future).timestamp for future in asked.values()]
    return max((stamp for stamp in stamps if stamp >= 0), default=None)
