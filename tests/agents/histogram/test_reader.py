"""Reading released histograms: only complete triggers, never a mixture of two, whatever order records arrive in."""

import random
import time
import zlib
from collections.abc import Iterator

import pytest

from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.reader import Epochs, HistogramReader, Snapshot, WindowState
from susurrus.agents.kafka.embedded import EmbeddedBroker
from susurrus.topics import histogram, progress
from tests.agents.released import DAY, WINDOW, publish, rows, said, settings


def feed(state: WindowState | Epochs, records: list[tuple[bytes, bytes]], partition: int = 0) -> None:
    for key, value in records:
        state.add(partition, key, histogram.decode_row(value))


def announce(
    state: WindowState | Epochs, trigger: int, count: int, partition: int = 0, of: int = 1, epoch: int = 1
) -> None:
    state.announce(progress.decode(said(trigger, count, partition=partition, of_partitions=of, epoch=epoch)[1]))


def estimates(snapshot: Snapshot | None) -> tuple[int, dict[str, float]] | None:
    if snapshot is None:
        return None
    return snapshot.trigger, {row.key: row.values["visits"].estimate for row in snapshot.rows}


class TestWindowState:
    def test_rows_without_an_announcement_are_not_shown(self) -> None:
        state = WindowState(WINDOW)
        feed(state, rows(1, {b'"a"': 5}))
        assert state.snapshot() is None

    def test_an_announcement_without_its_rows_is_not_shown(self) -> None:
        state = WindowState(WINDOW)
        announce(state, 1, 2)
        feed(state, rows(1, {b'"a"': 5}))
        assert state.snapshot() is None
        feed(state, rows(1, {b'"b"': 6}))
        assert estimates(state.snapshot()) == (1, {"a": 5, "b": 6})

    def test_every_partition_must_have_announced(self) -> None:
        state = WindowState(WINDOW)
        feed(state, rows(1, {b'"a"': 5}), 0)
        announce(state, 1, 1, 0, of=2)
        assert state.snapshot() is None
        announce(state, 1, 0, 1, of=2)
        assert estimates(state.snapshot()) == (1, {"a": 5})

    def test_an_empty_trigger_is_a_result(self) -> None:
        state = WindowState(WINDOW)
        announce(state, 1, 0)
        assert estimates(state.snapshot()) == (1, {})

    def test_two_triggers_are_never_mixed(self) -> None:
        state = WindowState(WINDOW)
        feed(state, rows(1, {b'"a"': 5}), 0)
        feed(state, rows(1, {b'"b"': 7}), 1)
        announce(state, 1, 1, 0, of=2)
        announce(state, 1, 1, 1, of=2)
        feed(state, rows(2, {b'"a"': 50, b'"c"': 3}), 0)
        announce(state, 2, 2, 0, of=2)
        assert estimates(state.snapshot()) == (1, {"a": 5, "b": 7})
        feed(state, rows(2, {b'"b"': 70}), 1)
        announce(state, 2, 1, 1, of=2)
        assert estimates(state.snapshot()) == (2, {"a": 50, "b": 70, "c": 3})

    def test_newer_rows_stand_for_compacted_ones(self) -> None:
        state = WindowState(WINDOW)
        announce(state, 3, 2)
        feed(state, rows(3, {b'"b"': 2}))
        feed(state, rows(4, {b'"a"': 9}))  # the row of trigger 3 was compacted away
        assert state.snapshot() is not None

    def test_memory_is_bounded_by_the_keys(self) -> None:
        state = WindowState(WINDOW)
        for trigger in range(1, 200):
            feed(state, rows(trigger, {b'"a"': trigger}, of=200))
            announce(state, trigger, 1)
        assert len(state.rows[0][next(iter(state.rows[0]))]) <= 2

    @pytest.mark.parametrize("seed", range(20))
    def test_any_interleaving_of_partitions_shows_only_whole_triggers(self, seed: int) -> None:
        expected = {t: {key: 10 * t + p for p, key in enumerate("ab")} for t in range(1, 5)}
        queues: list[list[tuple[str, int, int]]] = [[("row", t, p) for t in range(1, 5)] for p in range(2)]
        queues.append([("said", t, p) for t in range(1, 5) for p in range(2)])
        state, chance, seen = WindowState(WINDOW), random.Random(seed), []
        while any(queues):
            kind, trigger, partition = chance.choice([queue for queue in queues if queue]).pop(0)
            if kind == "row":
                key = '"ab"'[partition + 1]
                feed(state, rows(trigger, {f'"{key}"'.encode(): 10 * trigger + partition}), partition)
            else:
                announce(state, trigger, 1, partition, of=2)
            shown = estimates(state.snapshot())
            if shown is not None:
                assert shown[1] == expected[shown[0]]
                seen.append(shown[0])
        assert seen == sorted(seen)
        assert seen[-1] == 4


class TestEpochs:
    def test_the_newest_epoch_with_a_whole_trigger_is_shown(self) -> None:
        state = Epochs(WINDOW)
        feed(state, rows(4, {b'"a"': 5}))
        announce(state, 4, 1)
        assert estimates(state.snapshot()) == (4, {"a": 5})
        feed(state, rows(1, {b'"a"': 6}, epoch=2))
        announce(state, 1, 2, epoch=2)
        assert estimates(state.snapshot()) == (4, {"a": 5})  # of the new one's rows, one is still on its way
        feed(state, rows(1, {b'"b"': 7}, epoch=2))
        assert estimates(state.snapshot()) == (1, {"a": 6, "b": 7})

    def test_two_epochs_rows_of_one_trigger_are_never_put_together(self) -> None:
        """A key that the old epoch has named and the new one has not keeps its old row in the compacted topic."""
        for order in range(2):
            state = Epochs(WINDOW)
            both = [rows(2, {b'"gone"': 5, b'"a"': 4}), rows(2, {b'"a"': 6}, epoch=2)]
            for records in both[:: 1 - 2 * order]:
                feed(state, records)
            for epoch, count in [(1, 2), (2, 1)][:: 1 - 2 * order]:
                announce(state, 2, count, epoch=epoch)
            assert estimates(state.snapshot()) == (2, {"a": 6})

    def test_a_lower_trigger_of_a_later_record_does_not_make_an_epoch_newer(self) -> None:
        state = Epochs(WINDOW)
        feed(state, rows(1, {b'"a"': 6}, epoch=3))
        announce(state, 1, 1, epoch=3)
        feed(state, rows(4, {b'"a"': 5}, epoch=2))
        announce(state, 4, 1, epoch=2)
        assert estimates(state.snapshot()) == (1, {"a": 6})

    def test_an_epoch_that_another_has_followed_is_forgotten(self) -> None:
        state = Epochs(WINDOW)
        for epoch in (1, 2, 3):
            feed(state, rows(1, {b'"a"': epoch}, epoch=epoch))
            announce(state, 1, 1, epoch=epoch)
        assert [found.number for found in state._states.values()] == [3]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def pipeline(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Settings:
    name = f"p{zlib.crc32(request.node.name.encode()):x}"
    made = settings(broker.bootstrap_servers, pipeline={"name": name, "prefix": "t"})
    broker.create(made.topic("latest"))
    broker.create(made.topic("progress"))
    return made


def wait(reader: HistogramReader) -> Snapshot | None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        reader.poll(0.05)
        if reader.caught_up and reader.snapshot() is not None:
            break
    return reader.snapshot()


class TestHistogramReader:
    def test_it_reads_what_was_released(self, pipeline: Settings) -> None:
        publish(pipeline, {0: rows(1, {b'"a"': 5}) + rows(2, {b'"a"': 8}), 2: rows(2, {b'"b"': 9})}, [
            said(2, 1, partition=0, of_partitions=4),
            said(2, 0, partition=1, of_partitions=4),
            said(2, 1, partition=2, of_partitions=4),
            said(2, 0, partition=3, of_partitions=4),
        ])  # fmt: skip
        with HistogramReader(pipeline) as reader:
            found = wait(reader)
            assert estimates(found) == (2, {"a": 8, "b": 9})
            assert list(reader.completed()) == [(WINDOW, 2, 4)]
        assert found is not None
        assert not found.final
        assert (found.window_start, found.window_end) == ("1995-08-01T00:00:00Z", "1995-08-02T00:00:00Z")

    def test_the_newest_window_with_results_is_shown_unless_one_is_named(self, pipeline: Settings) -> None:
        old, new = WINDOW, WINDOW + 9 * DAY
        publish(
            pipeline,
            {0: rows(4, {b'"a"': 5}, window=old) + rows(1, {b'"a"': 8}, window=new)},
            [said(4, 1, window=old), said(1, 1, window=new)],
        )
        with HistogramReader(pipeline) as reader:
            assert estimates(wait(reader)) == (1, {"a": 8})
        with HistogramReader(pipeline, window=old) as reader:
            assert estimates(wait(reader)) == (4, {"a": 5})

    def test_old_windows_are_forgotten(self, pipeline: Settings) -> None:
        windows = [WINDOW + day * DAY for day in range(8)]
        random.Random(0).shuffle(windows)
        records = [record for window in windows for record in rows(1, {b'"a"': 5}, window=window)]
        publish(pipeline, {0: records}, [said(1, 1, window=window) for window in windows])
        with HistogramReader(pipeline, keep=2) as reader:
            wait(reader)
            assert sorted(reader.windows) == sorted(windows)[-2:]
