"""Following partitions, and reading one to its end. A broker does not always show the end that the leader knows."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.kafka import follow
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import Follower, read_ranges, read_to_end
from susurrus.mechanisms.errors import RetryableRefusal
from tests.broker import Broker, wait_for


def record(offset: int, partition: int = 0) -> Any:
    return SimpleNamespace(error=lambda: None, offset=lambda: offset, topic=lambda: "log", partition=lambda: partition)


def end(offset: int, partition: int = 0) -> Any:
    return event(KafkaError._PARTITION_EOF, offset, partition)


def event(code: int, offset: int = 0, partition: int = 0) -> Any:
    return SimpleNamespace(
        error=lambda: KafkaError(code), offset=lambda: offset, topic=lambda: "log", partition=lambda: partition
    )


class Consumer:
    """Answers in order; then nothing more comes. ends: what fetches bring as the end of a partition, one after the other."""

    def __init__(self, answers: Sequence[Sequence[Any]], ends: Sequence[int] = ()) -> None:
        self.answers = list(answers)
        self.ends = list(ends)
        self.assigned: list[Any] | None = None

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = partitions

    def unassign(self) -> None:
        self.assigned = None

    def consume(self, number: int, timeout: float) -> Sequence[Any]:
        return self.answers.pop(0) if self.answers else []

    def get_watermark_offsets(self, place: Any, *, cached: bool) -> tuple[int, int]:
        assert cached, "nobody is asked"
        return 0, self.ends.pop(0) if self.ends else 1_000


def offsets(consumer: Any, **options: Any) -> list[int | None]:
    return [message.offset() for message in read_to_end(consumer, ("log", 0), 3, **options)]


def test_reading_stops_at_the_end_as_met() -> None:
    consumer = Consumer([[record(3)], [], [record(4), end(5)], [record(5)]])
    assert offsets(consumer) == [3, 4]
    assert consumer.assigned is None


def test_an_end_before_the_one_that_the_leader_knows_is_a_replica_that_lags() -> None:
    consumer = Consumer([[record(3), end(4)], [], [record(4), record(5)], [end(7)], [record(7)]])
    assert offsets(consumer, until=7) == [3, 4, 5]


def test_reading_stops_where_the_log_ended_when_its_first_records_came() -> None:
    """A log that is written without a pause has no end that the client could report."""
    assert offsets(Consumer([[], [record(3)], [record(5), record(6)], [record(7)]], ends=[7, 8])) == [3, 5, 6]


def test_an_end_that_no_fetch_has_brought_is_looked_for_again() -> None:
    assert offsets(Consumer([[record(3)], [record(4)], [record(5)]], ends=[-1001, 5])) == [3, 4]


def test_where_the_log_ended_does_not_stop_a_reading_before_the_end_that_the_leader_knows() -> None:
    consumer = Consumer([[record(3)], [record(4)], [record(5), record(6)], [record(7)]], ends=[4])
    assert offsets(consumer, until=7) == [3, 4, 5, 6]


def test_waiting_gives_signs_of_life() -> None:
    alive: list[None] = []
    consumer = Consumer([[], [], [record(3), end(4)]])
    assert offsets(consumer, mark_alive=lambda: alive.append(None)) == [3]
    assert len(alive) == 3


def test_a_broker_that_stays_silent_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_SILENCE_SECONDS", -1.0)
    consumer = Consumer([[record(3)]])
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        offsets(consumer, until=9)
    assert consumer.assigned is None


def test_records_that_stay_unreadable_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a transaction that nobody ends: the broker shows an end, and never the one that the leader knows."""
    monkeypatch.setattr(follow, "_SILENCE_SECONDS", -1.0)
    consumer = Consumer([[record(3), end(4)]])
    with pytest.raises(
        RetryableRefusal, match=r"topic=log partition=0: .* offset=4 to offset=8 .*A transaction that hangs"
    ):
        offsets(consumer, until=9)
    assert consumer.assigned is None


def test_what_the_client_fixes_by_itself_is_passed_over() -> None:
    away = [event(KafkaError._TRANSPORT), event(KafkaError._ALL_BROKERS_DOWN)]
    assert offsets(Consumer([away, [record(3)], [end(4)]])) == [3]


def test_another_error_is_raised_once_and_no_record_beside_it_is_lost() -> None:
    consumer: Any = Consumer([[record(3), event(KafkaError.UNKNOWN_TOPIC_OR_PART), record(4)], [record(5)]])
    follower = Follower(consumer, {("log", 0): 3})
    assert [message.offset() for message in follower.read()] == [3, 4]
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        follower.read()
    assert [message.offset() for message in follower.read()] == [5]


def test_a_follower_in_a_hurry_takes_what_is_there_with_the_first_record_and_keeps_an_error_for_the_next_time() -> None:
    asked: list[tuple[int, float]] = []

    class Counting(Consumer):
        def consume(self, number: int, timeout: float) -> Sequence[Any]:
            asked.append((number, timeout))
            return super().consume(number, timeout)

    answers = [[record(3)], [record(4), event(KafkaError.UNKNOWN_TOPIC_OR_PART)], [end(5)], [record(5)], []]
    follower = Follower(Counting(answers), {("log", 0): 3})  # type: ignore[arg-type]
    assert [message.offset() for message in follower.read(7.0, at_once=True)] == [3, 4]
    assert [(number > 1, seconds) for number, seconds in asked] == [(False, 7.0), (True, 0)]
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        follower.read(at_once=True)
    assert follower.read(at_once=True) == []
    assert follower.caught_up
    assert [message.offset() for message in follower.read(at_once=True)] == [5]


def test_a_follower_has_caught_up_when_every_partition_has_been_read_to_its_end_once() -> None:
    consumer: Any = Consumer([[end(3)], [record(3)], [end(0, partition=1)]])
    follower = Follower(consumer, {("log", 0): 3, ("log", 1): 0})
    assert [place.partition for place in consumer.assigned] == [0, 1]
    seen = []
    for _ in range(3):
        follower.read()
        seen.append(follower.caught_up)
    assert seen == [False, False, True]
    assert follower.ends == {("log", 0): 3, ("log", 1): 0}


def test_a_follower_of_busy_partitions_has_caught_up_when_each_has_come_to_where_it_ended_at_first() -> None:
    consumer: Any = Consumer(
        [[record(3), record(0, partition=1)], [record(4)], [record(5), record(1, partition=1)], [record(6)]]
    )
    first = {0: 5, 1: 2}
    consumer.get_watermark_offsets = lambda place, cached: (0, first.pop(place.partition))
    follower = Follower(consumer, {("log", 0): 3, ("log", 1): 0})
    seen = []
    for _ in range(4):
        follower.read()
        seen.append(follower.caught_up)
    assert seen == [False, False, True, True]
    assert follower.ends == {}


def test_ranges_are_read_to_their_ends_or_to_those_that_are_reported() -> None:
    """Beyond the second range's end more is written; the third ends in a transaction's marker."""
    answers = [
        [record(3), record(0, partition=1)],
        [record(1, partition=1), record(2, partition=1), record(7, partition=2)],
        [record(4), record(5), end(9, partition=2)],
        [record(6)],
    ]
    consumer: Any = Consumer(answers)
    ranges = {("log", 0): (3, 5), ("log", 1): (0, 2), ("log", 2): (7, 9), ("log", 3): (4, 4)}
    found = [(message.partition(), message.offset()) for batch in read_ranges(consumer, ranges) for message in batch]
    assert found == [(0, 3), (1, 0), (1, 1), (2, 7), (0, 4)]
    assert [place.partition for place in consumer.assigned] == [0, 1, 2]
    assert list(read_ranges(consumer, {("log", 0): (3, 3)})) == []


def test_ranges_whose_broker_stays_silent_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_SILENCE_SECONDS", -1.0)
    consumer: Any = Consumer([[record(3)]])
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        list(read_ranges(consumer, {("log", 0): (3, 5)}))


def test_a_topic_that_is_written_without_a_pause_is_read_to_its_end(kafka: Broker) -> None:
    """Such as the ledger beside many workers: a worker that starts reads it, and `susurrus status`."""
    topic = kafka.create_topic(f"busy-{kafka.new_prefix()}")
    clients = Clients({"bootstrap.servers": kafka.bootstrap_servers}, application=kafka.new_prefix())
    producer = kafka.producer(linger_ms=0)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            producer.produce(topic, b"value", b"key")
            producer.flush(30)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for(lambda: clients.watermarks(topic, 0)[1] > 50, "there are records")
        found = [len(clients.read(topic, group="busy", complete=complete)) for complete in (True, False)]
        newest = clients.newest(topic, 0)
        assert newest is not None
        found += [newest.offset + 1, len(kafka.read_all(topic))]
        assert (
            50 < found[0] <= found[1] <= found[2] <= found[3]
        )  # on a busy machine nothing may be written between two of them
    finally:
        stop.set()
        writer.join()
        clients.close()
