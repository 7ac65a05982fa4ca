"""What a source has brought against what its ticks say: whatever is lost or comes twice is refused at the source's next tick."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.runtime.received import Received
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.tick import Tick

SOURCES = 3
Log = list[int | Tick]
"""The source of a record, or a tick."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log as several sources write it, with a tick of everybody at its end."""
    log: Log = []
    written = Counter[int]()
    for source in draw(st.lists(st.integers(0, SOURCES - 1), max_size=30)):
        if draw(st.integers(0, 3)):
            log.append(source)
            written[source] += 1
        else:
            log.append(Tick(source, len(log), written[source], bytes(32)))
    return log + [Tick(source, 99, written[source], bytes(32)) for source in range(SOURCES)]


def read(log: Log, restarts: list[tuple[int, int]] | None = None) -> None:
    """As a stage reads. restarts: (offset at which the reader is gone, how far below it the last commit's position was)."""
    meta: dict[int, tuple[int, int]] = {}
    start = 0
    for end, behind in [*sorted(restarts or []), (len(log), 0)]:
        received = Received("topic=t partition=0", meta, way_out="begin again")
        for offset in range(start, end):
            record = log[offset]
            if isinstance(record, Tick):
                received.compare(record, offset)
            else:
                received.take(record, offset)
        start = max(start, end - behind)
        meta = received.to_meta(start)


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
    received = Received("topic=s.web.by-user partition=3", {2: (41, 900)}, way_out="begin again")
    received.take(2, 77, (905, 910))
    received.compare(Tick(2, 10, 42, bytes(32)), 78)
    with pytest.raises(Refusal) as lost:
        received.compare(Tick(2, 11, 45, bytes(32)), 79)
    assert str(lost.value) == (
        "topic=s.web.by-user partition=3 offset=79: source=2 says records=45, and records=42 came, so Kafka has lost what it had "
        "acknowledged: restore the topic as it was, or begin again"
    )
    with pytest.raises(Refusal) as twice:
        received.compare(Tick(2, 11, 40, bytes(32)), 79)
    assert str(twice.value) == (
        "topic=s.web.by-user partition=3 offset=79: source=2 says records=40, and records=42 came, so the source's changelog is an "
        "older copy, and its records would count twice: restore it as it was at the last commit, or begin again"
    )
    with pytest.raises(Refusal, match="brings raw offsets from 910 on, but has come up to 910 before"):
        received.take(2, 80, (910, 911))
