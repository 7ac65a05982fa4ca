"""Ceiling: a confluent-kafka consumer that decodes each record with msgspec and counts in a dict. Keeps no state."""

import json
import sys
import time
import uuid

import msgspec
from confluent_kafka import Consumer


class Record(msgspec.Struct):
    """The fields that a count by key needs."""

    k: str
    u: str
    v: int


def main(bootstrap_servers: str, topic: str, records: int) -> None:
    """Count ``records`` records by key and print how long it took, first for a fifth of them and then for all."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"bare-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "queued.min.messages": 500_000,
            "queued.max.messages.kbytes": 262_144,
        }
    )
    consumer.subscribe([topic])
    decode = msgspec.json.Decoder(Record).decode
    counts: dict[str, int] = {}
    seen, started, warm = 0, 0.0, 0
    while seen < records:
        messages = consumer.consume(5_000, timeout=1.0)
        if messages and not started:
            started = time.perf_counter()
        for message in messages:
            key = decode(message.value()).k
            counts[key] = counts.get(key, 0) + 1
        seen += len(messages)
        if not warm and seen >= records // 5:
            warm = seen
            print(json.dumps({"mark": seen, "seconds": time.perf_counter() - started}), flush=True)
    print(json.dumps({"records": seen, "seconds": time.perf_counter() - started}), flush=True)
    sys.stdin.read()  # until what this process used is noted
    consumer.close()


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
