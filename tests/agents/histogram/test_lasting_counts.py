"""How much of a window had lasted is known when every partition has told it, and for as long as somebody may need it."""

import random

import pytest

from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import lasting_rows
from tests.agents.histogram.test_feedback import CALENDAR, DIGEST, EPOCH, FIRST, LAST, index_of, record


def told(partition: int, known: int, rows: int, *, interval: int = LAST, window: int = FIRST, **of: bytes) -> bytes:
    return lasting_rows.encode(
        lasting_rows.LastingRows(
            partition=partition,
            interval=interval,
            window=window,
            known=known,
            rows=rows,
            config_digest=of.get("digest", DIGEST),
            epoch=of.get("epoch", EPOCH),
        )
    )


class Log:
    """What two partitions write, in an order of one's own."""

    def __init__(self) -> None:
        self.index = index_of()
        self.records: list[bytes] = []

    def close(self, partition: int, interval: int, counts: tuple[int, int] | None = None) -> None:
        if counts is not None:
            self.write(told(partition, *counts, interval=interval))
        self.write(record(partition, interval, {}, {}))

    def write(self, value: bytes) -> None:
        self.index.take(value, len(self.records))
        self.records.append(value)

    def read_from(self, offset: int) -> PublishedKeys:
        """Another reader of the topic, of which what comes before is deleted."""
        index = index_of()
        for at, value in enumerate(self.records[offset:], start=offset):
            index.take(value, at)
        return index


def before_the_last() -> Log:
    log = Log()
    for interval in range(LAST):
        for partition in (0, 1):
            log.close(partition, interval)
    return log


def test_numbers_of_all_partitions_are_added_up_and_no_half_answer_is_given() -> None:
    log = before_the_last()
    assert log.index.lasted(LAST) is None
    log.close(0, LAST, (3, 7))
    assert log.index.lasted(LAST) is None
    log.write(told(1, 5, 10))
    assert log.index.lasted(LAST) is None  # what is told is not committed until the interval is complete
    log.write(record(1, LAST, {}, {}))
    assert log.index.lasted(LAST) == (8, 17)


def test_a_repetition_does_not_count() -> None:
    log = before_the_last()
    log.close(0, LAST, (3, 7))
    log.close(1, LAST, (5, 10))
    log.close(0, LAST, (0, 1))  # an interval that is closed
    assert log.index.lasted(LAST) == (8, 17)


def test_numbers_that_are_lost_are_refused() -> None:
    log = before_the_last()
    log.close(0, LAST, (3, 7))
    log.close(1, LAST)
    with pytest.raises(Refusal, match=f"lacks how much had lasted.*interval={LAST}"):
        log.index.lasted(LAST)


@pytest.mark.parametrize("value", [told(0, 1, 2, digest=bytes(32)), told(0, 1, 2, epoch=bytes(16))])
def test_what_this_pipeline_did_not_write_is_refused(value: bytes) -> None:
    with pytest.raises(Refusal, match="is of another"):
        index_of().take(value, 0)


def test_they_are_kept_until_every_partition_has_begun_the_window_that_needs_them() -> None:
    """Partition 0 goes ahead as far as it can without the other: to the end of the second window."""
    log = before_the_last()
    log.close(0, LAST, (3, 7))
    needed = len(log.records) - 2
    for interval in range(LAST + 1, CALENDAR.last_interval(1)):
        log.close(0, interval)
    log.close(1, LAST, (5, 10))
    assert 0 <= log.index.purge_before() <= needed
    assert log.index.lasted(LAST) == log.read_from(log.index.purge_before()).lasted(LAST) == (8, 17)


@pytest.mark.parametrize("seed", range(20))
def test_whoever_begins_a_window_finds_them_in_what_is_left_of_the_topic(seed: int) -> None:
    """Both partitions go on in a random order, at most a window apart; the topic is purged after every step."""
    dice, log = random.Random(seed), Log()
    ends = {CALENDAR.last_interval(number): number for number in range(6)}
    begins = {CALENDAR.first_interval(number): number for number in range(6)}
    closed, purged = [-1, -1], 0
    while min(closed) < CALENDAR.first_interval(6):
        who = dice.randrange(2)
        following = closed[who] + 1
        if following > min(closed) + CALENDAR.triggers:
            continue
        if (number := begins.get(following)) is not None and number >= 2:
            newest = max(last for last in ends if last < following)
            found = log.read_from(purged).lasted(newest)
            if min(closed) < newest:
                assert found is None
                continue  # it waits for the other
            assert found == (2 * ends[newest] + 1, 20)
        log.close(who, following, (ends[following] + who, 10) if following in ends else None)
        closed[who] = following
        purged = max(purged, log.index.purge_before())
    assert purged > 0


def test_they_are_forgotten_when_the_next_window_has_ended_everywhere() -> None:
    log = before_the_last()
    for partition in (0, 1):
        log.close(partition, LAST, (1, 2))
    for interval in range(LAST + 1, CALENDAR.last_interval(1) + 1):
        for partition in (0, 1):
            log.close(partition, interval, (2, 2) if interval == CALENDAR.last_interval(1) else None)
    assert log.index.lasted(CALENDAR.last_interval(1)) == (4, 4)
    assert log.index._lasting.known(LAST) == {}
    assert log.index._lasting.first_offset() is not None
