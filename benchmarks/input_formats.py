"""What a record of each input format costs the stage route, from record batches to columns: microseconds of processor time.

    python benchmarks/input_formats.py [--records 200000]

Each line is one kind of record in one format, compiled and in pure Python, and its compiled rate relative to JSON's. The short
records are those of benchmarks/throughput.py; the long ones have the same three fields among fifteen others. The fastest of several
rounds, all in one process. All but plain JSON is in Confluent's framing; the schema is already known. Decompression and what comes
behind the columns is the same for all formats, and is not in it.
"""

import argparse
import base64
import json
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from google.protobuf.descriptor_pb2 import FileDescriptorProto

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.inputs import chunks
from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.descriptors import class_named, pool_of
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.formats.whole import source_of
from susurrus.topics.compiled import compiled
from susurrus.topics.raw_batches import RawBatchDecoder
from susurrus.topics.records.raw import RawDecoder, RawSchema, ValueField
from susurrus.topics.records.scanning import DecompressedBatch

ROUNDS = 7
BATCH = 10_000
HEADER = 61
"""Bytes of a record batch before its records."""
SCHEMA = RawSchema(user=("u",), key=("k",), values=(ValueField("v", 1_000.0, 1.0),))
PATHS = RawDecoder(SCHEMA).paths
SHORT = [{"name": "k", "type": "string"}, {"name": "u", "type": "string"}, {"name": "v", "type": "long"}]
BEFORE = [
    {"name": "title", "type": "string"},
    {"name": "number", "type": "long"},
    {"name": "missing", "type": ["null", "string"]},
    {"name": "share", "type": "double"},
    {"name": "good", "type": "boolean"},
    {"name": "list", "type": {"type": "array", "items": "long"}},
    {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
TYPES = {"string": 9, "long": 3, "double": 1, "boolean": 8}
"""Types of Avro, as numbers of types of Protobuf."""
BEHIND = [{"name": f"text{number}", "type": "string"} for number in range(8)]
SCHEMA_ID = 5


def records(number: int, *, long: bool) -> Iterator[dict[str, Any]]:
    """The records of benchmarks/throughput.py, with more fields where they are long."""
    row = 0
    for keys, people in chunks(number, max(1, number // 20)):
        for key, user in zip(keys, people, strict=True):
            found: dict[str, Any] = {"k": f"key{key}", "u": f"u{user}", "v": row % 1_000}
            if long:
                before = {
                    "title": "some text of some length",
                    "number": row,
                    "missing": None,
                    "share": row / 7,
                    "good": True,
                }
                before |= {"list": [1, 2, 3], "created": 1_790_834_400_123 + row}
                found = {**before, **found, **{f"text{at}": f"value {at} of {row}" for at in range(8)}}
            yield found
            row += 1


def to_json(some: Sequence[dict[str, Any]], *, long: bool) -> tuple[Format, list[bytes]]:
    """JSON."""
    return Json(PATHS, None), [json.dumps(one, separators=(",", ":")).encode() for one in some]


def to_avro(some: Sequence[dict[str, Any]], *, long: bool) -> tuple[Format, list[bytes]]:
    """Avro with a registry, whose answer is already there."""
    fields = [*BEFORE, *SHORT, *BEHIND] if long else SHORT
    text = json.dumps({"type": "record", "name": "Event", "fields": fields})
    schema, head = fastavro.parse_schema(json.loads(text)), b"\0" + SCHEMA_ID.to_bytes(4, "big")

    def written(one: dict[str, Any]) -> bytes:
        out = BytesIO(head)
        out.seek(len(head))
        fastavro.schemaless_writer(out, schema, one)
        return out.getvalue()

    form = Avro(PATHS, RegistrySettings(url="http://127.0.0.1:9"))
    assert form.schemas is not None
    form.schemas._client.get_schema = lambda *_, **__: SimpleNamespace(
        schema_str=text, schema_type="AVRO", references=[]
    )
    payloads = [written(one) for one in some]
    list(form.read(payloads[:1], lambda _: False, [()]))  # finds the schema
    return form, payloads


def to_json_schema(some: Sequence[dict[str, Any]], *, long: bool) -> tuple[Format, list[bytes]]:
    """JSON in Confluent's framing."""
    payloads = to_json(some, long=long)[1]
    return Json(PATHS, None, "confluent"), [b"\0" + SCHEMA_ID.to_bytes(4, "big") + one for one in payloads]


def to_protobuf(some: Sequence[dict[str, Any]], *, long: bool) -> tuple[Format, list[bytes]]:
    """Protobuf with a registry, whose answer is already there."""
    file = FileDescriptorProto(name="event.proto", package="bench", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Event")
    fields = [*BEFORE, *SHORT, *BEHIND] if long else SHORT
    for number, field in enumerate(fields, 1):
        name, kind = str(field["name"]), field["type"]
        one = message.field.add(name=name, number=number, label=3 if name == "list" else 1)
        if name == "created":
            one.type, one.type_name = 11, ".google.protobuf.Timestamp"
        else:
            one.type = TYPES[kind] if isinstance(kind, str) else TYPES["long" if name == "list" else "string"]
    form = Protobuf(PATHS, "bench.Event", RegistrySettings(url="http://127.0.0.1:9"))
    assert form.schemas is not None
    text = base64.b64encode(file.SerializeToString()).decode()
    form.schemas._client.get_schema = lambda *_, **__: SimpleNamespace(
        schema_str=text, schema_type="PROTOBUF", references=[]
    )
    kind, head = class_named(pool_of([file]), "bench.Event"), b"\0" + SCHEMA_ID.to_bytes(4, "big") + b"\0"

    def written(one: dict[str, Any]) -> bytes:
        fields = {name: value for name, value in one.items() if value is not None}
        if "created" in fields:
            seconds, millis = divmod(fields["created"], 1_000)
            fields["created"] = {"seconds": seconds, "nanos": millis * 1_000_000}
        return head + bytes(kind(**fields).SerializeToString())

    payloads = [written(one) for one in some]
    list(form.read(payloads[:1], lambda _: False, [()]))  # finds the schema
    return form, payloads


FORMATS: dict[str, Callable[..., tuple[Format, list[bytes]]]] = {
    "json": to_json,
    "json schema": to_json_schema,
    "avro": to_avro,
    "protobuf": to_protobuf,
}


def sections(payloads: Sequence[bytes]) -> list[DecompressedBatch]:
    """Record batches of them."""
    found = []
    for first in range(0, len(payloads), BATCH):
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1 << 30,
        )  # fmt: skip
        some = payloads[first : first + BATCH]
        for offset, payload in enumerate(some):
            builder.append(offset, timestamp=1_000, key=b"key", value=payload, headers=[])
        data = bytes(builder.build())
        attributes, delta, start, largest, count = struct.unpack(">21xhiqq14xi", data[:HEADER])
        batch = DecompressedBatch(
            data, HEADER, len(data), first, start, largest, bool(attributes & 8), count, delta + 1
        )
        found.append(batch)
    return found


def best(run: Callable[[], Any], rounds: int) -> float:
    """Seconds of processor time of the fastest round."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def measured(name: str, payloads: Sequence[bytes], form: Format) -> tuple[float, float | None]:
    """Microseconds a record, in pure Python and compiled; None where nothing is compiled."""
    number, decoder = len(payloads), RawDecoder(SCHEMA)
    headers = [()] * number if form.reads_headers else None
    python = best(lambda: decoder.decode(form.read(payloads, lambda _: False, headers)), 2) / number * 1e6
    if compiled is None:
        return python, None
    settings = InputSettings(topic="raw", format=form.name, framing="confluent" if name == "json schema" else None)
    source = source_of(settings, form, PATHS)
    assert source is not None
    whole, batches = RawBatchDecoder(SCHEMA, source), sections(payloads)
    assert not len(whole.decode(batches, 0)[0].left)
    return python, best(lambda: whole.decode(batches, 0), ROUNDS) / number * 1e6


def main() -> None:
    """Print one line for each kind of record in each format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    number = parser.parse_args().records
    for long in (False, True):
        some, of_json = list(records(number, long=long)), None
        for name, write in FORMATS.items():
            form, payloads = write(some, long=long)
            python, fast = measured(name, payloads, form)
            size = sum(map(len, payloads)) / number
            line = f"{'long' if long else 'short':5} {name:11} {size:6.1f} bytes   Python {python:6.2f} us"
            if fast is not None:
                of_json = of_json or fast
                line += f"   compiled {fast:5.3f} us   {of_json / fast:4.2f} of JSON's rate"
            print(line, flush=True)


if __name__ == "__main__":
    main()
