"""Source 0 looks for new raw partitions at public instants, and ticks no interval that it has not looked for."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.histogram.growth import TopicGrowth
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.ticks import Sources
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.windows import FixedWindows
from susurrus.topics import ledger, tick
from susurrus.topics.sources import Run, SourceMap
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import WINDOW, MemoryClients, Runner, services_of

EVERY = 1_000
MARGIN = 300
CALENDAR = Calendar(
    windows=FixedWindows(origin=0, length_ms=10 * EVERY), origin=0, trigger_every=EVERY, allowed_lateness=0
)


@given(
    st.lists(st.integers(0, 40 * EVERY), min_size=1, max_size=30).map(sorted),
    st.lists(st.integers(0, 40 * EVERY), max_size=5).map(sorted),
)
def test_no_interval_in_which_a_new_partition_may_have_records_comes_before_it_counts(
    looks: list[int], created: list[int]
) -> None:
    """Whenever it is looked, and whenever partitions are made: none counts too late, none from an interval that was looked for."""
    growth = TopicGrowth(CALENDAR, margin=MARGIN, looked=-1, schedule=((0, 2),), sources=SourceMap().grown("raw", 2))
    for now in looks:
        before = growth.looked
        interval = growth.due(now)
        assert (interval is not None) == (CALENDAR.interval_at(now - MARGIN) - 1 > before)
        if interval is None:
            continue
        found = growth.saw({"raw": 2 + sum(made <= now for made in created)}, interval)
        assert growth.looked == interval
        for grown in found:
            assert grown.first == before + 1
    for partition, made in enumerate(created, start=2):
        counts_from = next((at for at, number in growth.schedule.schedule if number > partition), growth.looked + 1)
        assert counts_from <= CALENDAR.interval_at(made)


HOUR = 3_600_000
GRACE = 5_000


class Growing(MemoryClients):
    """A raw topic whose number of partitions the test sets; None: Kafka does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = 2

    def partitions(self, topic: str) -> int:
        if self.number is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self.number


def live(kind: str = "broker") -> tuple[Services, Growing]:
    ours = services_of(
        settings(
            input={"topic": "raw", "user": "user", "key": ["key"]},
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": kind, "grace": GRACE, "idle_grace": "10m"}
            if kind == "broker"
            else {"kind": kind, "until": WINDOW + 24 * HOUR},
            window={"length": 24 * HOUR, "trigger_every": HOUR, "origin": WINDOW},
        ),
        sources=2,
    )
    clients = Growing()
    object.__setattr__(ours, "clients", clients)
    return ours, clients


def record(offset: int, stamp: int) -> Any:
    value = json.dumps({"user": f"u{offset}", "key": "k"}).encode()
    return SimpleNamespace(offset=offset, timestamp=stamp, timestamp_type=1, value=value, key=None)


def ticks(runner: Runner) -> list[tick.Tick]:
    """Source 0's ticks, as one partition of by-user has them."""
    values = [value for topic, partition, _, value, _ in runner.written if topic.endswith("by-user") and not partition]
    return [tick.decode(value) for value in values if value is not None and kind_of(value) is Kind.TICK]


def announced(runner: Runner) -> list[ledger.SourcesRecord]:
    found = [ledger.decode(key or b"", value) for topic, _, key, value, _ in runner.written if topic == "ledger"]
    return [row for row in found if isinstance(row, ledger.SourcesRecord)]


def test_a_record_closes_no_interval_of_source_0_before_its_public_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, clients = live()
    first = ours.calendar.first_interval(ours.ledger.first_window)
    runner = Runner(RouteStage, ours, tmp_path / "r")
    runner.feed([record(0, WINDOW + HOUR + GRACE)], 1)
    runner.commit(now=WINDOW + HOUR + GRACE - 1)  # the worker's clock is behind the broker's
    assert ticks(runner) == []
    assert runner.stage.report()["interval"] == first - 1
    clients.number = None
    runner.commit(now=WINDOW + HOUR + GRACE)
    assert ticks(runner) == []
    assert "how many partitions the raw topics have" in str(runner.stage.stall(0))
    clients.number = 2
    runner.commit(now=WINDOW + HOUR + GRACE)
    assert [(row.interval, row.sources) for row in ticks(runner)] == [(first, ((first, 2),))]
    assert runner.stage.stall(0) is None
    assert runner.stage.report()["interval"] == first


def test_what_was_seen_is_committed_at_once_and_survives_a_restart(tmp_path: Path) -> None:
    ours, clients = live()
    first = ours.calendar.first_interval(ours.ledger.first_window)
    runner = Runner(RouteStage, ours, tmp_path / "r")
    assert runner.commit(now=WINDOW + HOUR + GRACE) == 1  # a look, no tick: the idle grace is not over
    clients.number = 4
    runner.restart()
    assert runner.commit(now=WINDOW + HOUR + 2 * GRACE) == 0  # it has been looked for this interval
    assert announced(runner) == []
    assert runner.commit(now=WINDOW + 2 * HOUR + GRACE) == 1
    [grown] = announced(runner)
    assert (grown.number, grown.from_interval) == (4, first + 1)
    runner.restart()
    runner.commit(now=WINDOW + 30 * HOUR)
    assert [row.sources for row in ticks(runner)] == [((first, 2), (first + 1, 4)), ((first + 1, 4),)]
    assert len(announced(runner)) == 1
    joined = Runner(RouteStage, ours, tmp_path / "j", 3)
    assert joined.stage.report()["interval"] == first


def test_the_ledger_is_read_ahead_of_a_look_and_what_an_operator_asks_later_waits_for_the_next(tmp_path: Path) -> None:
    """Readers of a trigger wait for the look."""
    ours, _ = live()
    book: Any = ours.ledger
    first = ours.calendar.first_interval(book.first_window)
    runner = Runner(RouteStage, ours, tmp_path / "r")
    look = WINDOW + HOUR + GRACE

    def ask(topic: str) -> None:
        book.records |= dict([ledger.encode(ledger.AddedTopic(topic=topic, at=1))])

    ask("early")
    assert runner.commit(now=look - 1_000) == 0  # it is no look yet
    ask("late")
    runner.commit(now=look)
    runner.commit(now=look + HOUR)
    found = [(row.from_interval, sorted(row.topic_ids)) for row in announced(runner)]
    assert found == [(first + 1, ["early"]), (first + 2, ["late"])]


def test_an_archive_does_not_grow(tmp_path: Path) -> None:
    ours, clients = live("replay")
    runner = Runner(RouteStage, ours, tmp_path / "r")
    clients.number = 3
    runner.feed([record(0, WINDOW + 5 * HOUR)], 1)
    runner.commit(now=WINDOW + 100 * HOUR)
    assert [row.sources for row in ticks(runner)] == [()]
    assert announced(runner) == []


def test_an_added_topic_counts_from_the_interval_behind_the_look_that_finds_it_and_is_cut_there(tmp_path: Path) -> None:
    """What was written before is read by nobody, and what is open then is charged on the new topic in the same commit."""
    ours, clients = live()
    book: Any = ours.ledger
    first = ours.calendar.first_interval(book.first_window)
    runner = Runner(RouteStage, ours, tmp_path / "r")
    runner.commit(now=WINDOW + HOUR + GRACE)
    book.records |= dict([ledger.encode(ledger.AddedTopic(topic="more", at=1))])
    clients.ends = {0: 70, 1: 90}
    assert runner.commit(now=WINDOW + HOUR + 2 * GRACE) == 0  # no look, and nothing is found but by a look
    assert runner.commit(now=WINDOW + 2 * HOUR + GRACE) == 1
    [found] = announced(runner)
    assert found.sources == (Run("raw", 0, 2), Run("more", 0, 2))
    assert (found.number, found.from_interval) == (4, first + 2)  # intervals `first` and `first + 1` are over
    assert (found.offsets, found.topic_ids) == ({2: 70, 3: 90}, {"more": "raw-1"})
    charged = [key for topic, _, key, _, _ in runner.written if topic == "charges"]
    assert charged == [f"more {WINDOW}".encode()]
    assert book.asked_for == ()
    clients.ends = {}
    runner.restart()
    runner.commit(now=WINDOW + 30 * HOUR)
    assert len(announced(runner)) == 1
    assert Sources(ticks(runner)[-1].sources).number(first + 2) == 4
    joined = Runner(RouteStage, ours, tmp_path / "j", 3)
    assert (joined.next, joined.stage.report()["interval"]) == (90, first + 1)


def test_a_topic_that_grows_while_another_is_added_counts_from_the_look_before(tmp_path: Path) -> None:
    growth = TopicGrowth(
        CALENDAR, margin=MARGIN, looked=4, schedule=((0, 2),), sources=SourceMap().grown("a", 1).grown("b", 1)
    )
    found = growth.saw({"a": 3, "b": 1}, 7, {"c": 2}, lambda topic, partition: 10 + partition)
    assert [(grown.first, len(grown.sources)) for grown in found] == [(5, 4), (8, 6)]
    assert found[1].sources.runs == (("a", 0, 1), ("b", 0, 1), ("a", 1, 2), ("c", 0, 2))
    assert (found[1].topics, dict(found[1].offsets)) == (("c",), {4: 10, 5: 11})
    assert [growth.schedule.number(interval) for interval in (4, 5, 7, 8)] == [2, 4, 4, 6]


def test_a_look_that_gets_no_answer_about_an_added_topic_is_made_again(tmp_path: Path) -> None:
    growth = TopicGrowth(CALENDAR, margin=MARGIN, looked=4, schedule=((0, 1),), sources=SourceMap().grown("a", 1))

    def silent(topic: str, partition: int) -> int:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(KafkaException):
        growth.saw({"a": 2}, 7, {"c": 1}, silent)
    assert (growth.looked, len(growth.sources), growth.schedule.schedule) == (4, 1, ((0, 1),))
