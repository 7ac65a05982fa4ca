"""The model behind the page: what it keeps equals what was released, in few bytes, one epoch and one trigger at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.display.keys import identity, name_of, parts_of
from susurrus.agents.histogram.estimates import Estimates
from susurrus.agents.histogram.packed import Packed
from susurrus.agents.histogram.windows import Window, Windows
from tests.agents.dashboard.published import released
from tests.agents.released import DAY, WINDOW, release_of


def window_of(windows: Windows, start: int | None = None) -> Window:
    found = windows.get(start)
    assert found is not None
    return found


def table(window: Window, trigger: int, column: str = "visits") -> dict[Any, tuple[Any, Any]]:
    estimates, errors = window.triggers[trigger].columns[column]
    return {identity(window.keys[row]): (estimates.at(row), errors.at(row)) for row in window.rows(trigger).tolist()}


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda column: np.array(column, np.int64)),
        st.lists(st.floats(allow_nan=False)).map(lambda column: np.array(column, np.float64)),
        st.lists(st.sampled_from([0.5, 2.5, 1e-300]), max_size=40).map(lambda column: np.array(column, np.float64)),
    )
)
def test_a_packed_column_is_the_same_column(column: Any) -> None:
    packed = Packed.of(column)
    assert packed.all().dtype == column.dtype
    np.testing.assert_array_equal(packed.all(), column)
    assert [packed.at(row) for row in range(len(column))] == column.tolist()
    with pytest.raises(IndexError):
        packed.at(len(column))


def test_a_packed_column_takes_few_bytes() -> None:
    counts, errors = np.arange(50_000) % 30_000, np.linspace(1, 2, 100)[np.arange(50_000) % 100]
    assert Packed.of(counts).nbytes == 2 * 50_000
    assert Packed.of(errors).nbytes == 50_000 + 800
    assert Packed.of(np.full(50_000, 2.5)).nbytes == 8


counts = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-5, 1000), max_size=8)


@given(st.lists(counts, min_size=1, max_size=6))
def test_every_trigger_and_every_curve_is_what_was_released(parts: list[dict[str, int]]) -> None:
    """In any order of the keys; keys may be missing from a later trigger."""
    windows = Windows()
    for trigger, each in enumerate(parts, start=1):
        windows.add(released(each, trigger=trigger, of_triggers=6))
    window = window_of(windows)
    for trigger, each in enumerate(parts, start=1):
        assert table(window, trigger) == {key: (count, 2.5) for key, count in each.items()}
    for number, key in enumerate(window.keys):
        wanted = [(trigger, each[key]) for trigger, each in enumerate(parts, start=1) if key in each]
        assert [(trigger, of.estimate) for trigger, _, of, _ in window.curve(number, "visits")] == wanted
        assert window.first[number] == wanted[0][0]
        assert window.number_of(name_of(key)) == number


def test_a_window_keeps_every_number_of_a_row() -> None:
    """The second trigger lacks a key that the first has, and rows of both have smoothed numbers."""
    window = Window(0, DAY, "ab", 1, 0)
    first = Estimates(
        np.array([3, 8]),
        np.ones(2),
        smoothed=(np.array([5, 8]), np.array([0.5, 1.0])),
        smoothed_rows=np.array([True, False]),
    )
    window.add(release_of(["a", "b"], {"visits": first}), {})
    second = Estimates(
        np.array([7, 2]),
        np.ones(2),
        (np.array([9, 1]), np.full(2, 4.0)),
        smoothed=(np.array([7, 60]), np.array([1.0, 0.5])),
        smoothed_rows=np.array([False, True]),
    )
    window.add(release_of(["b", "c"], {"visits": second}, trigger=2), {})
    b, c = 1, 2
    found = window.triggers[2]
    assert [found.measured("visits", c, number).estimate for number in ("smoothed", "estimate", "direct")] == [60, 2, 1]
    assert [found.measured("visits", c, number).std_error for number in ("smoothed", "estimate", "direct")] == [
        0.5,
        1,
        4,
    ]
    assert [found.is_smoothed("visits", row) for row in (b, c)] == [False, True]
    assert window.rows(2).tolist() == [b, c]
    orders = {
        number: window.ordered(window.rows(2), 2, "estimate", "visits", number, descending=False).tolist()
        for number in ("smoothed", "direct")
    }
    assert orders == {"smoothed": [b, c], "direct": [c, b]}
    assert window.ordered(window.rows(2), 2, "interval", "visits", "smoothed", descending=False).tolist() == [c, b]
    assert found.highest("visits", window.rows(2), "direct") == pytest.approx(9 + 1.96 * 4)
    assert [(t, of.estimate, smoothed) for t, _, of, smoothed in window.curve(b, "visits")] == [
        (1, 8, False),
        (2, 7, False),
    ]
    assert [(t, of.estimate, smoothed) for t, _, of, smoothed in window.curve(0, "visits")] == [(1, 5, True)]
    assert [of.estimate for _, _, of, _ in window.curve(b, "visits", "direct")] == [8, 9]


def test_keys_that_python_takes_for_the_same_stay_apart() -> None:
    keys = [1, True, "1", [1, "a"], [True, "a"], 1.5, None, ""]
    columns = {"visits": Estimates(np.arange(8), np.ones(8))}
    windows = Windows()
    windows.add(release_of(keys, columns))
    window = window_of(windows)
    assert window.keys == keys
    assert [window.number_of(name_of(key)) for key in keys] == list(range(8))
    assert parts_of([True, "a"]) == [("true", False), ("a", True)]


def test_a_key_is_new_at_its_first_trigger_and_unknown_where_the_one_before_was_not_read() -> None:
    windows = Windows()
    windows.add(released({"a": 1}, trigger=2))
    assert not window_of(windows).new(2).any()
    windows.add(released({"b": 1, "a": 2}, trigger=3))
    window = window_of(windows)
    assert [window.keys[row] for row in np.flatnonzero(window.new(3))] == ["b"]
    windows.add(released({"b": 1, "a": 2}, trigger=4))
    assert not window.new(4).any()
    assert window.final


def test_a_table_is_sorted_searched_and_tied_by_key() -> None:
    windows = Windows()
    windows.add(released({"B": 5, "a": 5, "c": 9, "Ac": 1}, std_error=[4.0, 1.0, 2.0, 3.0]))
    window = window_of(windows)
    rows = window.rows(1)

    def ordered(sort: str, *, descending: bool) -> list[str]:
        return [window.keys[row] for row in window.ordered(rows, 1, sort, "visits", descending=descending)]

    assert ordered("estimate", descending=True) == ["c", "a", "B", "Ac"]
    assert ordered("estimate", descending=False) == ["Ac", "a", "B", "c"]
    assert ordered("interval", descending=True) == ["B", "Ac", "c", "a"]
    assert ordered("key", descending=False) == ["a", "Ac", "B", "c"]
    assert ordered("key", descending=True) == ["c", "B", "Ac", "a"]
    assert [window.keys[row] for row in window.search(rows, "AC")] == ["Ac"]
    assert len(window.search(rows, "")) == 4


def test_a_newer_epoch_replaces_a_window_and_an_older_one_does_not() -> None:
    windows = Windows()
    assert windows.add(released({"a": 1}, trigger=3))
    assert windows.add(released({"a": 7}, trigger=1, epoch_number=2))
    assert not windows.add(released({"a": 2}, trigger=4))
    window = window_of(windows)
    assert (window.epoch_number, window.newest, table(window, 1)) == (2, 1, {"a": (7, 2.5)})


def test_what_is_known_or_too_old_is_passed_over() -> None:
    windows = Windows(keep=2)
    for day in range(3):
        assert windows.add(released({"a": day}, window_start=WINDOW + day * DAY))
    assert [window.start for window in windows] == [WINDOW + DAY, WINDOW + 2 * DAY]
    assert not windows.add(released({"a": 9}, window_start=WINDOW, trigger=2))
    assert not windows.add(released({"a": 9}, window_start=WINDOW + DAY))
    assert table(window_of(windows, WINDOW + DAY), 1) == {"a": (1, 2.5)}


def test_memory_is_bounded_and_the_oldest_windows_lose_their_curves_first() -> None:
    numbers = np.random.default_rng(0)
    windows = Windows(keep=3, curve_bytes=15_000)
    for day in range(3):
        for trigger in range(1, 5):
            columns = {"visits": Estimates(numbers.integers(0, 30_000, 2_000), np.full(2_000, 2.5))}
            keys = [f"/page/{number}" for number in range(2_000)]
            windows.add(release_of(keys, columns, window_start=WINDOW + day * DAY, trigger=trigger))
    assert [window.thinned for window in windows] == [True, True, False]
    assert [list(window.triggers) for window in windows] == [[4], [4], [1, 2, 3, 4]]
    assert sum(window.earlier_bytes for window in windows) <= 15_000
    first, *_ = windows
    assert len(first.rows(4)) == 2_000
    assert first.keys[5] is window_of(windows).keys[5]  # kept once for all windows


def test_an_empty_release_has_no_rows() -> None:
    windows = Windows()
    windows.add(release_of())
    assert len(window_of(windows).rows(1)) == 0
    assert not window_of(windows).new(1).any()
