"""Streams in Avro: the same rows as from JSON, and a value whose schema comes late holds up those behind it."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats import waiting
from susurrus.agents.runtime.services import Services
from susurrus.agents.stream import stage as stage_module
from susurrus.agents.stream.stage import StreamStage
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.private_stream import decode_row
from susurrus.topics.records.reason import Reason
from tests.agents.released import settings
from tests.agents.stages import SECRET, WINDOW, MemoryClients, MemoryLedger, Runner, WallClock
from tests.agents.stages import Written as Rows
from tests.registry import LateRegistry

fastavro = pytest.importorskip("fastavro")
schema_registry = pytest.importorskip("confluent_kafka.schema_registry")

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "meter", "type": "string"}, {"name": "watts", "type": "double"}],
}
AVRO = {"format": "avro", "registry": {"url": "http://localhost:1", "patience": "10s"}}
KNOWN, LATE, NEVER = 1, 2, 3
SECOND = 1000


def of_stream(source: Mapping[str, Any]) -> Settings:
    return settings(
        pipeline={"name": "meters", "kind": "stream"},
        input={"topic": "raw", **source},
        stream={
            "method": "pak",
            "stream": "meter",
            "value": "watts",
            "bound": 100.0,
            "grid": 0.5,
            "epsilon": 8.0,
            "delta": 1e-5,
            "holdout": 2000,
            "horizon": 4000,
            "tail_start": 0.05,
        },
        privacy=None,
    )


def runner_of(found: Settings, directory: Path, end: int) -> Runner:
    services = Services(
        settings=found,
        clients=MemoryClients({0: end}),  # type: ignore[arg-type]
        ledger=MemoryLedger(found, sources=1),  # type: ignore[arg-type]
        calendar=found.calendar,
        config_digest=b"\1" * 32,
        secret=SECRET,
    )
    return Runner(StreamStage, services, directory)


def framed(event: Mapping[str, Any], schema: int = KNOWN) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(READING), event)
    return b"\0" + schema.to_bytes(4, "big") + out.getvalue()


def records(payloads: list[bytes]) -> list[Any]:
    return [
        SimpleNamespace(offset=offset, timestamp=WINDOW + offset, timestamp_type=0, value=value, key=None, headers=())
        for offset, value in enumerate(payloads)
    ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    since = {KNOWN: 0.0, LATE: WINDOW + 5 * SECOND}
    registry = LateRegistry(SimpleNamespace(references=[], schema_str=json.dumps(READING)), since, lambda: clock.now)
    monkeypatch.setattr(schema_registry, "SchemaRegistryClient", registry)
    for module in (stage_module, waiting):
        monkeypatch.setattr(module, "time", clock)
    return clock


def published(runner: Runner) -> Rows:
    found = runner.to("private-stream")
    runner.close()
    return found


def test_the_rows_are_those_of_json_wherever_a_value_waits(tmp_path: Path, clock: WallClock) -> None:
    watts = np.random.default_rng(3).uniform(0, 100, 2100).tolist()
    events = [{"meter": "m", "watts": value} for value in watts]
    texts, binary = [json.dumps(event).encode() for event in events], list(map(framed, events))
    binary[2050] = framed(events[2050], LATE)
    json_runner = runner_of(of_stream({}), tmp_path / "json", len(texts))
    json_runner.feed(records(texts), len(texts))
    json_runner.commit(now=clock.now)
    avro_runner = runner_of(of_stream(AVRO), tmp_path / "avro", len(binary))
    stage = avro_runner.stage
    for end in (2040, len(binary)):
        avro_runner.feed(records(binary), end)
    avro_runner.commit(now=clock.now)
    assert (avro_runner.position, stage.full) == (2050, True)
    assert f"topic=raw partition=0 offset=2050: the schema registry does not know schema id={LATE}" in (
        str(stage.stall(clock.now) or "")
    )
    clock.now += 6 * SECOND
    avro_runner.commit(now=clock.now)
    assert (avro_runner.position, stage.full, stage.stall(clock.now)) == (len(binary), False, None)
    rows, wanted = published(avro_runner), published(json_runner)
    assert len(rows) > 50
    assert [decode_row(row[3] or b"") for row in rows] == [decode_row(row[3] or b"") for row in wanted]


def test_a_value_whose_schema_never_comes_is_no_event(tmp_path: Path, clock: WallClock) -> None:
    event = {"meter": "m", "watts": 1.0}
    payloads = [framed(event), framed(event, NEVER), framed(event)]
    runner = runner_of(of_stream(AVRO), tmp_path, len(payloads))
    runner.feed(records(payloads), len(payloads))
    runner.restart()
    runner.feed(records(payloads), len(payloads))
    for _ in range(20):
        runner.commit(now=clock.now)
        clock.now += SECOND
    assert runner.position == 3
    assert (runner.stage.counters["in"], runner.stage.counters["dead_letter"]) == (3, 1)
    [headers] = [headers for commit in runner.commits for output in commit.outputs for headers in output.headers or ()]
    letter = decode_headers(headers)
    assert (letter.reason, letter.offset) == (Reason.UNDECODABLE, 1)
    runner.close()
