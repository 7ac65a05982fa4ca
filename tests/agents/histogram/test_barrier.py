"""The last trigger in two commits: rows are calibrated with those of all partitions, and no crash changes a byte."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.finding import waits
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.remembered import Memory
from susurrus.agents.histogram.services import HistogramServices
from susurrus.mechanisms.errors import Refusal, ReplayMismatch
from susurrus.mechanisms.histogram.calibration import LEAST_ROWS
from susurrus.topics import evidence, histogram, published_keys
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.partitioner import partition as partition_of
from tests.agents.histogram.test_release_stage import FAR, SOURCES, TRIGGERS, Lists, Row, log_of, services, slow
from tests.agents.stages import WINDOW, MemoryPublishedKeys, Runner

PARTITIONS = 3
LAST = TRIGGERS - 1
"""The interval at which the first window ends. The second has begun by then."""
PUBLIC = ("histogram", "latest", "progress", "ledger")


def ours(**sections: Any) -> HistogramServices:
    made = services(privacy={"strategy": "closing"}, topics={"bounded_partitions": PARTITIONS}, **sections)
    assert isinstance(made, HistogramServices)
    return made


def workload(seed: int, *, new: int = 300, known: int = 300) -> tuple[list[Row], Lists]:
    """Keys that are public early and measured again, and keys that only the lists find; some users' lists are long."""
    dice = random.Random(seed)
    rows: list[Row] = []
    lists: Lists = {}
    for number in range(known):
        users = dice.randrange(80, 600)
        rows += [
            (source, interval, 0, b'"k%d"' % number, users // 4, users)
            for source in range(SOURCES)
            for interval in (0, 1)
        ]
        lists[0, 0, b'"k%d"' % number] = (users, 0, round(users * dice.uniform(0.5, 0.9)) << 20)
    for number in range(new):
        users = dice.randrange(150, 400)
        lists[number % SOURCES, 0, b'"n%d"' % number] = (users, round(users * dice.uniform(0.7, 1.0)) << 20, 0)
        rows.append((0, dice.randrange(2, LAST), 0, b'"n%d"' % number, dice.randrange(1, 20), 1))
    rows += [(0, 5, 1, b'"k%d"' % number, 300, 2) for number in range(5)]
    return list({row[:4]: row for row in rows}.values()), lists


def logs_of(made: HistogramServices, rows: list[Row], lists: Lists) -> list[list[bytes]]:
    """bounded by partition."""
    keys = sorted({row[3] for row in rows} | {key for *_, key in lists})
    of = dict(zip(keys, partition_of(keys, PARTITIONS).tolist(), strict=True))
    return [
        log_of(
            [row for row in rows if of[row[3]] == number],
            made.config_digest,
            last=LAST,
            lists={place: row for place, row in lists.items() if of[place[2]] == number},
        )
        for number in range(PARTITIONS)
    ]


ROWS, LISTS = workload(1)


class Releases:
    """All partitions of release on one workload, and the topic between them."""

    def __init__(self, directory: Path, rows: list[Row] = ROWS, lists: Lists = LISTS, **sections: Any) -> None:
        self.services = ours(**sections)
        index = self.services.published_keys
        assert isinstance(index, MemoryPublishedKeys)
        self.index = index
        self.logs = logs_of(self.services, rows, lists)
        self.runners = [Runner(ReleaseStage, self.services, directory / str(n), n) for n in range(PARTITIONS)]

    def feed(self, number: int, upto: int = 10**9) -> None:
        self.runners[number].feed(self.logs[number], upto)

    def commit(self, number: int, limit: int = 10**9) -> int:
        return self.runners[number].commit(limit, now=FAR)

    def to_the_last_trigger(self, number: int) -> None:
        """All earlier intervals are closed."""
        self.feed(number)
        assert self.commit(number, LAST) == LAST
        assert self.runners[number].commits[-1].meta["closed"] == LAST - 1

    def restart(self, number: int) -> None:
        """A new owner, which reads again what was not committed."""
        self.runners[number].restart()
        self.feed(number)

    def finish(self) -> "Releases":
        """Until nothing moves any more."""
        self.index.reading = True
        self.index.read_again()
        for number in range(PARTITIONS):
            self.feed(number)
        while sum(self.commit(number) for number in range(PARTITIONS)):
            pass
        return self

    def outputs(self) -> list[list[Any]]:
        """What each partition has written, evidence included."""
        return [runner.to(*PUBLIC, "published-keys") for runner in self.runners]

    def rows(self, number: int) -> list[histogram.Row]:
        """The rows of the last trigger."""
        rows = [histogram.decode_row(value or b"") for *_, value, _ in self.runners[number].to("histogram")]
        return [row for row in rows if row.trigger == TRIGGERS]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    """What nobody disturbed."""
    return Releases(tmp_path_factory.mktemp("quiet")).finish()


def estimates(releases: Releases) -> dict[bytes, tuple[int | float, int | float]]:
    return {
        json.dumps(row.key).encode(): (row.values["visits"].estimate, row.values["paid"].estimate)
        for number in range(PARTITIONS)
        for row in releases.rows(number)
    }


def test_rows_are_calibrated_with_those_of_all_partitions(quiet: Releases) -> None:
    """Against one step per key and one calibration of all of them, in another order."""
    wanted = slow(quiet.services, ROWS, LISTS)
    last = {key: tuple(row) for (start, trigger, key), row in wanted.items() if (start, trigger) == (WINDOW, TRIGGERS)}
    assert estimates(quiet) == last
    rows = [row for number in range(PARTITIONS) for row in quiet.rows(number)]
    for found in (b"k", b"n"):
        mine = [row.values["visits"] for row in rows if row.key.encode()[:1] == found]
        assert len(mine) >= LEAST_ROWS
        assert sum(row.direct is not None and row.estimate != row.direct.estimate for row in mine) > len(mine) / 2
        # Only rows far from what is expected may have a larger error, by its rounding.
        ratios = [row.std_error / row.direct.std_error for row in mine if row.direct is not None]
        assert max(ratios) < 1.01
        assert np.mean(np.array(ratios) < 1) > 0.75


def test_only_the_last_trigger_and_only_columns_that_count_users_have_a_direct_pair(quiet: Releases) -> None:
    rows = [histogram.decode_row(value or b"") for runner in quiet.runners for *_, value, _ in runner.to("histogram")]
    assert {row.trigger for row in rows} > {1, TRIGGERS}
    for row in rows:
        assert (row.values["visits"].direct is not None) == (row.trigger == TRIGGERS)
        assert row.values["paid"].direct is None
    # The stream's errors are those of the trigger before, a little larger.
    errors = {row.trigger: row.values["visits"].std_error for row in rows}
    direct = {row.values["visits"].direct for row in rows} - {None}
    assert {round(pair.std_error, 6) for pair in direct if pair} == {round(next(iter(direct)).std_error, 6)}  # type: ignore[union-attr]
    assert next(iter(direct)).std_error > errors[TRIGGERS - 1]  # type: ignore[union-attr]


def own_rows_only(index: MemoryPublishedKeys) -> Callable[..., Any]:
    """The planted defect: each partition calibrates with its own rows."""
    pooled = index.pooled

    def alone(window: Any, interval: Any, asking: int) -> Any:
        found = pooled(window, interval, asking)
        return None if found is None else {asking: found[asking]}

    return alone


def test_a_release_that_calibrates_with_its_own_rows_is_seen(
    quiet: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Releases(tmp_path, *workload(1, new=800, known=800))
    whole = Releases(tmp_path / "whole", *workload(1, new=800, known=800)).finish()
    monkeypatch.setattr(broken.index, "pooled", own_rows_only(broken.index))
    broken.finish()
    for number in range(PARTITIONS):  # each has enough rows for a calibration of its own
        mine = [row.values["visits"] for row in broken.rows(number)]
        assert sum(row.direct is not None and row.estimate != row.direct.estimate for row in mine) > LEAST_ROWS
    assert set(estimates(broken)) == set(estimates(whole))
    assert estimates(broken) != estimates(whole)


def test_few_rows_keep_their_direct_pair(tmp_path: Path) -> None:
    few = Releases(tmp_path, *workload(1, new=60, known=60)).finish()
    rows = [row.values["visits"] for number in range(PARTITIONS) for row in few.rows(number)]
    assert len(rows) > 60
    assert all(row.direct is not None and row.estimate == row.direct.estimate for row in rows)
    assert all(row.direct is not None and row.std_error == row.direct.std_error for row in rows)


def test_the_rows_that_decide_which_keys_are_remembered_are_the_calibrated_ones(tmp_path: Path) -> None:
    """Those of the second commit."""
    releases = Releases(tmp_path, keys={"remember": 300}).finish()
    told = [published_keys.decode(value) for value in releases.index.log if kind_of(value) is Kind.BLOCK]
    start = WINDOW + (TRIGGERS - 2) * 3_600_000
    found = {
        key
        for block in told
        if block.interval == LAST
        for of, key in zip(block.window.tolist(), block.keys, strict=True)
        if of == start
    }
    rows = {json.dumps(row.key).encode(): row.values["visits"] for n in range(PARTITIONS) for row in releases.rows(n)}
    # The second window has begun, and has found keys itself.
    every = [
        histogram.decode_row(value or b"") for runner in releases.runners for *_, value, _ in runner.to("histogram")
    ]
    own = {json.dumps(row.key).encode() for row in every if row.window == start}
    calibrated = {key for key, row in rows.items() if row.estimate >= 300}
    assert found - own == calibrated - own
    assert len(calibrated) > 50
    kept = {
        key: number
        for runner in releases.runners
        if (of := Memory(releases.services, runner.store).of(releases.services.ledger.first_window + 1))
        for key, number in zip(of.keys, of.estimates[:, 0].tolist(), strict=True)
    }
    assert kept == {key: rows[key].estimate for key in calibrated}
    direct = {key: row.direct.estimate for key, row in rows.items() if row.direct is not None}
    assert sum(kept[key] != direct[key] for key in kept) > len(kept) / 2


# ---- the wait --------------------------------------------------------------------------------------------------------


def test_a_partition_alone_never_publishes_its_last_trigger(quiet: Releases, tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    for number in (0, 2):
        releases.feed(number)
        assert releases.commit(number) == LAST + 1
    for number in (0, 2):
        assert releases.commit(number) == 0
        assert releases.rows(number) == []
        assert releases.runners[number].stage.report()["interval"] == LAST - 1
        assert releases.runners[number].stage.stall(FAR) == waits(
            "release", f"interval={LAST} waits for the last rows of release 1", "see what status says of release"
        )
    releases.feed(1)
    assert releases.commit(1) == LAST + 2
    for number in (0, 2):
        assert releases.commit(number) == 1
        assert releases.runners[number].stage.stall(FAR) is None
    assert releases.outputs() == quiet.outputs()


def test_why_the_topic_cannot_be_read_is_said(tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    releases.feed(0)
    releases.commit(0)
    releases.index.unreadable = waits("published-keys", "topic=published-keys cannot be read", "look at brokers")
    releases.commit(0)
    assert releases.runners[0].stage.stall(FAR) == releases.index.unreadable


def test_the_first_commit_is_internal_and_names_no_key(tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    releases.to_the_last_trigger(0)
    before = releases.runners[0].state()
    assert releases.commit(0) == 1
    [output] = releases.runners[0].commits[-1].outputs
    assert output.topic == releases.services.topic("published-keys")
    written = b"".join(message["value"] for message in output.messages)
    assert not any(b'"%b"' % kind in written for kind in (b"k1", b"n1"))
    blocks = [evidence.decode(message["value"]) for message in output.messages]
    assert sum(map(len, blocks)) == blocks[0].total > LEAST_ROWS / 2
    assert releases.runners[0].state() == before


# ---- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", range(PARTITIONS))
def test_a_restart_before_the_first_commit_changes_no_byte(victim: int, quiet: Releases, tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    for number in range(PARTITIONS):
        releases.to_the_last_trigger(number)
    next(releases.runners[victim].stage.commits(FAR))  # made, and lost with its owner
    releases.restart(victim)
    assert releases.finish().outputs() == quiet.outputs()


@pytest.mark.parametrize("victim", range(PARTITIONS))
def test_a_restart_between_the_commits_changes_no_byte(victim: int, quiet: Releases, tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    for number in range(PARTITIONS):
        releases.to_the_last_trigger(number)
        assert releases.commit(number, 1) == 1
        assert releases.runners[number].commits[-1].meta["told"] == LAST
    for _ in range(2):
        releases.restart(victim)
        next(releases.runners[victim].stage.commits(FAR))  # the second commit, made and lost
    releases.restart(victim)
    assert releases.commit(victim) == 1
    assert releases.finish().outputs() == quiet.outputs()


def test_a_restart_behind_the_second_commit_changes_no_byte(quiet: Releases, tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    for number in range(PARTITIONS):
        releases.feed(number)
        releases.commit(number)
    for number in range(PARTITIONS):
        releases.commit(number)
        releases.restart(number)
        assert releases.commit(number) == 0
    assert releases.finish().outputs() == quiet.outputs()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_spill_between_the_commits_changes_no_byte(restarted: bool, quiet: Releases, tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    runner = releases.runners[0]
    releases.to_the_last_trigger(0)
    assert releases.commit(0) == 1
    runner.stage._max_rows = 1  # type: ignore[attr-defined]
    assert releases.commit(0) == 1
    assert runner.commits[-1].meta["spilled"] == {LAST: 3}
    assert any(name[:1] == b"o" for name in runner.state())
    if restarted:
        releases.restart(0)
    assert releases.finish().outputs() == quiet.outputs()
    assert not any(name[:1] == b"o" for name in runner.state())
    assert runner.commits[-1].meta["spilled"] == {}


@pytest.mark.parametrize("seed", range(4))
def test_restarts_anywhere_change_no_byte(seed: int, quiet: Releases, tmp_path: Path) -> None:
    dice = random.Random(seed)
    releases = Releases(tmp_path)
    for _ in range(60):
        number = dice.randrange(PARTITIONS)
        runner = releases.runners[number]
        runner.stage._max_rows = dice.choice([50, 10**9])  # type: ignore[attr-defined]
        releases.feed(number, runner.next + dice.randrange(1, 12))
        releases.commit(number, dice.choice([0, 1, 2, 100]))
        if dice.random() < 0.3:
            runner.restart()
        releases.index.reading = dice.random() < 0.8
        if releases.index.reading and dice.random() < 0.5:
            releases.index.read_again()
    assert releases.finish().outputs() == quiet.outputs()


# ---- lost state, lost records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["between the commits", "when all have published"])
def test_a_partition_without_state_finds_what_it_told_and_publishes_nothing_twice(
    when: str, quiet: Releases, tmp_path: Path
) -> None:
    """With a memory of keys, one that has lost which keys it remembers is refused once all have published (test_remembered.py)."""
    releases = Releases(tmp_path)
    if when == "when all have published":
        releases = Releases(tmp_path / "r", keys={"remember": 0}).finish()
        quiet = Releases(tmp_path / "quiet", keys={"remember": 0}).finish()
    else:
        for number in range(PARTITIONS):
            releases.feed(number)
            releases.commit(number, LAST + 1)
    releases.runners[1].restart(empty=True)
    releases.finish()
    for number in range(PARTITIONS):
        assert releases.runners[number].to(*PUBLIC) == quiet.runners[number].to(*PUBLIC)


def test_rows_of_other_data_than_were_told_are_never_published(tmp_path: Path) -> None:
    """Their state is lost, and what the others publish is calibrated with the rows they told before."""
    releases = Releases(tmp_path)
    for number in range(PARTITIONS):
        releases.feed(number)
        releases.commit(number, LAST + 1)
    place = next(place for place in LISTS if partition_of([place[2]], PARTITIONS)[0] == 1)
    users, weight, public = LISTS[place]
    changed = LISTS | {place: (users + 1, weight + (1 << 20), public + (1 << 20))}
    releases.logs = logs_of(releases.services, ROWS, changed)
    releases.runners[1].restart(empty=True)
    with pytest.raises(
        ReplayMismatch, match=rf"trigger={TRIGGERS} of window={WINDOW} was published from different data"
    ):
        releases.finish()
    assert releases.rows(1) == []


@pytest.mark.parametrize("fate", ["a piece", "all"])
def test_evidence_that_was_lost_is_refused(fate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = Releases(tmp_path)
    monkeypatch.setattr(HistogramServices, "max_record_bytes", 1000)
    for number in range(PARTITIONS):
        releases.feed(number)
        releases.commit(number, LAST + 1)
    releases.commit(1)
    told = [at for at, value in enumerate(releases.index.log) if kind_of(value) is Kind.EVIDENCE]
    of = [at for at in told if evidence.decode(releases.index.log[at]).partition == 1]
    assert len(of) > 2
    for at in reversed(of[:1] if fate == "a piece" else of):
        del releases.index.log[at]
    with pytest.raises(
        Refusal, match=rf"lacks rows of the last trigger of window={WINDOW}, .*: restore the topic as it was"
    ):
        releases.finish()
    assert releases.rows(0) == releases.rows(2) == []


def test_evidence_of_a_partition_without_keys_is_told_too(tmp_path: Path) -> None:
    releases = Releases(tmp_path, [], {}).finish()
    told = [evidence.decode(value) for value in releases.index.log if kind_of(value) is Kind.EVIDENCE]
    assert [(block.partition, block.total, block.last) for block in told] == [(n, 0, True) for n in range(PARTITIONS)]
    assert [runner.stage.report()["interval"] for runner in releases.runners] == [LAST] * PARTITIONS


def test_a_strategy_that_pools_no_rows_writes_no_evidence_and_no_mark(tmp_path: Path) -> None:
    plain = services()
    runner = Runner(ReleaseStage, plain, tmp_path)
    log = log_of(ROWS, plain.config_digest, last=LAST)
    runner.feed(log, len(log))
    assert runner.commit(now=FAR) == LAST + 1
    assert "told" not in (runner.meta or {})
    assert np.all([b'"direct"' not in (value or b"") for *_, value, _ in runner.to("histogram")])
