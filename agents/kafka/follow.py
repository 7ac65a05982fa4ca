"""The one loop that reads topics outside the consumer group: partitions assigned by hand, read without end, or to their end.

Whether only committed records are seen is the consumer's setting (``isolation.level``). Every consumer given to this module must
report ends (``enable.partition.eof``).

The client reports an end where it finds nothing to fetch for half a second. It reports none of a topic that is written more often.
So a partition also counts as read to its end once all records are read that were there when the first of them came.

The client recovers from most errors by itself: it looks for a new leader, and connects again when a broker comes back. Such an
error (one that is retriable, or says that brokers are away) is passed over here. Every other error (a missing topic, a missing
right, an offset that does not exist) is raised, after the records that were read before it have been handed out.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from susurrus.mechanisms.errors import RetryableRefusal

_BATCH = 5_000
_CONSUME_SECONDS = 0.02
"""The event of a partition's end does not end a consume call, its time-out does."""
_SILENCE_SECONDS = 60.0
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)

Place = tuple[str, int]
"""Topic and partition."""


class Follower:
    """Reads partitions from given offsets on. Not thread-safe. The caller closes the consumer."""

    def __init__(self, consumer: Consumer, starts: Mapping[Place, int]) -> None:
        self._consumer = consumer
        self._behind = dict.fromkeys(starts, OFFSET_INVALID)
        """The partitions that have not been read to their end yet, each with that end as it was first heard of."""
        self._error: KafkaError | None = None
        self.ends: dict[Place, int] = {}
        """The end of each partition, as last reported. A replica that lags shows an earlier one than its leader. A partition that
        is written without a pause reports none.
        """
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in starts.items()])

    @property
    def caught_up(self) -> bool:
        """Whether every partition has been read to its end once, or as far as it reached when its first records came."""
        return not self._behind

    def read(self, seconds: float = _CONSUME_SECONDS, *, at_once: bool = False) -> list[Message]:
        """The records that arrive within so many seconds. at_once: do not wait for more when there is one.

        Raises KafkaException for what the client does not recover from by itself.
        """
        records = []
        if self._error is None:
            messages = list(self._consumer.consume(1 if at_once else _BATCH, timeout=seconds))
            if at_once and messages and messages[0].error() is None:
                messages += self._consumer.consume(_BATCH, timeout=0)
            for message in messages:
                error: Any = message.error()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    place: Any = (message.topic(), message.partition())
                    self.ends[place] = message.offset()
                    self._behind.pop(place, None)
                elif not error.retriable() and error.code() not in _PASSING:
                    self._error = error
        if self._error is not None and not records:
            error, self._error = self._error, None
            raise KafkaException(error)
        if self._behind:
            self._note_position(records)
        return records

    def _note_position(self, records: list[Message]) -> None:
        last: dict[Any, Any] = {(record.topic(), record.partition()): record.offset() for record in records}
        for place in last.keys() & self._behind.keys():
            if self._behind[place] == OFFSET_INVALID:
                # What the last fetch brought with it, so nothing is asked. It counts records of open transactions, too: either
                # they become readable, or the client finds nothing to fetch and reports the end before them.
                self._behind[place] = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)[1]
            if OFFSET_INVALID < self._behind[place] <= last[place] + 1:
                del self._behind[place]


def read_ranges(consumer: Consumer, ranges: Mapping[Place, tuple[int, int]]) -> Iterator[list[Message]]:
    """The records of several partitions from an offset of each to another one, which is excluded; in the order they come.

    The end that a broker reports counts, too: the last offsets may be a transaction's marker, or belong to an open transaction.
    Raises KafkaException for what the client does not recover from by itself, and where nothing comes for a minute.
    """
    left = {place: end for place, (start, end) in ranges.items() if start < end}
    if not left:
        return
    follower = Follower(consumer, {place: ranges[place][0] for place in left})
    heard = time.monotonic()
    while left:
        found, before = [], len(left)
        for record in (records := follower.read()):
            place: Any = (record.topic(), record.partition())
            offset: Any = record.offset()
            if offset < ranges[place][1]:
                found.append(record)
            if offset >= ranges[place][1] - 1:
                left.pop(place, None)
        left = {place: end for place, end in left.items() if place not in follower.ends}
        yield found
        if records or len(left) < before:
            heard = time.monotonic()
        elif time.monotonic() > heard + _SILENCE_SECONDS:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def read_to_end(
    consumer: Consumer,
    place: Place,
    start: int,
    *,
    until: int = 0,
    mark_alive: Callable[[], None] = lambda: None,
) -> Generator[Message, None, int]:
    """The records of one partition from ``start`` to its end as reported, or to where it ended when the first of them came.

    until: the end that must be reached. A leader that was just elected, or a follower that ``client.rack`` selects, may not know
    how much is committed, and show an earlier end. mark_alive: called before every wait. Raises KafkaException for what the
    client does not recover from by itself, and where nothing comes for a minute; RetryableRefusal where an earlier end shows
    all that time. Returns that end: what lies before it and has not come is marks of transactions, or of aborted ones.
    """
    follower = Follower(consumer, {place: start})
    heard = time.monotonic()
    try:
        while True:
            mark_alive()
            records = follower.read()
            yield from records
            if (end := follower.ends.get(place, -1)) >= until:
                return end
            if records:
                last: int = records[-1].offset() or 0
                if follower.caught_up and last + 1 >= until:
                    return last + 1
                heard = time.monotonic()
            elif time.monotonic() > heard + _SILENCE_SECONDS:
                if end >= 0:
                    raise _unreadable(place, end, until)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    finally:
        consumer.unassign()


def _unreadable(place: Place, end: int, until: int) -> RetryableRefusal:
    """What holds back the records between the end that shows and the one that the leader knows."""
    topic, partition = place
    return RetryableRefusal(
        f"topic={topic} partition={partition}: the records from offset={end} to offset={until - 1} have not become "
        f"readable for {_SILENCE_SECONDS:.0f} s, because a transaction there is still open or a replica lags",
        'see that every broker is up; if it stays, follow docs/operations.md, "A transaction that hangs"; the '
        "task tries again by itself",
    )
