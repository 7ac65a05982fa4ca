"""A stream that comes again to what is public publishes nothing twice, and nothing from other values under the same noise."""

import contextlib
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.chain import chain_key
from susurrus.agents.runtime.faust.record_batches import Fetched, batch_at
from susurrus.agents.runtime.stage import MorePublic
from susurrus.agents.stream import replay as module
from susurrus.agents.stream import stage as stage_module
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.replay import BLOCK, Chain, stream_key
from susurrus.agents.stream.stage import StreamStage
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.topics import ledger as codec
from susurrus.topics.compiled import compiled
from tests.agents.stages import EPOCH, SECRET, Runner, Written
from tests.agents.stream.test_order import METHODS, services
from tests.record_batches import record_batch

COUNT = 1_900
PUBLIC = ("private-stream", "dead-letter")
Log = list[Any]
MECHANISMS = {method: mechanism_of(services(method).settings.stream) for method in METHODS}


def record(offset: int, meter: str, watts: Any) -> Any:
    value = json.dumps({"meter": meter, "watts": watts}).encode()
    return SimpleNamespace(offset=offset, timestamp=1_000 + offset, key=None, value=value)


def readings(count: int, *, bad: bool = True) -> Log:
    """Of three meters; some are no numbers."""
    dice = random.Random(2)
    found = []
    for offset in range(count):
        watts = round(dice.gammavariate(2, 8), 2)
        found.append(record(offset, f"m{dice.randrange(3)}", "none" if bad and dice.random() < 0.02 else watts))
    return found


def meters(method: str) -> Any:
    ours = services(method)
    ours.ledger.topic = ours.topic("ledger")
    return ours


def numbered(log: Log) -> Log:
    """The same records, with offsets that follow each other."""
    return [SimpleNamespace(**{**vars(one), "offset": offset}) for offset, one in enumerate(log)]


@pytest.fixture(autouse=True)
def quiet_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits without output also come after few records, so that a replay has many."""
    monkeypatch.setattr(stage_module, "_QUIET_RECORDS", 40)


@pytest.fixture(autouse=True)
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """PAK looks for its parameters each time that a stage is made."""
    monkeypatch.setattr(stage_module, "mechanism_of", lambda section: MECHANISMS[section.method])


def feed(runner: Runner, log: Log, end: int, seed: int | None = None) -> None:
    """In fetches, commits and restarts at random."""
    dice = random.Random(seed)
    while seed is not None and runner.next < end:
        runner.feed(log, min(end, runner.next + dice.randrange(1, 120)))
        if dice.random() < 0.5 and runner.commit() and dice.random() < 0.5:
            runner.restart()
    runner.feed(log, end)
    runner.commit()


def known(runner: Runner) -> codec.PublishedPosition:
    found = runner.services.ledger.published(0)
    assert found is not None
    return found


@pytest.fixture(params=METHODS)
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Runner, Log, Written]]:
    """A partition that has published of all but the last 200 records; then its state is lost, and its owner may rebuild it."""
    log = readings(COUNT + 200)
    runner = Runner(StreamStage, meters(request.param), tmp_path / "life")
    feed(runner, log, COUNT, 1)
    assert known(runner).position > COUNT - 60
    before = runner.to(*PUBLIC)
    assert {topic for topic, *_ in before} == {runner.services.topic(name) for name in PUBLIC}
    assert len(before) > 100
    runner.restart(empty=True)
    yield runner, log, before
    runner.close()


# ---- equal values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 2, 3])
def test_an_equal_replay_publishes_nothing_twice_and_goes_on(
    life: tuple[Runner, Log, Written], tmp_path: Path, seed: int | None
) -> None:
    runner, log, before = life
    feed(runner, log, COUNT, seed)
    assert runner.to(*PUBLIC) == before
    feed(runner, log, len(log), seed)
    undisturbed = Runner(StreamStage, meters(runner.services.settings.stream.method), tmp_path / "undisturbed")
    feed(undisturbed, log, len(log))
    for topic in PUBLIC:
        assert [row[2:] for row in runner.to(topic)] == [row[2:] for row in undisturbed.to(topic)]
    assert len(undisturbed.to("private-stream")) > len([row for row in before if row[0].endswith("private-stream")])
    assert runner.stage.counters == undisturbed.stage.counters
    assert known(runner).digest == known(undisturbed).digest
    assert runner.state() == undisturbed.state()
    undisturbed.close()


def test_any_older_state_goes_on_without_a_second_row(tmp_path: Path) -> None:
    """The state after each commit is put back in turn; what the ledger and readers have stays."""
    log = readings(600)
    whole = Runner(StreamStage, meters("tops"), tmp_path / "whole")
    feed(whole, log, len(log))
    wanted = [row[2:] for row in whole.to("private-stream")]
    whole.close()
    for number in range(8):
        runner = Runner(StreamStage, meters("tops"), tmp_path / str(number))
        copies = []
        for end in range(75, 601, 75):
            feed(runner, log, end)
            copies.append((runner.state(), runner.meta, runner.position))
        state, meta, position = copies[number]
        runner.store.wipe()
        runner.store.write(list(state.items()), [], [], meta=b"m")
        runner.meta, runner.position = meta, position
        runner.restart()
        feed(runner, log, len(log), number)
        assert [row[2:] for row in runner.to("private-stream")] == wanted
        runner.close()


def test_dead_letters_below_are_not_written_twice_and_their_fate_alone_refuses_nothing(
    life: tuple[Runner, Log, Written],
) -> None:
    """They are no input of the noise. Another reason, or a missing letter, changes nothing that the noise covers."""
    runner, log, before = life
    letters = [one.offset for one in log[:COUNT] if b"none" in one.value]
    log[letters[0]].value = b"{"
    changed = [one for one in log if one.offset != letters[1]]
    runner.stage.take(batch(changed[: COUNT - 1], COUNT))
    runner.next = COUNT
    runner.commit()
    assert runner.to(*PUBLIC) == before


def batch(records: Log, end: int) -> Any:
    return Batch(Offset(0), Offset(end), records, 0)


@pytest.mark.skipif(compiled is None, reason="the extension is not built")
@pytest.mark.parametrize("changed", [False, True])
def test_a_replay_as_record_batches_is_compared_in_the_same_way(
    life: tuple[Runner, Log, Written], *, changed: bool
) -> None:
    runner, log, before = life
    values = [one.value for one in (changed_last(log, known(runner).position) if changed else log)]
    refusal = pytest.raises(ReplayMismatch, match="from different values") if changed else contextlib.nullcontext()
    with refusal:
        for start in range(0, COUNT, 500):
            end = min(COUNT, start + 500)
            found, _ = batch_at(record_batch(values[start:end], first=start), 0)
            assert found is not None
            fetched: Any = Fetched([found], Offset(start))
            runner.stage.take(Batch(Offset(start), Offset(end), fetched, 0))
            runner.commit()
    assert runner.to(*PUBLIC) == before


# ---- other values -------------------------------------------------------------------------------------------------------


def event_before(log: Log, end: int) -> int:
    return next(one.offset for one in reversed(log[:end]) if b"none" not in one.value)


def changed_first(log: Log, end: int) -> Log:
    return [record(0, "m0", 99.0), *log[1:]]


def changed_last(log: Log, end: int) -> Log:
    """The last event before the recorded position: in most cases no row depends on it yet."""
    at = event_before(log, end)
    event = json.loads(log[at].value)
    return [*log[:at], record(at, event["meter"], 0.0 if event["watts"] > 1 else 50.0), *log[at + 1 :]]


def dropped(log: Log, end: int) -> Log:
    return numbered([*log[:300], *log[301:]])


def compacted(log: Log, end: int) -> Log:
    """Without the record, and all others where they were."""
    return [one for one in log if one.offset != event_before(log, end)]


def inserted(log: Log, end: int) -> Log:
    return numbered([*log[:300], record(300, "m1", 5.0), *log[300:]])


def swapped(log: Log, end: int) -> Log:
    """Two events of one meter."""
    one, other = [at for at in range(end) if b'"m1"' in log[at].value and b"none" not in log[at].value][-2:]
    turned = list(log)
    turned[one], turned[other] = log[other], log[one]
    return numbered(turned)


def renamed(log: Log, end: int) -> Log:
    at = event_before(log, end)
    return [*log[:at], record(at, "m9", json.loads(log[at].value)["watts"]), *log[at + 1 :]]


def turned_bad(log: Log, end: int) -> Log:
    at = event_before(log, end)
    return [*log[:at], record(at, "m0", "none"), *log[at + 1 :]]


CHANGES = (changed_first, changed_last, dropped, compacted, inserted, swapped, renamed, turned_bad)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", [None, 4])
def test_other_values_are_refused_before_anything_is_published(
    life: tuple[Runner, Log, Written], change: Callable[[Log, int], Log], seed: int | None
) -> None:
    runner, log, before = life
    position = known(runner).position
    record_before = runner.services.ledger.records[b"published/0"]
    other = change(log, position)
    assert [vars(one) for one in other] != [vars(one) for one in log]
    pattern = (
        rf"stage=stream partition=0 position={position}: what is public up to here was published from different values, and the "
        r"same noise must never cover two inputs: restore the raw topic and the internal topics as they were at the last commit, "
        r"or run"
    )
    for _ in range(2):  # a worker that is started again refuses again
        with pytest.raises(ReplayMismatch, match=pattern):
            feed_offsets(runner, other, seed)
        assert runner.to(*PUBLIC) == before
        assert runner.services.ledger.records[b"published/0"] == record_before
        runner.restart()


def feed_offsets(runner: Runner, log: Log, seed: int | None) -> None:
    """As `feed`, of a log with holes."""
    dice, end = random.Random(seed), log[-1].offset + 1
    while runner.next < end:
        upto = end if seed is None else min(end, runner.next + dice.randrange(1, 120))
        runner.stage.take(Batch(runner.next, upto, [one for one in log if runner.next <= one.offset < upto], 0))
        runner.next = upto
        if runner.commit() and seed is not None and dice.random() < 0.3:
            runner.restart()


def test_a_chain_that_begins_elsewhere_is_refused_at_once(life: tuple[Runner, Log, Written]) -> None:
    """As of a version that kept none, from a copy of its changelog."""
    runner, _, before = life
    runner.meta, runner.position = {"announced": False, "counters": runner.stage.counters}, 10
    with pytest.raises(ReplayMismatch, match="was published from different values"):
        runner.restart()
    assert runner.to(*PUBLIC) == before


def test_a_state_and_a_ledger_that_differ_at_the_same_place_are_refused(tmp_path: Path) -> None:
    log = readings(300, bad=False)
    runner = Runner(StreamStage, meters("tops"), tmp_path / "s")
    feed(runner, log, 300)
    public = known(runner)
    assert public.position == 300
    other = msgspec.structs.replace(public, digest="00" * 32)
    runner.services.ledger.records[b"published/0"] = codec.encode(other)[1]  # type: ignore[attr-defined]
    with pytest.raises(ReplayMismatch, match="position=300"):
        runner.restart()
    runner.close()


# ---- older copies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [False, True])
def test_a_ledger_that_does_not_know_the_last_public_row_is_an_older_copy(
    life: tuple[Runner, Log, Written], tmp_path: Path, lost: bool
) -> None:
    """State and ledger fit each other, and only the public topic shows that more has been published."""
    runner, log, before = life
    clients, ledger = runner.services.clients, runner.services.ledger
    earlier = Runner(StreamStage, meters(runner.services.settings.stream.method), tmp_path / "earlier")
    feed(earlier, log, COUNT - 100, 1)
    ledger.records = {} if lost else dict(earlier.services.ledger.records)  # type: ignore[attr-defined]
    assert clients.newest(runner.services.topic("private-stream"), 0) is not None
    if not lost:
        runner.meta, runner.position = earlier.meta, earlier.position
        runner.store.write(list(earlier.state().items()), [], [], meta=b"m")
    # Another owner may have published since the ledger was read, so the first time the task starts again.
    with pytest.raises(MorePublic, match="more is public than the ledger knows") as first:
        runner.restart()
    with pytest.raises(MorePublic) as second:
        runner.restart()
    assert second.value.evidence == first.value.evidence
    assert re.search(
        r"does not know, so internal topics are an older copy.*: restore them as they were", str(second.value.refusal)
    )
    assert runner.to(*PUBLIC) == before
    earlier.close()


def test_another_owner_that_published_in_between_is_no_older_copy(tmp_path: Path) -> None:
    log = readings(400, bad=False)
    runner = Runner(StreamStage, meters("tops"), tmp_path / "s")
    feed(runner, log, 300)
    records = dict(runner.services.ledger.records)  # type: ignore[attr-defined]
    feed(runner, log, 400)
    now = dict(runner.services.ledger.records)  # type: ignore[attr-defined]
    runner.services.ledger.records = records  # type: ignore[attr-defined]
    with pytest.raises(MorePublic):
        runner.restart()
    runner.services.ledger.records = now  # type: ignore[attr-defined]
    runner.restart()
    runner.close()


def test_a_state_of_a_version_that_kept_no_chain_is_taken_over(tmp_path: Path) -> None:
    log = readings(900, bad=False)
    runner = Runner(StreamStage, meters("tops"), tmp_path / "s")
    feed(runner, log, 300)
    runner.services.ledger.records.clear()  # type: ignore[attr-defined]
    assert runner.meta is not None
    del runner.meta["chain"]
    runner.restart()
    runner.feed(log, 301)
    runner.stage._committed_at = 0.0
    runner.commit()
    assert "chain" in (runner.meta or {})
    runner.restart()
    feed(runner, log, 900, 3)
    assert known(runner).begins == 300
    whole = Runner(StreamStage, meters("tops"), tmp_path / "whole")
    feed(whole, log, 900)
    assert [row[2:] for row in runner.to("private-stream")] == [row[2:] for row in whole.to("private-stream")]
    whole.close()
    runner.close()


# ---- the ledger's record ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_batch_and_no_restart_changes_a_byte_of_the_chain(method: str, tmp_path: Path) -> None:
    log = readings(1_000)

    def chain(seed: int | None) -> Any:
        runner = Runner(StreamStage, meters(method), tmp_path / str(seed))
        feed(runner, log, len(log), seed)
        runner.feed(log, len(log))
        assert runner.meta is not None
        state = runner.stage._replay.state()  # type: ignore[attr-defined]
        digest = runner.stage._replay._chain.digest()  # type: ignore[attr-defined]
        runner.close()
        return state, digest

    whole = chain(None)
    assert whole[0]["events"] % BLOCK
    for seed in range(4):
        assert chain(seed) == whole


def test_a_chain_that_depends_on_the_batches_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open block is hashed with every batch, as a running hash that cannot be stored would do."""
    whole = Chain.add

    def closes_the_block(self: Chain, *columns: Any) -> None:
        whole(self, *columns)
        if self._open:
            self._link, self._open = self._hash(b"block", self._link + self._open), b""

    log = readings(COUNT)
    monkeypatch.setattr(Chain, "add", closes_the_block)
    runner = Runner(StreamStage, meters("tops"), tmp_path / "s")
    feed(runner, log, COUNT, 1)
    runner.restart(empty=True)
    with pytest.raises(ReplayMismatch):
        feed(runner, log, COUNT, 2)
    runner.close()


def test_the_ledger_has_one_record_for_a_partition_and_writes_it_with_every_row(tmp_path: Path) -> None:
    log = readings(COUNT)
    runner = Runner(StreamStage, meters("tops"), tmp_path / "s")
    feed(runner, log, COUNT, 5)
    keys = [key for key in runner.services.ledger.records if key.startswith(b"published")]  # type: ignore[attr-defined]
    assert keys == [b"published/0"]
    for commit in runner.commits:
        topics = [output.topic for output in commit.outputs]
        if topics:
            assert runner.services.topic("ledger") in topics
            messages = commit.outputs[-1].messages
            found = codec.decode(messages[0]["key"], messages[0]["value"])
            assert isinstance(found, codec.PublishedPosition)
            assert found.position == commit.position
        assert len(commit.meta["chain"]["open"]) < BLOCK * module._EVENT_BYTES
    runner.close()


def guessed(log: Log, key: bytes) -> str:
    """The digest of a few events, as whoever has a guess of them makes it, written without the code under test."""

    def made(person: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=32, key=key, person=person).digest()

    link, block = made(b"begins", bytes(8)), b""
    for one in log:
        event = json.loads(one.value)
        steps = int(np.rint(event["watts"] / 0.5))
        block += made(b"name", json.dumps(event["meter"]).encode())[:16] + steps.to_bytes(8, "little")
        if len(block) == BLOCK * 24:
            link, block = made(b"block", link + block), b""
    return made(b"head", len(log).to_bytes(8, "big") + link + block).hex()


def test_whoever_reads_the_ledger_cannot_confirm_a_guess_of_the_values(tmp_path: Path) -> None:
    """With everything but the secret, the right guess looks like any other; whoever has it can make the very digest."""
    log = readings(200, bad=False)
    found = {}
    for name, secret in (("ours", SECRET), ("again", SECRET), ("another", b"\x5b" * 32)):
        ours = replace(meters("tops"), secret=secret)
        runner = Runner(StreamStage, ours, tmp_path / name)
        feed(runner, log, len(log))
        assert known(runner).position == len(log)
        found[name] = known(runner).digest
        runner.close()
    assert found["again"] == found["ours"]
    assert found["another"] != found["ours"]
    epoch = bytes.fromhex(EPOCH)
    strangers = (
        b"",
        b"\0" * 32,
        epoch,
        ours.config_digest,
        chain_key(b"\x5b" * 32, epoch),
        chain_key(SECRET, b"\0" * 16),
    )
    for key in (*strangers, stream_key(ours, 0), chain_key(SECRET, epoch)):
        assert guessed(log, key) != found["ours"]
    ours = meters("tops")
    assert stream_key(ours, 1) != stream_key(ours, 0)  # equal values of two partitions cannot be told
    assert guessed(log, stream_key(ours, 0)) == found["ours"]


def test_an_unkeyed_chain_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stream_key", lambda services, partition: b"")
    ours, log = meters("tops"), readings(200, bad=False)
    runner = Runner(StreamStage, ours, tmp_path / "s")
    feed(runner, log, len(log))
    assert guessed(log, b"") == known(runner).digest
    runner.close()


def test_digests_are_never_public(tmp_path: Path) -> None:
    runner = Runner(StreamStage, meters("tops"), tmp_path / "s")
    feed(runner, readings(COUNT), COUNT, 6)
    found = [codec.decode(key or b"", value) for _, _, key, value, _ in runner.to("ledger")]
    digests = [one.digest.encode() for one in found if isinstance(one, codec.PublishedPosition)]
    assert len(digests) > 3
    for _, _, key, value, _ in runner.to(*PUBLIC):
        assert not any(digest in (key or b"") + (value or b"") for digest in digests)
    runner.close()
