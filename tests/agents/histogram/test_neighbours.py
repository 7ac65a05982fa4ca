"""Take one user away, and everything that is said about the others stays what it was: from raw records to release's input.

Route and bound run as they do in a worker, once with and once without one user, and each time with fetches of other sizes, by-user
records interleaved in another way and crashes at other places. Only the wall clock is the same, for cuts are public moments, and
so is the moment at which the raw topic gets another partition.
"""

import contextlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import route as route_module
from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.early_drop import EarlyDrop
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import NotYet
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.topics import bounded
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import WINDOW, MemoryClients, Runner, WallClock, services_of
from tests.reference import NO_LAST_LOOK

HOUR = 3_600_000
SOURCES, BY_USER = 3, 2
LENGTH = 4
HOURS = 14
IDLE_GRACE = 600_000
MINUTE = 60_000
GROWN = WINDOW + 5 * HOUR
"""A boundary: some minutes behind it the raw topic grows."""
GONE = "u0"
LISTS = 1_000
"""Added to the interval of what lists add up to, so that it has a place of its own."""

Event = tuple[int, int, str | float | bool, dict[str, Any]]
"""(moment of arrival, stamp, user, payload)."""


class Transcript:
    """What was published, the same for both neighbours: one key in three, each from an interval of its own on, which may be the one
    before the window."""

    version = 0

    def wakes(self, stage: Any) -> None:
        """Nothing comes later."""

    def complete(self, interval: int) -> bool:
        return True

    def known(self, window: int, interval: int, keys: list[bytes]) -> Any:
        first = window // HOUR - WINDOW // HOUR
        return np.array([sum(key) % 3 == 0 and first + sum(key) % (LENGTH + 1) - 1 <= interval for key in keys])

    def units(self, window: int, interval: int, keys: list[bytes]) -> Any:
        return self.known(window, interval, keys) * np.array([(1 << 20) - 1_001 * (sum(key) % 99) for key in keys])


class Ends(MemoryClients):
    """Logs that end where the wall clock says; those beyond SOURCES are there from ``grows_at`` on.

    sources: of the sources that are there from the beginning, topic and partition. Those that come later are of the first topic.
    """

    def __init__(
        self,
        logs: Sequence[Sequence[tuple[Any, ...]]],
        clock: WallClock,
        grows_at: int | None,
        sources: Sequence[tuple[str, int]],
    ) -> None:
        super().__init__()
        self.logs, self.clock, self.grows_at = logs, clock, grows_at
        topic = sources[0][0]
        self.sources = [*sources, *((topic, number) for number in range(len(sources), len(logs)))]

    def number(self) -> int:
        """Of the sources that are there."""
        return SOURCES if self.grows_at is None or self.clock.now < self.grows_at else len(self.logs)

    def end(self, source: int) -> int:
        return sum(arrived <= self.clock.now for arrived, *_ in self.logs[source])

    def partitions(self, topic: str) -> int:
        return sum(topic == place[0] for place in self.sources[: self.number()])

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, self.end(self.sources.index((topic, partition)))


ALONE = "no last look"
"""`closing` with its stream alone."""


REMEMBERS = "closing, remembers"
"""`closing`, where a window's public keys may be older than the window."""


def services(
    kind: str, strategy: str, source: Mapping[str, Any] | None = None, amount: str = "amount", **bounds: int
) -> Services:
    """source: of `[input]`. amount: where the summed field is."""
    return services_of(
        settings(
            pipeline={"name": "p", "prefix": "t"},
            input=source or {"topic": "raw", "user": "user", "key": ["key"], "time": "at", "null_key": "value"},
            start={"from": "earliest", "first_window": WINDOW},
            clock={
                "kind": kind,
                **({"grace": "5s"} if kind == "broker" else {}),
                **({} if kind == "replay" else {"idle_grace": IDLE_GRACE}),
                "max_ahead": "3h",
                "max_future": "5h",
                **({"until": WINDOW + HOURS * HOUR} if kind == "replay" else {}),
            },
            window={"length": LENGTH * HOUR, "trigger_every": HOUR, "allowed_lateness": 2 * HOUR, "origin": WINDOW},
            bounds={"max_records_per_user": 4, "max_records_per_key": 2, **bounds},
            columns=[
                {"name": "visits", "kind": "count"},
                {"name": "people", "kind": "users"},
                {"name": "paid", "kind": "sum", "field": amount, "bound": 1e6, "grid": 1},
            ],
            privacy={
                "epsilon": 6.0,
                "delta": 1e-9,
                "strategy": "closing" if strategy in (ALONE, REMEMBERS) else strategy,
                **({"closing": NO_LAST_LOOK} if strategy == ALONE else {}),
            },
            keys={"remember": 6} if strategy == REMEMBERS else {},
            topics={"by_user_partitions": BY_USER, "bounded_partitions": 1},
            worker={"max_open_records": 1000},
        ),
        sources=SOURCES,
    )


def raw_logs(seed: int, kind: str) -> list[list[Event]]:
    """Events of six users, who spell themselves in several ways. Keys and amounts are a user's own, to be distinguishable."""
    dice = random.Random(seed)
    spellings: dict[str, list[Any]] = {
        "u0": [1, 1.0],
        "u1": [True],
        "u2": ["1"],
        "u3": ["a"],
        "u4": [-7, -7.0],
        "u5": [False],
    }
    logs: list[list[Event]] = []
    for _ in range(SOURCES):
        moments = sorted(WINDOW + dice.randrange(HOURS * HOUR) for _ in range(dice.randrange(20, 120)))
        log: list[Event] = []
        for number, arrived in enumerate(moments):
            who = dice.choice(list(spellings))
            stamp = arrived
            if kind == "producer":
                stamp += dice.choice([0, 0, 0, -HOUR, 2 * HOUR, 10**12, -(10**12)])
            at = stamp + dice.choice([0, 0, -HOUR, -3 * HOUR, 4 * HOUR, 30 * HOUR])
            key = f"{who}/{int(dice.expovariate(0.5))}"
            payload = {"user": dice.choice(spellings[who]), "key": key, "at": at, "amount": number}
            log.append((arrived, stamp, who, payload))
        logs.append(log)
    return logs


def increments(
    ours: Services,
    logs: Sequence[Sequence[tuple[int, int, Any, Any]]],
    kind: str,
    seed: int,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    grows_at: int | None = None,
    write: Callable[[int, Any], bytes] = lambda source, payload: json.dumps(payload).encode(),
) -> dict[tuple[int, int, bytes], tuple[int, ...]]:
    """(interval, window, key) -> users, weight, sums, as bound hands them to release; the sums of lists under interval + 1000.

    write: a source and a payload to the value of a record.
    """
    dice, clock = random.Random(seed), WallClock()
    ends = Ends(logs, clock, grows_at, [ours.ledger.place(source) for source in range(SOURCES)])
    object.__setattr__(ours, "clients", ends)
    if ours.published_keys is not None:
        object.__setattr__(ours, "published_keys", Transcript())
    monkeypatch.setattr(route_module, "time", clock)
    stamped = 1 if kind == "broker" else 0
    records = [
        [
            SimpleNamespace(
                offset=n, timestamp=stamp, timestamp_type=stamped, value=write(source, payload), key=None, headers=()
            )
            for n, (_, stamp, _, payload) in enumerate(log)
        ]
        for source, log in enumerate(logs)
    ]
    if kind == "replay":
        clock.now = WINDOW + 1000 * HOUR
    routes = [Runner(RouteStage, ours, directory / f"r{n}", n) for n in range(SOURCES)]
    logs_by_user: list[list[bytes]] = [[] for _ in range(BY_USER)]

    def commit(runner: Runner) -> None:
        seen = len(runner.written)
        runner.commit(now=clock.now)
        for topic, partition, _, value, _ in runner.written[seen:]:
            if topic == ours.topic("by-user") and value is not None:
                logs_by_user[partition].append(value)

    def move(runner: Runner, upto: int) -> None:
        while runner.next < upto:
            runner.feed(records[runner.stage.partition], min(upto, runner.next + dice.randrange(1, 30)))
            if dice.random() < 0.7:
                commit(runner)
            elif dice.random() < 0.3:
                runner.restart()
        commit(runner)

    last = WINDOW + (HOURS + 10) * HOUR
    while True:
        for number in range(len(routes), ends.number()):
            with contextlib.suppress(NotYet, Refusal):
                routes.append(Runner(RouteStage, ours, directory / f"r{number}", number))
        for runner in dice.sample(routes, len(routes)):
            move(runner, ends.end(runner.stage.partition))
        if clock.now >= last:
            break
        near = grows_at is not None and abs(clock.now - grows_at) < 2 * HOUR
        clock.now += 5 * MINUTE if near else HOUR // 4
    found: dict[tuple[int, int, bytes], tuple[int, ...]] = {}
    for number, log in enumerate(logs_by_user):
        bound = Runner(BoundStage, ours, directory / f"b{number}", number)
        while bound.next < len(log):
            bound.feed(log, bound.next + dice.randrange(1, 9))
            if dice.random() < min(0.2, 20 / len(log)):  # reads an archive from its start again
                bound.restart()
            bound.commit(dice.choice([1, 2, 10**9]))
        bound.commit()
        for topic, _, _, value, _ in bound.written:
            if topic == ours.topic("bounded") and value is not None and kind_of(value) is not Kind.TICK:
                block = bounded.decode(value)
                for row, key in enumerate(block.keys):
                    name = (block.interval + LISTS * (block.lists is not None), int(block.window[row]), key)
                    assert name not in found
                    numbers = (block.users[row], block.weight[row], *block.sums[row])
                    found[name] = tuple(map(int, numbers if block.lists is None else block.lists[row]))
        bound.close()
    for runner in routes:
        runner.close()
    return found


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_known_of_the_others_does_not_change_when_one_user_goes(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = ["toeplitz", "dp-sqlp", ALONE, "closing", REMEMBERS][seed]
    logs = raw_logs(seed, kind)
    without = [[event for event in log if event[2] != GONE] for log in logs]
    assert sum(map(len, without)) < sum(map(len, logs))
    whole = increments(services(kind, strategy), logs, kind, seed, tmp_path / "a", monkeypatch)
    rest = increments(services(kind, strategy), without, kind, seed + 100, tmp_path / "b", monkeypatch)
    others = {name: row for name, row in whole.items() if not name[2].startswith(b'"' + GONE.encode())}
    assert others
    assert rest == others
    for (interval, *_), (users, weight, visits, *_) in whole.items():
        assert users <= 1  # no user has two identities
        if interval >= LISTS:
            assert weight + visits <= 1 << 20  # of lists, it is the weight on public keys
        else:
            assert visits <= 2
    lists = {(row[1] > 0, row[2] > 0) for (interval, *_), row in whole.items() if interval >= LISTS}
    # Measured as not public, or as public.
    assert lists == ({(True, False), (False, True)} if strategy in ("closing", REMEMBERS) else set())


def growing_logs(seed: int, kind: str, grows_at: int) -> list[list[Event]]:
    """Logs of which the last begins when the topic has grown. In source 0 only GONE has a record between the boundary GROWN and
    the end of the idle grace: it decides when source 0 learns from its records that the interval before is over."""
    logs = raw_logs(seed, kind)
    logs[0] = [event for event in logs[0] if not GROWN <= event[0] <= GROWN + IDLE_GRACE]
    own = (GROWN + MINUTE, GROWN + MINUTE, GONE, {"user": 1, "key": GONE, "at": GROWN + MINUTE, "amount": 1})
    logs[0] = sorted([*logs[0], own], key=lambda event: event[0])
    moments = [grows_at + n * MINUTE for n in range(1, 90)]
    logs.append([(at, at, f"n{at}", {"user": f"n{at}", "key": f"new/{at}", "at": at, "amount": 1}) for at in moments])
    return logs


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
@pytest.mark.parametrize("minutes", [3, 7, 33])
def test_when_a_new_partition_counts_does_not_change_when_one_user_goes(
    kind: str, minutes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The announcement of a grown topic is made at public instants: no user's record decides which trigger others count in."""
    grows_at = GROWN + minutes * MINUTE
    logs = growing_logs(minutes, kind, grows_at)
    without = [[event for event in log if event[2] != GONE] for log in logs]
    ours, theirs = services(kind, "toeplitz"), services(kind, "toeplitz")
    whole = increments(ours, logs, kind, minutes, tmp_path / "a", monkeypatch, grows_at=grows_at)
    rest = increments(theirs, without, kind, minutes + 100, tmp_path / "b", monkeypatch, grows_at=grows_at)
    others = {name: row for name, row in whole.items() if not name[2].startswith(b'"' + GONE.encode())}
    assert rest == others
    counted = {
        int(name[2].strip(b'"').removeprefix(b"new/")): name[0] for name in others if name[2].startswith(b'"new/')
    }
    if kind == "replay":
        assert not counted  # what is added to an archive belongs to no archive
    else:
        # Growth moves no record: each of the new partition counts in the trigger of its own stamp.
        assert counted == {at: ours.calendar.interval_at(at) for at, *_ in logs[SOURCES]}


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
def test_dropping_on_arrival_what_no_history_could_keep_changes_nothing(
    kind: str, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One busy user must not fill the pipeline; route may drop early only what bound would drop anyway."""
    logs = raw_logs(5, kind)
    for log in logs:  # every user is busy: the same event five times over, where four count at most
        log[:] = [event for event in log for _ in range(5)]
    dropped = 0
    really = RouteStage._without_over_cap

    def counting(self: RouteStage, rows: Any, *columns: Any) -> Any:
        nonlocal dropped
        left = really(self, rows, *columns)
        dropped += len(rows) - len(left)
        return left

    monkeypatch.setattr(RouteStage, "_without_over_cap", counting)
    early = increments(services(kind, strategy), logs, kind, 1, tmp_path / "early", monkeypatch)
    monkeypatch.setattr(RouteStage, "_without_over_cap", lambda self, rows, *columns: rows)
    late = increments(services(kind, strategy), logs, kind, 2, tmp_path / "late", monkeypatch)
    assert dropped > 100
    assert len(early) > 10
    assert early == late


@pytest.mark.parametrize("per_key", [1, 2])
def test_with_whole_lists_no_key_is_dropped_on_arrival(
    per_key: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys beyond what values count stand on the list all the same. The caps of other strategies would drop them."""
    logs, dice = raw_logs(5, "broker"), random.Random(6)
    for log in logs:
        log[:] = [
            (arrived, stamp, who, {**payload, "key": f"{who}/{dice.randrange(9)}"})
            for arrived, stamp, who, payload in log
            for _ in range(6)
        ]

    def found(name: str, seed: int) -> dict[tuple[int, int, bytes], tuple[int, ...]]:
        ours = services("broker", "closing", max_records_per_key=per_key)
        return increments(ours, logs, "broker", seed, tmp_path / name, monkeypatch)

    as_it_is = found("a", 1)
    with monkeypatch.context() as patched:
        patched.setattr(RouteStage, "_without_over_cap", lambda self, rows, *columns: rows)
        whole = found("b", 2)
    assert as_it_is == whole
    begin = RouteStage.__init__

    level: Any = SimpleNamespace(bounding=Bounding(max_records=4, max_records_per_key=per_key), lists=None)

    def eager(self: RouteStage, *arguments: Any) -> None:
        begin(self, *arguments)
        self._early_drop = EarlyDrop([level], None, arguments[0].secret)

    monkeypatch.setattr(RouteStage, "__init__", eager)
    assert found("c", 2) != whole


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
def test_with_a_cap_on_keys_nothing_is_dropped_on_arrival(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that a user's fetch alone pushes over C counts after all if others of the fetch bring one key too many.

    Which records share a fetch follows other users' load, so dropping it would let them decide about it.
    """
    logs, dice = raw_logs(5, kind), random.Random(6)
    for log in logs:  # every user brings many keys at once, of which one is admitted
        log[:] = [
            (arrived, stamp, who, {**payload, "key": f"{who}/{dice.randrange(6)}"})
            for arrived, stamp, who, payload in log
            for _ in range(6)
        ]
    as_it_is = increments(services(kind, "toeplitz", max_keys_per_user=1), logs, kind, 1, tmp_path / "a", monkeypatch)
    monkeypatch.setattr(RouteStage, "_without_over_cap", lambda self, rows, *columns: rows)
    whole = increments(services(kind, "toeplitz", max_keys_per_user=1), logs, kind, 2, tmp_path / "b", monkeypatch)
    assert len(whole) > 10
    assert as_it_is == whole
