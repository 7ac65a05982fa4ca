"""Clocks that lie: none of them changes what the others' records are published as."""

import json
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from susurrus.topics import bounded
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.timestamps import format_time as format_instant
from tests.broker import Broker
from tests.pipeline import Pipeline

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]

YEARS = 5 * 365 * 86_400_000


def test_stamps_years_ahead_or_back_and_an_idle_partition_are_harmless(kafka: Broker, tmp_path: Path) -> None:
    """Producer clock. The same honest records go to two topics; one of them also gets a liar's, and has an idle partition."""
    every, length = 2_000, 10_000
    # By default Kafka 4 refuses batches with a stamp of the future; older brokers, and many operators, let them in.
    lenient = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    honest, lied_to = (kafka.create_topic(f"raw-{kafka.new_prefix()}", n, lenient) for n in (2, 3))
    first_window = (int(time.time() * 1000) // length + 1) * length
    live = {
        "start": {"from": "earliest", "first_window": format_instant(first_window)},
        "clock": {"kind": "producer", "until": None, "idle_grace": "3s", "max_ahead": "10s"},
        "window": {"length": f"{length}ms", "trigger_every": f"{every}ms"},
        "privacy": {"epsilon": 50.0, "delta": 1e-3, "strategy": "toeplitz"},
        "input": {"topic": "set below"},
    }
    lies = 0

    def feed() -> None:
        nonlocal lies
        producer = kafka.producer(linger_ms=5)
        number = 0
        while time.time() * 1000 < first_window + length:
            stamp = int(time.time() * 1000)
            for user in range(40):
                event = json.dumps({"host": f"u{number}-{user}", "url": f"/{user % 4}"}).encode()
                for topic in (honest, lied_to):
                    producer.produce(topic, event, partition=number % 2, timestamp=stamp)
            for partition, offset in ((0, YEARS), (1, -YEARS)):
                event = json.dumps({"host": "liar", "url": f"/{partition}"}).encode()
                producer.produce(lied_to, event, partition=partition, timestamp=stamp + offset)
                lies += 1
            number += 1
            producer.flush(10)
            time.sleep(0.1)

    plain, attacked = ({**live, "input": {"topic": topic}} for topic in (honest, lied_to))
    with Pipeline(kafka, tmp_path, honest, plain) as left, Pipeline(kafka, tmp_path, lied_to, attacked) as right:
        time.sleep(max(0.0, first_window / 1000 - 5 - time.time()))
        left.start()
        right.start()
        time.sleep(max(0.0, first_window / 1000 - time.time()))
        feeder = threading.Thread(target=feed)
        feeder.start()
        feeder.join()
        left.wait()
        right.wait()

        # The topic's name is part of the noise's address, so the exact increments are compared, before they are purged.
        def increments(pipeline: Pipeline) -> dict[tuple[int, bytes], int]:
            found: Counter[tuple[int, bytes]] = Counter()
            for message in kafka.read_all(pipeline.settings.topic("bounded")):
                if kind_of(message.value()) is Kind.BLOCK:
                    block = bounded.decode(message.value())
                    for row in np.flatnonzero(block.window == first_window).tolist():
                        found[(block.interval, block.keys[row])] += int(block.users[row])
            return dict(found)

        counted = increments(left)
        assert len(counted) >= 20
        assert sum(counted.values()) > 2_000
        assert increments(right) == counted
        letters = [decode_headers(m.headers()) for m in kafka.read_all(right.settings.topic("dead-letter"))]
        assert {letter.reason for letter in letters} == {Reason.IN_FUTURE, Reason.BEFORE_FIRST_WINDOW}
        assert len(letters) <= lies
