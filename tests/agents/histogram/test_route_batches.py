"""route writes the same bytes whether a fetch comes as record batches, which it decodes compiled, or as parsed records."""

import json
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.histogram import route
from susurrus.agents.histogram.route import Route, whole_decoder
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.record_batches import Fetched, batch_at
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.compiled import compiled
from tests.agents.cycles import no_cycles
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, services_of
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
    runner = Runner(Route, services, directory)
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


@pytest.mark.parametrize("where", [None, "v > 1 and z <> 'ü'"])
def test_nothing_of_a_fetch_waits_for_the_collector(where: str | None, tmp_path: Path) -> None:
    changes = {} if where is None else {"input": {"topic": "raw", "user": "u", "key": ["k"], "where": where}}
    kept: list[Runner] = []  # a stage lasts as long as its task
    with no_cycles():
        _, _, counters = routed(tmp_path, whole=True, each=500, ends=[450, 1_111, 1_701], kept=kept, **changes)
    assert counters["in"] == NUMBER
    assert (counters.get("filtered", 0) > 100) == (where is not None)


def test_who_stamped_the_records_is_looked_at(tmp_path: Path) -> None:
    runner = Runner(Route, services_of(chosen()), tmp_path)
    batch, _ = batch_at(record_batch([b'{"u":1,"k":1,"z":1,"v":1,"t":1}'], first=5), 0)
    assert batch is not None
    with pytest.raises(Refusal, match=r"offset=5 is stamped by"):
        runner.stage.take(Batch(0, 6, Fetched([batch], 0), 0))  # type: ignore[arg-type]
    runner.close()


def test_what_is_computed_or_no_json_is_not_for_the_compiled_decoder() -> None:
    assert whole_decoder(chosen()) is not None
    assert whole_decoder(chosen(input={"topic": "raw", "user": "u", "key": ["k"], "where": "v > 1"})) is None
    computed = {"topic": "raw", "user": "u", "key": [{"name": "k", "expression": "lower(k)"}]}
    assert whole_decoder(chosen(input=computed)) is None
    message = {"topic": "raw", "user": "u", "key": ["k"], "format": "protobuf", "message": "a:B"}
    assert whole_decoder(chosen(input=message)) is None
