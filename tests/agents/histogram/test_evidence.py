"""Closing rows over windows, from bound to the published rows: the slow reference, restarts, and what stays in the state."""

import gc
import json
import random
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.evidence import EvidenceOf
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Interval, WindowIndex
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.mechanisms.histogram.evidence_memory import ClosingRows, EvidenceTest, PastRows
from susurrus.mechanisms.histogram.evidence_states import EvidenceStates
from tests.agents.histogram.test_remembered import (
    FAR,
    HOUR,
    LENGTH,
    SOURCES,
    WINDOW,
    Both,
    Event,
    ours,
    published_since,
    start_of,
)
from tests.agents.stages import EPOCH, SECRET, number_of
from tests.reference import expected

DAYS = 5


def events_of(
    seed: int, *, least: int = 2, most: int = 8, keys: int = 60, windows: int = DAYS, large: int = 0
) -> list[Event]:
    """Keys of so few users that no window finds many. Some come every day, some on two of three, one on every other day.

    large: so many more, of 30 to 50 users, of which some are others from the fourth day on.
    """
    dice = random.Random(seed)
    found: list[tuple[int, int, int, bytes, bytes, int]] = []
    for window in range(windows):
        brought = []
        for key in range(keys):
            if key % 3 == 0 or (key % 3 == 1 and (key + window) % 3) or (key % 3 == 2 and (key + window) % 2):
                brought += [(key, who) for who in dice.sample(range(10**6), dice.randrange(least, most))]
        for key in range(keys + 5 * (window >= 3), keys + large + 5 * (window >= 3)):
            brought += [(key, who) for who in dice.sample(range(10**6), dice.randrange(30, 50))]
        dice.shuffle(brought)
        for key, who in brought:
            interval, source = window * LENGTH + dice.randrange(LENGTH), dice.randrange(SOURCES)
            found.append((interval, source, start_of(window), b'"u%d"' % who, b'"k%d"' % key, dice.randrange(-50, 51)))
    found.sort(key=lambda event: event[0])
    return [(source, offset, interval, *of) for offset, (interval, source, *of) in enumerate(found)]  # type: ignore[misc]


def adding_up(windows: int = 4, **sections: Any) -> Any:
    keys = {"evidence_windows": windows, **sections.pop("keys", {})}
    return ours(keys=keys, **{"remember": 0, "privacy": {"delta": 1e-4}, **sections})


def last_of(days: int = DAYS) -> int:
    return days * LENGTH - 1


def run(directory: Path, made: Any, events: list[Event]) -> Both:
    return Both(directory, made, events, last=last_of()).finish()


def found_late(both: Both) -> list[set[bytes]]:
    """By window, the keys that its last trigger was the first to name."""
    rows = both.rows()
    of = {
        (start, trigger): {key for s, t, key in rows if (s, t) == (start, trigger)}
        for start in map(start_of, range(DAYS))
        for trigger in (LENGTH - 1, LENGTH)
    }
    return [of[start_of(day), LENGTH] - of[start_of(day), LENGTH - 1] for day in range(DAYS)]


CASES: dict[str, dict[str, Any]] = {
    "four windows": {},
    "two windows": {"windows": 2},
    "a minimum": {"keys": {"minimum_users": 1}, "privacy": {"epsilon": 9.0, "delta": 1e-3}},
    "remembered": {"remember": 4},
    "declared": {"keys": {"declared": ["k3", "nobody"]}},
    "lag": {"privacy": {"delta": 1e-4, "closing": {"lag": 2}}},
}


@pytest.mark.parametrize("case", CASES)
def test_windows_are_those_of_the_slow_reference(case: str, tmp_path: Path) -> None:
    """Which tests every key at every last trigger, whoever brought it when."""
    made, events = adding_up(**CASES[case]), events_of(1)
    both = run(tmp_path, made, events)
    raw = [
        (source, offset, WINDOW + interval * HOUR, {"host": user.decode(), "url": json.loads(key), "amount": value})
        for source, offset, interval, _, user, key, value in events
    ]
    assert both.rows() == expected(made.settings, raw, secret=SECRET, epoch=EPOCH)
    assert sum(map(len, found_late(both)[1:])) > 5


def test_shares_that_follow_the_output_move_from_window_to_window_and_rows_of_all_add_up(tmp_path: Path) -> None:
    """Each window has a plan of its own, so rows of several noises, heights and addresses are in one sum."""
    made, events = adding_up(remember=4), events_of(6, large=12)
    both = run(tmp_path, made, events)
    raw = [
        (source, offset, WINDOW + interval * HOUR, {"host": user.decode(), "url": json.loads(key), "amount": value})
        for source, offset, interval, _, user, key, value in events
    ]
    plans = {bytes(row) for runner in both.releases for name, row in runner.state().items() if name[:1] == b"y"}
    assert len(plans) > 1, "of the last three windows, or shares never moved"
    assert both.rows() == expected(made.settings, raw, secret=SECRET, epoch=EPOCH)
    assert sum(map(len, found_late(both)[1:])) > 5


def test_a_level_without_keys_to_find_takes_no_part(tmp_path: Path) -> None:
    """The total over all keys is public, and measures no lists. In its partition it is the only key that is public before the
    last triggers."""
    grouped = {"topic": "raw", "user": "host", "key": ["url"], "null_key": "value", "grouping_sets": [["url"], []]}
    made, events = adding_up(input=grouped), events_of(7)
    both = run(tmp_path, made, events)
    raw = [
        (source, offset, WINDOW + interval * HOUR, {"host": user.decode(), "url": json.loads(key), "amount": value})
        for source, offset, interval, _, user, key, value in events
    ]
    levels = [expected(made.settings, raw, secret=SECRET, epoch=EPOCH, level=level) for level in (0, 1)]
    of_keys = {(*at, key.removeprefix(b'["a",')[:-1]): row for (*at, key), row in levels[0].items()}
    assert both.rows() == of_keys | {(*at, b"null"): row for (*at, _), row in levels[1].items()}
    assert sum(map(len, found_late(both)[1:])) > 5


def test_more_is_found_than_by_windows_alone(tmp_path: Path) -> None:
    events = events_of(2)
    alone, four = (found_late(run(tmp_path / f"{n}", adding_up(n), events)) for n in (1, 4))
    assert sum(map(len, four)) > sum(map(len, alone)) + 5


def test_keys_are_tested_on_days_on_which_nobody_brings_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever is the only one to bring a key would be seen. They are found only rarely, so tests are counted."""
    events = [event for event in events_of(3) if event[2] < LENGTH]
    tested: list[int] = []
    monkeypatch.setattr(EvidenceTest, "found", counting(tested))
    both = Both(tmp_path, adding_up(), events, last=last_of()).until(LENGTH - 1)
    brought = {key for *_, key, _ in events}
    unpublished = brought - {key for _, _, key in both.rows()}
    assert len(unpublished) > 20
    for day in range(1, DAYS):
        tested.clear()
        both.until((day + 1) * LENGTH - 1)
        unpublished -= {key for start, _, key in both.rows() if start < start_of(day)}
        assert sum(tested) == (len(unpublished) if day < 4 else 0), (
            "until all windows in which somebody came are too old"
        )


# ---- exactly once ----------------------------------------------------------------------------------------------------

ONCE: dict[str, Any] = {"remember": 4}
SHOWN = ("histogram", "latest", "progress", "ledger")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Both:
    both = run(tmp_path_factory.mktemp("quiet"), adding_up(**ONCE), events_of(4))
    assert sum(map(len, found_late(both)[1:])) > 5
    return both


def test_restarts_between_every_two_commits_of_last_triggers_change_no_byte(quiet: Both, tmp_path: Path) -> None:
    """Of the second and the third window: the first commit of each, the second, and the next window's first."""
    both = Both(tmp_path, adding_up(**ONCE), events_of(4), last=last_of())
    for day in (1, 2):
        end = (day + 1) * LENGTH - 1
        both.until(end - 1)
        while min(runner.meta["closed"] for runner in both.releases if runner.meta) < end:
            assert sum(both.commit(runner, 1) for runner in both.runners)
            for runner in both.runners:
                both.feed(runner)
                next(iter(runner.stage.commits(FAR)), None)  # made, and lost with its owner
                runner.restart()
            both.index.read_again()
    assert both.finish().outputs() == quiet.outputs()


@pytest.mark.parametrize("seed", range(2))
def test_restarts_and_spills_anywhere_change_no_byte(seed: int, quiet: Both, tmp_path: Path) -> None:
    both = Both(tmp_path, adding_up(**ONCE), events_of(4), last=last_of())
    dice = random.Random(seed)
    for _ in range(80):
        runner = dice.choice(both.runners)
        runner.stage._max_rows = dice.choice([50, 10**9])  # type: ignore[attr-defined]
        both.commit(runner, dice.choice([1, 2, 3]))
        if dice.random() < 0.3:
            runner.restart()
    assert both.finish().outputs() == quiet.outputs()
    assert [runner.state() for runner in both.releases] == [runner.state() for runner in quiet.releases]


@pytest.mark.parametrize("chunk", [1, 7])
def test_the_size_of_the_chunks_in_which_the_table_is_read_changes_no_byte(
    chunk: int, quiet: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("susurrus.agents.histogram.evidence._CHUNK", chunk)
    both = run(tmp_path, adding_up(**ONCE), events_of(4))
    assert both.outputs() == quiet.outputs()
    assert [runner.state() for runner in both.releases] == [runner.state() for runner in quiet.releases]


@pytest.mark.parametrize("chunk", [1, 7])
def test_the_size_of_the_chunks_in_which_keys_are_tested_changes_nothing_that_is_public(
    chunk: int, quiet: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the internal published-keys follows it; what is in there does not."""
    monkeypatch.setattr("susurrus.agents.histogram.evidence._CHUNK", chunk)
    monkeypatch.setattr("susurrus.agents.histogram.window_keys._CHUNK", chunk)
    both = run(tmp_path, adding_up(**ONCE), events_of(4))
    for mine, others in zip(both.releases, quiet.releases, strict=True):
        assert mine.to(*SHOWN) == others.to(*SHOWN)
        assert mine.state() == others.state()
    assert [published_since(both, day) for day in range(DAYS)] == [published_since(quiet, day) for day in range(DAYS)]


@pytest.mark.parametrize("change", ["a key less", "another row", "a window less", "none"])
def test_other_evidence_is_refused_before_anything_is_published(change: str, tmp_path: Path) -> None:
    done = run(tmp_path / "done", adding_up(), events_of(4))
    both = Both(tmp_path, adding_up(), events_of(4), last=last_of()).until(2 * LENGTH - 2)
    release = both.releases[0]
    # As an older copy of the state would have it: the ledger knows what was published since.
    release.services.ledger.records = dict(done.services.ledger.records)  # type: ignore[attr-defined]
    place = next(name for name in release.state() if name[:1] == (b"y" if change == "a window less" else b"x"))
    if change == "another row":
        row = bytearray(release.state()[place])
        row[-1] ^= 1
        release.store.write([(place, bytes(row))], [], [], meta=b"m")
    elif change != "none":
        release.store.write([], [place], [], meta=b"m")
    release.restart()
    if change == "none":
        both.until(2 * LENGTH - 1)
    else:
        with pytest.raises(
            ReplayMismatch, match=rf"trigger={LENGTH} of window={start_of(1)} was published from different"
        ):
            both.until(2 * LENGTH - 1)


def test_no_two_histories_have_one_digest(tmp_path: Path) -> None:
    """Rows say nothing without the noise of the days on which nobody came: of which windows, and by which plans."""
    a, b = b"a" * 32, b"b" * 32
    rows: list[dict[bytes, bytes]] = [
        {},
        {b"k": b"1"},
        {b"k": b"2"},
        {b"j": b"1"},
        {b"j": b"1", b"k": b"1"},
        {b"j1k": b"1"},
    ]
    windows: list[tuple[bytes | None, ...]] = [(a, None), (None, a), (b, None), (a, b), (b, a), (None, None)]
    digests = set()
    for number, known in enumerate(rows):
        store = Store(tmp_path / str(number))
        store.write([(b"x" + key, row) for key, row in known.items()], [], [], meta=b"m")
        for plans in windows:
            measured: Any = [
                None
                if plan is None
                else SimpleNamespace(strategy=SimpleNamespace(plan=SimpleNamespace(digest=lambda of=plan: of)))
                for plan in plans
            ]
            digests |= {EvidenceOf(WindowIndex(9), own, store, measured).digest() for own in (a, b)}
        store.close()
    assert len(digests) == len(rows) * len(windows), "the window's own plan is in its own digest"


# ---- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [2, 4])
def test_the_state_has_what_the_next_windows_need_and_no_more(windows: int, tmp_path: Path) -> None:
    events = events_of(5)
    # Of keys that no window tests nothing is kept.
    both = Both(tmp_path, adding_up(windows, keys={"declared": ["k3", "nobody"]}), events, last=last_of())
    first = both.services.ledger.first_window
    for day in range(DAYS):
        both.until((day + 1) * LENGTH - 1)
        kept = {name[1:] for runner in both.releases for name in runner.state() if name[:1] == b"x"}
        measured = {number_of(name[1:]) for runner in both.releases for name in runner.state() if name[:1] == b"y"}
        oldest = max(0, day - windows + 2)
        assert measured == {first + each for each in range(oldest, day + 1)}
        brought = {key for _, _, interval, _, _, key, _ in events if oldest <= interval // LENGTH <= day}
        named = {key for start, _, key in both.rows() if start >= start_of(oldest)}
        assert kept == (brought | named) - {b'"k3"', b'"nobody"'}


def test_memory_follows_the_keys_of_the_window_and_not_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody brings any of the keys that windows before have weighed, and all are tested."""
    monkeypatch.setattr("susurrus.agents.histogram.evidence._CHUNK", 200)
    monkeypatch.setattr("susurrus.agents.histogram.window_keys._CHUNK", 200)
    most = {}
    for stored in (1_000, 10_000):
        both = Both(tmp_path / str(stored), adding_up(), [], last=last_of()).until(2 * LENGTH - 2)
        release = both.releases[0]
        stage = release.stage
        assert isinstance(stage, ReleaseStage)
        window = WindowIndex(both.services.ledger.first_window + 1)
        some = ClosingRows(values=np.zeros(stored), users=np.ones(stored, np.int64), opened=np.ones(stored, np.bool_))
        rows = EvidenceStates.empty(stored, 3).after(some, np.zeros(stored, np.bool_)).pack(WindowIndex(window - 1))
        release.store.write([(b"x%06d" % key, row) for key, row in enumerate(rows)], meta=b"m")
        release.store.flush()
        release.store._clean = {}  # what was written last may be read from memory until the next flush
        tested: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(EvidenceTest, "found", counting(tested))
            gc.collect()
            tracemalloc.start()
            stage._last_trigger(window, Interval(2 * LENGTH - 1))
            most[stored] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert sum(tested) == stored
        assert max(tested) <= 200
    assert most[10_000] < 1.3 * most[1_000]


def counting(tested: list[int]) -> Any:
    """`EvidenceTest.found`, which also says how many keys of each step were in play."""
    found = EvidenceTest.found

    def counted(test: EvidenceTest, *arguments: Any, **constants: Any) -> Any:
        past: PastRows = arguments[3]
        tested.append(int((past.in_play & past.opened).any(axis=1).sum()))
        return found(test, *arguments, **constants)

    return counted


def test_keys_that_nothing_happens_to_are_not_written_again(tmp_path: Path) -> None:
    """Their rows say how old they are. So a commit has the keys of its window, however many others the table has."""
    events = [event for event in events_of(3) if event[2] < LENGTH]
    both = Both(tmp_path, adding_up(), events, last=last_of()).until(LENGTH - 1)
    rows = [{name: row for name, row in runner.state().items() if name[:1] == b"x"} for runner in both.releases]
    named = {key for _, _, key in both.rows()}
    both.until(2 * LENGTH - 1)
    news = {key for start, _, key in both.rows() if start == start_of(1)} - named
    for before, runner in zip(rows, both.releases, strict=True):
        after = {name: row for name, row in runner.state().items() if name[:1] == b"x"}
        assert len(before) > 20
        assert {name: row for name, row in after.items() if name[1:] not in news} == {
            name: row for name, row in before.items() if name[1:] not in news
        }


def test_without_the_option_there_is_no_such_state(tmp_path: Path) -> None:
    both = Both(tmp_path, adding_up(1), events_of(5), last=last_of()).finish()
    assert not [name for runner in both.releases for name in runner.state() if name[:1] in (b"x", b"y")]
