"""What the public has seen against what a state knows: an older state is refused, a healthy one never is."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.histogram.public_progress import PublicProgress
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.kafka.clients import TopicRecord
from susurrus.agents.runtime.facts import WindowMemory
from susurrus.agents.runtime.stage import MorePublic
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import progress as codec
from tests.agents.histogram.test_release_stage import FAR, LAST, log_of, random_rows, services
from tests.agents.released import EPOCHS, WINDOW, said
from tests.agents.stages import EPOCH, Runner, born


class Topic:
    """progress, as a list; also as much of clients as is asked for."""

    def __init__(self) -> None:
        self.records: list[bytes | None] = []
        self.start = 0
        self.reads: list[int] = []

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return self.start, len(self.records)

    def read(self, topic: str, start: int, *, group: str) -> list[TopicRecord]:
        """Complete: an end that only shows would hide what an older copy has lost."""
        start = max(start, self.start)
        if start < len(self.records):
            self.reads.append(start)
        return [TopicRecord(b"", value, offset) for offset, value in enumerate(self.records) if offset >= start]


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def progress(topic: Topic) -> PublicProgress:
    return PublicProgress(topic, "progress", services().calendar)  # type: ignore[arg-type]


def place(progress: PublicProgress, **asked: Any) -> tuple[int, int, int] | None:
    found = progress.ahead(0, **{"epoch": EPOCHS[1], "number": 1, "closed": 2, **asked})
    return None if found is None else (found.window, found.trigger, found.epoch_number)


def test_a_later_interval_of_the_own_partition_and_epoch_is_ahead_and_no_other(
    topic: Topic, progress: PublicProgress
) -> None:
    progress.refresh()
    assert progress.newest() is None
    topic.records += [said(t, 0)[1] for t in (1, 2, 3)]
    topic.records += [said(5, 0, partition=1)[1]]
    progress.refresh()
    assert place(progress, closed=2) is None  # trigger 3 is interval 2
    assert place(progress, closed=1) == (WINDOW, 3, 1)
    assert place(progress, epoch=EPOCHS[2], number=2, closed=-1) is None  # an older epoch is no obstacle
    newest = progress.newest()
    assert newest is not None
    assert (newest.partition, newest.trigger) == (1, 5)


def test_late_triggers_of_a_window_count_by_their_interval(topic: Topic, progress: PublicProgress) -> None:
    """Two windows are open at once: the first trigger of the second comes with the fifth of the first."""
    second = WINDOW + 4 * 3_600_000
    topic.records += [said(1, 0, window=second)[1], said(5, 0)[1], said(2, 0, window=second)[1]]
    progress.refresh()
    assert place(progress, closed=5) is None
    assert place(progress, closed=4) == (second, 2, 1)


def test_an_epoch_that_the_ledger_does_not_know_is_ahead_whatever_the_partition(
    topic: Topic, progress: PublicProgress
) -> None:
    topic.records += [said(1, 0)[1], said(1, 0, epoch=2, partition=3)[1]]
    progress.refresh()
    assert place(progress, closed=99) == (WINDOW, 1, 2)
    assert place(progress, epoch=EPOCHS[3], number=2, closed=99) == (WINDOW, 1, 2)  # another second epoch
    assert place(progress, epoch=EPOCHS[3], number=3, closed=-1) is None


def test_it_is_read_once_and_then_on_and_again_when_the_topic_is_another(
    topic: Topic, progress: PublicProgress
) -> None:
    for trigger in (1, 2, 3):
        topic.records += [said(trigger, 0)[1], None]
        progress.refresh()
        progress.refresh()
    # Behind the last announcement; the tombstone behind it is looked at again.
    assert topic.reads == [0, 1, 1, 3, 3, 5]
    assert len(progress._newest) == 1
    topic.records = [said(1, 0)[1]]
    progress.refresh()
    newest = progress.newest()
    assert newest is not None
    assert newest.trigger == 1


def test_a_record_that_release_did_not_write_is_refused(topic: Topic, progress: PublicProgress) -> None:
    topic.records.append(b"who wrote this?")
    with pytest.raises(Refusal, match=r"topic=progress offset=0: .*find out who else writes to it") as refused:
        progress.refresh()
    assert "who wrote this" not in str(refused.value)


# ---- release ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_release_never_refuses_and_any_older_state_does(seed: int, topic: Topic, tmp_path: Path) -> None:
    plain = services()
    seen = PublicProgress(topic, plain.topic("progress"), plain.calendar)  # type: ignore[arg-type]
    ours = replace(plain, public_progress=seen)
    log = log_of(random_rows(seed), ours.config_digest, seed)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    states = [(None, 0)]
    while runner.commit(1, now=FAR):
        topic.records = [value for _, _, _, value, _ in runner.to("progress")]
        states.append((runner.meta, runner.position))  # type: ignore[arg-type]
        if len(states) % 3 == 0:
            runner.restart()  # from the last commit: what is public is what it knows
            runner.feed(log, len(log))
    assert len(states) == LAST + 2
    for number, (meta, position) in enumerate(states):
        older = number < len(states) - 1
        runner.meta, runner.position = meta, position
        if not older:
            runner.restart()
            continue
        with pytest.raises(MorePublic, match="more is public than the state knows") as first:
            runner.restart()  # another owner may have published meanwhile; this one has fenced it now
        with pytest.raises(MorePublic) as second:
            runner.restart()
        assert second.value.evidence == first.value.evidence
        assert re.search(
            r"internal topics are an older copy.* or run `susurrus ledger new-epoch`", str(second.value.refusal)
        )
    runner.close()


def test_a_release_that_was_overtaken_while_it_started_is_not_told_that_its_state_is_an_older_copy(
    topic: Topic, tmp_path: Path
) -> None:
    """The other owner has committed behind what the changelog had when it was read; both know better the next time."""
    plain = services()
    ours = replace(plain, public_progress=PublicProgress(topic, plain.topic("progress"), plain.calendar))  # type: ignore[arg-type]
    log = log_of(random_rows(1), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    read: list[Any] = [(None, 0)]
    seen: list[object] = []
    while runner.commit(1, now=FAR):
        read.append((runner.meta, runner.position))
        topic.records = [value for _, _, _, value, _ in runner.to("progress")]
        # It starts, has read the changelog before that commit, and sees progress after it.
        with pytest.raises(MorePublic) as found:
            born(ReleaseStage, ours, runner.store, *read[-2])
        seen.append(found.value.evidence)
    assert len(set(map(repr, seen))) == len(seen)  # no two in a row are the same, which would be a refusal
    assert born(ReleaseStage, ours, runner.store, *read[-1])[1] == runner.position
    runner.close()


def announced(partition: int, remembered: int | None, *, window: int = WINDOW, trigger: int = 2) -> bytes:
    return codec.encode(
        codec.Progress(
            window=window,
            trigger=trigger,
            of_triggers=4,
            partition=partition,
            of_partitions=2,
            rows=3,
            epoch=EPOCHS[1],
            remembered=remembered,
            persistence=None if remembered is None else 0.3,
        )
    )[1]


def test_the_newest_release_says_what_its_window_has_from_those_before_it(
    topic: Topic, progress: PublicProgress
) -> None:
    def memory() -> WindowMemory | None:
        progress.refresh()
        newest = progress.release(EPOCHS[1])
        return None if newest is None else newest.memory

    topic.records = [announced(0, 5)]
    assert memory() is None  # a partition is missing
    topic.records += [announced(1, 7)]
    assert memory() == WindowMemory(window=WINDOW, remembered=12, persistence=0.3)
    day = progress._calendar.windows.usual
    topic.records += [announced(0, 9, window=WINDOW + day, trigger=1)]
    assert memory() == WindowMemory(window=WINDOW, remembered=None, persistence=0.3)  # one of them has gone on
    topic.records += [announced(1, 9, window=WINDOW + day, trigger=1)]
    assert memory() == WindowMemory(window=WINDOW + day, remembered=18, persistence=0.3)
    topic.records += [announced(n, None, window=WINDOW + day, trigger=2) for n in (0, 1)]
    assert memory() is None
    assert progress.last(1, EPOCHS[1]) == codec.decode(topic.records[-1] or b"")
    assert progress.last(1, EPOCHS[2]) is None


def test_what_a_refusal_says_names_the_triggers_and_the_way_out(topic: Topic, tmp_path: Path) -> None:
    plain = services()
    seen = PublicProgress(topic, "progress", plain.calendar)  # type: ignore[arg-type]
    topic.records = [
        codec.encode(
            codec.Progress(window=WINDOW, trigger=2, of_triggers=6, partition=0, of_partitions=1, rows=3, epoch=EPOCH)
        )[1]
    ]
    store = Store(tmp_path / "s")
    with pytest.raises(MorePublic) as found:
        born(ReleaseStage, replace(plain, public_progress=seen), store)
    store.close()
    assert str(found.value.refusal) == (
        "stage=release partition=0 knows epoch=1 up to 1995-08-01T00:00:00Z, but topic=progress shows trigger=2 of "
        "window=1995-08-01T00:00:00Z in epoch=1, so internal topics are an older copy, and the same noise would be published "
        "over other data: restore them as they were at the last commit, or run `susurrus ledger new-epoch`, which charges again "
        "what it publishes again"
    )


def test_a_release_begins_behind_what_an_earlier_epoch_has_left_in_its_topic(tmp_path: Path) -> None:
    ours = services()
    rows = random_rows(1)
    foreign = log_of(random_rows(2), b"\x01" * 32)  # read, its ticks would be refused
    log = [*foreign, *log_of(rows, ours.config_digest)]
    ours.ledger.began[ours.topic("bounded"), 0] = len(foreign)  # type: ignore[attr-defined]
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    assert runner.next == len(foreign)
    runner.feed(log, len(log))
    assert runner.commit(now=FAR) == LAST + 1
    runner.close()
    with pytest.raises(Refusal, match="under another configuration"):
        Runner(ReleaseStage, services(), tmp_path / "t").feed(log, len(log))
