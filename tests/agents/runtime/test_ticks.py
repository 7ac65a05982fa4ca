"""Ticks: whatever a source lost or brings twice is refused at its next one, and a new source counts from the announced interval."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.finding import waits
from susurrus.agents.runtime.ticks import Incoming, Sources, TickVector
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.tick import Tick

SOURCES = 3
DIGEST = bytes(32)
Log = list[int | Tick]
"""The source of a record, or a tick."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log as several sources write it, with a tick of every source at its end."""
    log: Log = []
    written = Counter[int]()
    for source in draw(st.lists(st.integers(0, SOURCES - 1), max_size=30)):
        if draw(st.integers(0, 3)):
            log.append(source)
            written[source] += 1
        else:
            log.append(Tick(source, len(log), written[source], DIGEST))
    return log + [Tick(source, 99, written[source], DIGEST) for source in range(SOURCES)]


def incoming(
    received: Mapping[int, Sequence[int]] | None = None, *, place: str = "topic=t partition=0", sources: int = SOURCES
) -> Incoming:
    return Incoming(
        place,
        config_digest=DIGEST,
        way_out="begin again",
        ticks={},
        sources=((10, sources),),
        received=received or {},
    )


def read(log: Log, restarts: list[tuple[int, int]] | None = None) -> None:
    """As a stage reads. restarts: (offset at which the reader is gone, how far below it the last commit's position was)."""
    meta: Mapping[int, Sequence[int]] = {}
    start = 0
    for end, behind in [*sorted(restarts or []), (len(log), 0)]:
        reader = incoming(meta)
        for offset in range(start, end):
            record = log[offset]
            if isinstance(record, Tick):
                reader.tick(record, offset)
            else:
                reader.record(record, offset)
        start = max(start, end - behind)
        _, _, meta = reader.claim(start, 0)


@given(logs(), st.data())
def test_what_came_in_full_is_never_refused_however_often_the_reader_starts_again(
    log: Log, data: st.DataObject
) -> None:
    restarts = st.lists(st.tuples(st.integers(0, len(log)), st.integers(0, 10)), max_size=5)
    read(log, data.draw(restarts))


@given(logs(), st.data())
def test_what_is_lost_or_comes_twice_is_refused(log: Log, data: st.DataObject) -> None:
    places = [at for at, record in enumerate(log) if not isinstance(record, Tick)]
    restarts = data.draw(st.lists(st.tuples(st.integers(0, len(log) - SOURCES), st.integers(0, 10)), max_size=3))
    if not places:
        return
    at = data.draw(st.sampled_from(places))
    with pytest.raises(Refusal, match="so Kafka has lost what it had acknowledged"):
        read(log[:at] + log[at + 1 :], restarts)
    with pytest.raises(Refusal, match="so the source's changelog is an older copy"):
        read([*log[:at], log[at], *log[at:]], restarts)


def test_a_refusal_says_what_came_what_did_not_and_what_to_do() -> None:
    reader = incoming({2: (41, 900)}, place="topic=s.web.by-user partition=3")
    reader.record(2, 77, (905, 910))
    reader.tick(Tick(2, 10, 42, DIGEST), 78)
    with pytest.raises(Refusal) as lost:
        reader.tick(Tick(2, 11, 45, DIGEST), 79)
    assert str(lost.value) == (
        "topic=s.web.by-user partition=3 offset=79: source=2 says records=45, and records=42 came, so Kafka has lost what it had "
        "acknowledged: restore the topic as it was, or begin again"
    )
    with pytest.raises(Refusal) as twice:
        reader.tick(Tick(2, 11, 40, DIGEST), 79)
    assert str(twice.value) == (
        "topic=s.web.by-user partition=3 offset=79: source=2 says records=40, and records=42 came, so the source's changelog is an "
        "older copy, and its records would count twice: restore it as it was at the last commit, or begin again"
    )
    with pytest.raises(Refusal, match="brings raw offsets from 910 on, but has come up to 910 before"):
        reader.record(2, 80, (910, 911))


def test_the_same_announcement_counts_once_and_a_later_one_from_its_own_interval() -> None:
    sources = Sources([(5, 2)])
    for said in (((5, 2), (7, 3)), ((7, 3), (9, 6)), ((9, 6),)):
        sources.announce(said)
    assert [sources.number(interval) for interval in (4, 5, 6, 7, 8, 9, 10)] == [2, 2, 2, 3, 3, 6, 6]
    sources.prune(6)
    assert sources.schedule == ((7, 3), (9, 6))


def test_a_new_source_counts_from_the_interval_that_the_tick_names_wherever_the_tick_itself_stands() -> None:
    for carried_by in (10, 13):
        vector = TickVector({}, ((10, 2),))
        for tick in (
            Tick(0, carried_by, 0, DIGEST, ((12, 3), (14, 5))),
            Tick(1, 13, 0, DIGEST),
            Tick(0, 13, 0, DIGEST, ((13, 3), (14, 5))),
        ):
            vector.apply(tick)
        assert [vector.sources.number(interval) for interval in (10, 11, 12, 13, 14)] == [2, 2, 3, 3, 5]
        assert vector.ready(9) == 11
        vector.apply(Tick(2, 14, 0, DIGEST))
        assert vector.ready(9) == 13
        vector.sources.prune(11)
        assert vector.sources.schedule == ((12, 3), (14, 5))


def test_a_source_that_has_not_ticked_holds_everything_back() -> None:
    vector = TickVector({0: 20, 1: 30}, ((10, 3),))
    assert vector.ready(9) == 9


def test_a_tick_of_another_configuration_is_refused() -> None:
    with pytest.raises(
        Refusal, match="source=0 closed interval=10 under another configuration: run every worker with the same"
    ):
        incoming().tick(Tick(0, 10, 0, b"\1" * 32, ()), 0)


def test_what_holds_the_next_interval_back_is_named() -> None:
    reader = incoming(sources=3)
    assert reader.stall(9, "route") is None
    reader.tick(Tick(1, 12, 0, DIGEST), 0)
    assert reader.stall(9, "route") == waits(
        "route", "interval=10 waits for route 0, 2", "see what status says of route"
    )
    reader.tick(Tick(0, 10, 0, DIGEST), 1)
    reader.tick(Tick(2, 10, 0, DIGEST), 2)
    assert reader.stall(9, "route") is None
