"""Workers of a stream pipeline killed at random and replaced, joined and left, while readings arrive: not a byte changes."""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import TopicPartition

from tests.broker import Broker, wait_for
from tests.pipeline import SEEDS, Pipeline, archive_topic
from tests.stream_pipeline import TOPS, stream_pipeline

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]

PARTITIONS = 4
STREAMS = 24
FEED_SECONDS = 30.0


def feed(kafka: Broker, raw: str, stop: threading.Event) -> None:
    """Readings of all meters in turn; a meter stays on one partition."""
    dice = np.random.default_rng(3)
    producer = kafka.producer(linger_ms=5)
    at = 0
    while not stop.is_set():
        for meter, watts in enumerate(np.round(dice.gamma(2.0, 8.0, STREAMS), 2).tolist()):
            event = json.dumps({"meter": f"m{meter}", "reading": {"watts": watts}}).encode()
            producer.produce(raw, event, partition=meter % PARTITIONS, timestamp=1_000_000 + at)
        at += 1
        producer.poll(0.005)
    producer.flush(30)


def committed(kafka: Broker, pipeline: Pipeline, raw: str) -> bool:
    """Whether the group's positions are the raw topic's ends."""
    group = f"{pipeline.settings.pipeline.prefix}.{pipeline.settings.pipeline.name}"
    with kafka.consumer(group_id=group) as consumer:
        places = [TopicPartition(raw, number) for number in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
        return [place.offset for place in consumer.committed(places, timeout=10)] == ends


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_that_are_killed_join_and_leave_change_no_byte(kafka: Broker, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    raw = archive_topic(kafka, PARTITIONS)
    stop = threading.Event()
    feeder = threading.Thread(target=feed, args=(kafka, raw, stop))
    with (
        stream_pipeline(kafka, tmp_path, raw, TOPS) as disturbed,
        stream_pipeline(kafka, tmp_path, raw, TOPS) as undisturbed,
    ):
        feeder.start()
        try:
            workers = [disturbed.start(), disturbed.start()]
            began, number = time.monotonic(), 0
            while time.monotonic() < began + FEED_SECONDS:
                time.sleep(dice.uniform(3.0, 6.0))
                victim = dice.randrange(len(workers))
                number += 1
                if number % 3:
                    workers[victim].kill()
                else:
                    # -15: it had only just begun, and had no handler yet.
                    assert workers[victim].stop() in (0, -15), workers[victim].tail()
                # A directory of its own each time: the state comes back from the changelog.
                fresh = str(disturbed.directory / f"empty-{number}")
                workers[victim] = disturbed.start(SUSURRUS__WORKER__DATA_DIRECTORY=fresh)
                if number == 2:
                    workers.append(disturbed.start())
        finally:
            stop.set()
            feeder.join()
        undisturbed.start()
        for pipeline in (disturbed, undisturbed):
            wait_for(lambda pipeline=pipeline: committed(kafka, pipeline, raw), "all is read")
        wanted = undisturbed.public(["private-stream"])
        rows = Counter(key for partition in wanted["private-stream"].values() for key, _, _ in partition)
        assert len(rows) == STREAMS
        assert min(rows.values()) > 50
        assert disturbed.public(["private-stream"]) == wanted
