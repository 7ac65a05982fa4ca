"""Route decides each record alone, in any fetch, beside any neighbours, in each input format, with expressions over many fields."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.agents.formats.schemas import Schemas
from susurrus.agents.histogram.route import RouteStage
from susurrus.topics import by_user
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings as settings_of
from tests.agents.stages import WINDOW, Runner, services_of

fastavro = pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
pytest.importorskip("authlib")

FIELDS = 20
USUAL: dict[str, Any] = {f"a{index}": f"x{index}" for index in range(FIELDS)}
WHERE = "a0 <> 'bot' AND " + " AND ".join(
    f"coalesce(CAST(a{index} AS VARCHAR), '') <> 'bad'" for index in range(1, FIELDS)
)
KEY = " || ".join(f"coalesce(CAST(a{index} AS VARCHAR), '-')" for index in range(FIELDS))
VALUE = "length(CAST(a0 AS VARCHAR)) + length(CAST(a19 AS VARCHAR))"
PROTOBUF = ["STRING", "INT64", "UINT64", "DOUBLE", "BOOL", "BYTES"]
"""A message's field has one type each; what differs between messages is which fields are set."""


def of_protobuf() -> Any:
    """The class of messages whose field i is an optional of one of the types in turn."""
    from google.protobuf import descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="alone.proto", package="alone", syntax="proto3")
    message = file.message_type.add(name="Event")
    message.field.add(name="u", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    for index in range(FIELDS):
        message.oneof_decl.add(name=f"_a{index}")
        message.field.add(
            name=f"a{index}", number=index + 2, label=kinds.LABEL_OPTIONAL, proto3_optional=True, oneof_index=index,
            type=getattr(kinds, f"TYPE_{PROTOBUF[index % len(PROTOBUF)]}"),
        )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("alone.Event"))


PLAIN = ["null", "boolean", "long", "double", "string", "bytes"]
TIMES = [
    "null", "string", {"type": "long", "logicalType": "timestamp-micros"}, {"type": "int", "logicalType": "date"}, "boolean",
]  # fmt: skip
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "u", "type": "string"},
            *({"name": f"a{index}", "type": TIMES if index % 5 == 4 else PLAIN} for index in range(FIELDS)),
        ],
    }
)


def to_json(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def to_avro(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, record)
    return b"\0\0\0\0\1" + out.getvalue()


def to_protobuf(record: dict[str, Any]) -> bytes:
    message = sys.modules["alone_pb2"].Event(u=record["u"])  # type: ignore[attr-defined]
    for name, value in record.items():
        if value is not None:
            setattr(message, name, value)
    return b"\0\0\0\0\1\0" + message.SerializeToString()


def avro_value(index: int) -> st.SearchStrategy[Any]:
    texts = st.none() | st.booleans() | st.sampled_from(["bad", "bot", "", "x"])
    if index % 5 == 4:
        return texts | st.datetimes().map(lambda value: value.replace(tzinfo=None)) | st.dates()
    return texts | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.binary(max_size=2)


def protobuf_value(index: int) -> st.SearchStrategy[Any]:
    kind = {
        "STRING": st.sampled_from(["bad", "bot", "", "x"]), "INT64": st.integers(-(2**63), 2**63 - 1), "BOOL": st.booleans(),
        "UINT64": st.integers(0, 2**64 - 1), "DOUBLE": st.floats(), "BYTES": st.binary(max_size=2),
    }  # fmt: skip
    return st.none() | kind[PROTOBUF[index % len(PROTOBUF)]]


json_value = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
    | st.sampled_from(["bad", "bot", "", "x", "\0", "\ud800"])
    | st.just([]) | st.just({"b": 1})
)  # fmt: skip
FORMATS: dict[
    str, tuple[Callable[[dict[str, Any]], bytes], Callable[[int], st.SearchStrategy[Any]], dict[str, Any]]
] = {
    "json": (to_json, lambda index: json_value, {}),
    "avro": (to_avro, avro_value, {"format": "avro", "registry": {"url": "http://127.0.0.1:9"}}),
    "protobuf": (to_protobuf, protobuf_value, {"format": "protobuf", "message": "alone_pb2:Event"}),
}


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that knows one schema, and a module that protoc could have generated."""
    monkeypatch.setattr(Schemas, "get", lambda self, schema_id: SCHEMA)
    module = ModuleType("alone_pb2")
    module.Event = of_protobuf()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "alone_pb2", module)


def fates(directory: Path, name: str, values: list[bytes], ends: list[int]) -> dict[int, Any]:
    """What becomes of each record, by offset: what bound gets of it, why it is a dead letter, or nothing if it is filtered.

    ends: where fetches end.
    """
    services = services_of(
        settings_of(
            input={
                "topic": "raw", "user": "u", "key": [{"name": "all", "expression": KEY}], "where": WHERE, **FORMATS[name][2]
            },
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": "broker"},
            columns=[
                {"name": "visits", "kind": "count"},
                {"name": "size", "kind": "sum", "expression": VALUE, "bound": 50},
            ],
        )
    )  # fmt: skip
    records = [
        SimpleNamespace(offset=n, timestamp=WINDOW + n, timestamp_type=1, key=None, value=value, headers=())
        for n, value in enumerate(values)
    ]
    runner = Runner(RouteStage, services, directory)
    found: dict[int, Any] = {}
    for end in ends:
        runner.feed(records, end)
    runner.commit(now=WINDOW)
    for commit in runner.commits:
        for output in commit.outputs:
            if output.topic == services.topic("dead-letter"):
                for headers in output.headers or []:
                    letter = decode_headers(headers)
                    found[letter.offset] = letter.reason.name
    for _, _, _, value, _ in runner.to("by-user"):
        if value is not None and kind_of(value) is not Kind.TICK:
            block = by_user.decode(value)
            for row, offset in enumerate(block.offset.tolist()):
                user, key = block.users[block.user[row]], block.keys[block.key[row]]
                found[offset] = (user, key, block.values[row].tolist(), int(block.interval[row]))
    assert sum(runner.stage.counters[name] for name in ("routed", "filtered", "dead_letter")) == len(values)
    runner.close()
    return found


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize(
    "name", ["json", *(pytest.param(name, marks=pytest.mark.thorough) for name in FORMATS if name != "json")]
)
def test_a_record_has_the_fate_that_it_has_alone(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    write, value, _ = FORMATS[name]
    usual = {"u": "ann", **(USUAL if name != "protobuf" else {"a0": "x0"})}
    changes = st.integers(0, FIELDS - 1).flatmap(lambda index: st.tuples(st.just(f"a{index}"), value(index)))

    @settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(drawn=st.lists(st.lists(changes, max_size=3).map(dict), min_size=2, max_size=6), data=st.data())
    def holds(drawn: list[dict[str, Any]], data: st.DataObject) -> None:
        values = [write({**usual, **change}) for change in [{}, *drawn, {}]]
        alone = fates(tmp_path_factory.mktemp("a"), name, values, list(range(1, len(values) + 1)))
        together = fates(tmp_path_factory.mktemp("b"), name, values, [len(values)])
        assert together == alone
        cut = data.draw(st.integers(1, len(values)))
        assert fates(tmp_path_factory.mktemp("c"), name, values, [cut, len(values)]) == alone

    holds()


def odd_ones(name: str) -> Iterator[dict[str, Any]]:
    """Records of which one alone would change a chunk's types."""
    yield {"a0": None}
    yield {"a19": None}
    if name != "protobuf":
        yield {"a0": 5, "a18": 2.5}


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize("name", FORMATS)
def test_one_user_filters_nobody_elses_records(name: str, tmp_path: Path) -> None:
    """As it was: beside one odd record, the first field of all others read as null, and they were filtered."""
    write = FORMATS[name][0]
    usual = {"u": "ann", **(USUAL if name != "protobuf" else {"a0": "x0"})}
    usual_ones = [write(usual)] * 30
    alone = fates(tmp_path / "alone", name, usual_ones, [30])
    assert len(alone) == 30
    for number, odd in enumerate(odd_ones(name)):
        beside = fates(tmp_path / str(number), name, [*usual_ones, write({**usual, "u": "eve", **odd})], [31])
        assert {offset: fate for offset, fate in beside.items() if offset < 30} == alone
