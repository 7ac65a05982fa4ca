"""release against a step over every key at every trigger; what is published once is never published again."""

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.release import Release
from susurrus.agents.histogram.state_keys import ordered
from susurrus.agents.services import Services
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.strategy import Increments
from susurrus.topics import bounded, histogram, progress, published_keys, tick
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.partitioner import partition as partition_of
from tests.agents.released import settings
from tests.agents.stages import EPOCH, SECRET, WINDOW, Runner, Written, services_of

HOUR = 3_600_000
SLOTS, LATE = 4, 2
TRIGGERS = SLOTS + LATE
SOURCES = 2
WINDOWS = 3
LAST = WINDOWS * SLOTS + LATE - 1
FAR = WINDOW + 1000 * HOUR

Row = tuple[int, int, int, bytes, int, int]
"""(by-user partition, slot, window, key, users, sum)."""


def services(*, charged: bool = True, **sections: Any) -> Services:
    configured = settings(
        start={"from": "earliest", "first_window": WINDOW, "epoch": EPOCH},
        window={
            "length": SLOTS * HOUR, "trigger_every": HOUR, "allowed_lateness": LATE * HOUR, "origin": WINDOW,
            **sections.pop("window", {}),
        },
        bounds={"max_records_per_user": 2},
        columns=[
            {"name": "visits", "kind": "count"},
            {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
        ],
        privacy={"epsilon": 6.0, "delta": 1e-9, **sections.pop("privacy", {})},
        topics={"by_user_partitions": SOURCES, "bounded_partitions": 1, **sections.pop("topics", {})},
        **{"clock": {"kind": "replay", "until": FAR}, **sections},
    )  # fmt: skip
    return services_of(configured, charged=charged)


def random_rows(seed: int, *, keys: int = 12) -> list[Row]:
    dice = random.Random(seed)
    rows: dict[tuple[int, int, int, bytes], Row] = {}
    for _ in range(150):
        slot = dice.randrange(LAST + 1)
        window = dice.choice(
            [w for w in (slot // SLOTS, slot // SLOTS - 1) if 0 <= w < WINDOWS and slot - w * SLOTS < TRIGGERS]
        )
        key = b'"k%d"' % int(dice.expovariate(4 / keys))
        source = dice.randrange(SOURCES)
        rows[source, slot, window, key] = (source, slot, window, key, dice.randrange(1, 40), dice.randrange(-300, 300))
    return list(rows.values())


def log_of(rows: list[Row], digest: bytes, seed: int = 0, last: int = LAST) -> list[bytes]:
    """bounded as two by-user partitions write it in turn: for every slot its block, if any, then the tick."""
    dice = random.Random(seed)
    slots = [0] * SOURCES
    log = []
    while min(slots) <= last:
        source = dice.choice([s for s in range(SOURCES) if slots[s] <= last])
        slot = slots[source]
        mine = [row for row in rows if row[:2] == (source, slot)]
        if mine:
            users = np.array([row[4] for row in mine], np.int64)
            log.append(
                bounded.encode(
                    BoundedBlock(
                        partition=source,
                        slot=slot,
                        window=np.array([WINDOW + row[2] * SLOTS * HOUR for row in mine], np.int64),
                        keys=[row[3] for row in mine],
                        users=users,
                        weight=users << 20,
                        sums=np.array([[row[4], row[5]] for row in mine], np.int64),
                    )
                )
            )
        if mine or dice.random() < 0.7 or slot == last:  # a partition without records may skip ticks
            log.append(tick.encode(tick.Tick(source, slot, digest, SOURCES if source == 0 else None)))
        slots[source] += 1
    return log


Published = dict[tuple[int, int, bytes], list[int]]
"""(window start, trigger, key) -> estimates in grid units."""


def slow(services: Services, rows: list[Row]) -> Published:
    """Every key at every trigger."""
    strategy, columns = services.strategy, len(services.strategy.plan.columns)
    source = NoiseSource(
        SECRET, epoch=bytes.fromhex(EPOCH), config=services.config_digest, pipeline=services.settings.pipeline.name
    )
    result: Published = {}
    declared = set(services.settings.declared_keys)
    for window in range(WINDOWS + 1):
        noise = source.window(window)
        states: dict[bytes, bytes] = {}
        for trigger in [t for w, t in PLACES if w == window]:
            users: dict[bytes, int] = defaultdict(int)
            sums: dict[bytes, int] = defaultdict(int)
            for _, slot, of, key, number, paid in rows:
                if of == window and slot - window * SLOTS + 1 == trigger:
                    users[key] += number
                    sums[key] += paid
            for key in sorted({*states, *users, *declared}):
                step = strategy.step(
                    trigger,
                    [key],
                    strategy.unpack([states[key]]) if key in states else strategy.empty(1),
                    Increments(
                        users=np.array([users[key]], np.int64),
                        weight=np.array([users[key] << 20], np.int64),
                        sums=np.array([[users[key], sums[key]]], np.int64).reshape(1, columns),
                    ),
                    noise,
                    np.array([key in declared]),
                )
                states[key] = strategy.pack(step.states)[0]
                if step.published[0]:
                    result[WINDOW + window * SLOTS * HOUR, trigger, key] = step.estimates[0].tolist()
    return result


def published(runner: Runner, topic: str = "histogram") -> Published:
    found: Published = {}
    for _, _, _, value, stamp in runner.to(topic):
        row = histogram.decode_row(value or b"")
        name = (row.window, row.trigger, json.dumps(row.key).encode())
        assert name not in found
        assert stamp == row.window + row.trigger * HOUR
        found[name] = [round(row.values["visits"].estimate), round(row.values["paid"].estimate)]
    return found


def said(runner: Runner) -> list[tuple[int, int, int]]:
    """(window start, trigger, rows) in log order."""
    records = [progress.decode(value or b"") for _, _, _, value, _ in runner.to("progress")]
    return [(record.window, record.trigger, record.rows) for record in records]


# The last window has begun when the one before it takes its last late records.
PLACES = [(w, t) for w in range(WINDOWS + 1) for t in range(1, TRIGGERS + 1) if w * SLOTS + t - 1 <= LAST]
ALL_TRIGGERS = {(WINDOW + w * SLOTS * HOUR, t) for w, t in PLACES}


def run(
    services: Services, log: list[bytes], directory: Path, *, seed: int | None = None, spill_above: int | None = None
) -> Runner:
    """In one go, or (with a seed) in random fetches, with restarts after any number of commits."""
    runner = Runner(Release, services, directory)
    dice = random.Random(seed)
    while seed is not None and runner.next < len(log):
        if spill_above is not None:
            runner.stage._max_rows = spill_above  # type: ignore[attr-defined]
        runner.feed(log, runner.next + dice.randrange(1, 6))
        runner.commit(dice.choice([0, 1, 2, 100]), now=FAR)
        if dice.random() < 0.3:
            runner.restart()
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    runner.close()
    return runner


CASES: dict[str, dict[str, Any]] = {
    "toeplitz": {},
    "dp-sqlp": {"privacy": {"strategy": "dp-sqlp"}},
    "declared": {"keys": {"declared": ["k0", "k2", "never seen"]}},
    "declared only": {"keys": {"declared": ["k0", "k2", "never seen"], "discover": False}},
    "gate": {"keys": {"minimum_users": 60}},
}


@pytest.mark.parametrize("case", CASES)
def test_the_skip_index_publishes_what_a_step_over_every_key_publishes(case: str, tmp_path: Path) -> None:
    ours = services(**CASES[case])
    rows = random_rows(3)
    runner = run(ours, log_of(rows, ours.config_digest), tmp_path / "s", seed=3)
    wanted = slow(ours, rows)
    assert len(wanted) > 10
    assert published(runner) == published(runner, "latest") == wanted
    assert {name[:2] for name in said(runner)} == ALL_TRIGGERS
    for window, trigger, number in said(runner):
        assert number == sum(name[:2] == (window, trigger) for name in wanted)


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_after_any_commit_publishes_the_same_bytes(seed: int, tmp_path: Path) -> None:
    rows = random_rows(seed)
    runs = []
    for number, choice in enumerate((None, seed)):
        ours = services()
        spill = 8 if number and seed > 2 else None
        log = log_of(rows, ours.config_digest, seed)
        runs.append(run(ours, log, tmp_path / str(number), seed=choice, spill_above=spill))
    undisturbed, disturbed = runs
    topics = ("histogram", "latest", "progress", "ledger")
    for topic in topics:
        assert disturbed.to(topic) == undisturbed.to(topic)
    assert len(undisturbed.to("histogram")) > 10
    if seed > 2:
        assert any(commit.meta["spilled"] for commit in disturbed.commits)


@pytest.mark.parametrize("seed", range(2))
def test_every_slot_tells_bound_which_keys_are_new_and_how_many_there_are(seed: int, tmp_path: Path) -> None:
    """In the transaction that publishes them, also at a slot that publishes nothing; and nobody is told without a lag."""
    ours = services(privacy={"strategy": "adaptive"}, keys={"declared": ["k3", "nobody"]})
    rows = random_rows(seed)
    runner = run(ours, log_of(rows, ours.config_digest), tmp_path / "s", seed=seed)
    index, told = ours.published_keys, []
    assert index is not None
    index.clear()
    since: dict[tuple[int, bytes], int] = {}
    for start, trigger, key in sorted(published(runner), key=lambda row: row[1]):
        since.setdefault((start, key), (start - WINDOW) // HOUR + trigger - 1)
    assert len(since) > 10
    for offset, (_, partition, _, value, _) in enumerate(runner.to("published-keys")):
        block = published_keys.decode(value or b"")
        told += [(window, key, block.slot) for window, key in zip(block.window.tolist(), block.keys, strict=True)]
        assert (partition, block.partition) == (0, 0)
        index.take(value or b"", offset)
        for window in block.totals:  # refuses where its keys are not as many as it should have
            mine = [key for (start, key), slot in since.items() if start == window and slot <= block.slot]
            assert index.known(window, block.slot, mine).all() or block.slot == (window - WINDOW) // HOUR + TRIGGERS - 1
        assert index.complete(block.slot)
    assert sorted(told) == sorted((*place, slot) for place, slot in since.items())
    assert sum(name.endswith("published-keys") for name, *_ in runner.written) == LAST + 1
    for commit in runner.commits:
        topics = [output.topic for output in commit.outputs]
        assert ("t.page-views.progress" not in topics) or ("t.page-views.published-keys" in topics)
    plain = run(services(), log_of(rows, services().config_digest), tmp_path / "p", seed=seed)
    assert plain.to("published-keys") == []


def test_rows_of_a_trigger_are_in_key_order(tmp_path: Path) -> None:
    ours = services()
    runner = run(ours, log_of(random_rows(1, keys=30), ours.config_digest), tmp_path / "s")
    order = [(row.trigger + row.window // HOUR, row.window, json.dumps(row.key)) for row in
             (histogram.decode_row(value or b"") for _, _, _, value, _ in runner.to("histogram"))]  # fmt: skip
    assert order == sorted(order)
    assert len(order) > 20


# ---- the digest chain ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upto", [3, 9, LAST + 1])
def test_a_replay_of_the_same_data_publishes_nothing_twice_and_goes_on_where_it_stopped(
    upto: int, tmp_path: Path
) -> None:
    """All state is lost, and the ledger's mark with it; only what has been published is known."""
    rows = random_rows(2)
    ours = services()
    log = log_of(rows, ours.config_digest)
    undisturbed = run(services(), log, tmp_path / "a")
    runner = Runner(Release, ours, tmp_path / "b")
    runner.feed(log, len(log))
    runner.commit(upto, now=FAR)
    before = len(runner.written)
    runner.restart(empty=True)
    runner.feed(log, len(log))
    runner.commit(upto, now=FAR)
    assert len(runner.written) == before
    runner.commit(now=FAR)
    runner.close()
    for topic in ("histogram", "latest", "progress"):
        assert runner.to(topic) == undisturbed.to(topic)


@pytest.mark.parametrize("changed", ["a user more", "a key less", "a record moved to the next trigger"])
def test_a_replay_of_different_data_is_refused_before_anything_is_published(changed: str, tmp_path: Path) -> None:
    ours = services()
    rows = sorted(random_rows(2), key=lambda row: row[1])
    runner = Runner(Release, ours, tmp_path / "s")
    log = log_of(rows, ours.config_digest)
    runner.feed(log, len(log))
    runner.commit(6, now=FAR)
    before: Written = list(runner.written)
    source, slot, window, key, users, paid = rows[0]
    assert slot < 6
    others = {
        "a user more": [(source, slot, window, key, users + 1, paid), *rows[1:]],
        "a key less": rows[1:],
        "a record moved to the next trigger": [(source, slot + 1, window, b'"moved"', users, paid), *rows[1:]],
    }[changed]
    runner.restart(empty=True)
    log = log_of(others, ours.config_digest)
    runner.feed(log, len(log))
    with pytest.raises(ReplayMismatch, match=r"was published from different data.*give the pipeline a new name"):
        runner.commit(now=FAR)
    assert runner.written == before
    runner.close()


def test_the_chain_also_covers_earlier_triggers_of_the_window(tmp_path: Path) -> None:
    """Trigger 2 has the same input, trigger 1 had not: the totals differ, so the replay must not pass at trigger 2."""
    ours = services()
    first: list[Row] = [(0, 0, 0, b'"k"', 10, 0), (0, 1, 0, b'"k"', 5, 0)]
    runner = Runner(Release, ours, tmp_path / "s")
    log = log_of(first, ours.config_digest, last=1)
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    for key in [key for key in ours.ledger.records if key.endswith(b"/1")]:  # type: ignore[attr-defined]
        del ours.ledger.records[key]  # type: ignore[attr-defined]
    runner.restart(empty=True)
    log = log_of([(0, 0, 0, b'"k"', 11, 0), first[1]], ours.config_digest, last=1)
    runner.feed(log, len(log))
    with pytest.raises(ReplayMismatch, match="trigger=2"):
        runner.commit(now=FAR)
    runner.close()


def test_digests_are_never_public(tmp_path: Path) -> None:
    ours = services()
    runner = run(ours, log_of(random_rows(2), ours.config_digest), tmp_path / "s")
    links = [
        json.loads(value or b"{}")["digest"].encode()
        for *_, value, _ in runner.written
        if b'"digest"' in (value or b"")
    ]
    assert len(links) == len(ALL_TRIGGERS)
    for _, _, key, value, _ in runner.to("histogram", "latest", "progress"):
        assert not any(link in (key or b"") + (value or b"") for link in links)


# ---- declared keys, empty triggers, the end of a window -----------------------------------------------------------------


def test_declared_keys_are_published_from_the_first_trigger_on_without_data(tmp_path: Path) -> None:
    ours = services(keys={"declared": ["a", "b"], "discover": False})
    runner = run(ours, log_of([(0, 1, 0, b'"x"', 1000, 5)], ours.config_digest), tmp_path / "s")
    assert set(published(runner)) == {
        (window, trigger, key) for window, trigger in ALL_TRIGGERS for key in (b'"a"', b'"b"')
    }


def test_declared_keys_are_published_by_the_partition_they_belong_to(tmp_path: Path) -> None:
    names = [f"key {n}" for n in range(20)]
    found: dict[bytes, int] = {}
    for number in range(3):
        ours = services(keys={"declared": names, "discover": False}, topics={"bounded_partitions": 3})
        runner = Runner(Release, ours, tmp_path / str(number), number)
        log = log_of([], ours.config_digest)
        runner.feed(log, len(log))
        runner.commit(now=FAR)
        runner.close()
        for _, _, key in published(runner):
            assert found.setdefault(key, number) == number
    keys = [json.dumps(name).encode() for name in names]
    assert [found[key] for key in keys] == partition_of(keys, 3).tolist()
    assert set(found.values()) == {0, 1, 2}


def test_every_public_record_carries_its_triggers_time_and_not_the_moment_it_was_made(tmp_path: Path) -> None:
    ours = services(keys={"declared": ["k0"]})
    runner = run(ours, log_of(random_rows(7), ours.config_digest), tmp_path / "s")
    public = runner.to("histogram", "latest", "progress")
    assert {topic for topic, *_ in public} == {ours.topic(name) for name in ("histogram", "latest", "progress")}
    for topic, _, _, value, stamp in public:
        assert value is not None
        if topic == ours.topic("progress"):
            row = progress.decode(value)
            window, trigger = row.window, row.trigger
        else:
            window, trigger = histogram.decode_row(value).window, histogram.decode_row(value).trigger
        assert stamp == window + trigger * HOUR


def test_an_empty_trigger_still_says_that_it_is_complete(tmp_path: Path) -> None:
    ours = services()
    runner = run(ours, log_of([], ours.config_digest), tmp_path / "s")
    assert runner.to("histogram", "latest") == []
    assert set(said(runner)) == {(window, trigger, 0) for window, trigger in ALL_TRIGGERS}
    assert runner.stage.counters == {"triggers": len(ALL_TRIGGERS), "rows": 0}


def test_a_windows_state_is_gone_when_its_last_trigger_is_published(tmp_path: Path) -> None:
    ours = services(keys={"declared": ["k0", "never seen"]})
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(Release, ours, tmp_path / "s")
    runner.feed(log, len(log))
    most = 0
    while runner.commit(1, now=FAR):
        windows = {int.from_bytes(key[1:9], "big") - (1 << 63) for key in runner.state()}
        closed = runner.commits[-1].meta["closed"]
        assert all(w * SLOTS + TRIGGERS - 1 > closed for w in windows)
        most = max(most, len(windows))
    assert most == 2
    assert {key[1:9] for key in runner.state()} == {ordered(WINDOWS)}
    runner.close()


# ---- what touches no public partition -----------------------------------------------------------------------------------


def public(runner: Runner, commit: int) -> set[str]:
    return {output.topic.rpartition(".")[2] for output in runner.commits[commit].outputs} & {
        "histogram",
        "latest",
        "progress",
    }


def test_a_window_is_charged_in_a_commit_of_its_own_before_anything_of_it_is_published(tmp_path: Path) -> None:
    ours = services(charged=False)
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(Release, ours, tmp_path / "s")
    runner.feed(log, len(log))
    runner.commit(2, now=FAR)
    assert [output.topic for output in runner.commits[0].outputs] == ["charges"]
    assert public(runner, 0) == set()
    assert "progress" in public(runner, 1)
    runner.close()


def test_only_partition_0_charges_and_the_others_wait_for_it(tmp_path: Path) -> None:
    ours = services(charged=False, topics={"bounded_partitions": 2})
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(Release, ours, tmp_path / "s", 1)
    runner.feed(log, len(log))
    assert runner.commit(now=FAR) == 0
    assert "release-0" in str(runner.stage.stall(FAR))
    ours.ledger.charged = True  # type: ignore[attr-defined]
    assert runner.commit(now=FAR) > 0
    runner.close()


def test_a_charge_that_cannot_be_read_yet_is_not_written_again(tmp_path: Path) -> None:
    """Some other pipeline's open transaction hides it: waiting, also over restarts, and one charge only."""
    ours = services(charged=False)
    visible = False
    ours.ledger.is_charged = lambda window: visible  # type: ignore[method-assign]
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(Release, ours, tmp_path / "s")
    runner.feed(log, len(log))
    for _ in range(3):
        runner.commit(now=FAR)
        runner.restart()
        runner.feed(log, len(log))
    assert [row[0] for row in runner.written] == ["charges"]
    visible = True
    runner.commit(now=FAR)
    assert {row[:2] for row in said(runner)} == ALL_TRIGGERS
    assert [row[0] for row in runner.written].count("charges") == 1
    runner.close()


def test_a_spill_touches_no_public_topic(tmp_path: Path) -> None:
    ours = services()
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(Release, ours, tmp_path / "s")
    runner.stage._max_rows = 1  # type: ignore[attr-defined]
    runner.feed(log, 4)
    while runner.commit(1, now=FAR):
        pass
    assert runner.commits[-1].meta["spilled"]
    assert runner.commits[-1].outputs == []
    runner.close()


def test_a_live_trigger_is_published_no_earlier_than_its_time_plus_the_pad(tmp_path: Path) -> None:
    ours = services(clock={"kind": "broker"}, window={"publication_pad": 60_000})
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(Release, ours, tmp_path / "s")
    runner.feed(log, len(log))
    due = WINDOW + HOUR + 60_000
    assert runner.commit(now=due - 1) == 0
    assert "publication_pad" in str(runner.stage.stall(due))
    assert runner.commit(now=due) == 1
    assert [row[:2] for row in said(runner)] == [(WINDOW, 1)]
    runner.close()
