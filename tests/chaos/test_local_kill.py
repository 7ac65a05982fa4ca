"""kill -9 of the local server's worker between every two steps of the commit, while clients go on reporting."""

import threading
import time
from pathlib import Path

import pytest

from susurrus.agents.runtime.crash_points import POINTS
from susurrus.topics import threshold as threshold_codec
from tests.broker import Broker
from tests.local_pipeline import client_of, estimates, local_pipeline, until, values
from tests.pipeline import Worker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def ended(worker: Worker, seconds: float = 90.0) -> int | None:
    """The exit code, None if it runs on."""
    deadline = time.monotonic() + seconds
    while worker.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return worker.process.returncode


def test_a_worker_killed_between_every_two_steps_counts_every_report_once(kafka: Broker, tmp_path: Path) -> None:
    with (
        local_pipeline(kafka, tmp_path, holdout=2_000, lateness="5s") as pipeline,
        client_of(pipeline, max_queue=500_000) as client,
    ):
        client.report_batch(values(2_500, 1))
        client.flush(30)
        done, sent = threading.Event(), [0]

        def feed() -> None:
            while not done.is_set():
                if client.phase == 2:
                    sent[0] += client.report_batch(values(50, sent[0]))
                time.sleep(0.05)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            for stage in ("server", "collect"):
                for point in POINTS:
                    worker = pipeline.start(SUSURRUS_CRASH_AT=f"{stage}:{point}:2")
                    assert ended(worker) == -9, f"{stage}:{point} was not reached\n{worker.tail()}"
        finally:
            done.set()
            feeder.join()
        assert client.flush(30) == 0
        pipeline.start()
        until(lambda: sum(row.count for row in estimates(kafka, pipeline)) >= sent[0], pipeline, 120)
        time.sleep(4)
        rows = estimates(kafka, pipeline)
        assert sum(row.count for row in rows) == sent[0] > 1_000
        assert len({row.interval for row in rows}) == len(rows)
        assert kafka.read_all(pipeline.settings.topic("dead-letter")) == []
        published = [m for m in kafka.read_all(pipeline.settings.topic("threshold")) if m.key() == b"version/1"]
        assert len(published) == 1
        assert 2_000 <= threshold_codec.decode(published[0].value()).reports <= 2_500
