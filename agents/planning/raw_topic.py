"""Which part of the raw topics a sample is: between two offsets of each partition, found by Kafka's stamps.

Partitions fill at different rates. A sample takes the same stretch of time of each, so that it holds what its users did in that
time, wherever their records are.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_END, TIMESTAMP_LOG_APPEND_TIME, KafkaException, TopicPartition

from susurrus.agents.histogram.clock import CREATE_TIME, LOG_APPEND_TIME, Clock
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import read_ranges
from susurrus.agents.kafka.requests import REQUEST_SECONDS, known_offset
from susurrus.mechanisms.errors import ConfigurationError

_LATEST = 1 << 45
"""ms: behind every stamp (year 3084)."""

Place = tuple[str, int]
"""(topic, partition)."""
Offsets = list[int]
"""One offset for each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Offsets start to end of each partition, the end excluded."""

    places: list[Place]
    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        """How many offsets; fewer records, where producers use transactions."""
        return sum(self.end) - sum(self.start)


def newest(clients: Clients, topics: Sequence[str], records: int) -> Slice:
    """The last records. Raises ConfigurationError where a topic does not exist, KafkaException."""
    places, low, high = _ends(clients, topics)
    with _Stamps(clients, places, low, high) as stamps:
        # The last instant behind which there are enough, and the next.
        late = stamps.first(lambda offsets: sum(high) - sum(offsets) < records)
        start = stamps.at(late - 1) if late else low
        return Slice(places=places, start=_between(start, stamps.at(late), sum(high) - records), end=high)


def oldest(clients: Clients, topics: Sequence[str], records: int) -> Slice:
    """The first records. Raises as `newest`."""
    places, low, high = _ends(clients, topics)
    with _Stamps(clients, places, low, high) as stamps:
        enough = stamps.first(lambda offsets: sum(offsets) - sum(low) >= records)
        start = stamps.at(enough - 1) if enough else low
        return Slice(places=places, start=low, end=_between(start, stamps.at(enough), sum(low) + records))


def stamped(clients: Clients, topics: Sequence[str], start: int, end: int) -> Slice:
    """Reads from the first record that is stamped ``start`` (ms) or later to the first that is stamped ``end`` or later. Raises as
    `newest`."""
    places, low, high = _ends(clients, topics)
    with _Stamps(clients, places, low, high) as stamps:
        first = stamps.at(start)
        return Slice(places=places, start=first, end=[max(pair) for pair in zip(first, stamps.at(end), strict=True)])


def stamp_type(record: Any) -> int:
    """The type of a message's time stamp, as its batch has it (agents/histogram/clock.py)."""
    return LOG_APPEND_TIME if record.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME


def trusted(clients: Clients, chosen: Slice, clock: type[Clock]) -> Slice:
    """The same, but to the end of the log in each partition whose end is a record that is stamped otherwise than the clock expects:
    its producer chose the stamp, and may not end the sample for all others. Raises as `newest`."""
    high, end = [clients.watermarks(*place)[1] for place in chosen.places], list(chosen.end)
    for partition in [partition for partition, here in enumerate(end) if here < high[partition]]:
        ends = [here + (number == partition) for number, here in enumerate(end)]
        only = Slice(places=chosen.places, start=list(end), end=ends)
        found = [record for records in records_of(clients, only, 1) for record in records]
        # None: aborted, or a transaction's marker.
        if not found or clock.stamped_otherwise(np.array([stamp_type(found[0])])).any():
            end[partition] = high[partition]
    return Slice(places=chosen.places, start=chosen.start, end=end)


def records_of(clients: Clients, chosen: Slice, batch: int) -> Iterator[list[Any]]:
    """The records of a slice, as messages, in batches of about this many. Raises KafkaException, also after a minute of silence."""
    ranges = dict(zip(chosen.places, zip(chosen.start, chosen.end, strict=True), strict=True))
    with contextlib.closing(clients.raw.reader("sample")) as consumer:
        found: list[Any] = []
        for records in read_ranges(consumer, ranges):
            found += records
            if len(found) >= batch:
                yield found
                found = []
        if found:
            yield found


def _ends(clients: Clients, topics: Sequence[str]) -> tuple[list[Place], Offsets, Offsets]:
    places: list[Place] = []
    for topic in topics:
        if not (partitions := clients.partitions(topic)):
            raise ConfigurationError(
                f"topic={topic} does not exist: correct input.topic, or let its producers create it"
            )
        places += [(topic, partition) for partition in range(partitions)]
    low, high = zip(*(clients.watermarks(*place) for place in places), strict=True)
    return places, list(low), list(high)


def _between(start: Offsets, end: Offsets, total: int) -> Offsets:
    """Offsets from ``start`` to ``end`` that add up to ``total``, if there are any: for records of one and the same stamp."""
    left, chosen = total - sum(start), list(start)
    for partition, (low, high) in enumerate(zip(start, end, strict=True)):
        step = min(max(left, 0), max(high - low, 0))
        chosen[partition], left = low + step, left - step
    return chosen


class _Stamps:
    """Offsets of partitions by stamp."""

    def __init__(self, clients: Clients, places: Sequence[Place], low: Offsets, high: Offsets) -> None:
        self._number = {place: number for number, place in enumerate(places)}
        self._low, self._high = low, high
        self._consumer = clients.raw.reader("sample-offsets")

    def __enter__(self) -> "_Stamps":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def at(self, stamp: int) -> Offsets:
        """The first offset of each partition whose stamp is at least ``stamp`` (ms); the end where there is none."""
        asked = [TopicPartition(*place, stamp) for place in self._number]
        offsets = list(self._high)
        for found in self._consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS):
            if found.error is not None:
                raise KafkaException(found.error)
            if found.offset != OFFSET_END:
                here = self._number[found.topic, found.partition]
                offsets[here] = min(max(known_offset(found.offset), self._low[here]), self._high[here])
        return offsets

    def first(self, holds: Callable[[Offsets], bool]) -> int:
        """The first instant (ms) whose offsets have a property that all later ones have too; a late one if there is none."""
        low, high = 0, _LATEST
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(self.at(middle)) else (middle + 1, high)
        return low
