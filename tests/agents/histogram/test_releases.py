"""The reader of releases on a real broker: whole releases only, in order, whatever is open, aborted, old or of another epoch."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer, TopicPartition

from susurrus.agents.histogram import releases as module
from susurrus.agents.histogram.assembly import AnnouncedRelease, Assembly
from susurrus.agents.histogram.estimates import Estimates
from susurrus.agents.histogram.releases import Release, ReleaseReader, joined, newest_rows
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.topics.histogram import ColumnRows, RowColumns
from tests.agents.released import DAY, EPOCHS, WINDOW, release_of, rows, said, settings
from tests.broker import Broker
from tests.waiting import PATIENCE

PARTITIONS = 2
QUARTER = DAY // 4


class Log:
    """The two topics of a pipeline, written as release writes them: a transaction for each partition and trigger."""

    def __init__(self, kafka: Broker, **sections: Any) -> None:
        prefix = kafka.new_prefix()
        own: dict[str, Any] = {
            "pipeline": {"name": "web", "prefix": prefix},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
            "columns": [{"name": "visits", "kind": "count"}],
        }
        made = settings(**own, **sections)
        assert isinstance(made, HistogramSettings)
        self.settings = made
        for topic, partitions in (("histogram", PARTITIONS), ("progress", 1)):
            kafka.create_topic(made.topic(topic), partitions, {"retention.ms": "-1"})
        self._producers = [
            kafka.producer(transactional_id=f"{prefix}-{partition}", linger_ms=0) for partition in range(PARTITIONS)
        ]
        for producer in self._producers:
            producer.init_transactions(30)

    def begin(self, partition: int, trigger: int, counts: Mapping[bytes, int], **of: Any) -> Producer:
        """Write one partition's part of a release, and leave its transaction open."""
        producer = self._producers[partition]
        stamp = of.get("window", WINDOW) + trigger * QUARTER
        producer.begin_transaction()
        for key, value in rows(trigger, counts, **of):
            producer.produce(self.settings.topic("histogram"), value, key, partition=partition, timestamp=stamp)
        key, value = said(trigger, len(counts), partition=partition, of_partitions=PARTITIONS, **of)
        producer.produce(self.settings.topic("progress"), value, key, partition=0, timestamp=stamp)
        producer.flush(30)
        return producer

    def release(self, trigger: int, parts: Sequence[Mapping[bytes, int]], **of: Any) -> None:
        """A whole release, by partition."""
        for partition, counts in enumerate(parts):
            self.begin(partition, trigger, counts, **of).commit_transaction(30)


@pytest.fixture
def log(kafka: Broker) -> Log:
    return Log(kafka)


def read(reader: ReleaseReader, count: int = -1, seconds: float = PATIENCE) -> list[Release]:
    """So many releases; without a count, all up to the present end."""
    found: list[Release] = []
    deadline = time.monotonic() + seconds
    while (len(found) < count) if count >= 0 else not reader.caught_up:
        found += reader.poll(1.0)
        assert time.monotonic() < deadline, [short(release) for release in found]
    return found


def lose_rows(log: Log, kafka: Broker) -> None:
    """Two releases; retention takes partition 1's row of the first, and the second has none there."""
    log.release(1, [{b'"a"': 1}, {b'"b"': 1}])
    log.release(1, [{b'"a"': 2}, {}], window=WINDOW + DAY)
    [deleted] = kafka.admin().delete_records([TopicPartition(log.settings.topic("histogram"), 1, 1)]).values()
    deleted.result(30)


def short(release: Release) -> tuple[int, int, dict[Any, int]]:
    """Day, trigger and counts."""
    counts = dict(zip(release.keys, release.columns["visits"].estimate.tolist(), strict=True))
    return (release.window_start - WINDOW) // DAY, release.trigger, counts


def shorts(found: list[Release]) -> list[tuple[int, int, dict[Any, int]]]:
    return [short(release) for release in found]


class TestFromTheStart:
    def test_every_release_comes_whole_and_in_order(self, log: Log) -> None:
        log.release(1, [{b'"a"': 1}, {}])
        log.release(2, [{b'"a"': 2, b'"c"': 3}, {b'"b"': 4}])
        log.release(4, [{b'"a"': 5, b'"c"': 6}, {b'"b"': 7}])
        log.release(1, [{}, {}], window=WINDOW + DAY)
        with ReleaseReader(log.settings) as reader:
            found = read(reader)
        assert shorts(found) == [
            (0, 1, {"a": 1}),
            (0, 2, {"a": 2, "b": 4, "c": 3}),
            (0, 4, {"a": 5, "b": 7, "c": 6}),
            (1, 1, {}),
        ]
        last = found[2]
        assert (last.window_start, last.window_end, last.trigger_time) == (WINDOW, WINDOW + DAY, WINDOW + DAY)
        assert (last.final, last.of_triggers, last.epoch, last.epoch_number) == (True, 4, EPOCHS[1], 1)
        assert (last.strategy, last.fields, last.keys) == ("toeplitz", ("url",), ["a", "b", "c"])
        assert last.columns["visits"].std_error.tolist() == [2.5] * 3
        assert last.columns["visits"].estimate.dtype == np.int64
        assert last.columns["visits"].direct is None
        assert (found[3].window_end, found[3].final) == (WINDOW + 2 * DAY, False)

    def test_an_aborted_release_is_not_seen(self, log: Log) -> None:
        log.release(1, [{b'"a"': 1}, {b'"b"': 1}])
        log.begin(0, 2, {b'"a"': 666, b'"c"': 666}).abort_transaction(30)
        log.release(2, [{b'"a"': 2}, {b'"b"': 2}])
        with ReleaseReader(log.settings) as reader:
            assert shorts(read(reader)) == [(0, 1, {"a": 1, "b": 1}), (0, 2, {"a": 2, "b": 2})]

    def test_a_release_waits_for_each_partition(self, log: Log) -> None:
        with ReleaseReader(log.settings) as reader:
            assert read(reader) == []
            log.begin(0, 1, {b'"a"': 1}).commit_transaction(30)
            other = log.begin(1, 1, {b'"b"': 2})
            assert reader.poll(1.0) == []
            other.commit_transaction(30)
            assert shorts(read(reader, 1)) == [(0, 1, {"a": 1, "b": 2})]

    def test_a_new_epoch_replaces_what_an_old_one_said_of_a_window(self, log: Log) -> None:
        log.release(4, [{b'"a"': 1}, {}])
        log.release(1, [{b'"a"': 2}, {}], window=WINDOW + DAY)
        log.release(2, [{b'"a"': 3}, {}], window=WINDOW + DAY)
        log.release(1, [{b'"b"': 4}, {b'"a"': 5}], window=WINDOW + DAY, epoch=2)
        with ReleaseReader(log.settings) as reader:
            found = read(reader)
        assert shorts(found) == [(0, 4, {"a": 1}), (1, 1, {"a": 5, "b": 4})]
        assert [release.epoch_number for release in found] == [1, 2]

    def test_a_new_epoch_is_followed_as_it_begins(self, log: Log) -> None:
        with ReleaseReader(log.settings) as reader:
            log.release(1, [{b'"a"': 1}, {}])
            assert shorts(read(reader, 1)) == [(0, 1, {"a": 1})]
            log.begin(0, 1, {b'"a"': 2}, epoch=2).commit_transaction(30)
            assert reader.poll(0.5) == []
            log.begin(1, 1, {b'"b"': 3}, epoch=2).commit_transaction(30)
            [found] = read(reader, 1)
        assert short(found) == (0, 1, {"a": 2, "b": 3})
        assert found.epoch_number == 2

    def test_rows_that_retention_took_do_not_hold_back_what_follows(self, log: Log, kafka: Broker) -> None:
        """Partition 1 has no rows after the deleted ones, so only its end shows that they are gone."""
        lose_rows(log, kafka)
        with ReleaseReader(log.settings) as reader:
            assert shorts(read(reader)) == [(1, 1, {"a": 2})]

    def test_a_partition_that_ends_between_two_looks_at_it_does_not_end_the_reading_early(
        self, log: Log, kafka: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose_rows(log, kafka)
        with ReleaseReader(log.settings) as reader:
            before, looks = reader._ended, 0

            def late(partition: int) -> bool:
                nonlocal looks
                looks += before(partition)
                return looks > 1

            monkeypatch.setattr(reader, "_ended", late)
            assert shorts(read(reader)) == [(1, 1, {"a": 2})]

    def test_partitions_that_run_ahead_are_held_back(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        many = {b'"k%d"' % key: key for key in range(1_000)}
        for day in range(30):
            log.begin(0, 1, many, window=WINDOW + day * DAY).commit_transaction(30)
        for day in range(30):
            log.begin(1, 1, {b'"x"': day}, window=WINDOW + day * DAY).commit_transaction(30)
        monkeypatch.setattr(module, "_ROWS_AHEAD", 2_000)
        waiting = []

        def add(assembly: Assembly, partition: int, part: RowColumns) -> None:
            take(assembly, partition, part)
            waiting.append(assembly.rows)

        take = Assembly.add
        monkeypatch.setattr(Assembly, "add", add)
        with ReleaseReader(log.settings) as reader:
            found = read(reader)
        assert max(waiting) < 10_000  # a batch has 5,000 rows, and the partition 30,000
        assert [short(release)[:2] for release in found] == [(day, 1) for day in range(30)]
        assert {len(release) for release in found} == {1_001}


class TestFromNow:
    def test_only_what_becomes_visible_from_now_on_is_read(self, log: Log) -> None:
        log.release(1, [{b'"a"': 1}, {b'"b"': 1}])
        with ReleaseReader(log.settings, start="now") as reader:
            log.release(2, [{b'"a"': 2}, {b'"b"': 2}])
            log.release(3, [{b'"a"': 3}, {b'"b"': 3}])
            assert shorts(read(reader, 2)) == [(0, 2, {"a": 2, "b": 2}), (0, 3, {"a": 3, "b": 3})]
            assert read(reader) == []

    def test_a_release_that_was_half_visible_is_never_returned_in_part(self, log: Log) -> None:
        log.begin(0, 1, {b'"a"': 1}).commit_transaction(30)
        other = log.begin(1, 1, {b'"b"': 1})
        with ReleaseReader(log.settings, start="now") as reader:
            other.commit_transaction(30)
            log.release(2, [{b'"a"': 2}, {b'"b"': 2}])
            assert shorts(read(reader, 1)) == [(0, 2, {"a": 2, "b": 2})]

    def test_a_release_whose_transactions_were_open_is_returned(self, log: Log) -> None:
        both = [log.begin(partition, 1, {b'"%d"' % partition: 1}) for partition in range(PARTITIONS)]
        with ReleaseReader(log.settings, start="now") as reader:
            for producer in both:
                producer.commit_transaction(30)
            assert shorts(read(reader, 1)) == [(0, 1, {"0": 1, "1": 1})]


class TestSomeReleases:
    @pytest.fixture
    def days(self, log: Log) -> Log:
        for day in range(4):
            for trigger in (1, 4):
                log.release(trigger, [{b'"a"': day}, {b'"b"': trigger}], window=WINDOW + day * DAY)
        return log

    def test_the_last_releases_of_windows(self, days: Log) -> None:
        with ReleaseReader(days.settings, wanted=lambda window, trigger, of_triggers: trigger == of_triggers) as reader:
            assert [short(release)[:2] for release in read(reader)] == [(day, 4) for day in range(4)]

    def test_windows_from_one_on(self, days: Log) -> None:
        with ReleaseReader(days.settings, since=WINDOW + 2 * DAY + QUARTER) as reader:
            assert [short(release)[:2] for release in read(reader)] == [(2, 1), (2, 4), (3, 1), (3, 4)]
            # The first row is not fetched. The marker of its transaction is, since it has the broker's time, not 1995.
            assert set(reader._starts.values()) == {1}

    def test_where_to_begin_may_depend_on_what_is_announced(self, days: Log) -> None:
        days.begin(0, 2, {b'"a"': 7}, window=WINDOW + 4 * DAY).commit_transaction(30)  # and not by the other partition
        seen: list[tuple[int, int]] = []
        heard = Counter[int]()

        def last_two(announced: list[AnnouncedRelease]) -> int:
            seen.extend(sorted(((each.window - WINDOW) // DAY, each.name.trigger) for each in announced))
            return sorted(each.time for each in announced)[-2]

        with ReleaseReader(days.settings, since=last_two, heard=lambda said: heard.update([said.trigger])) as reader:
            assert [short(release)[:2] for release in read(reader)] == [(3, 1), (3, 4)]
            assert reader.newest is not None
            assert (reader.newest.window, reader.newest.name.trigger) == (WINDOW + 3 * DAY, 4)
            read_so_far, there = reader.progress
            assert 0 < read_so_far <= there
        assert seen == [(day, trigger) for day in range(4) for trigger in (1, 4)]
        assert heard == {1: 8, 2: 1, 4: 8}

    def test_reading_what_was_there_ends_though_more_comes_all_the_time(self, days: Log) -> None:
        """As beside a pipeline that catches up: a topic that is written without a pause never shows its end."""
        day = 4
        with ReleaseReader(days.settings) as reader:
            found: list[Release] = []
            while not reader.caught_up:
                assert day < 1_000
                days.release(4, [{b'"a"': day}, {b'"b"': 4}], window=WINDOW + day * DAY)
                found += reader.poll(0.05)
                day += 1
        assert [short(release)[:2] for release in found][:8] == [
            (day, trigger) for day in range(4) for trigger in (1, 4)
        ]

    def test_windows_that_are_not_there_yet(self, days: Log) -> None:
        with ReleaseReader(days.settings, since=WINDOW + 4 * DAY + QUARTER) as reader:
            assert read(reader) == []
            days.release(1, [{b'"a"': 9}, {}], window=WINDOW + 4 * DAY)
            assert shorts(read(reader, 1)) == [(4, 1, {"a": 9})]


class TestTrouble:
    def test_a_missing_topic_is_named(self, kafka: Broker) -> None:
        made = settings(kafka={"bootstrap_servers": kafka.bootstrap_servers})
        assert isinstance(made, HistogramSettings)
        with pytest.raises(ConfigurationError, match=r'"t\.page-views\.histogram" does not exist'):
            ReleaseReader(made)

    @pytest.mark.parametrize("topic", ["histogram", "progress"])
    def test_a_foreign_record_is_named_by_its_place(self, kafka: Broker, log: Log, topic: str) -> None:
        producer = kafka.producer()
        producer.produce(log.settings.topic(topic), b'{"of": "someone else"}', partition=0)
        producer.flush(30)
        with ReleaseReader(log.settings) as reader, pytest.raises(Refusal, match=rf"{topic} partition=0 .* who else"):
            read(reader, 1)


def column(estimate: Any, direct: Any = None) -> ColumnRows:
    ones = np.ones(len(estimate))
    return ColumnRows(
        name="visits",
        estimate=np.array(estimate),
        std_error=ones,
        direct=None if direct is None else (np.array(direct), 2 * ones),
    )


class TestJoined:
    def test_rows_stand_in_the_order_asked_for(self) -> None:
        found = joined([column([1, 2]), column([3])], np.array([2, 0, 1]))
        assert found.estimate.tolist() == [3, 1, 2]
        assert found.direct is None

    def test_a_row_without_a_direct_estimate_is_direct_itself(self) -> None:
        found = joined([column([1, 2]), column([3], [30])], np.array([2, 0, 1]))
        assert found.direct is not None
        assert found.direct[0].tolist() == [30, 1, 2]
        assert found.direct[1].tolist() == [2, 1, 1]

    def test_a_row_without_a_smoothed_number_has_its_estimate_there(self) -> None:
        part = replace(
            column([3, 4]), smoothed=(np.array([30, 4]), np.array([2.0, 1.0])), smoothed_rows=np.array([True, False])
        )
        found = joined([column([1, 2]), part], np.array([2, 0, 3, 1]))
        assert found.smoothed is not None
        assert found.smoothed_rows is not None
        assert found.smoothed_rows.tolist() == [True, False, False, False]
        assert [of.tolist() for of in found.smoothed] == [[30, 1, 4, 2], [2, 1, 1, 1]]
        assert found.estimate.tolist() == [3, 1, 4, 2]
        assert joined([column([1])], np.array([0])).smoothed_rows is None
        # Joined once more, as of two releases of one window.
        again = joined([found, column([9])], np.array([0, 4]))
        assert again.smoothed_rows is not None
        assert (again.smoothed_rows.tolist(), again.shown[0].tolist()) == ([True, False], [30, 9])


class TestNewestRows:
    def test_are_the_newest_of_each_key_under_the_last_release(self) -> None:
        """As of a strategy that publishes a key's row only where it is published anew."""
        first = release_of(["a", "c"], {"visits": Estimates(np.array([1, 3]), np.ones(2))})
        second = release_of(["b", "c"], {"visits": Estimates(np.array([2, 30]), np.full(2, 2.0))}, trigger=2)
        found = newest_rows([first, second])
        assert (found.trigger, found.keys) == (2, ["a", "b", "c"])
        assert found.columns["visits"].estimate.tolist() == [1, 2, 30]
        assert found.columns["visits"].std_error.tolist() == [1, 2, 2]
        assert newest_rows([first]) is first
