"""The plan of a window follows how much had lasted before it: known to all partitions, decided once, the same in every replay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.rolling import RollingView
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.mechanisms.histogram import smoothing
from susurrus.mechanisms.histogram.persistence import LEAST_ROW
from susurrus.topics import histogram, lasting_rows, progress
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.histogram.test_remembered import (
    FAR,
    HOUR,
    LENGTH,
    PARTITIONS,
    PUBLIC,
    Both,
    Event,
    events_of,
    ours,
    start_of,
)
from tests.agents.released import settings
from tests.agents.stages import WINDOW, services_of
from tests.reference import NO_LAST_LOOK


def kappas(both: Both) -> list[list[int]]:
    """By partition of release, of the windows in its state."""
    assert all(runner.meta for runner in both.releases)
    return [[kappa for _, kappa in runner.meta["persistence"]] for runner in both.releases]  # type: ignore[index]


def told(both: Both) -> dict[int, list[tuple[int, int]]]:
    """Interval -> (known, rows) by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    for value in both.index.log:
        if kind_of(value) is Kind.LASTING:
            record = lasting_rows.decode(value)
            found.setdefault(record.interval, []).append((record.known, record.rows))
    return found


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """What nobody disturbed."""
    return Both(tmp_path_factory.mktemp("quiet"), ours(), events_of(1)).finish()


# ---- what kappa is -----------------------------------------------------------------------------------------------------


def followed(both: Both) -> list[int]:
    """kappa of the three windows of `events_of(1)`, from their published rows alone."""
    rows, found = both.rows(), [0]
    for window in (0, 1):
        last = {key: row[0] for (start, at, key), row in rows.items() if (start, at) == (start_of(window), LENGTH)}
        large = {key for key, users in last.items() if users >= LEAST_ROW}
        known = large & (both.handed_on(window) if window else set())
        found.append(10 * len(known) // len(large))
    return found


def test_all_partitions_have_the_kappa_that_follows_from_the_rows_of_all(quiet: Both) -> None:
    """Against the published rows; that the rows follow from it is compared with the slow reference in test_remembered.py."""
    wanted = followed(quiet)
    assert wanted[:2] == [0, 0]  # nothing is known before the first window, and nothing of its keys was known before it
    assert wanted[2] >= 3
    decided = {
        (runner is quiet.releases[0], window): kappa
        for runner in quiet.releases
        for commit in runner.commits
        for window, kappa in commit.meta["persistence"]
    }
    first = quiet.services.ledger.first_window
    assert [decided[True, first + window] for window in range(3)] == wanted
    assert [decided[False, first + window] for window in range(3)] == wanted
    # Each partition has told its own numbers, and none of them decides alone.
    counts = told(quiet)[2 * LENGTH - 1]
    assert len(counts) == PARTITIONS
    assert 10 * sum(known for known, _ in counts) // sum(rows for _, rows in counts) == wanted[2]
    assert len(set(counts)) == PARTITIONS


def test_declared_keys_had_been_known_also_in_a_first_window(tmp_path: Path) -> None:
    made = ours(keys={"declared": [f"k{number}" for number in range(10)]})
    both = Both(tmp_path, made, events_of(1)).until(LENGTH - 1)
    large = {key for (_, at, key), row in both.rows().items() if at == LENGTH and row[0] >= LEAST_ROW}
    known = large & set(made.settings.declared_keys)
    counts = told(both)[LENGTH - 1]
    assert (sum(each for each, _ in counts), sum(rows for _, rows in counts)) == (len(known), len(large))
    assert 5 < len(known) < len(large)


def test_the_rows_that_count_are_smoothed_where_there_are_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothing, "LEAST_ROWS", 6)
    both = Both(tmp_path, ours(), events_of(7, least=12, most=30)).until(2 * LENGTH - 1)
    rows = [
        row
        for runner in both.releases
        for *_, value, _ in runner.to("histogram")
        if ((row := histogram.decode_row(value or b"")).window, row.trigger) == (start_of(1), LENGTH)
    ]
    smoothed = [(row.values["visits"].smoothed or row.values["visits"]).estimate for row in rows]
    direct = [row.values["visits"].estimate for row in rows]
    # A row of 15 users or more is shown.
    counted = sum(number for _, number in told(both)[2 * LENGTH - 1])
    assert counted == sum(number >= LEAST_ROW for number in smoothed)
    assert counted != sum(number >= LEAST_ROW for number in direct)


def test_progress_says_the_kappa_of_its_window(quiet: Both) -> None:
    for runner in quiet.releases:
        said = [progress.decode(value or b"") for *_, value, _ in runner.to("progress")]
        for window, kappa in enumerate(followed(quiet)):
            assert {each.persistence for each in said if each.window == start_of(window)} == {kappa / 10}


def test_rows_have_the_errors_of_their_windows_plan(quiet: Both) -> None:
    plan = quiet.services.strategy.plan
    for window, kappa in enumerate(followed(quiet)):
        strategy = quiet.services.strategy_of(WindowIndex(quiet.services.ledger.first_window + window), kappa)
        assert strategy.plan == plan.at_persistence(kappa)
        errors = strategy.standard_errors()
        for runner in quiet.releases:
            for *_, value, _ in runner.to("histogram"):
                row = histogram.decode_row(value or b"")
                if row.window == start_of(window):
                    direct = row.values["visits"].direct or row.values["visits"]
                    assert direct.std_error == pytest.approx(errors[row.trigger - 1, 0], rel=1e-5)
    assert quiet.services.strategy_of(WindowIndex(0), 5).standard_errors()[0, 0] > plan_error(quiet.services)


def plan_error(services: HistogramServices) -> float:
    return float(services.strategy.standard_errors()[0, 0])


def test_kappa_follows_from_output_alone(quiet: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of twenty keys more, each of one user of its own, change no row that is published, and so not kappa. Planted: kappa
    from the keys that anybody brought."""
    events = [
        *events_of(1),
        *(
            (0, 10_000 + number, LENGTH, start_of(1), b'"v%d"' % number, b'"rare%d"' % number, 1)
            for number in range(20)
        ),
    ]
    events.sort(key=lambda event: event[2])
    more = Both(tmp_path / "more", ours(), renumbered(events)).finish()
    assert more.rows() == quiet.rows()
    assert (told(more), kappas(more)) == (told(quiet), kappas(quiet))

    brought = {event[5] for event in events if event[3] == start_of(1)}

    def by_records(plans: WindowPlans, rows: SortedRows, public: frozenset[bytes]) -> tuple[int, int]:
        return len(public), len(public) + len(brought - public)

    monkeypatch.setattr(WindowPlans, "_count", by_records)
    assert told(Both(tmp_path / "broken", ours(), renumbered(events)).finish()) != told(quiet)


def renumbered(events: list[Event]) -> list[Event]:
    """With ascending offsets."""
    return [(source, offset, *rest) for offset, (source, _, *rest) in enumerate(events)]  # type: ignore[misc]


@pytest.mark.parametrize(
    "sections",
    [
        {"remember": 0},
        {"privacy": {"closing": {"unknown_share": 0.14}}},
        {"privacy": {"closing": NO_LAST_LOOK}},
    ],
    ids=["nothing is remembered", "other shares", "no last look"],
)
def test_where_shares_follow_nothing_nothing_is_told_or_kept(sections: dict[str, Any], tmp_path: Path) -> None:
    both = Both(tmp_path, ours(**sections), events_of(1)).finish()
    assert not both.services.settings.follows_persistence
    assert told(both) == {}
    assert all(
        "persistence" not in runner.meta and "lasted" not in runner.meta for runner in both.releases if runner.meta
    )
    said = [progress.decode(value or b"") for runner in both.releases for *_, value, _ in runner.to("progress")]
    assert {each.persistence for each in said} == {None}


def test_with_lateness_it_is_the_newest_window_that_was_complete_before(tmp_path: Path) -> None:
    """The second window ends while the third one runs, so the third follows the first one; the fourth follows the second."""
    made = ours(late=1)
    both = Both(tmp_path, made, events_of(1, windows=4, late=1), last=4 * LENGTH).finish()
    ends = {interval: tuple(map(sum, zip(*counts, strict=True))) for interval, counts in told(both).items()}
    assert sorted(ends) == [LENGTH, 2 * LENGTH, 3 * LENGTH, 4 * LENGTH]
    assert ends[LENGTH][0] == 0
    assert ends[2 * LENGTH][0] > 0
    known, rows = ends[2 * LENGTH]
    first = made.ledger.first_window
    states = [commit.meta["persistence"] for runner in both.releases for commit in runner.commits]
    decided = {window - first: kappa for state in states for window, kappa in state}
    assert (decided[2], decided[3]) == (0, 10 * known // rows)
    assert decided[3] > 0


def rows_of(numbers: dict[bytes, int]) -> SortedRows:
    keys = sorted(numbers)
    estimates = np.array([[numbers[key], 0] for key in keys], np.int64).reshape(len(keys), 2)
    return SortedRows(keys=keys, estimates=estimates, std_errors=np.ones((len(keys), 2)), direct=None)


def test_rows_count_from_fifteen_users_on_and_a_skipped_window_tells_what_it_was_given() -> None:
    plans = WindowPlans(ours(), 0, {"lasted": [1, 9]})
    window = WindowIndex(plans._services.ledger.first_window)

    def count(rows: SortedRows | None, public: frozenset[bytes] = frozenset()) -> tuple[int, int]:
        [output] = plans.tell(window, Interval(3), rows, public)
        [message] = output.messages
        record = lasting_rows.decode(message["value"])
        assert (record.interval, record.window) == (3, start_of(0))
        return record.known, record.rows

    assert count(None) == (1, 9)
    rows = rows_of({b'"a"': 14, b'"b"': 15, b'"c"': 90, b'"d"': -3, b'"e"': 16})
    assert count(rows, frozenset([b'"a"', b'"b"', b'"e"', b'"x"'])) == (2, 3)
    assert count(None) == (2, 3)
    assert plans.to_meta()["lasted"] == [2, 3]
    assert count(rows_of({})) == (0, 0)


# ---- the wait ------------------------------------------------------------------------------------------------------------


def test_a_window_begins_when_every_partition_has_told_its_last_rows(tmp_path: Path) -> None:
    both = Both(tmp_path, ours(), events_of(1)).until(2 * LENGTH - 1)
    # Partition 1 has closed the interval; to the index of this worker, its last record has not come yet.
    both.index.reading = False
    both.index.clear()
    for offset, value in enumerate(both.index.log[:-1]):
        both.index.take(value, offset)
    late = both.index.behind(Interval(2 * LENGTH - 1))
    assert len(late) == 1
    bounds = both.commit(both.bound)
    ahead = both.releases[1 - late[0]]
    ahead.restart()
    both.feed(ahead)
    closed = ahead.meta["closed"] if ahead.meta else None
    assert bounds == 0 or both.commit(ahead) == 0
    decided = ahead.stage._plans.decide([WindowIndex(both.services.ledger.first_window + 2)])  # type: ignore[attr-defined]
    assert str(decided) == (
        f"window={start_of(2)} waits for the last rows of the window before it, of release {late[0]}; see what status says of "
        "release"
    )
    assert ahead.meta is not None
    assert ahead.meta["closed"] == closed
    both.index.reading = True
    both.index.read_again()
    assert ahead.stage._plans.decide([WindowIndex(both.services.ledger.first_window + 2)]) is None  # type: ignore[attr-defined]


# ---- exactly once --------------------------------------------------------------------------------------------------------


def test_restarts_between_every_two_commits_around_the_first_lasting_window_change_no_byte(
    quiet: Both, tmp_path: Path
) -> None:
    both = Both(tmp_path, ours(), events_of(1)).until(2 * LENGTH - 2)
    while min(runner.meta["closed"] for runner in both.releases if runner.meta) < 2 * LENGTH + 1:
        assert sum(both.commit(runner, 1) for runner in both.runners)
        for runner in both.runners:
            both.feed(runner)
            next(iter(runner.stage.commits(FAR)), None)  # made, and lost with its owner
            runner.restart()
        both.index.read_again()
    both.finish()
    outputs = [both.bound.to("bounded"), *(runner.to(*PUBLIC) for runner in both.releases)]
    assert outputs == quiet.outputs()
    assert kappas(both) == kappas(quiet)


def test_who_restarts_in_a_lasting_window_finds_its_kappa_in_the_state(quiet: Both, tmp_path: Path) -> None:
    """Also where the topic no longer has the numbers from which it followed."""
    both = Both(tmp_path, ours(), events_of(1)).until(2 * LENGTH)
    both.index.log[:] = [value for value in both.index.log if kind_of(value) is not Kind.LASTING]
    both.index.read_again()
    for runner in both.runners:
        runner.restart()
    assert both.finish().rows() == quiet.rows()


def test_another_kappa_is_refused_before_anything_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same records under another plan would be a second release."""
    both = Both(tmp_path, ours(), events_of(1)).until(2 * LENGTH)
    release = both.releases[0]
    written = list(release.written)
    again = Both(tmp_path / "again", ours(), events_of(1)).until(2 * LENGTH - 1).releases[0]
    again.services.ledger.records = dict(both.services.ledger.records)  # type: ignore[attr-defined]
    before = len(again.written)
    lasted = type(both.index).lasted

    def others(index: Any, interval: Interval) -> tuple[int, int] | None:
        found = lasted(index, interval)
        return None if found is None else (found[1], found[1])

    for planted in (True, False):
        with monkeypatch.context() as patch:
            if planted:
                patch.setattr(type(both.index), "lasted", others)
            again.restart()
            again.feed(both.bounded[0], 10**9)
            if planted:
                with pytest.raises(
                    ReplayMismatch,
                    match=rf"trigger=1 of window={start_of(2)} was published from different data or with .*other shares that "
                    r"follow them, .* run `susurrus ledger new-epoch`",
                ):
                    again.commit(1, now=FAR)
                assert len(again.written) == before
            else:
                assert again.commit(1, now=FAR) == 1
    assert [row for row in again.to("histogram") if row in release.to("histogram")] == again.to("histogram")
    assert release.written == written


# ---- what else asks for a plan ---------------------------------------------------------------------------------------------


def test_the_rest_of_a_window_in_a_rolling_view_has_the_errors_of_its_own_plan(tmp_path: Path) -> None:
    made = services_of(
        settings(
            window={"length": LENGTH * HOUR, "trigger_every": HOUR, "origin": WINDOW, "rolling": True},
            columns=[
                {"name": "users", "kind": "users"},
                {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
            ],
            privacy={"epsilon": 6.0, "delta": 1e-9, "strategy": "closing"},
            keys={"remember": 6},
        )
    )
    stds = {}
    for kappa in (0, 10):
        store = Store(tmp_path / f"s{kappa}")
        plans = WindowPlans(made, 0, {"persistence": [[0, kappa], [1, 0]]})
        view = RollingView(made, store, plans)
        rows = SortedRows(keys=[b'"a"'], estimates=np.full((1, 2), 50), std_errors=np.ones((1, 2)), direct=None)
        for window in (0, 1):
            for trigger in range(1, LENGTH + 1):
                commit = Commit(position=0, meta={})  # type: ignore[arg-type]
                found = view.take(WindowIndex(window), Trigger(trigger), rows, commit)
                store.write(commit.puts, commit.deletes, commit.drops, meta=b"m")
                if (window, trigger) == (1, 1):
                    assert found is not None
                    stds[kappa] = float(found.rows.std_errors[0, 0])
        store.close()
    assert stds[10] / stds[0] == pytest.approx((0.42 / 0.35) ** 0.5, rel=0.02)


def test_levels_have_one_kappa_from_those_that_look_once_more() -> None:
    made = services_of(
        settings(
            input={
                "topic": "raw",
                "user": "host",
                "key": ["url", "method"],
                "grouping_sets": [["url"], ["url", "method"]],
            },
            columns=[
                {"name": "visits", "kind": "count"},
                {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
            ],
            privacy={"epsilon": 6.0, "delta": 1e-9, "strategy": "closing"},
            keys={"remember": 6},
        )
    )
    assert made.settings.follows_persistence
    plans = WindowPlans(made, 0, {})
    window = WindowIndex(made.ledger.first_window)
    rows = rows_of(
        {b'["a","x"]': 40, b'["a","y"]': 3, b'["b","x","GET"]': 20, b'["b","y","GET"]': 30, b'["b","z","GET"]': 9}
    )
    [output] = plans.tell(window, Interval(3), rows, frozenset([b'["a","x"]', b'["b","y","GET"]']))
    record = lasting_rows.decode(output.messages[0]["value"])
    assert (record.known, record.rows) == (2, 3)
    plans = WindowPlans(made, 0, {"persistence": [[window, 6]]})
    shares = [level.describe()["shares"]["selection"] for level in plans.strategy_of(window).by_level]
    assert shares == [pytest.approx(0.31)] * 2
    assert [level.bounding.weights.tolist() for level in plans.strategy_of(window).by_level] == [
        level.bounding.weights.tolist() for level in made.strategy.by_level
    ]


def test_a_window_that_nobody_has_decided_has_no_plan() -> None:
    """Better no release than one by a plan that the others do not have."""
    plans = WindowPlans(ours(), 0, {})
    with pytest.raises(KeyError):
        plans.strategy_of(WindowIndex(5))
