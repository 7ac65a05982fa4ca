"""What a ledger says for certain of records that a pipeline reads: where it begins, and what is closed."""

from susurrus.agents.runtime.begun import begun_of
from susurrus.topics.ledger import Epoch, LedgerRecord, SourcesRecord, Start, Status
from susurrus.topics.sources import Run

HOUR = 3_600_000
START = Start(
    first_window=HOUR, origin="latest", topic_ids={}, sources=(Run("a", 0, 2), Run("b", 0, 1)), offsets={0: 5, 1: 0, 2: 9}
)  # fmt: skip
EPOCH = Epoch(epoch="e", created=7, number=1)


def status(source: int, **more: int) -> Status:
    return Status(stage="route", partition=source, state="running", at=1, **more)  # type: ignore[arg-type]


def test_a_ledger_without_a_start_says_nothing() -> None:
    assert begun_of([], "route") is None
    assert begun_of([EPOCH, status(0, next=3, interval=4)], "route") is None


def test_records_before_the_start_are_not_read() -> None:
    begun = begun_of([EPOCH, START], "route")
    assert begun is not None
    assert (begun.first_window, begun.created) == (HOUR, 7)
    assert [begun.is_before_start("a", 0, offset) for offset in (0, 4, 5)] == [True, True, False]
    assert begun.is_before_start("b", 0, 8)
    assert not begun.is_before_start("a", 1, 0)
    assert not begun.is_before_start("c", 0, 0)  # a topic that is none
    assert begun.closed_at("a", 0, 100) is None


def test_an_interval_is_closed_only_for_what_is_not_taken_yet() -> None:
    records: list[LedgerRecord] = [
        EPOCH, START,
        status(0, position=40, next=50, interval=6), status(1, next=3),
        Status(stage="bound", partition=2, state="running", at=1, next=1, interval=99),
    ]  # fmt: skip
    begun = begun_of(records, "route")
    assert begun is not None
    assert [begun.closed_at("a", 0, offset) for offset in (39, 49, 50, 1000)] == [None, None, 6, 6]
    assert begun.closed_at("a", 1, 1000) is None  # it has not said how far it is
    assert begun.closed_at("b", 0, 1000) is None  # another stage's partition


def test_a_source_that_came_later_joins_at_its_interval_and_its_offset() -> None:
    first = SourcesRecord(number=4, from_interval=20, sources=(*START.sources, Run("a", 2, 1)))
    second = SourcesRecord(
        number=5, from_interval=30, sources=(*START.sources, Run("a", 2, 1), Run("c", 0, 1)), offsets={4: 11}
    )
    for announced in ([first, second], [second, first]):
        begun = begun_of([EPOCH, START, *announced, status(4, next=20, interval=35)], "route")
        assert begun is not None
        assert (begun.closed_at("a", 2, 0), begun.closed_at("a", 1, 0)) == (19, None)
        assert [begun.closed_at("c", 0, offset) for offset in (11, 20)] == [29, 35]
        assert begun.is_before_start("c", 0, 10)
        assert not begun.is_before_start("c", 0, 11)
