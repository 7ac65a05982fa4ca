"""Records at a steady rate, in a process of its own: the live events of the latency benchmark.

Arguments: bootstrap servers, topic, records per second, users. Ends with its standard input, and prints how many records it has
produced and the most that it was behind its own pace, in ms.
"""

import json
import sys
import threading
import time

import numpy as np
from confluent_kafka import Producer

SERVERS, TOPIC, RATE, USERS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
CHUNK_SECONDS = max(0.01, 20 / RATE)
"""Between two chunks; small rates are not sent record by record."""

over = threading.Event()


def listen() -> None:
    """Wait until whoever started this wants no more."""
    sys.stdin.read()
    over.set()


threading.Thread(target=listen, daemon=True).start()
producer = Producer(
    {
        "bootstrap.servers": SERVERS,
        # An idempotent producer has five requests under way. Where a broker is slow, librdkafka waits for one in a loop without
        # a pause, which took half a core. Nothing here depends on a record's not coming twice.
        "max.in.flight.requests.per.connection": 1_000,
        "linger.ms": 5,
        "compression.type": "lz4",
        "log_level": 3,
        "queue.buffering.max.messages": 1_000_000,
    }
)
generator = np.random.default_rng(1)
began, number, behind = time.perf_counter(), 0, 0.0
while not over.is_set():
    due = int((time.perf_counter() - began) * RATE)
    behind = max(behind, (due - number) / RATE - CHUNK_SECONDS)
    keys = np.minimum(generator.zipf(1.4, due - number), 1_000_000).tolist()
    for key, user in zip(keys, generator.integers(0, USERS, due - number).tolist(), strict=True):
        value = b'{"k":"key%d","u":"u%d","v":%d}' % (key, user, number % 1000)
        producer.produce(TOPIC, value, key=b"u%d" % user)
        number += 1
    producer.poll(0)
    time.sleep(CHUNK_SECONDS)
seconds = time.perf_counter() - began
left = producer.flush(30)
told = {"records": number - left, "events_per_second": round(number / seconds), "behind_ms": round(behind * 1e3)}
print(json.dumps(told), flush=True)
