"""Avro from producer to histogram on a real broker with a real registry: away at first, or without the schema at first."""

import json
import time
from pathlib import Path

import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.topics import histogram, ledger
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker, wait_for
from tests.pipeline import EPOCH, SECRET, Pipeline, archive_topic, produce, web_log
from tests.reference import canonical, expected
from tests.registry import relay

pytest.importorskip("fastavro")
pytest.importorskip("authlib")

RAW_PARTITIONS = 2
VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "host", "type": "string"},
        {"name": "url", "type": "string"},
        {"name": "time", "type": "long"},
        {"name": "bytes", "type": ["null", "long"]},
    ],
}


@pytest.mark.chaos
def test_avro_waits_for_its_registry_and_becomes_the_histogram_of_the_reference(
    kafka: Broker, schema_registry: str, tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    raw = archive_topic(kafka, RAW_PARTITIONS)
    (port,) = free_ports(1)
    with SchemaRegistryClient({"url": schema_registry}) as client:
        serialize = AvroSerializer(client, Schema(json.dumps(VISIT), "AVRO"))
        context = SerializationContext(raw, MessageField.VALUE)
        events = [(partition, json.loads(value), stamp) for partition, value, stamp in web_log(RAW_PARTITIONS)]
        produce(kafka, raw, [(partition, serialize(event, context), stamp) for partition, event, stamp in events])
        produce(kafka, raw, [(0, b"\0\x7f\xff\xff\xff\x02x", events[-1][2])])  # a schema that nobody registered

        source = {"format": "avro", "registry": {"url": f"http://127.0.0.1:{port}"}}
        with Pipeline(kafka, tmp_path, raw, {"input": source}) as pipeline:
            pipeline.start()

            def reasons() -> set[str]:
                found = [ledger.decode(m.key(), m.value()) for m in kafka.read_all(pipeline.settings.topic("ledger"))]
                return {record.stalled for record in found if isinstance(record, ledger.Status)}

            wait_for(lambda: any("registry does not answer" in reason for reason in reasons()), "route waits")
            assert not kafka.read_all(pipeline.settings.topic("dead-letter"))
            assert not pipeline.progress()
            with relay(port, schema_registry):
                pipeline.wait()
            offsets = dict.fromkeys(range(RAW_PARTITIONS), 0)
            log = []
            for partition, event, stamp in events:
                log.append((partition, offsets[partition], stamp, event))
                offsets[partition] += 1
            wanted = expected(pipeline.settings, log, secret=bytes.fromhex(SECRET), epoch=EPOCH)
            published = {}
            for message in kafka.read_all(pipeline.settings.topic("histogram")):
                row = histogram.decode_row(message.value())
                published[(row.window, row.trigger, canonical(row.key))] = [int(row.values["count"].estimate)]
            assert len(wanted) > 20
            assert published == wanted
            [letter] = kafka.read_all(pipeline.settings.topic("dead-letter"))
            assert b"UNDECODABLE" in b"".join(value or b"" for _, value in letter.headers())


@pytest.mark.chaos
def test_a_schema_that_comes_late_is_waited_for_and_one_that_never_comes_is_given_up(
    kafka: Broker, schema_registry: str, tmp_path: Path
) -> None:
    """Also by a worker that takes over meanwhile; the records of others wait as long, and no longer."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 1, {"message.timestamp.type": "LogAppendTime"})
    every, origin = "2s", int(time.time() * 1000)
    live = {
        "input": {"format": "avro", "registry": {"url": schema_registry, "patience": "15s"}},
        "start": {"from": "earliest", "first_window": format_time(origin)},
        "clock": {"kind": "broker", "until": None, "grace": "2s", "idle_grace": "3s"},
        "window": {"length": "10m", "trigger_every": every, "origin": format_time(origin)},
    }
    with SchemaRegistryClient({"url": schema_registry}) as client, Pipeline(kafka, tmp_path, raw, live) as pipeline:
        serialize = AvroSerializer(client, Schema(json.dumps(VISIT), "AVRO"))
        context, users = SerializationContext(raw, MessageField.VALUE), 0

        def visits(schema: int | None = None) -> list[tuple[int, bytes, None]]:
            nonlocal users
            found = []
            for _ in range(5):
                users += 1
                good = serialize({"host": f"u{users}", "url": "/", "time": 0, "bytes": None}, context)
                found.append((0, good if schema is None else good[:1] + schema.to_bytes(4, "big") + good[5:], None))
            return found

        def counted(name: str) -> int:
            return pipeline.counters().get(name, 0)

        def register(doc: str) -> int:
            return client.register_schema(f"{raw}-{doc}", Schema(json.dumps(VISIT | {"doc": f"{raw} {doc}"}), "AVRO"))

        known = visits()
        late = register("earlier") + 1  # the number that the registry gives next
        first = pipeline.start()
        # On a loaded machine a worker may take longer to start than the patience lasts.
        wait_for(lambda: "route-0 runs" in first.log.read_text(), "a worker that reads", seconds=90)
        produce(kafka, raw, [*known, *visits(late), *visits()])
        wait_for(lambda: f"does not know schema id={late}" in first.log.read_text(), "a record that waits")
        wait_for(lambda: counted("routed") == 5, "what is before it")
        first.kill()
        pipeline.start()
        assert register("late") == late
        wait_for(lambda: counted("routed") == 15, "what waited, and what is behind it")
        assert not kafka.read_all(pipeline.settings.topic("dead-letter"))

        produce(kafka, raw, [*visits(), *visits(2**31 - 1), *visits(), *visits(2**31), *visits()])
        wait_for(lambda: counted("routed") == 30, "the records of known schemas")
        pipeline.wait((int(time.time() * 1000) - origin) // 2_000 + 1)
        letters = [decode_headers(m.headers()) for m in kafka.read_all(pipeline.settings.topic("dead-letter"))]
        assert [letter.offset for letter in letters] == [*range(20, 25), *range(30, 35)]
        assert {letter.reason for letter in letters} == {Reason.UNDECODABLE}
        assert (counted("dead_letter"), counted("late"), counted("interval_moved")) == (10, 0, 0)
