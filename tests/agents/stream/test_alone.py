"""Each value has the fate that it has alone, and a stream the rows that it has alone, beside any neighbours, in each raw format."""

import io
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.formats import whole as whole_decoding
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.record_batches import Fetched, batch_at
from susurrus.agents.runtime.services import Services
from susurrus.agents.stream.stage import StreamStage
from susurrus.topics.compiled import compiled
from susurrus.topics.dead_letter import decode_headers
from tests.agents.histogram.input_cases import Registry
from tests.agents.released import WINDOW, settings
from tests.agents.stages import SECRET, MemoryClients, MemoryLedger, Runner
from tests.agents.stream.test_order import METHODS
from tests.proto import DOUBLE, TEXT, message_class
from tests.record_batches import LZ4, record_batch

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("authlib")

METERS: list[Any] = [
    "b", "ü", "", "null", None, True, False, 1, "1", 1.5, -0.0, 1e3, 2**53, 2.0**53, -(2**63), 2**64 - 1, 2**70, "x" * 5_000, "\n",
    [], {"a": 1}, "\ud800", "\U0010ffff",
]  # fmt: skip
WATTS: list[Any] = [
    5, 7.25, None, "many", True, -0.0, -5, 1e300, -1e300, 2**64, 2**70, -(2**70), 10**400, float("nan"), float("inf"),
    -float("inf"), [], {}, "9",
]  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "meter", "type": ["null", "boolean", "long", "double", "string", "bytes"]},
        {"name": "watts", "type": ["null", "boolean", "long", "double", "string", "bytes"]},
    ],
}
Raw = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


def odd(dice: random.Random) -> dict[str, Any]:
    record = {"meter": dice.choice(METERS[:2]), "watts": dice.choice(WATTS[:2])}
    for name, choices in (("meter", METERS), ("watts", WATTS)):
        if dice.random() < 0.5:
            record[name] = dice.choice(choices)
    return record


def in_json(record: dict[str, Any], dice: random.Random | None) -> bytes:
    text = json.dumps(record).encode()
    if dice is None or dice.random() < 0.7:
        return text
    text = text.replace(b"7.25", b"1e309")
    return dice.choice([text[:-1], text + text, b"\xff" + text, b"", b"[" * 900, b"5", text.replace(b'"', b'"\xff', 1)])


def in_avro(record: dict[str, Any], dice: random.Random | None) -> bytes:
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, SCHEMA, record)
    except (ValueError, OverflowError, TypeError, UnicodeEncodeError):
        return b"\0\0\0\0\1"
    data = b"\0\0\0\0\1" + out.getvalue()
    if dice is None or dice.random() < 0.7:
        return data
    return dice.choice([data[:-1], data + b"\0", b"\1" + data[1:], b"", data[:5] + b"\xff" * 9])


def in_protobuf(record: dict[str, Any], dice: random.Random | None) -> bytes:
    message = sys.modules["alone_stream_pb2"].Reading()  # type: ignore[attr-defined]
    for name, value in record.items():
        try:
            setattr(message, name, value)
        except (TypeError, ValueError, OverflowError):
            message.ClearField(name)
    data = b"\0\0\0\0\1\0" + message.SerializeToString()
    if dice is None or dice.random() < 0.7:
        return data
    return dice.choice([data[:-1], data + b"\x0a", b"\1" + data[1:], b"", data[:5] + b"\xff" * 9, data + b"\x0a\1\xff"])


FORMATS: dict[str, tuple[Callable[[dict[str, Any], random.Random | None], bytes], dict[str, Any]]] = {
    "json": (in_json, {}),
    "avro": (in_avro, {"format": "avro", "registry": {"url": "http://127.0.0.1:9"}}),
    "protobuf": (in_protobuf, {"format": "protobuf", "message": "alone_stream_pb2:Reading"}),
}


class OfOne(Registry):
    """A registry with our schema."""

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        return SimpleNamespace(schema_str=json.dumps(SCHEMA), schema_type="AVRO", references=[])


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that knows one schema, and a module that protoc could have generated."""
    module = ModuleType("alone_stream_pb2")
    module.Reading = message_class("alone_stream.Reading", {"meter": TEXT, "watts": DOUBLE})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "alone_stream_pb2", module)
    monkeypatch.setattr("confluent_kafka.schema_registry.SchemaRegistryClient", OfOne)


def published(
    directory: Path, log: list[Raw], ends: list[int], *, method: str, by_key: bool, source: dict[str, Any]
) -> tuple[dict[bytes | None, list[bytes | None]], dict[int, str]]:
    """Rows by stream, and why records are dead letters, by offset. ends: where fetches end; a fetch is one record batch or more."""
    configured = settings(
        pipeline={"name": "meters", "prefix": "t", "kind": "stream"},
        input={"topic": "raw", **source},
        start={"from": "earliest", "first_window": WINDOW},
        stream={
            "value": "watts",
            "bound": 100.0,
            "grid": 0.5,
            **METHODS[method],
            **({} if by_key else {"stream": "meter"}),
        },
        privacy=None,
        window={},
    )
    services = Services(
        settings=configured,
        clients=MemoryClients(),  # type: ignore[arg-type]
        ledger=MemoryLedger(configured),  # type: ignore[arg-type]
        calendar=configured.calendar,
        config_digest=bytes(32),
        secret=SECRET,
    )
    runner = Runner(StreamStage, services, directory)
    for start, end in zip([0, *ends], ends, strict=False):
        middle, batches = (start + end) // 2, []
        for first, last in ((start, middle), (middle, end)):
            if last > first:
                keys, values = zip(*log[first:last], strict=True)
                data = record_batch(values, first=first, keys=keys, codec=LZ4 * (first % 2))
                batches.append(batch_at(data, 0)[0])
        runner.stage.take(Batch(start, end, Fetched(batches, start), 0))  # type: ignore[arg-type]
        runner.next = end
    runner.commit()
    rows: dict[bytes | None, list[bytes | None]] = {}
    for _, _, key, value, _ in runner.to("private-stream"):
        rows.setdefault(key, []).append(value)
    letters: dict[int, str] = {}
    for commit in runner.commits:
        for output in commit.outputs:
            found = map(decode_headers, output.headers or ())
            letters |= {letter.offset: letter.reason.name for letter in found}
    runner.close()
    return rows, letters


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize(
    ("name", "method", "by_key"),
    [
        ("json", "tops", False), ("json", "pak", True), ("json in Python", "tops", False), ("json in Python", "pak", True),
        ("avro", "tops", False), ("avro", "pak", True), ("protobuf", "tops", False), ("protobuf", "pak", True),
    ],
)  # fmt: skip
def test_a_stream_and_its_neighbours_are_what_they_are_alone(
    name: str, method: str, by_key: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("json "):
        monkeypatch.setattr(whole_decoding, "compiled", None)
    elif name == "json" and compiled is None:
        pytest.skip("the extension is not built")
    write, source = FORMATS[name.partition(" ")[0]]
    dice = random.Random(f"{name} {method} {by_key}")
    of: dict[str, Any] = {"method": method, "by_key": by_key, "source": source}

    def own() -> Raw:
        return b"a", write({"meter": "a", "watts": round(dice.gammavariate(2, 8), 2)}, None)

    def other() -> Raw:
        return dice.choice([b"b", b"", b"\xff", b"\xed\xa0\x80", "ü".encode(), None, b'"', b"x" * 5_000]), write(
            odd(dice), dice
        )

    length = 200 if method == "tops" else 540
    mine = [own() for _ in range(length)]
    others = [other() for _ in range(length // 4)]
    places = sorted(dice.sample(range(length + len(others)), length))
    log = list[Raw | None]([None] * (length + len(others)))
    for place, record in zip(places, mine, strict=True):
        log[place] = record
    rest = [place for place in range(len(log)) if log[place] is None]
    for place, record in zip(rest, others, strict=True):
        log[place] = record
    whole = [record for record in log if record is not None]

    alone, nothing = published(tmp_path / "alone", mine, [length], **of)
    [key] = alone
    assert not nothing
    assert len(alone[key]) > 10
    # Each in a fetch of its own.
    _, letters = published(tmp_path / "each", others, list(range(1, len(others) + 1)), **of)
    reasons = {rest[number]: reason for number, reason in letters.items()}
    assert len(Counter(reasons.values())) > (2 if name == "protobuf" else 4)
    for number, cuts in enumerate([[], sorted(dice.sample(range(1, len(whole)), 9))]):
        rows, letters = published(tmp_path / f"beside-{number}", whole, [*cuts, len(whole)], **of)
        assert rows[key] == alone[key]
        assert letters == reasons
