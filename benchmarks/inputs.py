"""The raw topics under measurement: the same records at every run, produced once for each size.

An observation is {"k":"key17","u":"u4711","v":3}, keyed by its user, with keys by Zipf's law; encodings.py says how records are
written. Observation number n does not depend on how many there are, so the first fifth of an input is a smaller input of its own.
Either is stamped evenly over one UTC day.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.encodings import ENCODINGS, encoder

DAY_MS = 86_400_000
FIRST_WINDOW_MS = 1_767_225_600_000
"""2026-01-01, always: an input is the same on every day."""
PARTITIONS = 4  # of every topic that is read in parallel
KEY_EXPONENT = 1.4  # of the Zipf distribution of the keys
MAX_KEYS = 1_000_000
RECORDS_PER_USER = 20
"""Of the larger input: below the bound of 32 for nearly every user, so that no record is cheap because it is dropped."""
CHUNK = 500_000


@dataclass(frozen=True, slots=True)
class Feed:
    """The raw topic under test: records keyed by user, time-stamped evenly over one whole UTC day."""

    bootstrap_servers: str
    topic: str
    records: int
    """Observations: where a record is a list of them, its items count."""
    first_window_ms: int = FIRST_WINDOW_MS
    triggers: int = 24
    """Releases of the histogram over the day, by our workers."""
    registry: str = ""
    """The address of the registry that has the records' schema; empty where there is none."""


def say(text: str) -> None:
    """Print progress to stderr."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def chunks(records: int, users: int) -> Iterator[tuple[list[int], list[int]]]:
    """Codes of keys and users, for at most ``CHUNK`` records at a time."""
    for number, at in enumerate(range(0, records, CHUNK)):
        generator = np.random.default_rng([1, number])
        keys = np.minimum(generator.zipf(KEY_EXPONENT, CHUNK), MAX_KEYS)
        here = min(CHUNK, records - at)
        yield keys[:here].tolist(), generator.integers(0, users, CHUNK)[:here].tolist()


def create_raw_topic(admin: AdminClient, topic: str, partitions: int, **config: str) -> None:
    """Create a topic, and wait until the broker knows its partitions, which is a little later. config: with _ for the dots."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)
    deadline = time.monotonic() + 30
    while topic not in (found := admin.list_topics(timeout=30).topics) or len(found[topic].partitions) < partitions:
        if time.monotonic() > deadline:
            raise RuntimeError(f"topic={topic} did not appear within 30 s")
        time.sleep(0.05)


def fill(
    bootstrap_servers: str,
    records: int,
    triggers: int,
    users: int | None = None,
    span_ms: int = DAY_MS,
    *,
    encoding: str = "json",
    registry: str = "",
) -> Feed:
    """The topic with these observations, which is produced unless this broker has it already.

    users: distinct ones, by default one for ``RECORDS_PER_USER`` observations. span_ms: how much of the day the stamps cover.
    encoding: one of ENCODINGS. registry: the address of one, where the encoding has a schema. Raises RuntimeError where a record
    cannot be produced, and ValueError where they are no whole number of records.
    """
    users = users or max(1, records // RECORDS_PER_USER)
    written = ENCODINGS[encoding]
    items = written.items
    if records % items:
        raise ValueError(f"records={records}: must be a multiple of {items} with encoding {encoding}")
    topic = "-".join(("benchmark", *([] if encoding == "json" else [encoding]), f"{records}-{users}-{span_ms}"))
    feed = Feed(bootstrap_servers, topic, records, FIRST_WINDOW_MS, triggers, registry if written.schema else "")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    if topic in admin.list_topics(timeout=30).topics:
        if length(bootstrap_servers, topic) == records // items:
            return feed
        raise RuntimeError(f"topic={topic} does not hold records={records}: delete it and start again")
    encode = encoder(written, topic, registry)
    create_raw_topic(admin, topic, PARTITIONS, message_timestamp_type="CreateTime", retention_ms="-1")
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # keeps each partition in time order, also after retries
            "linger.ms": 20,
            "log_level": 3,  # errors; a new broker's coordinators still loading is no news
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    started = shown = time.perf_counter()
    number = 0
    for keys, people in chunks(records, users):
        stamps = (FIRST_WINDOW_MS + np.arange(number, number + len(keys)) * (span_ms / records)).astype(np.int64)
        for at, (user, stamp) in enumerate(zip(people[::items], stamps[::items].tolist(), strict=True)):
            value = encode(keys[at * items : (at + 1) * items], user, number)
            while True:
                try:
                    producer.produce(topic, value, key=b"u%d" % user, timestamp=stamp)
                    break
                except BufferError:
                    producer.poll(0.1)
            number += items
            if number % 20_000 == 0:
                producer.poll(0)
        if time.perf_counter() - shown > 10:
            shown = time.perf_counter()
            say(f"produced {number:,} of {records:,} records")
    if left := producer.flush(120):
        raise RuntimeError(f"{left} of {records} records could not be produced")
    say(f"produced {records:,} records at {records / (time.perf_counter() - started):,.0f} a second")
    return feed


def length(bootstrap_servers: str, topic: str) -> int:
    """Records in a topic that was never cleaned, markers of transactions included."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "benchmark-length"})
    try:
        found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1] for number in found)
    finally:
        consumer.close()
