"""The producer of docker-compose.yml: replays the web log that the package ships, over and over, to the raw topic.

An ordinary producer that knows nothing of Susurrus: JSON events, no key, stamped by the broker. Environment:
SUSURRUS__KAFKA__BOOTSTRAP_SERVERS, RAW_TOPIC (web-requests), RAW_PARTITIONS (4), EVENTS_PER_SECOND (500).
"""

import csv
import gzip
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import resources

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP_SERVERS = os.environ.get("SUSURRUS__KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")
TOPIC = os.environ.get("RAW_TOPIC", "web-requests")
PARTITIONS = int(os.environ.get("RAW_PARTITIONS", "4"))
EVENTS_PER_SECOND = float(os.environ.get("EVENTS_PER_SECOND", "500"))


def requests() -> Iterator[bytes]:
    """The events of one day, in order, as JSON."""
    log = resources.files("susurrus.agents") / "data" / "nasa-http-1995-08-01.tsv.gz"
    with log.open("rb") as packed, gzip.open(packed, "rt", encoding="utf-8", errors="replace", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield json.dumps({"host": row["host"], "url": row["url"], "bytes": int(row["bytes"] or 0)}).encode()


def create_topic() -> None:
    """The raw topic, stamped by the broker: the clock that Susurrus trusts by default."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP_SERVERS})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})
    try:
        admin.create_topics([topic])[TOPIC].result(30)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def produce() -> None:
    """Replay for ever, at a steady rate."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP_SERVERS, "linger.ms": 50, "compression.type": "lz4"})
    started = time.monotonic()
    days = itertools.chain.from_iterable(requests() for _ in itertools.count())
    for number, event in enumerate(days):
        producer.produce(TOPIC, event)
        producer.poll(0)
        ahead = number / EVENTS_PER_SECOND - (time.monotonic() - started)
        if ahead > 0.05:
            time.sleep(ahead)


if __name__ == "__main__":
    if sys.argv[1:] == ["--create-topic"]:
        create_topic()
    else:
        produce()
