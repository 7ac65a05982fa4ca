"""Workers that stop for a while: frozen longer than their session, or all of them down across several live triggers."""

import json
import signal
import threading
import time
from pathlib import Path

import pytest

from susurrus.topics.wire.timestamps import format_time as format_instant
from tests.broker import Broker
from tests.pipeline import Pipeline, Public

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]

SESSION_SECONDS = 6.0


def test_frozen_workers_that_wake_up_change_no_byte(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    """A waking zombie fences the healthy owner for a moment; both must survive it."""
    # Small fetches make the run last longer than the pauses.
    with Pipeline(kafka, tmp_path, loaded_raw) as pipeline:
        workers = [pipeline.start(), pipeline.start()]
        for frozen in workers:
            time.sleep(3)
            frozen.signal(signal.SIGSTOP)
            time.sleep(SESSION_SECONDS + 3)
            frozen.signal(signal.SIGCONT)
        pipeline.wait()
        assert [worker.process.poll() for worker in workers] == [None, None]
        assert pipeline.public() == loaded_undisturbed


def test_workers_that_were_down_across_triggers_publish_what_they_would_have(kafka: Broker, tmp_path: Path) -> None:
    """Broker clock, live: one pipeline is down in the middle, the other never; one partition stays idle throughout."""
    every, length = 2_000, 16_000
    topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 3, {"message.timestamp.type": "LogAppendTime"})
    first_window = (int(time.time() * 1000) // length + 1) * length
    live = {
        "start": {"from": "earliest", "first_window": format_instant(first_window)},
        "clock": {"kind": "broker", "until": None, "grace": "2s", "idle_grace": "3s"},
        "window": {"length": f"{length}ms", "trigger_every": f"{every}ms"},
        "privacy": {"epsilon": 50.0, "delta": 1e-3, "strategy": "toeplitz"},
    }
    stop = threading.Event()

    def feed() -> None:
        producer = kafka.producer(linger_ms=5)
        number = 0
        while not stop.is_set():
            for user in range(40):
                event = {"host": f"u{number}-{user}", "url": f"/{user % 4}"}
                producer.produce(topic, json.dumps(event).encode(), partition=number % 2)
            number += 1
            producer.flush(10)
            time.sleep(0.1)

    with Pipeline(kafka, tmp_path, topic, live) as steady, Pipeline(kafka, tmp_path, topic, live) as interrupted:
        steady.start()
        victim = interrupted.start()
        time.sleep(max(0.0, first_window / 1000 - time.time()))
        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            time.sleep(3 * every / 1000)
            assert victim.stop() == 0, victim.tail()
            time.sleep(3 * every / 1000)
            interrupted.start()
            time.sleep(max(0.0, (first_window + length) / 1000 - time.time()))
        finally:
            stop.set()
            feeder.join()
        steady.wait()
        interrupted.wait()

        def window(pipeline: Pipeline) -> dict[int, list[tuple[bytes, bytes, int]]]:
            rows = pipeline.public(["histogram"])["histogram"]
            text = json.dumps({"window": format_instant(first_window)})[1:-1].replace(" ", "").encode()
            return {p: [row for row in found if text in row[0]] for p, found in rows.items()}

        published = window(steady)
        assert sum(map(len, published.values())) > 10
        assert published == window(interrupted)
        late = interrupted.counters()["late"]
        assert late == 0
