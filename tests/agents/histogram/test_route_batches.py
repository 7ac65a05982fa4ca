"""route writes the same bytes whether a fetch comes as record batches, which it decodes compiled, or as parsed records."""

import json
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.histogram import route
from susurrus.agents.histogram.route import RouteStage, whole_decoder
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.record_batches import Fetched, batch_at
from susurrus.topics import by_user
from susurrus.topics.compiled import compiled
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.cycles import no_cycles
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, WallClock, services_of
from tests.record_batches import LZ4, record_batch
from tests.topics.odd_json import Odd

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

NUMBER = 2_000
REPLAY = {"clock": {"kind": "replay", "until": WINDOW + 86_400_000}}
"""The archive ends before what the last fetch brings."""


def chosen(**changes: Any) -> Any:
    return settings(
        **{
            "input": {
                "topic": "raw",
                "user": "u",
                "key": ["k", "z"],
                "time": "t",
                "time_unit": "ms",
                "null_key": "value",
            },
            "start": {"from": "earliest", "first_window": WINDOW},
            "clock": {"kind": "broker"},
            "columns": [
                {"name": "visits", "kind": "count"},
                {"name": "v", "kind": "sum", "field": "v", "bound": 50.0, "grid": 0.5},
            ],
            "bounds": {"max_records_per_user": 3},
            "worker": {"dead_letter_values": True},
            **changes,
        }
    )


def payloads() -> list[bytes | None]:
    """Odd ones, and as many of a few users whose times are good, too early, or far ahead."""
    odd: list[bytes | None] = Odd(17).payloads(NUMBER // 2)
    times = [WINDOW, WINDOW + 7, WINDOW - 10**10, WINDOW + 10**13]
    plain = [
        json.dumps(
            {"u": f"user-{n % 70}", "k": n % 5, "z": "ü" * (n % 3), "v": n / 8, "t": times[n * n % 11 % 4]}
        ).encode()
        for n in range(NUMBER // 2)
    ]
    return [value for pair in zip(odd, plain, strict=True) for value in pair]


def batches(values: list[bytes | None], first: int, each: int, append_time: bool) -> bytes:
    """Stamped within the first window: by the broker with a stamp for each batch, by its producer with one for each record."""
    found = []
    for at in range(0, len(values), each):
        batch = record_batch(
            values[at : at + each], first=first + at, codec=LZ4 * (at % 2), append_time=append_time, stamp=WINDOW
        )
        found.append(batch)
    return b"".join(found)


def routed(
    directory: Path, *, whole: bool, each: int, ends: list[int], kept: list[Runner] | None = None, **changes: Any
) -> tuple[Any, ...]:
    services = services_of(chosen(**changes))
    services.clients.ends = {0: NUMBER - 111}  # type: ignore[attr-defined]
    runner = Runner(RouteStage, services, directory)
    if kept is not None:
        kept.append(runner)
    values, start = payloads(), 0
    append_time = services.settings.clock.kind == "broker"
    for end in [*ends, NUMBER]:
        # A fetch may begin inside a record batch.
        begins = max(0, start - each // 2)
        data, at, found = batches(values[begins:end], begins, each, append_time), 0, []
        while at < len(data):
            batch, at = batch_at(data, at)
            assert batch is not None
            found.append(batch)
        fetched = Fetched(found, start)
        taken = Batch(start, end, fetched if whole else fetched.records(), 0)  # type: ignore[arg-type]
        runner.stage.take(taken)
        if end % 2:
            runner.commit(now=WINDOW)
        start = end
    runner.commit(now=WINDOW)
    outputs = [
        (output.topic, output.partition, output.messages, output.headers)
        for c in runner.commits
        for output in c.outputs
    ]
    facts = [(c.position, c.meta) for c in runner.commits]
    runner.close()
    return outputs, facts, dict(runner.stage.counters)


@pytest.mark.parametrize("changes", [{}, REPLAY], ids=["broker", "replay"])
@pytest.mark.parametrize("each", [3, 500])
def test_the_bytes_are_the_same(
    each: int, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [1, 2, 450, 1_111, 1_700]
    decoded: list[int] = []
    decode = route.RawBatchDecoder.decode

    def counted(*arguments: Any) -> Any:
        found = decode(*arguments)
        decoded.append(len(found[0]))
        return found

    monkeypatch.setattr(route.RawBatchDecoder, "decode", counted)
    expected = routed(tmp_path / "parsed", whole=False, each=each, ends=ends, **changes)
    assert decoded == []
    found = routed(tmp_path / "whole", whole=True, each=each, ends=ends, **changes)
    assert sum(decoded) == NUMBER - 111 * bool(changes)
    assert found == expected
    counters = found[2]
    assert counters["in"] == NUMBER
    assert counters["routed"] > 300
    assert counters["capped"] > 100
    assert counters["dead_letter"] > 300


COMPUTED = {
    "topic": "raw",
    "user": {"expression": "coalesce(u, who.id)"},
    "key": ["z", {"name": "k", "expression": "CAST(k AS INTEGER) % 3"}],
    "time": "t",
    "null_key": "value",
    "where": "v < 100 AND z <> 'üü'",
}
"""Half of the payloads have other types in these fields, or none."""


@pytest.mark.parametrize("each", [3, 500])
def test_the_bytes_are_the_same_where_records_are_filtered_and_scalars_computed(
    each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, left = [1, 2, 450, 1_111, 1_700], [0, 0]
    decode = route.RawBatchDecoder.decode

    def counted(*arguments: Any) -> Any:
        found = decode(*arguments)
        left[0] += len(found[0])
        left[1] += len(found[0].left)
        return found

    monkeypatch.setattr(route.RawBatchDecoder, "decode", counted)
    expected = routed(tmp_path / "parsed", whole=False, each=each, ends=ends, input=COMPUTED)
    assert left == [0, 0]
    found = routed(tmp_path / "whole", whole=True, each=each, ends=ends, input=COMPUTED)
    assert left[0] == NUMBER
    assert left[1] < 0.7 * NUMBER  # json.dumps writes ü with an escape, which the scanner leaves
    assert found == expected
    counters = found[2]
    assert counters["in"] == NUMBER
    assert counters["filtered"] > 300
    assert counters["routed"] > 100
    assert counters["dead_letter"] > 300


@pytest.mark.parametrize("where", [None, "v > 1 and z <> 'ü'"])
@pytest.mark.parametrize("each", [3, 500])
def test_the_bytes_are_the_same_where_python_finds_the_places_of_records(
    each: int, where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[int] = []
    table = Fetched.table

    def counted(fetched: Fetched) -> Any:
        found = table(fetched)
        tables.append(0 if found is None else len(found))
        return found

    monkeypatch.setattr(Fetched, "table", counted)
    monkeypatch.setattr(route, "whole_decoder", lambda *arguments: None)
    changes = {} if where is None else {"input": {"topic": "raw", "user": "u", "key": ["k"], "where": where}}
    ends = [1, 2, 450, 1_111, 1_700]
    expected = routed(tmp_path / "parsed", whole=False, each=each, ends=ends, **changes)
    assert tables == []
    found = routed(tmp_path / "places", whole=True, each=each, ends=ends, **changes)
    assert sum(tables) == NUMBER
    assert found == expected
    assert found[2]["routed"] > 300


@pytest.mark.parametrize("where", [None, "v > 1 and z <> 'ü'"])
def test_nothing_of_a_fetch_waits_for_the_collector(where: str | None, tmp_path: Path) -> None:
    changes = {} if where is None else {"input": {"topic": "raw", "user": "u", "key": ["k"], "where": where}}
    kept: list[Runner] = []  # a stage lasts as long as its task
    with no_cycles():
        _, _, counters = routed(tmp_path, whole=True, each=500, ends=[450, 1_111, 1_701], kept=kept, **changes)
    assert counters["in"] == NUMBER
    assert (counters.get("filtered", 0) > 100) == (where is not None)


@pytest.mark.parametrize("whole", [True, False], ids=["compiled", "pure"])
@pytest.mark.parametrize("kind", ["broker", "producer"])
def test_records_of_the_other_time_stamp_type_are_dead_letters_and_the_others_do_not_notice(
    kind: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's setting changes twice while it is read. Stamps of the time between close nothing, however far ahead they are."""

    monkeypatch.setattr(route, "time", WallClock())

    def run(directory: Path, spoiled: list[int]) -> Any:
        services = services_of(chosen(clock={"kind": kind}, input={"topic": "raw", "user": "u", "key": ["k"]}))
        runner = Runner(RouteStage, services, directory)
        at = 0
        for number in range(6):
            values = [json.dumps({"u": f"u{number}-{n}", "k": n % 3, "v": n}).encode() for n in range(10)]
            other = number in spoiled
            data = record_batch(values, first=at, append_time=(kind == "broker") != other, stamp=WINDOW + other * 10**9)
            batch, _ = batch_at(data, 0)
            assert batch is not None
            fetched = Fetched([batch], at)
            runner.stage.take(Batch(at, at + 10, fetched if whole else fetched.records(), 0))  # type: ignore[arg-type]
            at += 10
            if number % 2:
                runner.commit(now=WINDOW)
        letters = [
            (letter.offset, letter.reason)
            for commit in runner.commits
            for output in commit.outputs
            for letter in map(decode_headers, output.headers or ())
        ]
        blocks = [value for _, _, _, value, _ in runner.to("by-user") if value and kind_of(value) is not Kind.TICK]
        rows = [
            (int(block.offset[row]), int(block.interval[row]), int(block.window[row]), block.users[block.user[row]])
            for block in map(by_user.decode, blocks)
            for row in range(len(block.offset))
        ]
        closed = runner.stage.report()["interval"]
        counters = dict(runner.stage.counters)
        runner.close()
        return sorted(rows), letters, closed, counters

    rows, letters, closed, counters = run(tmp_path / "changes", [2, 3])
    everything, none, closed_in_peace, _ = run(tmp_path / "peace", [])
    assert len(everything) == 60
    assert none == []
    assert letters == [(offset, Reason.WRONG_STAMP) for offset in range(20, 40)]
    assert rows == [row for row in everything if not 20 <= row[0] < 40]
    assert closed == closed_in_peace
    assert (counters["in"], counters["dead_letter"], counters["routed"]) == (60, 20, 40)


def test_within_one_fetch_each_batch_has_its_own_type(tmp_path: Path) -> None:
    runner = Runner(RouteStage, services_of(chosen(input={"topic": "raw", "user": "u", "key": ["k"]})), tmp_path)
    found = []
    for number, append_time in enumerate([True, False, True]):
        value = json.dumps({"u": number, "k": 1, "v": 1}).encode()
        batch, _ = batch_at(record_batch([value], first=number, append_time=append_time, stamp=WINDOW), 0)
        assert batch is not None
        found.append(batch)
    runner.stage.take(Batch(0, 3, Fetched(found, 0), 0))  # type: ignore[arg-type]
    assert dict(runner.stage.counters)["dead_letter"] == 1
    runner.commit(now=WINDOW)
    [output] = [o for commit in runner.commits for o in commit.outputs if o.headers]
    assert [(x.offset, x.reason) for x in map(decode_headers, output.headers or ())] == [(1, Reason.WRONG_STAMP)]
    runner.close()


def decoder_of(source: dict[str, Any]) -> Any:
    given = chosen(input=source)
    computation = SharedComputation(given.raw_schema().scalars, given.input.where, {})
    reader = reader_of(given.input, computation.paths, topic="raw", partition=0, asked=computation.asked)
    return whole_decoder(given, given.input, reader, computation)


def test_what_is_beside_the_value_or_taken_apart_is_not_for_the_compiled_decoder() -> None:
    plain = {"topic": "raw", "user": "u", "key": ["k"]}
    computed = {**plain, "key": [{"name": "k", "expression": "lower(k)"}]}
    for source in (plain, {**plain, "where": "v > 1"}, computed):
        assert decoder_of(source) is not None
    apart = {**plain, "key": ["item"], "each": [{"of": "k", "as": "item"}]}
    for source in ({**plain, "where": "$topic = 'raw'"}, apart, {**plain, "format": "msgpack"}):
        assert decoder_of(source) is None
