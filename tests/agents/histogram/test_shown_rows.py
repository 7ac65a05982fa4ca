"""Rows of remembered keys: drawn to the window before as a slow reference draws them, and shown where they mean something."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.shown_rows import ShownRows
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram.smoothing import LEAST_ROWS, Smoothing
from susurrus.topics import candidates, histogram, progress
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.partitioner import partition
from susurrus.topics.wire.timestamps import parse_time
from tests.agents.histogram.test_remembered import HOUR, LENGTH, PARTITIONS, WINDOWS, Both, events_of, ours, start_of
from tests.agents.stages import EPOCH, SECRET, WINDOW
from tests.reference import Memory as ReferenceMemory
from tests.reference import canonical, expected

KEYS = 150
TOP = {"order_by": "visits", "limit": 10}


def events(seed: int, late: int = 0) -> Any:
    """Enough keys of each partition to be fitted together."""
    return events_of(seed, keys=KEYS, least=25, most=60, late=late)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """What nobody disturbed, with a declared key, another that nobody brings, and a ranking."""
    made = ours(keys={"declared": ["k3", "nobody"]}, top=TOP)
    return Both(tmp_path_factory.mktemp("quiet"), made, events(1)).finish()


def rows_of(both: Both, topic: str = "histogram") -> dict[tuple[int, int, bytes], Any]:
    found = {}
    for runner in both.releases:
        for *_, value, _ in runner.to(topic):
            if value is not None:
                row = histogram.decode_row(value)
                found[row.window, row.trigger, canonical(row.key)] = row
    return found


def test_rows_are_those_of_the_slow_reference(quiet: Both) -> None:
    raw = [
        (source, offset, WINDOW + interval * HOUR, {"host": json.loads(user), "url": json.loads(key), "amount": value})
        for source, offset, interval, _, user, key, value in events(1)
    ]
    memory = ReferenceMemory()
    wanted = expected(quiet.services.settings, raw, secret=SECRET, epoch=EPOCH, memory=memory)
    rows = rows_of(quiet)
    assert {name: [of.values["visits"].estimate, of.values["paid"].estimate] for name, of in rows.items()} == wanted
    smoothed = {name: of.values["visits"].smoothed for name, of in rows.items() if of.values["visits"].smoothed}
    assert smoothed.keys() == memory.smoothed.keys()
    assert {start for start, *_ in smoothed} == {start_of(window) for window in range(1, WINDOWS)}
    for name, of in smoothed.items():
        assert (of.estimate, of.std_error) == pytest.approx(memory.smoothed[name][0], rel=1e-9)
    assert all(of.values["paid"].smoothed is None for of in rows.values())
    # Whoever is new, and was not on the list, has no smoothed number.
    assert {name for name in rows if name[0] > WINDOW} > smoothed.keys()
    for window in range(1, WINDOWS):
        handed_on = quiet.handed_on(window)
        assert handed_on == set(memory.lists[start_of(window)])
        shown_at = {t: {k for s, at, k in rows if (s, at) == (start_of(window), t)} for t in range(1, LENGTH + 1)}
        assert all(handed_on - shown_at[trigger] for trigger in shown_at), "some are too small to be shown"
        assert all({b'"k3"', b'"nobody"'} <= of for of in shown_at.values())


def test_a_remembered_row_is_shown_by_its_own_numbers_alone(quiet: Both) -> None:
    """Whoever reads the topic can check the rule: nothing else decides, as whether a record came would."""
    for window in range(1, WINDOWS):
        listed = quiet.handed_on(window) - {b'"k3"', b'"nobody"'}
        mine = [row for (start, _, key), row in rows_of(quiet).items() if start == start_of(window) and key in listed]
        assert len(mine) > 100
        for row in mine:
            number = row.values["visits"].smoothed
            assert number.estimate >= max(3, number.std_error)


def test_latest_forgets_a_row_that_is_not_there_any_more(quiet: Both) -> None:
    """Folded as Kafka compacts it, it has the rows of each window's newest trigger, at every moment."""
    rows = rows_of(quiet)
    by_trigger: dict[tuple[int, int], dict[bytes, bytes | None]] = defaultdict(dict)
    for runner in quiet.releases:
        for _, _, key, value, stamp in runner.to("latest"):
            start = parse_time(json.loads(key or b"")["window"])
            place = by_trigger[start, (stamp - start) // HOUR]
            assert key not in place
            place[key or b""] = value
    gone = 0
    for window in range(WINDOWS):
        folded: dict[bytes, bytes] = {}
        for trigger in range(1, LENGTH + 1):
            for key, value in by_trigger[start_of(window), trigger].items():
                if value is None:
                    gone += 1
                    del folded[key]  # it was there
                else:
                    folded[key] = value
            there = {canonical(json.loads(key)["key"]) for key in folded}
            assert there == {key for start, at, key in rows if (start, at) == (start_of(window), trigger)}
    assert gone > 10


def test_progress_says_how_many_keys_are_on_the_list(quiet: Both) -> None:
    """Those of the partition, shown or not, at every trigger; and the stage's gauges say what it says last."""
    for number, runner in enumerate(quiet.releases):
        said = [progress.decode(value or b"") for *_, value, _ in runner.to("progress")]
        for each in said:
            window = (each.window - WINDOW) // (LENGTH * HOUR)
            listed = sorted(quiet.handed_on(window)) if window else []
            assert each.remembered == sum(partition(listed, PARTITIONS) == number)
        assert len({each.remembered for each in said}) == WINDOWS
        assert runner.stage.report()["gauges"] == {
            "remembered_keys": said[-1].remembered,
            "persistence": said[-1].persistence,
            "evidence_windows": 1,
        }


def test_progress_and_candidates_know_of_shown_rows_alone(quiet: Both) -> None:
    rows = rows_of(quiet)
    said = [progress.decode(value or b"") for runner in quiet.releases for *_, value, _ in runner.to("progress")]
    for window in range(WINDOWS):
        for trigger in range(1, LENGTH + 1):
            place = (start_of(window), trigger)
            announced = [each.rows for each in said if (each.window, each.trigger) == place]
            assert sum(announced) == sum(name[:2] == place for name in rows)
    shown = {value for runner in quiet.releases for *_, value, _ in runner.to("histogram")}
    ranked = [
        row
        for runner in quiet.releases
        for *_, value, _ in runner.to("candidates")
        if kind_of(value or b"") is Kind.BLOCK
        for row in candidates.decode(value or b"").rows
    ]
    assert len(ranked) > 10 * LENGTH
    assert set(ranked) <= shown
    assert sum(runner.stage.counters["rows"] for runner in quiet.releases) == len(rows)


@pytest.mark.parametrize("late", [0, 2])
def test_restarts_between_every_two_commits_change_no_byte(late: int, tmp_path: Path) -> None:
    """What was shown before is in the state, so a key that is hidden now is withdrawn by whoever takes over."""
    sections: dict[str, Any] = {"late": late} | ({"privacy": {"closing": {"lag": 2}}} if late else {})
    undisturbed = Both(tmp_path / "quiet", ours(**sections), events(2, late)).finish()
    both = Both(tmp_path / "restarts", ours(**sections), events(2, late))
    while sum(both.commit(runner, 1) for runner in both.runners):
        for runner in both.releases:
            runner.restart()
    assert both.outputs() == undisturbed.outputs()
    assert any(value is None for runner in both.releases for *_, value, _ in runner.to("latest"))
    assert any(of.values["visits"].smoothed for of in rows_of(both).values())
    windows = {name[:1] for runner in both.releases for name in runner.state() if name[:1] == b"v"}
    assert not windows or late, "what is kept of a window goes with it"


# ---- one trigger -----------------------------------------------------------------------------------------------------


class TestOneTrigger:
    """Of two levels, with two columns that count and one that does not."""

    def made(self, tmp_path: Path, **sections: Any) -> tuple[Memory, ShownRows, Store]:
        services = ours(
            input={"topic": "raw", "user": "host", "key": ["url", "place"], "grouping_sets": [["url"], ["place"]]},
            bounds={"max_records_per_user": 8, "max_records_per_key": 2},
            columns=[
                {"name": "visits", "kind": "count"},
                {"name": "people", "kind": "users"},
                {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
            ],
            **sections,
        )
        store = Store(tmp_path)
        memory = Memory(services, store)
        return memory, ShownRows(store, memory, frozenset()), store

    def rows(self, keys: list[bytes], seed: int, most: int = 200) -> SortedRows:
        estimates = np.random.default_rng(seed).integers(-30, most, (len(keys), 3))
        return SortedRows(keys=keys, estimates=estimates, std_errors=np.full(estimates.shape, 20.0), direct=None)

    def handed_on(self, memory: Memory, store: Store, keys: list[bytes]) -> Remembered:
        values = np.random.default_rng(1).integers(6, 150, (len(keys), 2)).astype(np.float64)
        of = Remembered(keys=keys, estimates=values, variances=np.full(values.shape, 100.0))
        table = b"m" + (2**63 + 1).to_bytes(8, "big")
        store.write([(table + key, value) for key, value in zip(keys, of.packed(), strict=True)], [], [], meta=b"m")
        return of

    def test_each_level_and_column_has_a_fit_of_its_own(self, tmp_path: Path) -> None:
        memory, shown_rows, store = self.made(tmp_path)
        sizes = {"a": LEAST_ROWS + 5, "b": LEAST_ROWS - 1}
        keys = sorted(b'["%b",%d]' % (level.encode(), n) for level, size in sizes.items() for n in range(size))
        of = self.handed_on(memory, store, keys)
        window = WindowIndex(memory._services.ledger.first_window + 1)
        rows = self.rows(keys, 2)
        whole, display = shown_rows.of(window, Trigger(1), rows, keys, Commit(position=0, meta={}))
        assert memory.columns == [0, 1]
        assert whole.smoothed is not None
        first = np.array([key.startswith(b'["a"') for key in keys])
        assert whole.smoothed.present.tolist() == [[yes, yes, False] for yes in first.tolist()]
        for column in (0, 1):
            given = (
                rows.estimates[first, column].astype(np.float64), rows.std_errors[first, column] ** 2,
                of.estimates[first, column], of.variances[first, column],
            )  # fmt: skip
            fitted = Smoothing.fit(*given)
            assert fitted is not None
            assert whole.smoothed.estimates[first, column].tolist() == np.rint(fitted.rows(*given)[0]).tolist()
        # The number of users decides, smoothed at one level and direct at the other.
        users, error = whole.newest[0][:, 1], whole.newest[1][:, 1]
        assert display.rows.keys == [k for k, n, e in zip(keys, users, error, strict=True) if n >= max(3, e)]
        assert {key[2:3] for key in display.rows.keys} == {b"a", b"b"}

    def test_the_next_list_is_by_the_smoothed_row(self, tmp_path: Path) -> None:
        memory, shown_rows, store = self.made(tmp_path)
        keys = sorted(b'["a",%d]' % n for n in range(60))
        of = self.handed_on(memory, store, keys)
        window = WindowIndex(memory._services.ledger.first_window + 1)
        rows, commit = self.rows(keys, 3, most=40), Commit(position=0, meta={})
        last = memory._calendar.triggers_of(window)
        whole, _ = shown_rows.of(window, last, rows, keys, commit)
        assert whole.smoothed is not None
        _, following = memory.hand_on(window, whole, commit)
        users = whole.smoothed.estimates[:, 1]
        assert following.keys == [key for key, number in zip(keys, users.tolist(), strict=True) if number >= 6]
        assert following.keys != [key for key, number in zip(keys, rows.estimates[:, 1], strict=True) if number >= 6]
        kept = np.isin(keys, following.keys)
        for column in (0, 1):
            given = (
                rows.estimates[:, column].astype(np.float64), rows.std_errors[:, column] ** 2,
                of.estimates[:, column], of.variances[:, column],
            )  # fmt: skip
            fitted = Smoothing.fit(*given)
            assert fitted is not None
            told, variances = fitted.rates(*given)
            assert following.estimates[:, column].tolist() == told[kept].tolist()
            assert following.variances[:, column].tolist() == variances[kept].tolist()

    def test_without_a_list_all_rows_are_shown(self, tmp_path: Path) -> None:
        memory, shown_rows, _ = self.made(tmp_path)
        rows, commit = self.rows([b'["a",1]', b'["b",1]'], 4), Commit(position=0, meta={})
        first = memory._services.ledger.first_window
        for window in (first, first + 1):
            whole, display = shown_rows.of(WindowIndex(window), Trigger(1), rows, rows.keys, commit)
            assert whole is rows is display.rows
            assert not display.withdrawn
        assert (commit.puts, commit.deletes, commit.drops) == ([], [], [])
