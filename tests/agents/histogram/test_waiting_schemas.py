"""Records that name a schema the registry does not know (yet): what becomes of them, and what they do to the others.

Route runs as it does in a worker, with fetches and crashes at random places; the wall clock and the registry are the test's.
"""

import io
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.formats import waiting
from susurrus.agents.histogram import route as route_module
from susurrus.agents.histogram.route import RouteStage
from susurrus.topics import by_user
from susurrus.topics import tick as tick_codec
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import WINDOW, MemoryClients, Runner, WallClock, services_of
from tests.registry import LateRegistry

fastavro = pytest.importorskip("fastavro")
schema_registry = pytest.importorskip("confluent_kafka.schema_registry")

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
PATIENCE = 10 * SECOND
STEP = SECOND // 2
VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "host", "type": "string"}, {"name": "url", "type": "string"}],
}
KNOWN, LATE, LATER, NEVER, WITHHELD, NO_ID = 1, 2, 3, 4, 5, 2**31 + 1
ALWAYS = 0.0


@dataclass(frozen=True)
class Event:
    """A raw record. arrived: moment of the append. number: its name here, for offsets differ between neighbours."""

    number: int
    arrived: int
    stamp: int
    user: str
    schema: int


@dataclass(frozen=True)
class Fate:
    """What became of a record, and at which moment that was committed."""

    what: tuple[Any, ...] | Reason
    at: int


class Log(MemoryClients):
    """A log that ends where the wall clock says."""

    def __init__(self, events: Sequence[Event], clock: WallClock) -> None:
        super().__init__()
        self.events, self.clock = events, clock

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, sum(event.arrived <= self.clock.now for event in self.events)


class Played:
    """One raw partition and who reads it."""

    def __init__(
        self,
        kind: str,
        events: Sequence[Event],
        since: Mapping[int, float],
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.events, self.clock = events, WallClock()
        self.registry = LateRegistry(
            SimpleNamespace(references=[], schema_str=json.dumps(VISIT)), since, lambda: self.clock.now
        )
        self.registry.withheld.add(WITHHELD)
        monkeypatch.setattr(schema_registry, "SchemaRegistryClient", self.registry)
        for module in (route_module, waiting):
            monkeypatch.setattr(module, "time", self.clock)
        ours = services_of(
            settings(
                input={
                    "topic": "raw",
                    "user": "host",
                    "key": ["url"],
                    "format": "avro",
                    "registry": {"url": "http://localhost:1", "patience": PATIENCE},
                },
                start={"from": "earliest", "first_window": WINDOW},
                clock={
                    "kind": kind,
                    "max_ahead": "3h",
                    **({"until": WINDOW + 24 * HOUR} if kind == "replay" else {"idle_grace": "10s"}),
                },
                window={"length": 24 * HOUR, "trigger_every": MINUTE, "origin": WINDOW},
                bounds={"max_records_per_user": 10_000, "max_records_per_key": 10_000},
                topics={"by_user_partitions": 1, "bounded_partitions": 1},
            ),
            sources=1,
        )
        object.__setattr__(ours, "clients", Log(events, self.clock))
        if kind == "replay":
            self.clock.now = WINDOW + 1000 * HOUR
        self.records = [
            SimpleNamespace(
                offset=offset,
                timestamp=e.stamp,
                timestamp_type=kind == "broker",
                value=payload(e),
                key=None,
                headers=(),
            )
            for offset, e in enumerate(events)
        ]
        self.runner = Runner(RouteStage, ours, directory)
        self.fates: dict[int, Fate] = {}
        self.ticked = -1
        self._seen = 0

    @property
    def arrived(self) -> int:
        """How many records there are by now."""
        return self.runner.services.clients.watermarks("raw", 0)[1]

    def fetch(self, most: int) -> bool:
        """One fetch, if one is wanted and there is anything."""
        before = self.runner.next
        if not self.runner.stage.full:
            self.runner.feed(self.records, min(self.arrived, before + most))
        return self.runner.next > before

    def commit(self) -> None:
        """Make durable what is ready, and note what was decided."""
        self.runner.commit(now=self.clock.now)
        for commit in self.runner.commits[self._seen :]:
            for output in commit.outputs:
                if output.headers is not None:
                    for headers in output.headers:
                        letter = decode_headers(headers)
                        self._note(letter.offset, letter.reason)
                    continue
                for value in (message["value"] for message in output.messages):
                    if kind_of(value) is Kind.TICK:
                        self.ticked = tick_codec.decode(value).interval
                        continue
                    block = by_user.decode(value)
                    for row, offset in enumerate(block.offset.tolist()):
                        user = block.users[block.user[row]]
                        self._note(offset, (int(block.interval[row]), int(block.window[row]), user))
        self._seen = len(self.runner.commits)

    def _note(self, offset: int, what: tuple[Any, ...] | Reason) -> None:
        number = self.events[offset].number
        assert number not in self.fates, "decided twice"
        self.fates[number] = Fate(what, self.clock.now)

    def abort(self) -> None:
        """What a task does after a transaction that was aborted."""
        runner = self.runner
        runner.stage.close()
        runner.restart()

    def play(self, seed: int, *, restarts: bool = True) -> dict[int, Fate]:
        """Everything, to its end."""
        dice = random.Random(seed)
        deadline = self.clock.now + 100 * HOUR
        while len(self.fates) < len(self.events):
            assert self.clock.now < deadline, f"{self.runner.stage.stall(self.clock.now)}"
            while self.fetch(dice.randrange(1, 8)):
                if dice.random() < 0.5:
                    self.commit()
                elif restarts and dice.random() < 0.1:
                    self.runner.restart()
            self.commit()
            if restarts and dice.random() < 0.05:
                dice.choice([self.runner.restart, self.abort])()
            self.clock.now += dice.choice([50, STEP])
        return self.fates


def payload(event: Event) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(VISIT), {"host": event.user, "url": f"/{event.number}"})
    return b"\0" + event.schema.to_bytes(4, "big") + out.getvalue()


def traffic(seed: int, kind: str) -> tuple[list[Event], dict[int, float]]:
    """Two minutes of two users, and since when which schemas are registered."""
    dice = random.Random(seed)
    events, archived = [], WINDOW
    for number in range(240):
        arrived = WINDOW + number * STEP
        stamp = arrived
        if kind == "producer":
            stamp += dice.choice([0, 0, 0, -3 * SECOND, 5 * SECOND, HOUR, 100 * HOUR, -HOUR])
        if kind == "replay":
            archived += dice.randrange(0, MINUTE)
            stamp = archived
        schema = dice.choice([KNOWN, KNOWN, KNOWN, KNOWN, LATE, LATER, NEVER, WITHHELD, NO_ID])
        events.append(Event(number, arrived, stamp, dice.choice("ab"), schema))
    since = {KNOWN: ALWAYS, LATE: WINDOW + 7 * SECOND, LATER: WINDOW + 70 * SECOND}
    return events, since


def in_time(event: Event, since: Mapping[int, float]) -> bool:
    """Whether its schema was there within the patience of its stamp and its append."""
    return since.get(event.schema, float("inf")) <= min(event.stamp, event.arrived) + PATIENCE


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
@pytest.mark.parametrize("seed", range(4))
def test_a_schema_registered_in_time_is_found_and_one_that_never_comes_makes_bad_input(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was fetched together, whoever asked first, and wherever the reader was killed."""
    events, since = traffic(seed, kind)
    fates = Played(kind, events, since, tmp_path, monkeypatch).play(seed)
    certain = 0
    for event in events:
        undecodable = fates[event.number].what is Reason.UNDECODABLE
        if in_time(event, since):
            assert not undecodable, event
            certain += event.schema in (LATE, LATER)
        elif event.schema in (NEVER, WITHHELD, NO_ID):
            assert undecodable, event
    assert certain > (0 if kind == "replay" else 20)


def test_a_record_that_names_a_schema_too_early_spoils_no_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann writes a number that is not registered; a minute later Bob registers a schema, which gets it, and writes."""
    registered = WINDOW + MINUTE
    ann = Event(0, WINDOW, WINDOW, "ann", 7)
    bob = [Event(1 + n, registered + n * SECOND, registered + n * SECOND, "bob", 7) for n in range(10)]
    fates = []
    for name, events, restarts in (("with", [ann, *bob], False), ("again", [ann, *bob], True), ("without", bob, False)):
        played = Played("broker", events, {7: registered}, tmp_path / name, monkeypatch)
        for _ in range(4 * MINUTE // STEP):
            while played.fetch(3):
                pass
            played.commit()
            if restarts and played.clock.now == WINDOW + MINUTE // 2:
                played.runner.restart()
            played.clock.now += STEP
        fates.append({number: fate.what for number, fate in played.fates.items()})
    with_ann, restarted, without = fates
    assert with_ann.pop(0) is restarted.pop(0) is Reason.UNDECODABLE
    assert with_ann == restarted == without
    assert [what[2] for what in without.values()] == [b'"bob"'] * 10


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
@pytest.mark.parametrize("seed", range(3))
def test_what_becomes_of_the_others_does_not_change_when_one_user_goes(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who names unknown schemas delays the others, and nothing else."""
    events, since = traffic(seed, kind)
    # One whose schema comes later than the patience lasts is decided by the moment of the look-up (A6): not here.
    events = [e for e in events if e.user == "a" or in_time(e, since) or e.schema not in since]
    others = [e for e in events if e.user == "b"]
    assert 0 < len(others) < len(events)
    whole = Played(kind, events, since, tmp_path / "a", monkeypatch).play(seed)
    rest = Played(kind, others, since, tmp_path / "b", monkeypatch).play(seed + 100)
    assert {e.number for e in others} == set(rest)
    for event in others:
        assert whole[event.number].what == rest[event.number].what, event


@pytest.mark.parametrize(("kind", "ahead"), [("broker", 0), ("producer", 0), ("producer", HOUR), ("producer", -HOUR)])
def test_bad_records_delay_the_others_by_the_patience_and_never_add_up(
    kind: str, ahead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in twenty names an unknown schema, with stamps of an hour ahead, too; a fetch brings ten, and there is a backlog."""
    backlog = 60 * SECOND
    events = []
    for number in range(1_500):
        arrived = WINDOW + number * 100
        bad = number % 20 == 0
        events.append(Event(number, arrived, arrived + ahead * bad, "ab"[bad], NEVER if bad else KNOWN))
    played = Played(kind, events, {KNOWN: ALWAYS}, tmp_path, monkeypatch)
    began = played.clock.now = WINDOW + backlog
    while len(played.fates) < len(events):
        while played.fetch(10):
            pass
        played.commit()
        played.clock.now += 100
    longest = max(played.fates[e.number].at - max(e.arrived, began) for e in events)
    # A look at the log's end, and a question to the registry, once a second each.
    assert longest <= PATIENCE + 2 * SECOND + 200
    assert all((fate.what is Reason.UNDECODABLE) == (number % 20 == 0) for number, fate in played.fates.items())
    # The known schema, and while one waits once a second.
    assert len(played.registry.asked) < 400


@pytest.mark.parametrize("kind", ["broker", "producer", "replay"])
def test_what_waits_has_not_been_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes no interval, ends no archive and counts nothing, and is read again; what was before it is committed."""
    events = [Event(n, WINDOW + n, WINDOW + n, "ab"[n % 2], KNOWN) for n in range(10)]
    played = Played(kind, events, {KNOWN: ALWAYS}, tmp_path, monkeypatch)
    runner = played.runner
    if kind == "replay":
        late = Event(10, played.clock.now, WINDOW + 10, "a", KNOWN)  # behind the end that was pinned by now
        events.append(late)
        played.records.append(
            SimpleNamespace(
                offset=10, timestamp=late.stamp, timestamp_type=0, value=payload(late), key=None, headers=()
            )
        )
    played.clock.now += MINUTE // 2
    played.fetch(4)
    played.commit()
    assert (runner.position, len(played.fates)) == (4, 4)
    runner.restart()  # who goes on has not found the schema yet
    played.registry.broken = ConnectionError("away")
    played.fetch(3)
    assert runner.stage.full
    runner.feed(played.records, len(events))  # was under way
    for _ in range(20):
        played.commit()
        played.clock.now += MINUTE
    assert (runner.position, len(played.fates), runner.stage.counters["in"]) == (4, 4, 4)
    assert played.ticked == -1
    said = str(runner.stage.stall(0) or "")
    assert "topic=raw partition=0 offset=4: the schema registry does not answer (ConnectionError)" in said
    assert len(played.registry.asked) <= 25
    played.abort()
    assert (runner.next, runner.stage.full) == (4, False)
    played.fetch(len(events))
    played.commit()
    assert (runner.position, runner.stage.full) == (4, True)

    played.registry.broken = None
    played.clock.now += MINUTE
    played.commit()
    assert not runner.stage.full
    counters = runner.stage.counters
    assert (runner.position, counters["in"], counters["late"]) == (len(events), len(events), len(events) - 10)
    assert {fate.what[0] for fate in played.fates.values()} == {
        0
    }  # the interval of their stamps: none was closed meanwhile
    assert len(played.fates) == 10
    assert played.ticked > 0
    assert "registry" not in (str(runner.stage.stall(0) or ""))


def test_an_unknown_schema_says_where_it_is_named_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = [Event(0, WINDOW, WINDOW, "a", KNOWN), Event(1, WINDOW, WINDOW, "b", NEVER)]
    played = Played("broker", events, {KNOWN: ALWAYS}, tmp_path, monkeypatch)
    played.fetch(2)
    for _ in range(3):
        played.commit()
        played.clock.now += SECOND
    stall = played.runner.stage.stall(0)
    assert stall is not None
    assert f"topic=raw partition=0 offset=1: the schema registry does not know schema id={NEVER}" in stall.text
    assert stall.action.startswith("register that schema")
    assert [str(stall) in line for line in caplog.messages] == [True]
