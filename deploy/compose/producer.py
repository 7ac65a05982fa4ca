"""The producer of docker-compose.yml: replays the demonstration's web log, over and over, to the raw topic.

Writes what any existing producer might: JSON events without a message key, stamped by the broker. Environment:
SUSURRUS__KAFKA__BOOTSTRAP_SERVERS, RAW_TOPIC (web-requests), RAW_PARTITIONS (4), EVENTS_PER_SECOND (500).
"""

import itertools
import os
import sys
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from susurrus.agents.demo.weblog import WebLog

BOOTSTRAP_SERVERS = os.environ.get("SUSURRUS__KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")
TOPIC = os.environ.get("RAW_TOPIC", "web-requests")
PARTITIONS = int(os.environ.get("RAW_PARTITIONS", "4"))
EVENTS_PER_SECOND = float(os.environ.get("EVENTS_PER_SECOND", "500"))


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
    events = [visit.encode() for visit in WebLog().visits]
    started = time.monotonic()
    for number, event in enumerate(itertools.cycle(events)):
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
