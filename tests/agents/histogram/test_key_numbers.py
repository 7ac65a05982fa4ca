"""Numbers of keys: exact, stored with what uses them, and remembered no longer than memory allows."""

from collections.abc import Sequence

import numpy as np
import pytest

from susurrus.agents.histogram import user_lists
from susurrus.agents.histogram.user_lists import KeyNumbers
from susurrus.mechanisms.calendar import WindowIndex

WINDOW, NEXT = WindowIndex(3), WindowIndex(4)


class Stored:
    """What a store has, and which names it was asked for."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.asked: list[bytes] = []

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.asked += keys
        return [self.rows.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> object:
        raise NotImplementedError


def asked_of(store: Stored, numbers: KeyNumbers, window: WindowIndex, keys: list[bytes]) -> tuple[list[int], int]:
    """(the numbers of keys, how many of them the store was asked for)."""
    store.asked.clear()
    return numbers.of(window, keys).tolist(), len(store.asked)


def list_all(store: Stored, numbers: KeyNumbers, window: WindowIndex, keys: list[bytes]) -> None:
    numbers.of(window, keys)
    store.rows.update(numbers.listed(np.arange(len(keys))))


def test_only_what_is_listed_is_stored_and_remembered() -> None:
    store = Stored()
    numbers = KeyNumbers(store, 7)
    assert asked_of(store, numbers, WINDOW, [b"a", b"b", b"c"]) == ([7, 8, 9], 3)
    store.rows.update(numbers.listed(np.array([2, 0, 2])))
    assert len(store.rows) == 4  # there and back, for each of the two
    assert asked_of(store, numbers, WINDOW, [b"c", b"b", b"a"]) == ([9, 10, 7], 1)  # no number is given twice
    assert numbers.listed(np.array([0, 2])) == []
    assert asked_of(store, numbers, NEXT, [b"a"]) == ([11], 1)  # each window has its own


def test_a_new_owner_reads_what_was_stored() -> None:
    store = Stored()
    first = KeyNumbers(store, 1 << 40)
    list_all(store, first, WINDOW, [b"a", b"b"])
    then = KeyNumbers(store, first.next)
    assert asked_of(store, then, WINDOW, [b"b", b"a"]) == ([1, 0], 2)
    assert asked_of(store, then, WINDOW, [b"b", b"a"]) == ([1, 0], 0)


@pytest.mark.parametrize(("limit", "most"), [("MAX_HASHES", 3), ("MAX_HASHED_BYTES", 4)])
def test_what_is_remembered_stays_within_bounds(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_lists, limit, most)
    store = Stored()
    numbers = KeyNumbers(store, 0)
    keys = [b"a", b"b", b"c", b"d", b"e"]
    list_all(store, numbers, WINDOW, keys)
    assert asked_of(store, numbers, WINDOW, keys) == ([0, 1, 2, 3, 4], 5)


def test_a_window_that_is_over_is_forgotten() -> None:
    store = Stored()
    numbers = KeyNumbers(store, 0)
    list_all(store, numbers, WINDOW, [b"a"])
    list_all(store, numbers, NEXT, [b"a"])
    numbers.forget(NEXT)
    assert numbers._bytes == 1
    assert asked_of(store, numbers, NEXT, [b"a"]) == ([1], 0)
    assert asked_of(store, numbers, WINDOW, [b"a"]) == ([0], 1)
