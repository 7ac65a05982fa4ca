"""Avro from producer to histogram on a real broker with a real registry, which is away when the worker starts."""

import contextlib
import http.server
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.kafka import free_ports
from susurrus.topics import histogram, ledger
from tests.broker import Broker, wait_for
from tests.pipeline import EPOCH, SECRET, Pipeline, archive_topic, produce, web_log
from tests.reference import canonical, expected
from tests.registry import apicurio

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


@contextlib.contextmanager
def relay(port: int, to: str) -> Iterator[None]:
    """A registry that comes up late: requests to ``port`` are answered by the one at ``to``."""

    class Relay(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with urllib.request.urlopen(to + self.path, timeout=10) as answer:
                    status, body = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Relay)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.chaos
def test_avro_waits_for_its_registry_and_becomes_the_histogram_of_the_reference(kafka: Broker, tmp_path: Path) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    raw = archive_topic(kafka, RAW_PARTITIONS)
    (port,) = free_ports(1)
    with apicurio() as url, SchemaRegistryClient({"url": url}) as client:
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

            wait_for(
                lambda: any("registry does not answer" in reason for reason in reasons()), "route waits", seconds=60
            )
            assert not kafka.read_all(pipeline.settings.topic("dead-letter"))
            assert not pipeline.progress()
            with relay(port, url):
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
