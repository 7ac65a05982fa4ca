"""bound against a loop over single records, under crashes, spills and every way of fetching."""

import functools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import intervals, key_hashes, user_lists, user_state
from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import NotYet
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram import bounding
from susurrus.topics import bounded, by_user, published_keys, tick
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.partitioner import partition as partition_of
from tests.agents.cycles import no_cycles
from tests.agents.released import settings
from tests.agents.stages import EPOCH, WINDOW, Runner, born, number_of, services_of, tick_behind
from tests.reference import NO_LAST_LOOK, priority

HOUR = 3_600_000
INTERVALS = 4  # a window, and two intervals more for late records
TRIGGERS = INTERVALS + 2
SOURCES = 2
BY_USER_PARTITION = 3
PARTITIONS = 3
LAST_INTERVAL = 3 * INTERVALS + 1

Event = tuple[int, int, int, int, bytes, bytes, int]
"""(source, raw offset, interval, window start, user, key, value)."""


LAG = 2
ALONE = "no last look"
"""`closing` with its stream alone."""


def services(
    strategy: str = "toeplitz", *, declared: Iterable[str] = ("k7",), lag: int = LAG, counted: int = 3, **bounds: int
) -> Services:
    """strategy: a name, or ALONE. counted: keys per user that `closing` measures at the last trigger, of those not published."""
    ranks = {"lag": lag, "ranked_keys": min(3, counted)}
    sections = {ALONE: {**ranks, **NO_LAST_LOOK}, "closing": {**ranks, "keys": counted}}
    configured = settings(
        start={"from": "earliest", "first_window": WINDOW},
        window={"length": INTERVALS * HOUR, "trigger_every": HOUR, "allowed_lateness": 2 * HOUR, "origin": WINDOW},
        bounds={"max_records_per_user": 4, "max_records_per_key": 2, **bounds},
        columns=[
            {"name": "visits", "kind": "count"},
            {"name": "people", "kind": "users"},
            {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
        ],
        privacy={
            "epsilon": 6.0,
            "delta": 1e-9,
            "strategy": "closing" if strategy == ALONE else strategy,
            **({"closing": sections[strategy]} if strategy in sections else {}),
        },
        keys={"declared": list(declared)},
        topics={"by_user_partitions": 4, "bounded_partitions": PARTITIONS},
    )
    return services_of(configured, sources=SOURCES)


def published(interval: int) -> dict[int, dict[int, list[bytes]]]:
    """What release of the tests publishes at an interval: bounded partition -> window start -> keys."""
    starts = [
        WINDOW + w * INTERVALS * HOUR for w in range(interval // INTERVALS + 1) if interval < (w + 1) * INTERVALS + 2
    ]
    keys = [b'"k%d"' % (interval % (2 * PARTITIONS))]
    [partition] = partition_of(keys, PARTITIONS).tolist()
    return {p: dict.fromkeys(starts, keys) if p == partition else {} for p in range(PARTITIONS)}


def unit_of(start: int, key: bytes) -> int:
    """The unit of a key in the feedback of the tests: another one for every key and window."""
    return (1 << 20) - 30_001 * (sum(key) % 11) - (start - WINDOW) // HOUR


def feedback_of(services: Services, interval: int) -> dict[int, dict[int, dict[bytes, int]]]:
    """What the tests' release tells at an interval of strategy `closing`: bounded partition -> window start -> unit by key."""
    found: dict[int, dict[int, dict[bytes, int]]] = {partition: {} for partition in range(PARTITIONS)}
    if services.strategy.lists is None:
        return found
    for start in range(WINDOW, WINDOW + (interval + 1) * HOUR, INTERVALS * HOUR):
        if interval - (start - WINDOW) // HOUR + 1 == TRIGGERS - (services.strategy.bounding.lag or 0):
            for partition in range(PARTITIONS):
                keys = {k for earlier in range(interval + 1) for k in published(earlier)[partition].get(start, [])}
                found[partition][start] = {key: unit_of(start, key) for key in keys}
    return found


def publish(services: Services, interval: int, partitions: Iterable[int] = range(PARTITIONS)) -> None:
    assert services.published_keys is not None
    for partition in partitions:
        totals: dict[int, set[bytes]] = defaultdict(set)
        for earlier in range(interval):
            for start, keys in published(earlier)[partition].items():
                totals[start].update(keys)
        news = {
            start: [k for k in keys if k not in totals[start]] for start, keys in published(interval)[partition].items()
        }
        units = feedback_of(services, interval)[partition]
        news = {**{start: [] for start in units}, **news}
        numbers = {start: len(totals[start]) + len(keys) for start, keys in news.items()}
        digest = services.config_digest
        block = published_keys.block_of(partition, interval, digest, bytes.fromhex(EPOCH), news, numbers, units)
        services.published_keys.take(published_keys.encode(block), interval * PARTITIONS + partition)


def block_of(events: list[Event]) -> bytes:
    """Events of one source and one commit of route."""
    users, keys = list(dict.fromkeys(e[4] for e in events)), list(dict.fromkeys(e[5] for e in events))
    return by_user.encode(
        ByUserBlock(
            source=events[0][0],
            offset=np.array([e[1] for e in events], np.int64),
            interval=np.array([e[2] for e in events], np.int64),
            window=np.array([e[3] for e in events], np.int64),
            user=np.array([users.index(e[4]) for e in events], np.int32),
            users=users,
            key=np.array([keys.index(e[5]) for e in events], np.int32),
            keys=keys,
            values=np.array([[e[6]] for e in events], np.int64),
        )
    )


@functools.cache
def source_of(value: bytes) -> int:
    return by_user.decode(value).source


def ticked(log: Sequence[bytes], source: int, interval: int, digest: bytes) -> bytes:
    """A source's tick behind the log."""
    return tick_behind(log, source, interval, digest, source_of=source_of)


def random_log(seed: int, digest: bytes, *, sizes: int = 12, users: int = 6) -> tuple[list[bytes], list[Event]]:
    """by-user as two routes write it in turn: blocks of intervals that are still open, then perhaps a tick."""
    dice = random.Random(seed)
    last = LAST_INTERVAL
    closed, offset = [-1] * SOURCES, [0] * SOURCES
    log: list[bytes] = []
    events: list[Event] = []
    while min(closed) < last:
        source = dice.choice([s for s in range(SOURCES) if closed[s] < last])
        wrote: list[Event] = []
        for _ in range(dice.randrange(sizes)):
            offset[source] += dice.randrange(1, 3)
            interval = min(last, closed[source] + 1 + dice.choice([0, 0, 0, 1, 3]))
            window = dice.choice(
                [
                    w
                    for w in range(interval // INTERVALS, interval // INTERVALS - 2, -1)
                    if w >= 0 and interval < (w + 1) * INTERVALS + 2
                ]
            )
            who, what = b'"u%d"' % dice.randrange(users), b'"k%d"' % int(dice.expovariate(0.4))
            wrote.append(
                (
                    source,
                    offset[source],
                    interval,
                    WINDOW + window * INTERVALS * HOUR,
                    who,
                    what,
                    dice.randrange(-50, 51),
                )
            )
        if wrote:
            log.append(block_of(wrote))
            events += wrote
        if dice.random() < 0.4:
            closed[source] += dice.choice([1, 1, 2])
            log.append(ticked(log, source, min(closed[source], last), digest))
    return log, events


Increments = dict[tuple[int, int, bytes], list[int]]
"""(interval, window start, key) -> users, weight, sums."""


Lists = dict[tuple[int, bytes], dict[bytes, int]]
"""(window start, user) -> records kept by key, in the order in which they came; 0 where a key is on the list only."""


def turn(services: Services, event: Event) -> tuple[int, ...]:
    """What orders the events of a user and window."""
    source, offset, interval, start, user, key, _value = event
    window = services.calendar.window_at(WindowStart(start))
    return interval, priority(services.secret, window, user, key), source, offset


def slow(
    services: Services, events: list[Event], *, same: Callable[[bytes], bytes] = bytes, lists: Lists | None = None
) -> Increments:
    """One record at a time, by interval, then in the pipeline's order. Keys with the same ``same`` are one key to the caps.

    lists: where given, it is filled.
    """
    plan, weights = services.strategy.plan, services.strategy.bounding.weights
    seen: Lists = defaultdict(dict) if lists is None else lists
    ranked: dict[tuple[int, bytes], int] = defaultdict(int)
    ledgers: dict[tuple[int, bytes], SlowLedger] = defaultdict(lambda: SlowLedger(services))
    brought_at: dict[tuple[int, int, bytes], set[bytes]] = defaultdict(set)
    result: Increments = defaultdict(lambda: [0] * 5)
    for _source, _offset, interval, start, user, key, value in sorted(events, key=partial(turn, services)):
        brought, name = seen[start, user], same(key)
        trigger = max(1, interval - (start - WINDOW) // HOUR + 1)
        new, kept = name not in brought, brought.get(name, 0) < plan.max_records_per_key
        if plan.strategy == "closing":
            here = brought_at[interval, start, user]
            within = len(here) < bounding.MAX_LISTED_KEYS
            here.add(name)
            if new and len(brought) >= bounding.MAX_LISTED_KEYS:
                continue
            kept = kept and within and ledgers[start, user].takes(name, trigger)
        else:
            kept = kept and sum(brought.values()) < plan.max_records
            kept = kept and not (new and plan.max_keys is not None and len(brought) >= plan.max_keys)
            if not kept:
                continue
        first = kept and not brought.get(name)
        brought[name] = brought.get(name, 0) + kept
        known = plan.strategy == "closing" and (
            key in services.settings.declared_keys
            or any(
                key in keys.get(start, [])
                for s in range(interval - plan.parameters.lag + 1)
                for keys in published(s).values()
            )
        )
        gained = [0, 0, int(kept), int(first), value if kept else 0]
        if new and not known:
            rank = ranked[start, user]
            ranked[start, user] += 1
            weight = 1 << 20 if weights is None else int(weights[rank, trigger - 1]) if rank < len(weights) else 0
            gained[:2] = [int(weight > 0), weight]
        if kept or gained[0]:
            row = result[interval, start, key]
            row[:] = [a + b for a, b in zip(row, gained, strict=True)]
    return dict(result)


class SlowLedger:
    """One user's ledger: what its kept records cost, from the square of each key's roots anew for every record."""

    def __init__(self, services: Services) -> None:
        self.ledger = services.strategy.bounding.ledger
        self.measured = 1 + (services.strategy.plan.max_records_per_key > 1)
        self.roots: dict[bytes, list[int]] = defaultdict(list)

    def takes(self, key: bytes, trigger: int) -> bool:
        """Whether a record fits, which is kept then."""
        mine = self.roots[key]
        mine.append(int(self.ledger.roots[trigger - 1]))
        # The sum, to which every record adds, and the count, where it is not that of users; the first one of a key adds to these.
        if sum(self.measured * sum(r) ** 2 + r[0] ** 2 for r in self.roots.values() if r) <= self.ledger.limit:
            return True
        mine.pop()
        return False


def slow_lists(services: Services, events: list[Event]) -> Increments:
    """(last interval, window start, key) -> users, weight, public weight: one user after the other, in integers."""
    one = 1 << 20
    lag, counted = services.strategy.plan.parameters.lag, services.strategy.plan.parameters.keys
    norm = 6 * one * one
    lists: Lists = defaultdict(dict)
    slow(services, events, lists=lists)
    result: Increments = defaultdict(lambda: [0] * 3)
    for (start, _user), mine in lists.items():
        last = (start - WINDOW) // HOUR + TRIGGERS - 1
        units = dict.fromkeys(services.settings.declared_keys, one)
        if last <= LAST_INTERVAL:
            for of_partition in feedback_of(services, last - lag).values():
                units |= of_partition.get(start, {})
        unknown, public = [k for k in mine if k not in units], [k for k in mine if k in units]
        length = min(len(unknown), counted)
        for key in unknown[:counted]:
            result[last, start, key][0] += 1
            result[last, start, key][1] += math.isqrt(one * one // length)
        square = sum(units[key] ** 2 for key in public)
        for key in public:
            unit = units[key]
            result[last, start, key][2] += unit if square <= norm else math.isqrt(unit * unit * norm // square)
    return {place: row for place, row in result.items() if place[0] <= LAST_INTERVAL}


def blocks(runner: Runner) -> list[tuple[int, bounded.BoundedBlock]]:
    """(bounded partition, block) in the order of the log."""
    values = [(partition, value or b"") for _, partition, _, value, _ in runner.to("bounded")]
    return [(partition, bounded.decode(value)) for partition, value in values if kind_of(value) is not Kind.TICK]


def released(runner: Runner) -> Increments:
    """What bounded holds, with no key twice for an interval and window, and every record in its key's partition."""
    found: Increments = {}
    for partition, block in blocks(runner):
        assert block.partition == BY_USER_PARTITION
        assert set(partition_of(block.keys, PARTITIONS).tolist()) == {partition}
        for row, key in enumerate(block.keys if block.lists is None else []):
            name = (block.interval, int(block.window[row]), key)
            assert name not in found
            found[name] = [int(block.users[row]), int(block.weight[row]), *block.sums[row].tolist()]
    return found


def measured(runner: Runner) -> Increments:
    """The list sums that bounded holds, no key twice, and nothing else beside them."""
    found: Increments = {}
    for _, block in blocks(runner):
        if block.lists is not None:
            assert not block.users.any()
            assert not block.weight.any()
            assert not block.sums.any()
            for row, key in enumerate(block.keys):
                name = (block.interval, int(block.window[row]), key)
                assert name not in found
                found[name] = block.lists[row].tolist()
    return found


def block_bytes(runner: Runner) -> list[Any]:
    """What was written beside ticks, as it was."""
    return [row for row in runner.written if row[3] and kind_of(row[3]) is Kind.BLOCK]


def ticks(runner: Runner) -> dict[int, list[int]]:
    """Intervals ticked, by bounded partition."""
    found: dict[int, list[int]] = defaultdict(list)
    written: dict[int, int] = defaultdict(int)
    for topic, partition, _, value, _ in runner.written:
        if topic != runner.services.topic("bounded") or value is None:
            continue
        if kind_of(value) is not Kind.TICK:
            written[partition] += 1
        else:
            decoded = tick.decode(value)
            assert decoded.records == written[partition]
            assert decoded.source == BY_USER_PARTITION
            assert decoded.config_digest == runner.services.config_digest
            found[partition].append(decoded.interval)
    return found


class Followed(Runner):
    """bound, with a release behind it that publishes an interval once bound has closed it, at the latest when bound
    waits for it."""

    followed = -1

    def commit(self, limit: int = 10**9, *, now: int = 2 * WINDOW) -> int:
        number = 0
        while number < limit and (done := super().commit(limit - number, now=now)):
            number += done
            while (
                self.services.published_keys is not None
                and self.meta is not None
                and self.followed < self.meta["closed"]
            ):
                self.followed += 1
                publish(self.services, self.followed)
        return number


def run(
    services: Services, log: list[bytes], directory: Path, *, seed: int | None = None, spill_above: int | None = None
) -> Runner:
    """In one go, or (with a seed) in random fetches, with restarts after any number of commits."""
    if services.published_keys is not None:
        services.published_keys.clear()
    runner = Followed(BoundStage, services, directory, BY_USER_PARTITION)
    dice = random.Random(seed)
    while seed is not None and runner.position < len(log) and len(runner.commits) < 10_000:
        if spill_above is not None:
            runner.stage._max_rows = spill_above  # type: ignore[attr-defined]
        runner.feed(log, runner.next + dice.randrange(1, 8))
        runner.commit(dice.choice([0, 1, 2, 100]))
        if dice.random() < 0.3:
            runner.restart()
        if runner.next >= len(log) and not runner.commit():
            break
    runner.feed(log, len(log))
    runner.commit()
    runner.close()
    return runner


CASES: dict[str, dict[str, Any]] = {
    "toeplitz": {},
    "no last look": {"strategy": ALONE},
    "closing": {"strategy": "closing"},
    "few keys": {"max_keys_per_user": 2},
    "one record": {"max_records_per_user": 1, "max_records_per_key": 1},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_vectorised_pass_keeps_what_a_loop_over_records_keeps(case: str, seed: int, tmp_path: Path) -> None:
    ours = services(**CASES[case])
    log, events = random_log(seed, ours.config_digest)
    runner = run(ours, log, tmp_path / "s")
    wanted = slow(ours, events)
    assert len(wanted) > 10
    assert released(runner) == wanted
    counters = runner.stage.counters
    assert counters["taken"] == len(events)
    assert counters["kept"] == sum(row[2] for row in wanted.values())
    assert counters["kept"] + counters["capped"] == len(events)
    assert counters["capped"] > 0


# With one record nothing is left to share, and `closing` has no hashes.
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("one record", "no last look", "closing")])
def test_keys_whose_hashes_collide_are_one_key_to_the_caps_of_their_user(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collision may cost a user records, and must never let one bring more; three hashes for all keys show it."""
    ours = services(**CASES[case])
    log, events = random_log(1, ours.config_digest)

    def rough(data: bytes, *, digest_size: int, **fields: Any) -> Any:
        return blake2b(data if digest_size == 32 else b"%d" % (sum(data) % 3), digest_size=digest_size, **fields)

    monkeypatch.setattr(key_hashes, "blake2b", rough)
    runner = run(ours, log, tmp_path / "s", seed=1)
    assert released(runner) == slow(ours, events, same=lambda key: b"%d" % (sum(key) % 3))
    assert released(runner) != slow(ours, events)


@pytest.mark.parametrize(
    ("strategy", "now", "before"),
    [
        ("toeplitz", 5, 1),
        ("toeplitz", 5, 2),
        ("toeplitz", 5, 4),
        ("toeplitz", 5, 6),
        ("closing", 6, 3),
        ("closing", 6, 5),
    ],
)
def test_caps_stored_by_another_version_are_refused(strategy: str, now: int, before: int, tmp_path: Path) -> None:
    """The version of a strategy's rows rises when these change: a newer one of another strategy is not its own."""
    ours = services(strategy)
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(closed(ours, [block_of([(0, 0, 0, WINDOW, b'"u"', b'"k"', 1)])], 0), 3)
    runner.commit()
    meta = dict(runner.commits[-1].meta)
    runner.close()
    store = Store(tmp_path / "s")
    assert born(BoundStage, ours, store, meta, 7, partition=BY_USER_PARTITION)[1] == 7
    assert meta["format"] == now
    meta["format"] = before
    if before == 1:
        del meta["format"]
    with pytest.raises(Refusal, match=rf"format={before}, and this version writes format={now}: run the version that"):
        born(BoundStage, ours, store, meta, 7, partition=BY_USER_PARTITION)
    store.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_source_that_begins_to_repeat_itself_is_refused_whenever_bound_started(seed: int, tmp_path: Path) -> None:
    """Route's changelog was put back: it reads raw records again, and writes blocks that were counted or still wait."""
    ours, dice = services(), random.Random(seed)
    log, _ = random_log(seed, ours.config_digest)
    blocks = [(at, by_user.decode(value)) for at, value in enumerate(log) if kind_of(value) is Kind.BLOCK]
    at, block = dice.choice(blocks[: len(blocks) // 2])
    behind = dice.randrange(at + 1, len(log))
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    while runner.next < behind:
        runner.feed(log, min(behind, runner.next + dice.randrange(1, 6)))
        runner.commit(dice.choice([0, 1, 100]))
        if dice.random() < 0.3:
            runner.restart()
    repeated = [*log[:behind], log[at]]
    last = max(int(b.offset[-1]) for n, b in blocks if n < behind and b.source == block.source)
    if seed % 2:
        runner.restart()
        runner.feed(repeated, behind)
    with pytest.raises(Refusal) as refused:
        runner.feed(repeated, behind + 1)
    assert str(refused.value).startswith(
        f"topic={ours.topic('by-user')} partition={BY_USER_PARTITION} offset={behind}: source={block.source} brings raw offsets "
        f"from {int(block.offset[0])} on, but has come up to {last} before, so the changelog of route is an older copy"
    )
    # Another source with the same offsets is no repetition.
    runner.restart()
    runner.feed(repeated, behind)
    other = by_user.encode(replace(block, source=77))
    runner.feed([*log[:behind], other], behind + 1)
    runner.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_block_that_kafka_has_lost_is_refused_before_its_interval_closes(seed: int, tmp_path: Path) -> None:
    """Acknowledged, and gone after an election; behind it everything goes on."""
    ours, dice = services(), random.Random(seed)
    log: list[Any] = random_log(seed, ours.config_digest)[0]
    places = [at for at, value in enumerate(log) if kind_of(value) is Kind.BLOCK]
    at = dice.choice(places)
    block = by_user.decode(log[at])
    log[at] = tick.encode(tick.Tick(99, 0, 0, ours.config_digest))  # whatever else stands at the offset
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)

    def read() -> None:
        while runner.next < len(log):
            runner.feed(log, runner.next + dice.randrange(1, 6))
            runner.commit(dice.choice([0, 1, 100]))
            if dice.random() < 0.3:
                runner.restart()

    with pytest.raises(
        Refusal, match=rf"source={block.source} says records=\d+, and records=\d+ came, so Kafka has lost"
    ):
        read()
    runner.restart()
    assert runner.stage.report()["interval"] < int(block.interval.max())
    with pytest.raises(Refusal, match="so Kafka has lost"):
        read()
    runner.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_restart_after_any_commit_writes_the_same_bytes(seed: int, tmp_path: Path) -> None:
    ours = services(["toeplitz", ALONE, "closing"][seed % 3])
    log, _ = random_log(seed, ours.config_digest)
    undisturbed = run(ours, log, tmp_path / "a", seed=None)
    disturbed = run(ours, log, tmp_path / "b", seed=seed)

    assert block_bytes(disturbed) == block_bytes(undisturbed)
    assert disturbed.stage.counters == undisturbed.stage.counters
    for closed in ticks(disturbed).values():
        assert closed == sorted(set(closed))
        assert closed[-1] == ticks(undisturbed)[0][-1]


@pytest.mark.parametrize("seed", range(6))
def test_spilling_an_open_interval_changes_nothing_and_bounds_the_memory(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Services, "max_record_bytes", property(lambda _: 400))
    ours = services("closing" if seed % 2 else "toeplitz")
    log, events = random_log(seed, ours.config_digest)
    runner = run(ours, log, tmp_path / "s", seed=seed, spill_above=10)
    assert sum(bool(commit.meta["spilled"]) for commit in runner.commits) > 3
    assert released(runner) == slow(ours, events)
    assert measured(runner) == (slow_lists(ours, events) if seed % 2 else {})
    assert runner.stage.counters["taken"] == len(events)


def test_few_rows_with_long_keys_are_spilled_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_WAITING_BYTES", 5_000)
    runner = Runner(BoundStage, services(), tmp_path / "s", BY_USER_PARTITION)
    log = [block_of([(0, n, 0, WINDOW, b'"u"', b'"%s"' % (b"%d" % n * 4000), 1)]) for n in range(1, 3)]
    for end in (1, 2):
        runner.feed(log, end)
        runner.commit()
    assert [commit.meta["spilled"] for commit in runner.commits] == [{0: 2}]
    assert runner.stage._intervals.size == 0  # type: ignore[attr-defined]
    runner.close()


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
@pytest.mark.parametrize("seed", [1, 3, 4])
def test_state_of_a_window_is_dropped_when_its_last_trigger_has_closed(
    strategy: str, seed: int, tmp_path: Path
) -> None:
    ours = services(strategy, max_records_per_user=20)
    log, events = random_log(seed, ours.config_digest)
    # What the last interval itself brings must go as well.
    assert {(5, WINDOW), (9, WINDOW + INTERVALS * HOUR)} <= {
        (interval, start) for interval, start, _ in slow(ours, events)
    }
    runner = Followed(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    most = 0
    for end in range(len(log) + 1):
        runner.feed(log, end)
        while runner.commit(1):
            closed = runner.commits[-1].meta["closed"]
            open_windows = {
                start for _, _, interval, start, *_ in events if (start - WINDOW) // HOUR + INTERVALS + 2 > closed + 1
            }
            tables = defaultdict(set)
            for key in runner.state():
                if key[:1] != b"o":
                    tables[key[:1]].add(WINDOW + number_of(key[1:]) * INTERVALS * HOUR)
            assert set(tables) <= ({b"v", b"k", b"i"} if strategy == "closing" else {b"v"})
            for starts in tables.values():
                assert starts <= open_windows
                most = max(most, len(starts))
    assert most == 2
    assert [key for key in runner.state() if key[:1] == b"o"] == []
    # A range that reaches back over windows that are gone would cost more with each of them.
    drops = sorted(drop for commit in runner.commits for drop in commit.drops)
    assert len(drops) >= 5
    assert all(end <= start for (_, end), (start, _) in pairwise(drops))
    runner.close()


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
def test_nothing_of_a_window_waits_for_the_collector(strategy: str, tmp_path: Path) -> None:
    ours = services(strategy, max_records_per_user=20)
    log, _ = random_log(1, ours.config_digest)
    with no_cycles():
        runner = run(ours, log, tmp_path / "s")
    assert len(runner.commits) > 10


def test_every_bounded_partition_gets_every_tick_also_of_intervals_without_records(tmp_path: Path) -> None:
    ours = services()
    digest = ours.config_digest
    log = [ticked([], 0, 5, digest), ticked([], 1, 7, digest)]
    runner = run(ours, log, tmp_path / "s")
    assert ticks(runner) == {0: [5], 1: [5], 2: [5]}
    assert released(runner) == {}
    assert runner.position == 2


def test_no_user_leaves_bound(tmp_path: Path) -> None:
    ours = services()
    secret = b"nobody-may-see-this-user"
    event: Event = (0, 0, 0, WINDOW, b'"%s"' % secret, b'"k"', 1)
    digest = ours.config_digest
    log = [block_of([event])]
    log += [ticked(log, 0, 0, digest), ticked(log, 1, 0, digest)]
    runner = run(ours, log, tmp_path / "s")
    assert released(runner) == {(0, WINDOW, b'"k"'): [1, 1 << 20, 1, 1, 1]}
    assert not any(secret in (value or b"") + (key or b"") for _, _, key, value, _ in runner.written)


@pytest.mark.parametrize("fetches", range(4))
def test_another_users_load_never_decides_which_of_my_records_are_kept(fetches: int, tmp_path: Path) -> None:
    """Two sources: by-user's order follows fetch timing, so caps must not, neither of keys nor of one key's records."""
    ours = services(max_records_per_user=4, max_records_per_key=2)
    digest = ours.config_digest
    mine: list[list[Event]] = [
        [(source, n, 0, WINDOW, b'"me"', b'"k%d"' % (n % 3), 10**n + source)] for source in range(2) for n in range(9)
    ]
    others: list[list[Event]] = [
        [(source, 100 + n, 0, WINDOW, b'"o%d"' % n, b'"k"', 0)] for source in range(2) for n in range(20 * fetches)
    ]
    dice = random.Random(fetches)
    per_source = [[e for e in mine + others if e[0][0] == source] for source in range(2)]
    log = []
    while any(per_source):
        log.append(block_of(dice.choice([p for p in per_source if p]).pop(0)))
    log += [ticked(log, 0, 0, digest), ticked(log, 1, 0, digest)]
    runner = run(ours, log, tmp_path / "s")
    kept = {key: row[2:] for (_, _, key), row in released(runner).items() if key != b'"k"'}
    first = sorted([b'"k0"', b'"k1"', b'"k2"'], key=lambda key: turn(ours, (0, 0, 0, WINDOW, b'"me"', key, 0)))[:2]
    # Of each key the records of the first source, in the order of its log.
    assert kept == {key: [2, 1, 10 ** int(key[2:3]) + 10 ** (int(key[2:3]) + 3)] for key in first}


@pytest.mark.parametrize("strategy", ["toeplitz", ALONE, "closing"])
def test_where_a_triggers_records_stand_in_the_log_changes_nothing_if_their_keys_differ(
    strategy: str, tmp_path: Path
) -> None:
    """Users bring more keys to every trigger than their caps hold. The same records, dealt to sources and offsets anew."""
    ours = services(strategy, max_records_per_user=5, max_records_per_key=1, counted=2)
    dice = random.Random(8)
    came = [
        (interval, b'"u%d"' % user, b'"k%d"' % key, dice.randrange(50))
        for interval in range(INTERVALS)
        for user in range(4)
        for key in dice.sample(range(30), 9)
    ]
    found: list[Any] = []
    for attempt in range(3):
        dice.shuffle(came)
        events: list[Event] = [
            (dice.randrange(SOURCES), offset, interval, WINDOW, user, key, value)
            for offset, (interval, user, key, value) in enumerate(came)
        ]
        by_source = [block_of([event for event in events if event[0] == source]) for source in range(SOURCES)]
        runner = run(ours, closed(ours, by_source, TRIGGERS - 1), tmp_path / str(attempt))
        assert released(runner) == slow(ours, events)
        found.append((released(runner), measured(runner)))
    assert found[0] == found[1] == found[2]
    kept = sum(row[2] for row in found[0][0].values())
    assert 4 * 5 <= kept < len(came) / 2
    assert bool(found[0][1]) == (strategy == "closing")


def test_an_interval_waits_for_what_was_published_before_it_and_those_without_events_do_not(tmp_path: Path) -> None:
    ours = services(ALONE)
    digest = ours.config_digest
    late = LAG + 3
    events: list[Event] = [(0, interval, interval, WINDOW, b'"u"', b'"k9"', 1) for interval in (0, late)]
    log = [block_of(events[:1]), block_of(events[1:])]
    log += [ticked(log, 0, late, digest), ticked(log, 1, late, digest)]
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    runner.commit()
    # The first intervals of a pipeline come before anything is published; what lies between is closed for release to go on.
    assert ticks(runner)[0] == [0, late - 1]
    assert str(runner.stage.stall(0)) == (
        f"interval={late} waits for interval={late - LAG} of release 0, 1, 2; see what status says of release"
    )
    for interval in range(late - LAG):
        publish(ours, interval)
    [behind] = partition_of([b'"k9"'], PARTITIONS).tolist()
    publish(ours, late - LAG, partitions=[p for p in range(PARTITIONS) if p != behind])
    assert runner.commit() == 0
    assert (
        str(runner.stage.stall(0))
        == f"interval={late} waits for interval={late - LAG} of release {behind}; see what status says of release"
    )
    publish(ours, late - LAG, partitions=[behind])
    runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    assert ticks(runner)[0] == [0, late - 1, late]
    assert runner.stage.stall(0) is None
    assert released(runner) == slow(ours, events)
    runner.close()


def closing(ours: Services, events: list[Event], intervals: int, directory: Path) -> tuple[Runner, list[bytes]]:
    """A bound that has read these events, and the log."""
    log = [block_of([event]) for event in events]
    log += [ticked(log, source, intervals - 1, ours.config_digest) for source in range(SOURCES)]
    runner = Runner(BoundStage, ours, directory, BY_USER_PARTITION)
    runner.feed(log, len(log))
    runner.commit()
    return runner, log


def test_the_first_intervals_of_every_window_wait_for_nothing(tmp_path: Path) -> None:
    """No key of a window was published before it began, whatever other windows have published."""
    ours = services(ALONE, lag=3)
    begin = INTERVALS  # of the second window, and the first one still has late records
    events: list[Event] = [
        (0, interval, interval, WINDOW + begin * HOUR, b'"u"', b'"k1"', 1) for interval in range(begin, begin + 4)
    ]
    runner, _ = closing(ours, events, begin + 4, tmp_path / "s")
    assert ticks(runner)[0] == [begin, begin + 1, begin + 2]
    assert str(runner.stage.stall(0)).startswith(f"interval={begin + 3} waits for interval={begin} of release")
    runner.close()
    # A record of the first window looks back at what that one has published.
    late: list[Event] = [(1, 0, begin, WINDOW, b'"u"', b'"k1"', 1), *events]
    runner, _ = closing(ours, late, begin + 4, tmp_path / "t")
    assert ticks(runner)[0] == [begin - 1]
    assert str(runner.stage.stall(0)).startswith(f"interval={begin} waits for interval={begin - 3} of release")
    runner.close()


def test_an_interval_whose_keys_are_all_public_waits_for_nothing_more(tmp_path: Path) -> None:
    ours = services(ALONE, declared=["k7"])
    publish(ours, 0)
    [[public]] = [keys for of in published(0).values() for keys in of.values()]
    events: list[Event] = [
        (0, n, interval, WINDOW, b'"u"', key, 1)
        for n, (interval, key) in enumerate([(LAG, b'"k9"'), (LAG + 1, public), (LAG + 2, b'"k7"'), (LAG + 3, b'"k9"')])
    ]
    runner, log = closing(ours, events, LAG + 4, tmp_path / "s")
    assert ticks(runner)[0] == [LAG, LAG + 1, LAG + 2]
    for interval in range(1, LAG + 2):
        publish(ours, interval)
    runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    assert ticks(runner)[0] == [LAG, LAG + 1, LAG + 2, LAG + 3]
    assert released(runner) == slow(ours, events)
    runner.close()


@pytest.mark.parametrize("strategy", [ALONE, "closing"])
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_what_bound_writes_does_not_depend_on_when_published_keys_arrive(
    strategy: str, lag: int, tmp_path: Path
) -> None:
    """Release may be as far ahead as bound has closed, or as far behind as bound's questions allow; and their records come one by
    one, each partition's at its own pace."""
    ours = services(strategy, lag=lag)
    log, _ = random_log(lag, ours.config_digest)
    prompt = run(ours, log, tmp_path / "prompt")
    for seed in range(3):
        assert ours.published_keys is not None
        ours.published_keys.clear()
        late = Runner(BoundStage, ours, tmp_path / f"late-{seed}", BY_USER_PARTITION)
        dice = random.Random(seed)
        late.feed(log, len(log))
        told = dict.fromkeys(range(PARTITIONS), -1)
        for _ in range(10_000):
            late.commit(dice.choice([1, 2, 100]))
            assert late.meta is not None
            closed = late.meta["closed"]
            if closed >= LAST_INTERVAL:
                break
            # Release cannot be further than bound.
            behind = [partition for partition, interval in told.items() if interval < closed]
            assert behind
            partition = dice.choice(behind)
            told[partition] += 1
            publish(ours, told[partition], [partition])
        late.close()
        assert sorted(block_bytes(late)) == sorted(block_bytes(prompt))


def test_bound_asks_for_no_more_than_it_can_hold_while_it_waits(tmp_path: Path) -> None:
    """Route is not held up: read on, an archive would be spilled and logged a second time as a whole."""
    ours = services(ALONE)
    digest = ours.config_digest
    interval = LAG + 1
    log = [block_of([(0, n, interval, WINDOW, b'"u%d"' % n, b'"k"', 1) for n in range(10)])]
    log += [ticked(log, 0, interval, digest), ticked(log, 1, interval, digest)]
    log.append(block_of([(0, 10 + n, interval + 1, WINDOW, b'"u%d"' % n, b'"k"', 1) for n in range(10)]))
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.stage._max_rows = 50  # type: ignore[attr-defined]
    runner.feed(log, 3)
    runner.commit()
    assert not runner.stage.full
    runner.feed(log, 4)
    runner.commit()
    assert runner.stage.full
    for earlier in range(interval):
        publish(ours, earlier)
    runner.commit()
    assert not runner.stage.full
    runner.close()


def test_bound_asks_for_no_more_while_it_waits_with_many_small_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive of small windows has few rows in many blocks, and a block takes more memory than its rows."""
    monkeypatch.setattr("susurrus.agents.histogram.intervals._MANY_BLOCKS", 4)
    ours = services(ALONE)
    interval = LAG + 1
    log = [block_of([(0, 0, interval, WINDOW, b'"u"', b'"k"', 1)])]
    log += [ticked(log, source, interval, ours.config_digest) for source in (0, 1)]
    log += [block_of([(0, 1 + n, interval + 1 + n, WINDOW, b'"u"', b'"k"', 1)]) for n in range(3)]
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    for end, crowded in ((5, False), (6, True)):
        runner.feed(log, end)
        runner.commit()
        assert (runner.stage.crowded, runner.stage.full) == (crowded, crowded)
    for earlier in range(interval):
        publish(ours, earlier)
    runner.commit()
    assert not runner.stage.full
    runner.close()


def test_lost_published_keys_are_refused(tmp_path: Path) -> None:
    ours = services(ALONE)
    digest = ours.config_digest
    log = [block_of([(0, 0, LAG, WINDOW, b'"u"', b'"k1"', 1)])]
    log += [ticked(log, 0, LAG, digest), ticked(log, 1, LAG, digest)]
    assert ours.published_keys is not None
    for partition in range(PARTITIONS):
        block = published_keys.block_of(partition, 0, digest, bytes.fromhex(EPOCH), {}, {WINDOW: 1})
        ours.published_keys.take(published_keys.encode(block), partition)
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    with pytest.raises(Refusal, match=r"lacks keys that were published"):
        runner.commit()
    runner.close()


# ---- strategy closing: the lists of a window's users at its last trigger ------------------------------------------------


def is_tick(value: bytes) -> bool:
    return kind_of(value) is Kind.TICK


def closed(ours: Services, blocks: list[bytes], last: int) -> list[bytes]:
    """The blocks, behind which both sources have closed everything up to an interval."""
    return blocks + [ticked(blocks, source, last, ours.config_digest) for source in range(2)]


LIST_CASES: dict[str, dict[str, Any]] = {
    "as configured": {},
    "list cut": {"longest": 3},
    "list cut before the ranks end": {"longest": 2, "max_records_per_user": 6},
    "cut": {"counted": 1, "declared": [], "max_records_per_user": 20},
    "long": {"declared": [f"k{n}" for n in range(20) if n not in (2, 7)], "max_records_per_user": 30},
    "capped": {"max_records_per_user": 3, "max_records_per_key": 1},
    "lag of the whole window": {"lag": TRIGGERS, "declared": ["k1"]},
    "lag of more": {"lag": TRIGGERS + 3, "declared": []},
    "shortest lag": {"lag": 1, "counted": 5, "max_records_per_user": 12},
}


@pytest.mark.parametrize("case", LIST_CASES)
@pytest.mark.parametrize("seed", range(3))
def test_lists_measured_at_a_windows_last_interval_are_those_of_a_loop_over_users(
    case: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With windows that overlap, two sources, spills and restarts; users are read in chunks of two."""
    monkeypatch.setattr(user_state, "_PIECE_BYTES", 40)
    ours = services("closing", **{name: value for name, value in LIST_CASES[case].items() if name != "longest"})
    monkeypatch.setattr(bounding, "MAX_LISTED_KEYS", LIST_CASES[case].get("longest", bounding.MAX_LISTED_KEYS))
    log, events = random_log(seed, ours.config_digest, sizes=50, users=4)
    runner = run(ours, log, tmp_path / "s", seed=seed, spill_above=40)
    wanted = slow_lists(ours, events)
    assert {interval for interval, *_ in wanted} == {5, 9, 13}
    assert measured(runner) == wanted
    assert released(runner) == slow(ours, events)
    kinds = {tuple(number > 0 for number in row) for row in wanted.values()}
    # A key is measured either as public or as not public.
    assert kinds == ({(True, True, False)} if case == "lag of more" else {(True, True, False), (False, False, True)})


def test_the_cases_of_lists_are_not_all_alike() -> None:
    """Some lists are cut, some are longer than the norm of public keys allows, some belong to users silent at the last interval."""
    _, events = random_log(0, bytes(32), sizes=50, users=4)
    cut, long = services("closing", **LIST_CASES["cut"]), services("closing", **LIST_CASES["long"])
    lists: Lists = defaultdict(dict)
    slow(long, events, lists=lists)
    assert any(len(mine.keys() & set(long.settings.declared_keys)) > 6 for mine in lists.values())
    silent = {(start, user) for start, user in lists} - {
        (start, user)
        for _, _, interval, start, user, _, _ in events
        if interval == (start - WINDOW) // HOUR + TRIGGERS - 1
    }
    assert silent
    uncut = services("closing", **{**LIST_CASES["cut"], "counted": 3})
    assert len(slow_lists(cut, events)) < len(slow_lists(uncut, events))


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_decides_neither_about_selection_nor_about_lists(seed: int, tmp_path: Path) -> None:
    """Whole lists: with another ledger and other caps on values, users and weights are what they were."""
    runners = {}
    for records in (1, 2, 40):
        ours = services("closing", max_records_per_user=records, max_records_per_key=min(2, records))
        log, _ = random_log(seed, bytes(32), sizes=30)
        log = [tick.encode(replace(tick.decode(v), config_digest=ours.config_digest)) if is_tick(v) else v for v in log]
        runners[records] = run(ours, log, tmp_path / str(records))
    assert len({runner.stage.counters["kept"] for runner in runners.values()}) == 3
    weights = [{place: row[:2] for place, row in released(runner).items() if row[0]} for runner in runners.values()]
    assert len(weights[0]) > 10
    assert weights[0] == weights[1] == weights[2]
    assert any(not row[2] for row in released(runners[1]).values())
    assert measured(runners[1]) == measured(runners[2]) == measured(runners[40])


def test_a_key_that_is_on_a_list_and_not_kept_counts_its_user_when_a_later_record_fits(tmp_path: Path) -> None:
    """Behind three records of the last trigger but one, the ledger has room for one of the last trigger only."""
    ours = services("closing", max_records_per_user=3, max_records_per_key=1, lag=TRIGGERS, declared=[])
    last = TRIGGERS - 1
    names = [b'"a"', b'"b"', b'"c"', b'"d"', b'"e"']
    names.sort(key=lambda name: turn(ours, (0, 0, 0, WINDOW, b'"u"', name, 0)))
    come = [*reversed(names), names[4], names[3]]
    events: list[Event] = [(0, n, last - (n < 5), WINDOW, b'"u"', name, 7) for n, name in enumerate(come)]
    runner = Followed(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    log = closed(ours, [block_of(events)], last)
    runner.feed(log, len(log))
    while runner.commit(1):
        runner.restart()
        runner.feed(log, len(log))
    runner.close()
    found = released(runner)
    assert found == slow(ours, events)
    assert {place[2]: row[2:] for place, row in found.items() if place[0] == last - 1} == {
        **{name: [1, 1, 7] for name in names[:3]},
    }
    assert {place[2]: row for place, row in found.items() if place[0] == last} == {names[3]: [0, 0, 1, 1, 7]}
    assert {place[2] for place, row in measured(runner).items() if row[0]} == set(names[:3])


def test_a_record_with_weight_that_is_not_kept_reaches_release_with_its_weight_alone(tmp_path: Path) -> None:
    """Also where nothing at all is kept in an interval."""
    ours = services("closing", max_records_per_user=1, max_records_per_key=1, lag=TRIGGERS, declared=[])
    weights = ours.strategy.bounding.weights
    assert weights is not None
    events: list[Event] = [(0, n, n, WINDOW, b'"u"', b'"%d"' % n, 7) for n in range(4)]
    runner = run(ours, closed(ours, [block_of(events)], 3), tmp_path / "s")
    assert released(runner) == {
        (0, WINDOW, b'"0"'): [1, int(weights[0, 0]), 1, 1, 7],
        (1, WINDOW, b'"1"'): [1, int(weights[1, 1]), 0, 0, 0],
        (2, WINDOW, b'"2"'): [1, int(weights[2, 2]), 0, 0, 0],
    }


def test_keys_of_lists_are_numbered_so_that_no_two_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes that make one key of several for the other strategies; here there is nothing to collide."""
    ours = services("closing")
    log, events = random_log(1, ours.config_digest)
    monkeypatch.setattr(key_hashes, "blake2b", lambda data, *, digest_size, **_: blake2b(b"", digest_size=digest_size))
    runner = run(ours, log, tmp_path / "s", seed=1)
    assert released(runner) == slow(ours, events)
    assert measured(runner) == slow_lists(ours, events)


ONE = 1 << 20


@pytest.mark.parametrize("at", [0, TRIGGERS - 1], ids=["earlier records", "records of the last interval"])
def test_a_last_interval_measures_who_came_whenever_that_was(at: int, tmp_path: Path) -> None:
    ours = services("closing")
    events: list[Event] = [
        (0, n, at, WINDOW, b'"u%d"' % user, key, 1)
        for n, (user, key) in enumerate([(0, b'"a"'), (0, b'"k7"'), (1, b'"a"'), (1, b'"b"'), (1, b'"c"')])
    ]
    runner = run(ours, closed(ours, [block_of(events)], TRIGGERS - 1), tmp_path / "s")
    third = math.isqrt(ONE * ONE // 3)
    assert measured(runner) == {
        (TRIGGERS - 1, WINDOW, b'"a"'): [2, ONE + third, 0],
        (TRIGGERS - 1, WINDOW, b'"b"'): [1, third, 0],
        (TRIGGERS - 1, WINDOW, b'"c"'): [1, third, 0],
        (TRIGGERS - 1, WINDOW, b'"k7"'): [0, 0, ONE],
    }
    assert {place[0] for place in released(runner)} == {at}
    assert ticks(runner)[0][-1] == TRIGGERS - 1


def test_windows_without_records_are_closed_one_by_one_and_measure_nothing(tmp_path: Path) -> None:
    ours = services("closing")
    runner = run(ours, closed(ours, [], LAST_INTERVAL), tmp_path / "s")
    assert block_bytes(runner) == []
    assert set(ticks(runner)[0]) >= {5, 9, 13}
    assert not any(commit.puts for commit in runner.commits)


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_restart_between_two_commits_measures_the_same_lists(cut: int, tmp_path: Path) -> None:
    """Also the one before the last interval, whose own records reach the lists with that very commit."""
    ours = services("closing")
    events: list[Event] = [
        (0, 10 * interval + n, interval, WINDOW, b'"u%d"' % ((interval + n) % 5), b'"%d"' % (interval * n % 4), 1)
        for interval in range(TRIGGERS)
        for n in range(4)
    ]
    log = closed(
        ours, [block_of([e for e in events if e[2] == interval]) for interval in range(TRIGGERS)], TRIGGERS - 1
    )
    runner = Followed(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    for _ in range(cut):
        runner.commit(1)
    runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    runner.close()
    assert len(runner.commits) == TRIGGERS
    assert measured(runner) == slow_lists(ours, events)
    assert len(measured(runner)) > 3


def numbered(runner: Runner) -> dict[int, tuple[int, bytes]]:
    """Key number -> (window, key), the same by both tables, and no list of a user holds any other."""
    state = runner.state()
    by_number = {
        int.from_bytes(name[9:], "big"): (number_of(name[1:]), key)
        for name, key in state.items()
        if name[:1] == user_lists.KEYS
    }
    by_key = {
        int.from_bytes(number, "little"): (number_of(name[1:]), name[9:])
        for name, number in state.items()
        if name[:1] == user_lists.NUMBERS
    }
    assert by_number == by_key
    users: Any = runner.stage
    windows = {number_of(name[1:]) for name in state if name[:1] == b"v"}
    used = {(code, w) for w in windows for lists in users._levels[0]._users.lists(w) for code in lists.code.tolist()}
    assert used == {(number, window) for number, (window, _) in by_number.items()}
    return by_number


@pytest.mark.parametrize("seed", range(2))
def test_a_number_means_one_key_of_one_window_for_ever(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across windows, restarts and numbers given to keys that came on no list."""
    ours = services("closing", max_records_per_user=2)
    monkeypatch.setattr(bounding, "MAX_LISTED_KEYS", 2)
    log, _ = random_log(seed, ours.config_digest, users=3)
    runner = Followed(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    meant: dict[int, tuple[int, bytes]] = {}
    following = 0
    for end in range(len(log) + 1):
        runner.feed(log, end)
        runner.commit()
        for number, place in numbered(runner).items():
            assert meant.setdefault(number, place) == place
        if runner.meta is not None:
            assert runner.meta["numbers"] >= max([following, *(number + 1 for number in meant)])
            following = runner.meta["numbers"]
        if end % 3 == 0:
            runner.restart()
    runner.close()
    assert len(meant) > 10
    assert len({window for window, _ in meant.values()}) > 2
    assert len(set(meant.values())) == len(meant)
    assert following > len(meant)


def test_keys_behind_the_end_of_a_list_leave_no_trace_until_another_user_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = services("closing", max_records_per_user=4, max_records_per_key=1)
    monkeypatch.setattr(bounding, "MAX_LISTED_KEYS", 1)
    events: list[Event] = [
        (0, 0, 0, WINDOW, b'"full"', b'"kept"', 1),
        (0, 1, 0, WINDOW, b'"full"', b'"only capped"', 1),
        (0, 2, 1, WINDOW, b'"full"', b'"only capped"', 1),
        (0, 3, 2, WINDOW, b'"other"', b'"only capped"', 1),
    ]
    log = closed(ours, [block_of(events)], 3)
    runner = Followed(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    for interval in range(2):
        runner.commit(1)
        assert runner.commits[-1].meta["closed"] == interval
        assert {key for _, key in numbered(runner).values()} == {b'"kept"'}
        assert not any(b"only capped" in name + value for name, value in runner.state().items())
    runner.commit(1)
    assert {key for _, key in numbered(runner).values()} == {b'"kept"', b'"only capped"'}
    runner.close()


def test_a_last_interval_waits_for_the_units_of_the_published_keys_and_measures_nothing_before(tmp_path: Path) -> None:
    ours = services("closing")
    last, needed = TRIGGERS - 1, TRIGGERS - 1 - LAG
    events: list[Event] = [(0, n, 0, WINDOW, b'"u"', key, 1) for n, key in enumerate([b'"k0"', b'"x"'])]
    log = closed(ours, [block_of(events)], last + 1)
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    runner.commit()
    # The last interval has no records, and it waits all the same; what lies before it is closed for release to go on.
    assert ticks(runner)[0] == [0, last - 1]
    waits = f"interval={last} waits for interval={needed} of release {{}}; see what status says of release"
    assert str(runner.stage.stall(0)) == waits.format("0, 1, 2")
    for interval in range(needed):
        publish(ours, interval)
    publish(ours, needed, partitions=(0, 2))
    for _ in range(2):
        assert runner.commit() == 0
        assert str(runner.stage.stall(0)) == waits.format("1")
        runner.restart()
        runner.feed(log, len(log))
    assert measured(runner) == {}
    publish(ours, needed, partitions=(1,))
    runner.commit()
    runner.close()
    assert measured(runner) == {
        (last, WINDOW, b'"k0"'): [0, 0, unit_of(WINDOW, b'"k0"')],
        (last, WINDOW, b'"x"'): [1, ONE, 0],
    }
    assert ticks(runner)[0] == [0, last - 1, last, last + 1]


def test_units_that_are_being_read_again_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the question whether they are there and the one which they are."""
    ours = services("closing")
    assert ours.published_keys is not None
    log = closed(ours, [block_of([(0, 0, 0, WINDOW, b'"u"', b'"k0"', 1)])], TRIGGERS - 1)
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    runner.commit()
    written, state = list(runner.written), runner.state()
    with monkeypatch.context() as patched:
        patched.setattr(ours.published_keys, "complete", lambda interval: True)
        with pytest.raises(NotYet, match="read again"):
            runner.commit()
    assert (runner.written, runner.state()) == (written, state)
    runner.restart()  # what a task does then
    for interval in range(TRIGGERS - LAG):
        publish(ours, interval)
    runner.feed(log, len(log))
    runner.commit()
    runner.close()
    assert measured(runner) == {(TRIGGERS - 1, WINDOW, b'"k0"'): [0, 0, unit_of(WINDOW, b'"k0"')]}


def test_published_keys_without_units_are_refused(tmp_path: Path) -> None:
    ours = services("closing")
    assert ours.published_keys is not None
    digest, epoch = ours.config_digest, bytes.fromhex(EPOCH)
    for interval in range(TRIGGERS - LAG):
        for partition in range(PARTITIONS):
            news: dict[int, list[bytes]] = {} if interval or partition else {WINDOW: [b'"k0"']}
            block = published_keys.block_of(partition, interval, digest, epoch, news, {WINDOW: int(partition == 0)})
            ours.published_keys.take(published_keys.encode(block), PARTITIONS * interval + partition)
    runner = Runner(BoundStage, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(closed(ours, [], TRIGGERS - 1), 2)
    with pytest.raises(Refusal, match=r"lacks keys that were published"):
        runner.commit()
    assert measured(runner) == {}
    runner.close()


def rewritten(log: list[bytes], dice: random.Random) -> list[bytes]:
    """The same records of every source, its blocks cut in other places and the sources' turns in another order."""
    of_source: list[list[bytes]] = [[] for _ in range(SOURCES)]
    for value in log:
        if kind_of(value) is Kind.TICK:
            said = tick.decode(value)
            of_source[said.source].append(
                ticked(of_source[said.source], said.source, said.interval, said.config_digest)
            )
            continue
        block = by_user.decode(value)
        at = 0
        while at < len(block):
            size = dice.randrange(1, 6)
            of_source[block.source].append(by_user.encode(block.take(np.arange(at, min(at + size, len(block))))))
            at += size
    result = []
    while any(of_source):
        result.append(dice.choice([values for values in of_source if values]).pop(0))
    return result


@pytest.mark.parametrize("seed", range(3))
def test_neither_fetching_nor_cutting_nor_the_turns_of_sources_show_in_what_is_measured(
    seed: int, tmp_path: Path
) -> None:
    """Numbers are given in order of arrival at this stage, so they must not decide about a byte of the lists."""
    ours = services("closing", counted=2)
    log, _ = random_log(seed, ours.config_digest, sizes=30)
    one = run(ours, log, tmp_path / "a")
    other = run(ours, rewritten(log, random.Random(seed)), tmp_path / "b", seed=seed + 10, spill_above=20)
    assert released(one) == released(other)

    def lists(runner: Runner) -> list[Any]:
        return [row for row in block_bytes(runner) if bounded.decode(row[3]).lists is not None]

    assert len(lists(one)) > PARTITIONS
    assert lists(one) == lists(other)
