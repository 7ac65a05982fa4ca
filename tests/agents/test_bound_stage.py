"""bound against a loop over single records, under crashes, spills and every way of fetching."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import bound, open_slots
from susurrus.agents.histogram.bound import Bound
from susurrus.agents.services import Services
from susurrus.agents.store import Store
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import bounded, by_user, published_keys, tick
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import EPOCH, WINDOW, Runner, services_of

HOUR = 3_600_000
SLOTS = 4  # a window, and two slots more for late records
SOURCES = 2
BY_USER_PARTITION = 3
PARTITIONS = 3
LAST_SLOT = 3 * SLOTS + 1

Event = tuple[int, int, int, int, bytes, bytes, int]
"""(source, raw offset, slot, window start, user, key, value)."""


LAG = 2


def services(strategy: str = "toeplitz", **bounds: int) -> Services:
    configured = settings(
        start={"from": "earliest", "first_window": WINDOW},
        window={"length": SLOTS * HOUR, "trigger_every": HOUR, "allowed_lateness": 2 * HOUR, "origin": WINDOW},
        bounds={"max_records_per_user": 4, "max_records_per_key": 2, **bounds},
        columns=[
            {"name": "visits", "kind": "count"},
            {"name": "people", "kind": "users"},
            {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
        ],
        privacy={"epsilon": 6.0, "delta": 1e-9, "strategy": strategy, "adaptive": {"lag": LAG, "ranked_keys": 3}},
        keys={"declared": ["k7"]},
        topics={"by_user_partitions": 4, "bounded_partitions": PARTITIONS},
    )
    return services_of(configured, sources=SOURCES)


def published(slot: int) -> dict[int, dict[int, list[bytes]]]:
    """What release of the tests publishes at a slot: bounded partition -> window start -> keys."""
    starts = [WINDOW + w * SLOTS * HOUR for w in range(slot // SLOTS + 1) if slot < (w + 1) * SLOTS + 2]
    partition = slot % PARTITIONS
    keys = [b'"k%d"' % (partition + PARTITIONS * (slot // PARTITIONS % 2))]
    return {p: dict.fromkeys(starts, keys) if p == partition else {} for p in range(PARTITIONS)}


def publish(services: Services, slot: int, partitions: Iterable[int] = range(PARTITIONS)) -> None:
    assert services.published_keys is not None
    for partition in partitions:
        totals: dict[int, set[bytes]] = defaultdict(set)
        for earlier in range(slot):
            for start, keys in published(earlier)[partition].items():
                totals[start].update(keys)
        news = {
            start: [k for k in keys if k not in totals[start]] for start, keys in published(slot)[partition].items()
        }
        numbers = {start: len(totals[start]) + len(keys) for start, keys in news.items()}
        block = published_keys.block_of(partition, slot, services.config_digest, bytes.fromhex(EPOCH), news, numbers)
        services.published_keys.take(published_keys.encode(block), slot * PARTITIONS + partition)


def block_of(events: list[Event]) -> bytes:
    """Events of one source and one commit of route."""
    users, keys = list(dict.fromkeys(e[4] for e in events)), list(dict.fromkeys(e[5] for e in events))
    return by_user.encode(
        ByUserBlock(
            source=events[0][0],
            offset=np.array([e[1] for e in events], np.int64),
            slot=np.array([e[2] for e in events], np.int64),
            window=np.array([e[3] for e in events], np.int64),
            user=np.array([users.index(e[4]) for e in events], np.int32),
            users=users,
            key=np.array([keys.index(e[5]) for e in events], np.int32),
            keys=keys,
            values=np.array([[e[6]] for e in events], np.int64),
        )
    )


def random_log(seed: int, digest: bytes, *, sizes: int = 12, users: int = 6) -> tuple[list[bytes], list[Event]]:
    """by-user as two routes write it in turn: blocks of slots that are still open, then perhaps a tick."""
    dice = random.Random(seed)
    last = LAST_SLOT
    closed, offset = [-1] * SOURCES, [0] * SOURCES
    log: list[bytes] = []
    events: list[Event] = []
    while min(closed) < last:
        source = dice.choice([s for s in range(SOURCES) if closed[s] < last])
        wrote: list[Event] = []
        for _ in range(dice.randrange(sizes)):
            offset[source] += dice.randrange(1, 3)
            slot = min(last, closed[source] + 1 + dice.choice([0, 0, 0, 1, 3]))
            window = dice.choice(
                [w for w in range(slot // SLOTS, slot // SLOTS - 2, -1) if w >= 0 and slot < (w + 1) * SLOTS + 2]
            )
            who, what = b'"u%d"' % dice.randrange(users), b'"k%d"' % int(dice.expovariate(0.4))
            wrote.append(
                (source, offset[source], slot, WINDOW + window * SLOTS * HOUR, who, what, dice.randrange(-50, 51))
            )
        if wrote:
            log.append(block_of(wrote))
            events += wrote
        if dice.random() < 0.4:
            closed[source] += dice.choice([1, 1, 2])
            number = SOURCES if source == 0 else None
            log.append(tick.encode(tick.Tick(source, min(closed[source], last), digest, number)))
    return log, events


Increments = dict[tuple[int, int, bytes], list[int]]
"""(slot, window start, key) -> users, weight, sums."""


def slow(services: Services, events: list[Event], *, same: Callable[[bytes], bytes] = bytes) -> Increments:
    """One record at a time, in the order (slot, source, offset). Keys with the same ``same`` are one key to the caps."""
    plan, weights = services.strategy.plan, services.strategy.bounding.weights
    seen: dict[tuple[int, bytes], dict[bytes, int]] = defaultdict(dict)
    ranked: dict[tuple[int, bytes], int] = defaultdict(int)
    result: Increments = defaultdict(lambda: [0] * 5)
    for _source, _offset, slot, start, user, key, value in sorted(events, key=lambda e: (e[2], e[0], e[1])):
        brought, name = seen[start, user], same(key)
        if brought.get(name, 0) >= plan.max_records_per_key or sum(brought.values()) >= plan.max_records:
            continue
        if (
            name not in brought
            and plan.strategy not in ("weighted", "adaptive")
            and plan.max_keys is not None
            and len(brought) >= plan.max_keys
        ):
            continue
        row = result[slot, start, key]
        first, rank = name not in brought, ranked[start, user]
        brought[name] = brought.get(name, 0) + 1
        known = plan.strategy == "adaptive" and (
            key == b'"k7"'
            or any(key in keys.get(start, []) for s in range(slot - LAG + 1) for keys in published(s).values())
        )
        if first and not known:
            ranked[start, user] += 1
            trigger = max(1, slot - (start - WINDOW) // HOUR + 1)
            weight = 1 << 20 if weights is None else int(weights[rank, trigger - 1]) if rank < len(weights) else 0
            row[0] += weight > 0
            row[1] += weight
        row[2] += 1
        row[3] += first
        row[4] += value
    return dict(result)


def released(runner: Runner) -> Increments:
    """What bounded holds, with no key twice for a slot and window, and every record in its key's partition."""
    found: Increments = {}
    for topic, _partition, _, value, _ in runner.written:
        if topic != runner.services.topic("bounded") or value is None or kind_of(value) is Kind.TICK:
            continue
        block = bounded.decode(value)
        assert block.partition == BY_USER_PARTITION
        for row, key in enumerate(block.keys):
            name = (block.slot, int(block.window[row]), key)
            assert name not in found
            found[name] = [int(block.users[row]), int(block.weight[row]), *block.sums[row].tolist()]
    return found


def ticks(runner: Runner) -> dict[int, list[int]]:
    """Slots ticked, by bounded partition."""
    found: dict[int, list[int]] = defaultdict(list)
    for topic, partition, _, value, _ in runner.written:
        if topic == runner.services.topic("bounded") and value is not None and kind_of(value) is Kind.TICK:
            decoded = tick.decode(value)
            assert decoded.source == BY_USER_PARTITION
            assert decoded.config_digest == runner.services.config_digest
            found[partition].append(decoded.slot)
    return found


class Followed(Runner):
    """bound, with a release behind it that publishes a slot once bound has closed it, at the latest when bound waits for it."""

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
    runner = Followed(Bound, services, directory, BY_USER_PARTITION)
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
    "weighted": {"strategy": "weighted"},
    "adaptive": {"strategy": "adaptive"},
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


@pytest.mark.parametrize("case", [case for case in CASES if case != "one record"])  # there nothing is left to share
def test_keys_whose_hashes_collide_are_one_key_to_the_caps_of_their_user(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collision may cost a user records, and must never let one bring more; three hashes for all keys show it."""
    ours = services(**CASES[case])
    log, events = random_log(1, ours.config_digest)

    def rough(data: bytes, *, digest_size: int, **fields: Any) -> Any:
        return blake2b(data if digest_size == 32 else b"%d" % (sum(data) % 3), digest_size=digest_size, **fields)

    monkeypatch.setattr(bound, "blake2b", rough)
    runner = run(ours, log, tmp_path / "s", seed=1)
    assert released(runner) == slow(ours, events, same=lambda key: b"%d" % (sum(key) % 3))
    assert released(runner) != slow(ours, events)


def test_caps_stored_by_another_version_are_refused(tmp_path: Path) -> None:
    ours = services()
    log, _ = random_log(1, ours.config_digest)
    runner = Runner(Bound, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    runner.commit()
    meta = dict(runner.commits[-1].meta)
    runner.close()
    stage, store = Bound(ours, BY_USER_PARTITION), Store(tmp_path / "s")
    assert stage.restore(store, meta, 7) == 7
    del meta["format"]
    with pytest.raises(Refusal, match=r"format=1, and this version writes format=2: run the version that wrote it"):
        stage.restore(store, meta, 7)
    store.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_after_any_commit_writes_the_same_bytes(seed: int, tmp_path: Path) -> None:
    ours = services(["toeplitz", "weighted", "adaptive"][seed % 3])
    log, _ = random_log(seed, ours.config_digest)
    undisturbed = run(ours, log, tmp_path / "a", seed=None)
    disturbed = run(ours, log, tmp_path / "b", seed=seed)

    def blocks(runner: Runner) -> list[Any]:
        return [row for row in runner.written if row[3] and kind_of(row[3]) is Kind.BLOCK]

    assert blocks(disturbed) == blocks(undisturbed)
    assert disturbed.stage.counters == undisturbed.stage.counters
    for slots in ticks(disturbed).values():
        assert slots == sorted(set(slots))
        assert slots[-1] == ticks(undisturbed)[0][-1]


@pytest.mark.parametrize("seed", range(6))
def test_spilling_an_open_slot_changes_nothing_and_bounds_the_memory(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Services, "max_record_bytes", property(lambda _: 400))
    ours = services()
    log, events = random_log(seed, ours.config_digest)
    runner = run(ours, log, tmp_path / "s", seed=seed, spill_above=10)
    assert sum(bool(commit.meta["spilled"]) for commit in runner.commits) > 3
    assert released(runner) == slow(ours, events)
    assert runner.stage.counters["taken"] == len(events)


def test_few_rows_with_long_keys_are_spilled_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_slots, "_WAITING_BYTES", 5_000)
    runner = Runner(Bound, services(), tmp_path / "s", BY_USER_PARTITION)
    log = [block_of([(0, n, 0, WINDOW, b'"u"', b'"%s"' % (b"%d" % n * 4000), 1)]) for n in range(1, 3)]
    for end in (1, 2):
        runner.feed(log, end)
        runner.commit()
    assert [commit.meta["spilled"] for commit in runner.commits] == [{0: 2}]
    assert runner.stage._open.size == 0  # type: ignore[attr-defined]
    runner.close()


def test_state_of_a_window_is_dropped_when_its_last_trigger_has_closed(tmp_path: Path) -> None:
    ours = services()
    log, events = random_log(1, ours.config_digest)
    runner = Runner(Bound, ours, tmp_path / "s", BY_USER_PARTITION)
    most = 0
    for end in range(len(log) + 1):
        runner.feed(log, end)
        runner.commit()
        if runner.commits:
            closed = runner.commits[-1].meta["closed"]
            open_windows = {
                start for _, _, slot, start, *_ in events if (start - WINDOW) // HOUR + SLOTS + 2 > closed + 1
            }
            starts = {int.from_bytes(key[1:9], "big") - (1 << 63) for key in runner.state() if key[:1] == b"u"}
            assert {WINDOW + number * SLOTS * HOUR for number in starts} <= open_windows
            most = max(most, len(starts))
    assert most == 2
    assert [key for key in runner.state() if key[:1] == b"o"] == []
    runner.close()


def test_every_bounded_partition_gets_every_tick_also_of_slots_without_records(tmp_path: Path) -> None:
    ours = services()
    digest = ours.config_digest
    log = [tick.encode(tick.Tick(0, 5, digest, 2)), tick.encode(tick.Tick(1, 7, digest))]
    runner = run(ours, log, tmp_path / "s")
    assert ticks(runner) == {0: [5], 1: [5], 2: [5]}
    assert released(runner) == {}
    assert runner.position == 2


def test_no_user_leaves_bound(tmp_path: Path) -> None:
    ours = services()
    secret = b"nobody-may-see-this-user"
    event: Event = (0, 0, 0, WINDOW, b'"%s"' % secret, b'"k"', 1)
    digest = ours.config_digest
    log = [block_of([event]), tick.encode(tick.Tick(0, 0, digest, 2)), tick.encode(tick.Tick(1, 0, digest))]
    runner = run(ours, log, tmp_path / "s")
    assert released(runner) == {(0, WINDOW, b'"k"'): [1, 1 << 20, 1, 1, 1]}
    assert not any(secret in (value or b"") + (key or b"") for _, _, key, value, _ in runner.written)


@pytest.mark.parametrize("fetches", range(4))
def test_another_users_load_never_decides_which_of_my_records_are_kept(fetches: int, tmp_path: Path) -> None:
    """Two sources: by-user's order follows fetch timing, so caps must not."""
    ours = services(max_records_per_user=2, max_records_per_key=1)
    digest = ours.config_digest
    mine: list[list[Event]] = [
        [(source, n, 0, WINDOW, b'"me"', b'"k%d-%d"' % (source, n), 0)] for source in range(2) for n in range(3)
    ]
    others: list[list[Event]] = [
        [(source, 100 + n, 0, WINDOW, b'"o%d"' % n, b'"k"', 0)] for source in range(2) for n in range(20 * fetches)
    ]
    dice = random.Random(fetches)
    per_source = [[e for e in mine + others if e[0][0] == source] for source in range(2)]
    log = []
    while any(per_source):
        log.append(block_of(dice.choice([p for p in per_source if p]).pop(0)))
    log += [tick.encode(tick.Tick(0, 0, digest, 2)), tick.encode(tick.Tick(1, 0, digest))]
    runner = run(ours, log, tmp_path / "s")
    kept = {key for _, _, key in released(runner) if key != b'"k"'}
    assert kept == {b'"k0-0"', b'"k0-1"'}


def test_a_slot_waits_for_what_was_published_before_it_and_those_without_events_do_not(tmp_path: Path) -> None:
    ours = services("adaptive")
    digest = ours.config_digest
    late = LAG + 3
    events: list[Event] = [(0, slot, slot, WINDOW, b'"u"', b'"k1"', 1) for slot in (0, late)]
    log = [
        block_of(events[:1]),
        block_of(events[1:]),
        tick.encode(tick.Tick(0, late, digest, 2)),
        tick.encode(tick.Tick(1, late, digest)),
    ]
    runner = Runner(Bound, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    runner.commit()
    # The first slots of a pipeline come before anything is published; what lies between is closed for release to go on.
    assert ticks(runner)[0] == [0, late - 1]
    assert runner.stage.stall(0) == (
        f"slot={late} waits for slot={late - LAG} of release 0, 1, 2: see what status says of release"
    )
    for slot in range(late - LAG):
        publish(ours, slot)
    publish(ours, late - LAG, partitions=(0, 2))
    assert runner.commit() == 0
    assert (
        runner.stage.stall(0)
        == f"slot={late} waits for slot={late - LAG} of release 1: see what status says of release"
    )
    publish(ours, late - LAG, partitions=(1,))
    runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    assert ticks(runner)[0] == [0, late - 1, late]
    assert runner.stage.stall(0) is None
    assert released(runner) == slow(ours, events)
    runner.close()


def test_bound_asks_for_no_more_than_it_can_hold_while_it_waits(tmp_path: Path) -> None:
    """Route is not held up: read on, an archive would be spilled and logged a second time as a whole."""
    ours = services("adaptive")
    digest = ours.config_digest
    slot = LAG + 1
    log = [
        block_of([(0, n, slot, WINDOW, b'"u%d"' % n, b'"k"', 1) for n in range(10)]),
        tick.encode(tick.Tick(0, slot, digest, 2)),
        tick.encode(tick.Tick(1, slot, digest)),
        block_of([(0, 10 + n, slot + 1, WINDOW, b'"u%d"' % n, b'"k"', 1) for n in range(10)]),
    ]
    runner = Runner(Bound, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.stage._max_rows = 30  # type: ignore[attr-defined]
    runner.feed(log, 3)
    runner.commit()
    assert not runner.stage.full
    runner.feed(log, 4)
    runner.commit()
    assert runner.stage.full
    for earlier in range(slot):
        publish(ours, earlier)
    runner.commit()
    assert not runner.stage.full
    runner.close()


def test_lost_published_keys_are_refused(tmp_path: Path) -> None:
    ours = services("adaptive")
    digest = ours.config_digest
    log = [
        block_of([(0, 0, LAG, WINDOW, b'"u"', b'"k1"', 1)]),
        tick.encode(tick.Tick(0, LAG, digest, 2)),
        tick.encode(tick.Tick(1, LAG, digest)),
    ]
    assert ours.published_keys is not None
    for partition in range(PARTITIONS):
        block = published_keys.block_of(partition, 0, digest, bytes.fromhex(EPOCH), {}, {WINDOW: 1})
        ours.published_keys.take(published_keys.encode(block), partition)
    runner = Runner(Bound, ours, tmp_path / "s", BY_USER_PARTITION)
    runner.feed(log, len(log))
    with pytest.raises(Refusal, match=r"lacks keys that were published"):
        runner.commit()
    runner.close()
