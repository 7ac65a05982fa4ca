"""What bound knows about published keys: complete or not at all, and never more than was published by then."""

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.feedback_reader import PublishedKeysReader
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.stage import NotYet
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.windows import FixedWindows
from susurrus.topics import evidence
from susurrus.topics import published_keys as codec
from susurrus.topics.wire.partitioner import partition as partition_of

HOUR = 3_600_000
DIGEST = bytes(range(32))
EPOCH = bytes(range(16))
CALENDAR = Calendar(
    windows=FixedWindows(origin=0, length_ms=4 * HOUR), origin=0, trigger_every=HOUR, allowed_lateness=2 * HOUR
)
PARTITIONS = 2
FIRST, SECOND = 0, 4 * HOUR
"""Starts of the first two windows; intervals 4 and 5 belong to both."""


def index_of() -> PublishedKeys:
    index = PublishedKeys("published-keys", partitions=PARTITIONS, calendar=CALENDAR, config_digest=DIGEST)
    index.epoch = EPOCH
    return index


def record(
    partition: int,
    interval: int,
    news: dict[int, list[bytes]],
    totals: dict[int, int],
    *,
    digest: bytes = DIGEST,
    epoch: bytes = EPOCH,
    units: dict[int, dict[bytes, int]] | None = None,
) -> bytes:
    return codec.encode(codec.block_of(partition, interval, digest, epoch, news, totals, units))


def test_an_interval_is_complete_when_every_partition_has_said_so() -> None:
    index = index_of()
    assert not index.complete(0)
    assert index.behind(0) == [0, 1]
    index.take(record(0, 0, {FIRST: [b"1"]}, {FIRST: 1}), 0)
    assert not index.complete(0)
    assert index.behind(0) == [1]
    index.take(record(1, 0, {}, {FIRST: 0}), 1)
    assert index.complete(0)
    assert not index.complete(1)


def test_an_interval_in_pieces_is_complete_with_the_last() -> None:
    index = index_of()
    block = codec.block_of(0, 0, DIGEST, EPOCH, {FIRST: [b"%d" % n for n in range(20)]}, {FIRST: 20})
    *pieces, last = map(codec.encode, codec.split(block, 30))
    index.take(record(1, 0, {}, {FIRST: 0}), 0)
    for offset, piece in enumerate(pieces, start=1):
        index.take(piece, offset)
        assert not index.complete(0)
    index.take(last, 100)
    assert index.complete(0)
    assert index.known(FIRST, 0, block.keys).all()


def completed(*news: tuple[int, dict[int, list[bytes]], dict[int, int]]) -> PublishedKeys:
    """Partition 0 publishes the news, (interval, keys, totals) each; partition 1 never publishes anything."""
    index = index_of()
    for offset, (interval, keys, totals) in enumerate(news):
        index.take(record(0, interval, keys, totals), 2 * offset)
        index.take(record(1, interval, {}, dict.fromkeys(totals, 0)), 2 * offset + 1)
    return index


def test_no_half_answer_while_the_topic_is_read_again() -> None:
    """Between the question whether an interval is complete and the next one, the reader may have begun again."""
    index = completed((0, {FIRST: [b"1"]}, {FIRST: 1}))
    assert index.complete(0)
    index.clear()
    with pytest.raises(NotYet, match="read again"):
        index.known(FIRST, 0, [b"1"])
    index.take(record(0, 0, {FIRST: [b"1"]}, {FIRST: 1}), 0)
    [other] = keys_of_partition(1, 1)
    with pytest.raises(NotYet):
        index.known(FIRST, 0, [b"1", other])
    index.take(record(1, 0, {}, {FIRST: 0}), 1)
    assert index.known(FIRST, 0, [b"1", other]).tolist() == [True, False]


def keys_of_partition(partition: int, number: int) -> list[bytes]:
    """The first keys that this bounded partition would publish."""
    keys = [b"%d" % n for n in range(100)]
    return [keys[i] for i in np.flatnonzero(partition_of(keys, PARTITIONS) == partition)][:number]


def test_what_is_known_of_a_key_does_not_wait_for_what_cannot_change_it() -> None:
    """A published key stays published, and a key that is not is published by its own partition alone."""
    published, later, other = keys_of_partition(0, 3)
    [elsewhere] = keys_of_partition(1, 1)
    index = index_of()
    assert index.decides(FIRST, 0, [])
    assert not index.decides(FIRST, 0, [published])
    index.take(record(0, 0, {FIRST: [published]}, {FIRST: 1}), 0)
    assert index.decides(FIRST, 0, [published, later, other])
    assert not index.decides(FIRST, 0, [published, elsewhere])
    assert index.known(FIRST, 0, [published, later]).tolist() == [True, False]
    # A later interval: the key that is public stays so, any other may be published there.
    assert index.decides(FIRST, 1, [published])
    assert not index.decides(FIRST, 1, [published, later])
    assert not index.decides(SECOND, 1, [published])
    index.take(record(0, 1, {FIRST: [later]}, {FIRST: 2}), 1)
    assert index.known(FIRST, 1, [published, later, other]).tolist() == [True, True, False]
    # What was published after the interval that is asked for does not count, nor does it keep the answer back.
    assert index.known(FIRST, 0, [published, later, other]).tolist() == [True, False, False]
    with pytest.raises(NotYet):
        index.known(FIRST, 1, [elsewhere])


def test_every_answer_given_early_is_the_one_that_stands_in_the_end() -> None:
    """For any order in which the partitions' records arrive."""
    dice = np.random.default_rng(7)
    keys = [b"%d" % n for n in range(24)]
    owner = partition_of(keys, PARTITIONS)
    early = 0
    for _ in range(30):
        since = dice.integers(0, 8, len(keys))  # at 5 or later: never
        logs = []
        for partition in range(PARTITIONS):
            mine = [(keys[i], since[i]) for i in np.flatnonzero(owner == partition)]
            logs.append(
                [
                    record(
                        partition,
                        interval,
                        {FIRST: [key for key, at in mine if at == interval]},
                        {FIRST: sum(at <= interval for _, at in mine)},
                    )
                    for interval in range(5)
                ]
            )
        index = index_of()
        for offset in range(5 * PARTITIONS):
            some = [log for log in logs if log]
            index.take(some[dice.integers(len(some))].pop(0), offset)
            for interval in range(5):
                asked = dice.integers(0, len(keys), 3)
                if index.decides(FIRST, interval, [keys[i] for i in asked]):
                    early += not index.complete(interval)
                    found = index.known(FIRST, interval, [keys[i] for i in asked])
                    assert found.tolist() == (since[asked] <= interval).tolist()
    assert early > 50


class Woken(Inbox):
    """Counts how often it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def wake(self) -> None:
        self.times += 1


def test_tasks_are_woken_when_more_is_known_and_forgotten_when_they_are_gone(started: Any) -> None:
    log = Log([])
    index = started(log)
    inbox, gone = Woken(), Woken()
    for one in (inbox, inbox, gone):
        index.wakes(one)
    watched = weakref.ref(gone)
    del gone, one
    gc.collect()
    assert watched() is None
    before = index.version
    log.values += complete(0)
    wait_for(lambda: inbox.times)
    assert index.complete(0)
    assert index.version > before


def test_only_what_was_published_up_to_the_interval_in_that_window_is_known() -> None:
    index = completed(
        (2, {}, {FIRST: 0}),
        (3, {FIRST: [b"1"]}, {FIRST: 1}),
        (4, {FIRST: [b"2"], SECOND: [b"1"]}, {FIRST: 2, SECOND: 1}),
    )
    keys = [b"0", b"1", b"2"]
    assert index.known(FIRST, 2, keys).tolist() == [False, False, False]
    assert index.known(FIRST, 3, keys).tolist() == [False, True, False]
    assert index.known(FIRST, 4, keys).tolist() == [False, True, True]
    assert index.known(SECOND, 4, keys).tolist() == [False, True, False]
    assert index.known(8 * HOUR, 4, keys).tolist() == [False, False, False]
    assert index.known(FIRST, 4, []).dtype == np.bool_


def test_a_record_twice_counts_once() -> None:
    """After a doubt the topic is read from its start; a producer that is not sure never writes twice, but nothing hangs on that."""
    index = index_of()
    for _ in range(2):
        index.take(record(0, 0, {FIRST: [b"1"]}, {FIRST: 1}), 0)
    index.take(record(0, 1, {FIRST: [b"2"]}, {FIRST: 2}), 1)
    index.take(record(1, 1, {}, {FIRST: 0}), 2)
    assert index.known(FIRST, 1, [b"1", b"2"]).all()


def test_a_window_that_lacks_keys_is_refused_and_the_others_go_on() -> None:
    # The record that named the first window's key is gone.
    index = completed((3, {}, {FIRST: 1}), (4, {SECOND: [b"1"]}, {FIRST: 1, SECOND: 1}))
    with pytest.raises(
        Refusal, match=r"topic=published-keys lacks keys .* window=0, .*: restore the topic as it was .* new-epoch`"
    ):
        index.known(FIRST, 4, [b"1"])
    assert index.known(SECOND, 4, [b"1"]).all()


def test_windows_and_offsets_are_forgotten_when_every_bound_has_closed_them() -> None:
    index = index_of()
    for interval in range(6):
        totals = {FIRST: interval + 1} | ({SECOND: 0} if interval > 3 else {})
        index.take(record(0, interval, {FIRST: [b"%d" % interval]}, totals), 10 * interval)
        index.take(record(1, interval, {}, dict.fromkeys(totals, 0)), 10 * interval + 1)
        assert index.known(FIRST, interval, [b"0"]).all() == (interval < 5)
    assert (
        index.purge_before() == 0
    )  # the window's last trigger is interval 5, and interval 0 may be asked for until then
    for interval in range(6, 10):
        index.take(record(0, interval, {}, {SECOND: 0}), 10 * interval)
        # A window still open began after the newest closed interval less its triggers.
        assert index.purge_before() == 10 * (interval - CALENDAR.triggers + 1)
    assert index_of().purge_before() == -1


def test_what_a_purged_topic_still_holds_of_a_window_that_is_over_changes_nothing() -> None:
    index = completed((4, {SECOND: [b"1"]}, {FIRST: 9, SECOND: 1}), (5, {}, {FIRST: 9, SECOND: 1}))
    assert index.known(SECOND, 5, [b"1"]).all()
    assert not index.known(FIRST, 5, [b"1"]).any()  # over; no stage asks


# ---- units: what `closing` tells of the published keys once in a window -------------------------------------------------

KNOWN = 3
"""The interval at which the tests' release tells them of the first window."""


def with_units(units: dict[bytes, int], *, first: int = 1, new: tuple[bytes, ...] = ()) -> PublishedKeys:
    """Key 1 is published at interval ``first``, ``new`` ones at the interval that tells ``units``; partition 1 never
    publishes anything."""
    index = index_of()
    number = 0
    for interval in range(KNOWN + 1):
        news = [key for key, since in ((b"1", first), *((key, KNOWN) for key in new)) if since == interval]
        number += len(news)
        given = {FIRST: units} if interval == KNOWN else None
        index.take(record(0, interval, {FIRST: news}, {FIRST: number}, units=given), 2 * interval)
        index.take(record(1, interval, {FIRST: []}, {FIRST: 0}, units={FIRST: {}} if given else None), 2 * interval + 1)
    return index


def test_units_are_those_that_were_told_and_0_for_keys_that_are_not_public() -> None:
    index = with_units({b"1": 7, b"2": 1 << 20}, new=(b"2",))
    found = index.units(FIRST, KNOWN, [b"2", b"3", b"1", b""])
    assert found.tolist() == [1 << 20, 0, 7, 0]
    assert found.dtype == np.int64
    assert index.units(FIRST, KNOWN, []).tolist() == []
    assert index.units(SECOND, KNOWN, [b"1"]).tolist() == [0]


def test_units_are_not_answered_before_every_partition_has_told_them() -> None:
    index = index_of()
    index.take(record(0, 0, {FIRST: [b"1"]}, {FIRST: 1}, units={FIRST: {b"1": 7}}), 0)
    with pytest.raises(NotYet, match="read again"):
        index.units(FIRST, 0, [b"1"])
    index.take(record(1, 0, {FIRST: []}, {FIRST: 0}, units={FIRST: {}}), 1)
    assert index.units(FIRST, 0, [b"1"]).tolist() == [7]
    with pytest.raises(NotYet):
        index.units(FIRST, 1, [b"1"])
    index.clear()
    with pytest.raises(NotYet):
        index.units(FIRST, 0, [b"1"])


def test_units_in_pieces_are_put_together() -> None:
    units = {b"%d" % n: n + 1 for n in range(20)}
    block = codec.block_of(0, 0, DIGEST, EPOCH, {FIRST: list(units)}, {FIRST: 20}, {FIRST: units})
    index = index_of()
    index.take(record(1, 0, {FIRST: []}, {FIRST: 0}), 0)
    pieces = list(codec.split(block, 30))
    assert len(pieces) > 2
    for offset, piece in enumerate(pieces, start=1):
        index.take(codec.encode(piece), offset)
    assert index.units(FIRST, 0, list(units)).tolist() == list(units.values())


@pytest.mark.parametrize(("units", "new"), [({}, ()), ({b"2": 5}, (b"2",)), ({b"1": 5}, (b"2",))])
def test_a_published_key_without_a_unit_is_refused(units: dict[bytes, int], new: tuple[bytes, ...]) -> None:
    index = with_units(units, new=new)
    with pytest.raises(Refusal, match=r"lacks keys that were published in window=0"):
        index.units(FIRST, KNOWN, [b"3"])
    assert index.known(FIRST, KNOWN, [b"1"]).all()


def test_keys_told_again_with_their_unit_count_once_and_stay_published_since_they_were() -> None:
    index = with_units({b"1": 7})
    index.take(record(0, KNOWN + 1, {FIRST: [b"4"]}, {FIRST: 2}), 8)
    index.take(record(1, KNOWN + 1, {}, {FIRST: 0}), 9)
    assert index.known(FIRST, KNOWN + 1, [b"1", b"4"]).all()
    assert index.known(FIRST, 0, [b"1"]).tolist() == [False]
    for interval in range(1, KNOWN + 1):
        assert index.known(FIRST, interval, [b"1"]).tolist() == [True]
    # Published after the units were known: no unit, and none is missing.
    assert index.units(FIRST, KNOWN, [b"1", b"4"]).tolist() == [7, 0]


def test_units_are_forgotten_with_their_window() -> None:
    index = with_units({b"1": 7})
    for interval in range(KNOWN + 1, 2 * CALENDAR.triggers):
        assert index.units(FIRST, KNOWN, [b"1"]).tolist() == [7 if interval <= CALENDAR.last_interval(0) else 0]
        totals = {FIRST: 1} if interval <= CALENDAR.last_interval(0) else {}
        index.take(record(0, interval, {}, totals), 2 * interval)
        index.take(record(1, interval, {}, dict.fromkeys(totals, 0)), 2 * interval + 1)
    assert index._units == {}


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_record_is_noticed_though_its_keys_are_told_again_with_their_units(lost: int) -> None:
    """Found again they would count as published later than they were, and their records have other ranks."""
    index = index_of()
    for interval in range(KNOWN + 1):
        for partition in range(PARTITIONS):
            mine = partition == 0
            units = {FIRST: {b"1": 7} if mine else {}} if interval == KNOWN else None
            news = {FIRST: [b"1"] if mine and interval == lost else []}
            if not (mine and interval >= lost and interval < KNOWN):
                index.take(
                    record(partition, interval, news, {FIRST: int(mine and interval >= lost)}, units=units), interval
                )
    with pytest.raises(Refusal, match="lacks keys"):
        index.known(FIRST, KNOWN - 1, [b"1"])


# ---- evidence: the rows of a window's last trigger ----------------------------------------------------------------------

LAST = CALENDAR.last_interval(0)
"""Of the first window."""
MINE, OTHERS = [[1, 2], [3, 4], [5, 6]], [[7, 8]]


def told(
    partition: int,
    rows: list[list[int]],
    *,
    interval: int = LAST,
    total: int | None = None,
    last: bool = True,
    **of: Any,
) -> bytes:
    block = evidence.EvidenceBlock(
        partition=partition,
        interval=interval,
        window=FIRST,
        last=last,
        total=len(rows) if total is None else total,
        config_digest=of.get("digest", DIGEST),
        epoch=of.get("epoch", EPOCH),
        evidence=np.array(rows, np.int64).reshape(len(rows), 2 if rows else 0),
    )
    return evidence.encode(block)


def pooled(index: PublishedKeys, asking: int = 0) -> dict[int, list[list[int]]] | None:
    found = index.pooled(FIRST, LAST, asking)
    return None if found is None else {number: rows.tolist() for number, rows in found.items()}


def closed_before(interval: int = LAST) -> PublishedKeys:
    """All partitions have closed all intervals before that one; a record each."""
    index = index_of()
    for at in range(interval):
        for partition in range(PARTITIONS):
            index.take(record(partition, at, {}, {}), PARTITIONS * at + partition)
    return index


def test_evidence_is_pooled_when_every_partition_has_told_its_own() -> None:
    index = closed_before()
    assert pooled(index) is None
    assert index.untold(FIRST) == [0, 1]
    index.take(told(1, OTHERS), 100)
    assert pooled(index) is None
    assert index.untold(FIRST) == [0]
    index.take(told(0, MINE), 101)
    assert pooled(index) == {0: MINE, 1: OTHERS}
    assert index.untold(FIRST) == []
    assert index.pooled(SECOND, LAST, 0) is None


def test_evidence_in_pieces_is_told_with_the_last_one() -> None:
    index = closed_before()
    index.take(told(1, []), 100)
    index.take(told(0, MINE[:2], total=3, last=False), 101)
    assert pooled(index) is None
    index.take(told(0, MINE[2:], total=3), 102)
    found = pooled(index)
    assert found is not None
    assert (found[0], len(found[1])) == (MINE, 0)


def test_what_a_partition_has_told_in_full_counts_and_a_repetition_does_not() -> None:
    index = closed_before()
    for offset, rows in enumerate((MINE, OTHERS, MINE)):
        index.take(told(0, rows), 100 + offset)
    index.take(told(1, OTHERS), 110)
    assert pooled(index) == {0: MINE, 1: OTHERS}


def test_a_piece_that_is_lost_is_refused() -> None:
    index = closed_before()
    index.take(told(1, OTHERS), 100)
    index.take(told(0, MINE[2:], total=3), 101)
    with pytest.raises(
        Refusal,
        match=r"topic=published-keys lacks rows of the last trigger of window=0, .*: restore the topic .* new-epoch`",
    ):
        pooled(index)


def test_a_partition_that_has_closed_and_told_nothing_is_refused_and_does_not_wait_itself() -> None:
    index = closed_before()
    index.take(told(0, MINE), 100)
    index.take(record(1, LAST, {}, {FIRST: 0}), 101)
    with pytest.raises(Refusal, match="lacks rows"):
        pooled(index, asking=0)
    assert pooled(index, asking=1) is None  # of an owner that has been replaced


def test_evidence_is_kept_until_every_partition_has_closed_the_interval() -> None:
    index = closed_before()
    for partition, rows in ((0, MINE), (1, OTHERS)):
        index.take(told(partition, rows), 100 + partition)
    for interval in range(LAST, 3 * LAST):
        index.take(record(0, interval, {}, {}), 200 + interval)
        assert pooled(index, asking=1) == {0: MINE, 1: OTHERS}
        # Of a window still open, or the evidence.
        oldest = interval - CALENDAR.triggers + 1
        assert index.purge_before() == (PARTITIONS * oldest if oldest < LAST else 100)
    index.take(record(1, LAST, {}, {}), 300)
    assert index.purge_before() == 200 + 3 * LAST - CALENDAR.triggers
    assert index._pooled.first_offset() is None
    index.take(told(1, OTHERS), 301)  # a repetition behind the end
    assert index._pooled.first_offset() is None


def test_evidence_is_read_again_with_the_topic() -> None:
    index = closed_before()
    for _ in range(2):
        assert pooled(index) is None
        index.take(told(1, OTHERS), 100)
        index.take(told(0, MINE), 101)
        assert pooled(index) == {0: MINE, 1: OTHERS}
        index.clear()
    index.refuse(Refusal("no", "begin a new epoch"))
    with pytest.raises(Refusal, match="no"):
        pooled(index)


@pytest.mark.parametrize("value", [told(0, MINE, digest=bytes(32)), told(0, MINE, epoch=bytes(16)), told(0, MINE)[:-1]])
def test_evidence_that_this_pipeline_did_not_write_is_refused(value: bytes) -> None:
    with pytest.raises(Refusal, match=r"topic=published-keys offset=3"):
        index_of().take(value, 3)


@pytest.mark.parametrize(
    "value", [b"", b"{}", record(0, 0, {}, {}, digest=bytes(32)), record(0, 0, {}, {}, epoch=bytes(16))]
)
def test_what_this_pipeline_did_not_write_is_refused(value: bytes) -> None:
    with pytest.raises(Refusal, match=r"topic=published-keys offset=3"):
        index_of().take(value, 3)


# ---- the reader ---------------------------------------------------------------------------------------------------------


class Log:
    """A topic's records; each consumer reads what it was assigned, and fails where the test says."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.id = "a"
        self.start = 0
        self.errors: list[KafkaError] = []
        self.consumers = 0

    def topic_id(self, topic: str) -> str:
        return self.id

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return self.start, len(self.values)

    def reader(self, group: str, *, follows: bool) -> Any:
        assert follows
        self.consumers += 1
        return _Consumer(self)


class _Consumer:
    def __init__(self, log: Log) -> None:
        self.log, self.at = log, -1

    def assign(self, places: list[Any]) -> None:
        self.at = places[0].offset

    def consume(self, number: int, timeout: float) -> list[Any]:
        if self.log.errors:
            error = self.log.errors.pop(0)
            place = {"topic": lambda: "published-keys", "partition": lambda: 0, "offset": lambda: 0}
            return [SimpleNamespace(error=lambda: error, **place)]
        threading.Event().wait(0.005)
        found = range(self.at, len(self.log.values))
        self.at = len(self.log.values)
        place = {"topic": lambda: "published-keys", "partition": lambda: 0}
        return [
            SimpleNamespace(error=lambda: None, value=lambda n=n: self.log.values[n], offset=lambda n=n: n, **place)
            for n in found
        ]

    def get_watermark_offsets(self, place: Any, *, cached: bool) -> tuple[int, int]:
        return 0, len(self.log.values)

    def close(self) -> None: ...


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("susurrus.agents.histogram.feedback_reader._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("susurrus.agents.histogram.feedback_reader._LOOK_AT_LOG_SECONDS", 0.01)
    readers = []

    def start(log: Log) -> PublishedKeys:
        index = index_of()
        reader = PublishedKeysReader(log, index)  # type: ignore[arg-type]
        reader.ensure_started(EPOCH)
        reader.ensure_started(EPOCH)
        readers.append(reader)
        return index

    yield start
    for reader in readers:
        reader.close()
        assert not reader.is_alive()


def wait_for(condition: Any) -> None:
    for _ in range(2_000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("in vain")


def complete(interval: int) -> list[bytes]:
    return [
        record(p, interval, {FIRST: [b"%d" % (2 * interval + p)]}, {FIRST: interval + 1}) for p in range(PARTITIONS)
    ]


def test_the_reader_follows_the_topic(started: Any) -> None:
    log = Log(complete(0))
    index = started(log)
    wait_for(lambda: index.complete(0))
    log.values += complete(1)
    wait_for(lambda: index.complete(1))
    assert log.consumers == 1
    assert index.known(FIRST, 1, [b"0", b"1", b"2", b"3"]).all()


@pytest.mark.parametrize(
    "code", [KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError.NOT_LEADER_FOR_PARTITION]
)
def test_the_reader_goes_on_after_what_passes(started: Any, code: int) -> None:
    log = Log(complete(0))
    log.errors = [KafkaError(code, retriable=True)]
    index = started(log)
    wait_for(lambda: index.complete(0))
    assert log.consumers == 1


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_the_reader_starts_over_after_anything_else(started: Any, code: int) -> None:
    """Such as a purge that overtook it."""
    log = Log(complete(0))
    log.errors = [KafkaError(code)]
    index = started(log)
    wait_for(lambda: index.complete(0))
    assert log.consumers == 2


def test_another_topic_of_the_same_name_is_read_from_its_start(started: Any) -> None:
    log = Log(complete(0) + complete(1))
    index = started(log)
    wait_for(lambda: index.complete(1))
    log.id, log.values = "b", [*complete(0)]
    wait_for(lambda: log.consumers > 1 and not index.complete(1))
    wait_for(lambda: index.complete(0))


def test_foreign_records_are_raised_to_the_reader(started: Any) -> None:
    log = Log([b"{}"])
    index = started(log)

    def refused() -> bool:
        try:
            return index.complete(0)
        except Refusal as refusal:
            return "find out who else writes to it" in str(refusal)

    wait_for(refused)


def test_a_topic_that_a_broker_does_not_know_yet_is_waited_for_and_said(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(complete(0))
    known = threading.Event()

    def topic_id(topic: str) -> str:
        if not known.is_set():
            raise Refusal(f"topic={topic} does not exist", "create it with `susurrus topics create`")
        return "a"

    monkeypatch.setattr(log, "topic_id", topic_id)
    index = started(log)
    wait_for(lambda: "does not exist" in str(index.unreadable))
    assert not index.complete(0)
    known.set()
    wait_for(lambda: index.complete(0))
    assert index.unreadable is None


def test_why_the_topic_cannot_be_read_is_said_while_it_is_so(started: Any) -> None:
    log = Log([])
    log.errors = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)] * 200
    index = started(log)
    wait_for(lambda: "TOPIC_AUTHORIZATION_FAILED" in str(index.unreadable))
    log.errors = []
    log.values = complete(0)
    wait_for(lambda: index.complete(0))
    assert index.unreadable is None


def test_a_broker_that_is_away_at_the_start_is_waited_for(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(complete(0))
    away = [True, True]

    def watermarks(topic: str, partition: int) -> tuple[int, int]:
        if away:
            away.pop()
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 0, 2

    monkeypatch.setattr(log, "watermarks", watermarks)
    index = started(log)
    wait_for(lambda: index.complete(0))
    assert not away
