"""Evaluators that raw partitions share: nobody uses one that another uses, there are few, and one that has failed is gone."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from susurrus.agents.expressions import shared
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.shared import MOST, SharedComputation
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.records.reason import Reason

SCALARS = [("u",), ComputedField(expression="v * 2")]
WHERE = "v >= 10"


class Counted(Computation):
    """Remembers all that were made, and notices a second user."""

    made: list["Counted"]
    meets: threading.Barrier | None = None
    """Where so many must be at work at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._used = threading.Lock()
        self.made.append(self)

    def apply(self, chunk: Chunk) -> Chunk:
        assert self._used.acquire(blocking=False), "two use one evaluator at once"
        try:
            if self.meets is not None:
                self.meets.wait(60)
            return super().apply(chunk)
        finally:
            self._used.release()

    @property
    def ended(self) -> bool:
        assert self.engine is not None
        try:
            self.engine.connection.execute("SELECT 1").fetchall()
        except self.engine.refused:
            return True
        return False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Counted]]:
    monkeypatch.setattr(Counted, "made", [], raising=False)
    monkeypatch.setattr(shared, "Computation", Counted)
    yield Counted.made
    for one in Counted.made:
        one.close()


def chunk(*values: Any) -> Chunk:
    return Chunk(rows=len(values), columns=[[f"user {v}" for v in values], list(values)], refused={})


def results(applied: Iterator[Chunk]) -> list[tuple[list[list[Any]], dict[int, Reason]]]:
    return [(one.columns, one.refused) for one in applied]


def test_who_comes_after_the_other_uses_the_same_one(made: list[Counted]) -> None:
    computation = SharedComputation(SCALARS, WHERE, {})
    for value in (7, 30, "x", 12.5, None):
        assert len(results(computation.applied([chunk(value)]))) == 1
    assert len(made) == 1


def test_as_many_as_are_needed_at_once_and_no_more_than_the_most(
    made: list[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    computation = SharedComputation(SCALARS, WHERE, {})
    monkeypatch.setattr(Counted, "meets", threading.Barrier(MOST))
    users = 4 * MOST
    kinds: list[Any] = [7, 30, "20", 12.5, True, "x", 2**62, [1]]
    given = [chunk(*(kinds[(user + n) % len(kinds)] for n in range(5))) for user in range(users)]
    found: list[Any] = [None] * users

    def use(user: int) -> None:
        found[user] = results(computation.applied([given[user]]))

    threads = [threading.Thread(target=use, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == MOST
    monkeypatch.setattr(Counted, "meets", None)
    for user in range(users):
        alone = Computation(SCALARS, WHERE)
        assert found[user] == results(alone.applied([given[user]]))
        alone.close()


def test_one_that_has_failed_is_closed_and_not_lent_again(made: list[Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    computation = SharedComputation(SCALARS, WHERE, {})
    wanted = results(computation.applied([chunk(7, 30)]))
    apply = Computation.apply

    def fails(self: Computation, chunk: Chunk) -> Chunk:
        monkeypatch.setattr(Computation, "apply", apply)
        raise MemoryError

    monkeypatch.setattr(Computation, "apply", fails)
    with pytest.raises(MemoryError):
        results(computation.applied([chunk(7, 30)]))
    assert made[0].ended
    assert results(computation.applied([chunk(7, 30)])) == wanted
    assert [one.ended for one in made] == [True, False]


def test_the_most_may_fail_and_there_is_still_room(made: list[Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    computation = SharedComputation(SCALARS, WHERE, {})
    with monkeypatch.context() as patched:
        patched.setattr(Computation, "apply", lambda self, chunk: 1 / 0)
        for _ in range(2 * MOST):
            with pytest.raises(ZeroDivisionError):
                results(computation.applied([chunk(1)]))
    assert len(results(computation.applied([chunk(30)]))) == 1


def test_closing_ends_all_and_those_that_are_lent_when_they_come_back(
    made: list[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    computation = SharedComputation(SCALARS, WHERE, {})
    apply = Computation.apply

    def closes(self: Computation, chunk: Chunk) -> Chunk:
        computation.close()
        return apply(self, chunk)

    monkeypatch.setattr(Computation, "apply", closes)
    [(columns, _)] = results(computation.applied([chunk(30)]))
    assert columns[1] == [60]
    assert made[0].ended


def test_without_expressions_there_is_no_engine_and_chunks_stay_as_they_are(made: list[Counted]) -> None:
    computation = SharedComputation([("u",), ("v",)], None, {})
    given = chunk(1, 2)
    assert computation.idle
    assert next(iter(computation.applied([given]))) is given
    assert [one.engine for one in made] == [None]


def test_it_says_what_a_computation_says() -> None:
    one, many = Computation(SCALARS, WHERE), SharedComputation(SCALARS, WHERE, {})
    assert (many.paths, many.asked, many.computed) == (one.paths, one.asked, list(one.computed))
    one.close()
    many.close()
