"""Keys that a window hands on to the next one: the same list on both sides, in every replay, and nothing but output in it."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import Refusal, ReplayMismatch
from susurrus.mechanisms.histogram import calibration, smoothing
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics import histogram, published_keys
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.histogram.test_bound_stage import block_of, closed
from tests.agents.released import settings
from tests.agents.stages import EPOCH, SECRET, WINDOW, MemoryPublishedKeys, Runner, number_of, services_of
from tests.reference import NO_LAST_LOOK, canonical, expected
from tests.reference import Memory as ReferenceMemory

HOUR = 3_600_000
LENGTH, WINDOWS, SOURCES, PARTITIONS = 4, 3, 2, 2
FAR = WINDOW + 1000 * HOUR
PUBLIC = ("histogram", "latest", "progress", "ledger", "published-keys")

Event = tuple[int, int, int, int, bytes, bytes, int]
"""(source, raw offset, interval, window start, user, key, value), as bound gets them."""


def ours(*, late: int = 0, every: int = 1, remember: int | None = 6, **sections: Any) -> HistogramServices:
    """With the digest of a pipeline, so that its noise is that of the reference."""
    given: dict[str, Any] = {
        "input": {"topic": "raw", "user": "host", "key": ["url"], "null_key": "value"},
        "start": {"from": "earliest", "first_window": WINDOW, "epoch": EPOCH},
        "window": {
            "length": LENGTH * HOUR, "trigger_every": every * HOUR, "allowed_lateness": late * HOUR, "origin": WINDOW,
        },
        "clock": {"kind": "replay", "until": FAR},
        "bounds": {"max_records_per_user": 8},
        "columns": [
            {"name": "visits", "kind": "count"},
            {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
        ],
        "topics": {"by_user_partitions": 1, "bounded_partitions": PARTITIONS},
        "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "closing", **sections.pop("privacy", {})},
        "keys": {**({} if remember is None else {"remember": remember}), **sections.pop("keys", {})},
    }  # fmt: skip
    configured = settings(**{**given, **sections})
    made = services_of(configured, sources=SOURCES)
    plans = b"".join(each.digest() for each in configured.plans())
    digest = hashlib.blake2b(configured.config_digest() + plans, digest_size=32, person=b"susurrus-digest").digest()
    assert made.published_keys is not None
    made.published_keys._digest = digest
    return replace(made, config_digest=digest)


def events_of(
    seed: int, *, windows: int = WINDOWS, late: int = 0, least: int = 30, most: int = 120, keys: int = 40
) -> list[Event]:
    """Keys of 30 to 120 users, most of which come back in the next window; some do not, and others are new there."""
    dice = random.Random(seed)
    found: list[tuple[int, int, int, bytes, bytes, int]] = []
    for window in range(windows):
        start = WINDOW + window * LENGTH * HOUR
        brought = []
        for key in range(keys):
            if (key + 3 * window) % 10 < 7:
                brought += [(key, who) for who in dice.sample(range(900), dice.randrange(least, most))]
        dice.shuffle(brought)
        for key, who in brought:
            interval, source = window * LENGTH + dice.randrange(LENGTH + late), dice.randrange(SOURCES)
            found.append((interval, source, start, b'"u%d"' % who, b'"k%d"' % key, dice.randrange(-50, 51)))
    found.sort(key=lambda event: event[0])
    return [(source, offset, interval, *of) for offset, (interval, source, *of) in enumerate(found)]  # type: ignore[misc]


class Both:
    """A bound, all partitions of release behind it, and the topics between them."""

    def __init__(self, directory: Path, services: HistogramServices, events: list[Event], *, last: int | None = None):
        self.services = services
        index = services.published_keys
        assert isinstance(index, MemoryPublishedKeys)
        self.index = index
        self.last = (
            services.calendar.last_interval(services.ledger.first_window + WINDOWS - 1) if last is None else last
        )
        blocks = [
            block_of(mine)
            for interval in range(self.last + 1)
            for source in range(SOURCES)
            if (mine := [event for event in events if (event[2], event[0]) == (interval, source)])
        ]
        self.raw = closed(services, blocks, self.last)
        self.bound = Runner(BoundStage, services, directory / "b", 0)
        self.releases = [Runner(ReleaseStage, services, directory / f"r{n}", n) for n in range(PARTITIONS)]
        self.runners = [self.bound, *self.releases]
        self.bounded: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._seen = 0

    def feed(self, runner: Runner) -> None:
        runner.feed(self.raw if runner is self.bound else self.bounded[self.releases.index(runner)], 10**9)

    def commit(self, runner: Runner, limit: int = 10**9) -> int:
        """Whatever is there to read is read first."""
        self.feed(runner)
        number = runner.commit(limit, now=FAR)
        for topic, partition, _, value, _ in self.bound.written[self._seen :]:
            if topic == self.services.topic("bounded") and value is not None:
                self.bounded[partition].append(value)
        self._seen = len(self.bound.written)
        return number

    def until(self, interval: int) -> "Both":
        """One commit at a time, until every partition of release has closed the interval."""
        while min((runner.meta or {"closed": -1})["closed"] for runner in self.releases) < interval:
            moved = 0
            for runner in self.runners:
                if (runner.meta or {"closed": -1})["closed"] < interval + (runner is self.bound):
                    moved += self.commit(runner, 1)
            assert moved
        return self

    def finish(self) -> "Both":
        while sum(self.commit(runner) for runner in self.runners):
            pass
        assert [runner.meta and runner.meta["closed"] for runner in self.releases] == [self.last] * PARTITIONS
        return self

    def outputs(self) -> list[Any]:
        return [self.bound.to("bounded"), *(runner.to(*PUBLIC) for runner in self.releases)]

    def rows(self) -> dict[tuple[int, int, bytes], list[int]]:
        """(window start, trigger, key) -> estimates."""
        rows = [histogram.decode_row(v or b"") for runner in self.releases for *_, v, _ in runner.to("histogram")]
        return {
            (row.window, row.trigger, canonical(row.key)): [row.values[name].estimate for name in ("visits", "paid")]  # type: ignore[misc]
            for row in rows
        }

    def handed_on(self, window: int) -> set[bytes]:
        """The list of a window, as bound is told it at the last interval of the window before; without lateness."""
        return {key for key, interval in published_since(self, window).items() if interval == window * LENGTH - 1}


def start_of(window: int) -> int:
    return WINDOW + window * LENGTH * HOUR


CASES: dict[str, dict[str, Any]] = {
    "by default": {},
    "few": {"remember": 60},
    "declared": {"keys": {"declared": ["k3", "nobody"]}},
    "lag": {"privacy": {"closing": {"lag": 3}}},
    "lag of the whole window": {"privacy": {"closing": {"lag": LENGTH}}, "keys": {"declared": ["k3"]}},
    "longer lag": {"privacy": {"closing": {"lag": LENGTH + 1}}},
    "no last look": {"privacy": {"closing": NO_LAST_LOOK}},
    "nothing": {"remember": 0},
}


@pytest.mark.parametrize("case", CASES)
def test_a_window_is_that_of_the_slow_reference_with_the_list_declared(case: str, tmp_path: Path) -> None:
    made, events = ours(**CASES[case]), events_of(1)
    both = Both(tmp_path, made, events).finish()
    raw = [
        (source, offset, WINDOW + interval * HOUR, {"host": json.loads(user), "url": json.loads(key), "amount": value})
        for source, offset, interval, _, user, key, value in events
    ]
    memory = ReferenceMemory()
    assert both.rows() == expected(made.settings, raw, secret=SECRET, epoch=EPOCH, memory=memory)
    for window in range(1, WINDOWS):
        named = {key for start, trigger, key in both.rows() if (start, trigger) == (start_of(window), 1)}
        handed_on = both.handed_on(window)
        assert handed_on == set(memory.lists.get(start_of(window), ()))
        assert named >= set(made.settings.declared_keys)
        if made.settings.remember == 6:
            assert 15 < len(handed_on) < 40
            assert 5 < len(named & handed_on) < len(handed_on), "the others' rows are too small to mean something"
        else:
            assert len(named) < 25


@pytest.mark.parametrize("case", ["by default", "declared", "lag", "lag of the whole window"])
def test_calibrated_and_smoothed_rows_are_those_of_the_slow_reference(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are calibrated and smoothed here as many are: then rows show what each key weighed in the users' lists."""
    made, events = ours(**CASES[case]), events_of(1)
    direct = Both(tmp_path / "direct", made, events).finish().rows()
    monkeypatch.setattr(calibration, "LEAST_ROWS", 6)
    monkeypatch.setattr(smoothing, "LEAST_ROWS", 6)
    rows = Both(tmp_path / "calibrated", ours(**CASES[case]), events).finish().rows()
    raw = [
        (source, offset, WINDOW + interval * HOUR, {"host": json.loads(user), "url": json.loads(key), "amount": value})
        for source, offset, interval, _, user, key, value in events
    ]
    assert rows == expected(made.settings, raw, secret=SECRET, epoch=EPOCH)
    last = {at for at in direct.keys() & rows.keys() if at[1] == LENGTH and at[0] > WINDOW}
    assert sum(rows[at] != direct[at] for at in last) > 5


def test_a_key_is_forgotten_when_its_row_falls_below_the_threshold(tmp_path: Path) -> None:
    events = [event for event in events_of(2) if event[3] == WINDOW]
    both = Both(tmp_path, ours(), events).finish()
    first, second, third = (both.handed_on(window) for window in (1, 2, 3))
    assert len(first) > 20
    assert second < first  # of rows without a user, those that noise lifts
    assert len(second) < len(first) / 2
    assert third <= second
    assert {key for start, _, key in both.rows() if start == start_of(1)} < first


@pytest.mark.parametrize("late", [0, LENGTH])
def test_a_window_of_one_interval_hands_on_too(late: int, tmp_path: Path) -> None:
    """With lateness its list enters at its last trigger, which looks back at the interval that made the list."""
    events: list[Event] = [(e[0], e[1], e[2] // LENGTH, *e[3:]) for e in events_of(3)]
    made = ours(late=late, every=LENGTH)
    both = Both(tmp_path, made, events)
    assert made.calendar.triggers == 1 + late // LENGTH
    lists = lists_of(both)
    both.finish()
    for window, handed_on in lists.items():
        entered = {k for start, trigger, k in both.rows() if (start, trigger) == (start_of(window), 1 + late // LENGTH)}
        last = made.calendar.last_interval(made.ledger.first_window + window - 1)
        index = published_since(both, window)
        assert len(handed_on) > 15
        assert all(index[key] <= last for key in handed_on)
        assert len(entered & handed_on) > 5


@pytest.mark.parametrize("late", [1, 2, LENGTH, LENGTH + 1])
def test_with_lateness_the_list_enters_behind_the_last_row_that_made_it(late: int, tmp_path: Path) -> None:
    made = ours(late=late)
    both = Both(tmp_path, made, events_of(3, late=late))
    lists = lists_of(both)
    both.finish()
    for window, handed_on in lists.items():
        assert len(handed_on) > 15
        of = {
            trigger: {k for start, at, k in both.rows() if (start, at) == (start_of(window), trigger)}
            for trigger in range(1, made.calendar.triggers + 1)
        }
        assert not handed_on <= of[late]
        index = published_since(both, window)
        for key in handed_on:
            at = next((trigger for trigger in range(1, late + 1) if key in of[trigger]), late)
            assert index[key] == window * LENGTH + at - 1
            if key in of[late]:
                assert all(key in of[trigger] for trigger in range(late, made.calendar.triggers + 1)), "it was found"


def lists_of(both: Both) -> dict[int, set[bytes]]:
    """Window -> its list, from the states as soon as they have it."""
    lists, made = {}, both.services
    for window in range(1, WINDOWS):
        both.until(made.calendar.last_interval(made.ledger.first_window + window - 1))
        memories = [Memory(made, runner.store) for runner in both.releases]
        lists[window] = {key for memory in memories for key in memory.of(made.ledger.first_window + window).keys}
    return lists


def published_since(both: Both, window: int) -> dict[bytes, int]:
    """Key -> the interval since which a reader of the topic knows it."""
    since: dict[bytes, int] = {}
    for value in both.index.log:
        if kind_of(value) is Kind.BLOCK:
            block = published_keys.decode(value)
            for start, key in zip(block.window.tolist(), block.keys, strict=True):
                if start == start_of(window):
                    since.setdefault(key, block.interval)
    return since


def test_the_first_interval_of_a_window_waits_for_the_last_of_the_one_before(tmp_path: Path) -> None:
    both = Both(tmp_path, ours(), events_of(1)).until(LENGTH - 2)
    both.commit(both.bound)
    assert both.bound.meta is not None
    assert both.bound.meta["closed"] == LENGTH - 1
    assert str(both.bound.stage.stall(0)) == (
        f"interval={LENGTH} waits for interval={LENGTH - 1} of release 0, 1, whose last rows of a window say which keys are "
        "remembered; see what status says of release"
    )
    both.until(LENGTH - 1)
    both.commit(both.bound)
    assert both.bound.meta["closed"] == LENGTH
    assert "remembered" not in str(both.bound.stage.stall(0))


# ---- exactly once ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[{}, {"late": 2, "privacy": {"closing": {"lag": 2}}}], ids=["", "late"])
def quiet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Both]:
    """(what the pipeline is, what nobody disturbed)."""
    late = request.param.get("late", 0)
    return request.param, Both(
        tmp_path_factory.mktemp("quiet"), ours(**request.param), events_of(4, late=late)
    ).finish()


def test_restarts_between_every_two_commits_around_the_hand_over_change_no_byte(
    quiet: tuple[Any, Both], tmp_path: Path
) -> None:
    """Of every partition of every stage, from before the last trigger of the first window until the second has begun."""
    sections, undisturbed = quiet
    late = sections.get("late", 0)
    both = Both(tmp_path, ours(**sections), events_of(4, late=late))
    last = both.services.calendar.last_interval(both.services.ledger.first_window)
    both.until(last - 1)
    while min(runner.meta["closed"] for runner in both.releases if runner.meta) < last + 2:
        assert sum(both.commit(runner, 1) for runner in both.runners)
        for runner in both.runners:
            both.feed(runner)
            next(iter(runner.stage.commits(FAR)), None)  # made, and lost with its owner
            runner.restart()
        both.index.read_again()
    assert both.finish().outputs() == undisturbed.outputs()


@pytest.mark.parametrize("seed", range(3))
def test_restarts_and_spills_anywhere_change_no_byte(seed: int, quiet: tuple[Any, Both], tmp_path: Path) -> None:
    sections, undisturbed = quiet
    both = Both(tmp_path, ours(**sections), events_of(4, late=sections.get("late", 0)))
    dice = random.Random(seed)
    for _ in range(80):
        runner = dice.choice(both.runners)
        runner.stage._max_rows = dice.choice([200, 10**9])  # type: ignore[attr-defined]
        both.commit(runner, dice.choice([1, 2, 3]))
        if dice.random() < 0.3:
            runner.restart()
        if dice.random() < 0.2:
            both.index.read_again()
    assert both.finish().outputs() == undisturbed.outputs()


def test_a_reader_that_begins_in_mid_window_finds_the_list_behind_a_purge(
    quiet: tuple[Any, Both], tmp_path: Path
) -> None:
    """At every interval of the second window: the topic begins where `purge_before` lets it begin."""
    sections, undisturbed = quiet
    made = ours(**sections)
    both = Both(tmp_path, made, events_of(4, late=sections.get("late", 0)))
    calendar, first = made.calendar, made.ledger.first_window
    purged = []
    for interval in range(calendar.last_interval(first), calendar.last_interval(first + 1)):
        both.until(interval)
        begin = both.index.purge_before()
        purged.append(begin)
        both.index.clear()
        for offset, value in enumerate(both.index.log):
            if offset >= begin:
                both.index.take(value, offset)
        for runner in both.runners:
            runner.restart()
    assert purged[-1] > 0
    assert both.finish().outputs() == undisturbed.outputs()


def test_a_list_that_was_lost_from_the_topic_is_noticed(tmp_path: Path) -> None:
    made = ours()
    both = Both(tmp_path, made, events_of(4)).until(LENGTH - 1)
    # The records of the last interval alone: units of the window, and the list of the next.
    [at] = [
        at for at, value in enumerate(both.index.log)
        if kind_of(value) is Kind.BLOCK and (b := published_keys.decode(value)).interval == LENGTH - 1 and b.partition == 1
    ]  # fmt: skip
    block = published_keys.decode(both.index.log[at])
    both.index.log[at] = published_keys.encode(replace(block.take(slice(0, len(block) // 2))))
    both.index.read_again()
    with pytest.raises(Refusal, match=rf"lacks keys that were published in window={start_of(1)}"):
        both.finish()


@pytest.mark.parametrize("change", ["a key less", "another row", "none"])
def test_another_list_is_refused_before_anything_is_published(change: str, tmp_path: Path) -> None:
    """Release's state is another than the one from which the second window's first trigger was published."""
    made = ours()
    both = Both(tmp_path, made, events_of(4)).until(LENGTH)
    release = both.releases[0]
    written = list(release.written)
    state, meta, position = release.state(), release.meta, release.position
    place = next(name for name in state if name[:1] == b"m")
    assert number_of(place[1:]) == 1
    # As an older copy of the state would have it, with the mark of what is closed set back.
    assert meta is not None
    before = Both(tmp_path / "again", ours(), events_of(4)).until(LENGTH - 1).releases[0]
    assert before.state()[place] == state[place]
    if change == "a key less":
        before.store.write([], [place], [], meta=b"m")
    elif change == "another row":
        row = bytearray(state[place])
        row[-1] ^= 1
        before.store.write([(place, bytes(row))], [], [], meta=b"m")
    before.services.ledger.records = dict(made.ledger.records)  # type: ignore[attr-defined]
    before.restart()
    before.feed(both.bounded[0], 10**9)
    if change == "none":
        before.commit(1, now=FAR)
        assert before.to("histogram") == [row for row in release.to("histogram") if row in before.to("histogram")]
    else:
        with pytest.raises(
            ReplayMismatch,
            match=rf"trigger=1 of window={start_of(1)} was published from different data or with another list of keys that "
            r"are remembered from the window before, .* run `susurrus ledger new-epoch`",
        ):
            before.commit(now=FAR)
    assert release.written == written
    assert position == release.position


@pytest.mark.parametrize("change", ["another row", "none"])
def test_a_last_trigger_at_which_the_list_enters_is_known_again_by_it(change: str, tmp_path: Path) -> None:
    """Windows of one interval. The same list: the trigger is public, so its rows are not calibrated a second time. Another one is
    refused before anything is told of its rows."""
    events: list[Event] = [(e[0], e[1], e[2] // LENGTH, *e[3:]) for e in events_of(4)]
    done = Both(tmp_path / "done", ours(every=LENGTH), events).until(1)
    both = Both(tmp_path / "again", ours(every=LENGTH), events).until(0)
    release = both.releases[0]
    # As an older copy of the state would have it: the ledger knows what was published since.
    release.services.ledger.records = dict(done.services.ledger.records)  # type: ignore[attr-defined]
    if change != "none":
        place = next(name for name in release.state() if name[:1] == b"m")
        row = bytearray(release.state()[place])
        row[-1] ^= 1
        release.store.write([(place, bytes(row))], [], [], meta=b"m")
    release.restart()
    told = len(both.index.log)
    if change == "none":
        with pytest.raises(Refusal, match="has lost which keys are remembered"):
            both.until(1)
        assert len(both.index.log) > told
    else:
        with pytest.raises(ReplayMismatch, match="or with another list of keys that are remembered"):
            both.until(1)
        assert len(both.index.log) == told


def test_last_rows_that_cannot_be_calibrated_again_make_no_list(tmp_path: Path) -> None:
    """All state is lost, and what the others have told is gone: direct rows would make another list than the published ones."""
    both = Both(tmp_path, ours(), events_of(4)).until(LENGTH)
    release = both.releases[0]
    written = list(release.to("histogram", "latest", "progress"))
    release.restart(empty=True)
    with pytest.raises(Refusal, match=r"has lost which keys are remembered from window=.*new-epoch"):
        both.finish()
    assert release.to("histogram", "latest", "progress") == written


# ---- state -----------------------------------------------------------------------------------------------------------


def test_the_list_is_in_the_state_from_the_last_trigger_until_the_next_windows_and_no_longer(tmp_path: Path) -> None:
    both = Both(tmp_path, ours(), events_of(5))
    for interval in range(both.last + 1):
        both.until(interval)
        found = {(number_of(name[1:]), name[9:]) for r in both.releases for name in r.state() if name[:1] == b"m"}
        window = (interval + 1) // LENGTH
        assert {of for of, _ in found} == ({window} if window else set())
        if window:
            assert {key for _, key in found} == both.handed_on(window)


def test_the_state_has_the_rates_by_the_last_rows_of_the_columns_that_count(tmp_path: Path) -> None:
    both = Both(tmp_path, ours(), events_of(5)).until(LENGTH - 1)
    errors = {
        canonical(row.key): row.values["visits"].std_error
        for runner in both.releases
        for *_, value, _ in runner.to("histogram")
        if (row := histogram.decode_row(value or b"")).trigger == LENGTH
    }
    rows, found = both.rows(), set()
    for runner in both.releases:
        memory = Memory(both.services, runner.store)
        assert memory.columns == [0]
        of = memory.of(both.services.ledger.first_window + 1)
        assert of.keys == sorted(of.keys)
        assert len(of) > 5
        found |= set(of.keys)
        assert of.estimates[:, 0].tolist() == [rows[WINDOW, LENGTH, key][0] for key in of.keys]
        # Their errors, and one draw of a number of users by its rate.
        drawn = [errors[key] ** 2 + rows[WINDOW, LENGTH, key][0] for key in of.keys]
        assert of.variances[:, 0] == pytest.approx(drawn, rel=1e-6)
    assert found == {key for (_, trigger, key), row in rows.items() if trigger == LENGTH and row[0] >= 6}


def some(keys: list[bytes], estimates: list[float]) -> Remembered:
    column = np.array(estimates)[:, None]
    return Remembered(keys=keys, estimates=column, variances=np.square(column))


def test_no_two_lists_have_one_digest() -> None:
    lists = [
        some([], []), some([b'"a"'], [7.0]), some([b'"a"'], [8.0]), some([b'"b"'], [7.0]), some([b'"a"', b'"b"'], [7.0, 7.0]),
        some([b'"a""', b'b"'], [7.0, 7.0]), some([b'"a"', b'"b"'], [7.0, 8.0]),
    ]  # fmt: skip
    assert len({each.digest() for each in lists}) == len(lists)
    assert some([b'"a"'], [7.0]).digest() == lists[1].digest()


def test_state_of_another_version_is_refused() -> None:
    [value] = some([b'"a"'], [7.0]).packed()
    assert Remembered.unpack([b'"a"'], [value], 1).digest() == some([b'"a"'], [7.0]).digest()
    for other in (b"\x02" + value[1:], value[:-1], value + b"\0"):
        with pytest.raises(Refusal, match="another format"):
            Remembered.unpack([b'"a"'], [other], 1)


# ---- what the list may follow from -------------------------------------------------------------------------------------


def surprises(both: Both) -> int:
    """Keys that whoever reads the first window's rows expects to be public in the second, and that are not. In the first window,
    nothing is remembered, so every row is shown."""
    least, rows = both.services.settings.remember, both.rows()
    expects = {key for (start, at, key), row in rows.items() if (start, at) == (WINDOW, LENGTH) and row[0] >= least}
    return len(expects - both.handed_on(1))


def by_exact_counts(counts: dict[bytes, int], least: int) -> Any:
    """The planted defect: a list of the rows whose keys had enough users."""
    choose = Memory._chosen

    def chosen(memory: Memory, rows: SortedRows) -> Remembered:
        memory._least = -(10**9)
        everything = choose(memory, rows)
        return everything.take(np.array([counts[key] >= least for key in everything.keys], np.bool_))

    return chosen


def test_who_reads_the_first_window_knows_the_list_and_one_from_exact_counts_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = events_of(6, windows=2, least=52, most=68)
    keys = {event[5] for event in events}
    counts = {key: len({e[4] for e in events if e[3] == WINDOW and e[5] == key}) for key in keys}
    sound = Both(tmp_path / "sound", ours(remember=60), events, last=LENGTH).finish()
    assert surprises(sound) == 0
    monkeypatch.setattr(Memory, "_chosen", by_exact_counts(counts, 60))
    broken = Both(tmp_path / "broken", ours(remember=60), events, last=LENGTH).finish()
    assert surprises(broken) > 1


TRIALS = 8_000
"""Keys, each with noise of its own, of one input."""


def two_windows(
    directory: Path, users: int, least: int, chosen: Any = Memory._chosen
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What an attack sees of each key that so many users brought: its last row in the first window, and whether the second
    names it at its beginning."""
    made = ours(remember=least)
    strategy = made.strategy
    keys = [b'"%06d"' % number for number in range(TRIALS)]
    noise = NoiseSource(
        SECRET, epoch=bytes.fromhex(EPOCH), config=made.config_digest + b"%d" % users, pipeline="p"
    ).window(made.ledger.first_window)
    column = np.full((TRIALS, strategy.plan.width), users, np.int64)
    none = np.zeros(TRIALS, np.int64)
    step = strategy.step(
        Trigger(LENGTH),
        keys,
        strategy.empty(TRIALS),
        Increments(users=none, weight=none, sums=column, lists=ListSums.of(np.zeros((TRIALS, 3), np.int64), none)),
        noise,
        np.ones(TRIALS, np.bool_),
    )
    rows = SortedRows(keys=keys, estimates=step.estimates, std_errors=step.std_errors, direct=None)
    store = Store(directory)
    memory = Memory(made, store)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Memory, "_chosen", chosen)
        following, of = memory.hand_on(made.ledger.first_window, rows, commit := Commit(position=Offset(0), meta={}))
    store.write(commit.puts, [], commit.drops, meta=b"m")
    entering = Memory(made, store).entering(following, Trigger(1))
    store.close()
    assert entering is not None
    assert entering.keys == of.keys
    named = set(entering.keys)
    return step.estimates[:, 0], np.array([key in named for key in keys])


def refuted(first: tuple[Any, Any], second: tuple[Any, Any], least: int) -> float:
    """The largest epsilon that the samples of two neighbouring inputs refute at 99.99 %, at the pipeline's delta, by any of the
    attack's events: the name, the row, and the name against what the row says."""
    found = 0.0
    for one, other in ((first, second), (second, first)):
        for event in (
            lambda row, named: named,
            lambda row, named: ~named,
            lambda row, named: row >= least,
            lambda row, named: named & (row < least),
            lambda row, named: ~named & (row >= least),
        ):
            hits, others = int(event(*one).sum()), int(event(*other).sum())
            low = beta.ppf(5e-5, hits, TRIALS - hits + 1) if hits else 0.0
            high = beta.ppf(1 - 5e-5, others + 1, TRIALS - others) if others < TRIALS else 1.0
            if low > 1e-9:
                found = max(found, float(np.log((low - 1e-9) / high)))
    return found


@pytest.mark.statistical
def test_the_list_says_no_more_than_the_rows_and_one_from_exact_counts_refutes_the_promise(tmp_path: Path) -> None:
    """Neighbours differ in one user of the key, whose row is near the threshold. The attack has the rows of the first window."""
    least = 60
    sound = [two_windows(tmp_path / f"s{users}", users, least) for users in (59, 60)]
    for row, named in sound:
        assert np.array_equal(named, row >= least)
        assert 0.3 < named.mean() < 0.7
    assert refuted(*sound, least) < 1
    defect = by_exact_counts({b'"%06d"' % number: 60 for number in range(TRIALS)}, least)
    fewer = by_exact_counts({b'"%06d"' % number: 59 for number in range(TRIALS)}, least)
    broken = [two_windows(tmp_path / "b59", 59, least, fewer), two_windows(tmp_path / "b60", 60, least, defect)]
    assert refuted(*broken, least) > 6
