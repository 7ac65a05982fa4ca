"""kill -9 of the local server's worker between every two steps of the commit, while clients go on reporting."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from susurrus.topics import threshold as threshold_codec
from tests.broker import Broker
from tests.local_pipeline import client_of, estimates, local_pipeline, until, values
from tests.pipeline import CRASH_POINTS, CRASHING

pytestmark = pytest.mark.chaos


@CRASH_POINTS
@pytest.mark.parametrize(("stage", "visit"), [("server", 1), pytest.param("collect", 2, marks=pytest.mark.thorough)])
def test_a_worker_killed_between_every_two_steps_counts_every_report_once(
    kafka: Broker, tmp_path: Path, stage: str, visit: int, points: Sequence[str]
) -> None:
    with (
        local_pipeline(kafka, tmp_path, CRASHING, holdout=2_000, lateness="5s") as pipeline,
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
            first = pipeline.start()
            until(lambda: sent[0] > 500, pipeline)
            first.kill()
            pipeline.crash_everywhere(stage, visit, points)
        finally:
            done.set()
            feeder.join()
        assert client.flush(30) == 0
        pipeline.start()
        until(lambda: sum(row.count for row in estimates(kafka, pipeline)) >= sent[0], pipeline)
        time.sleep(4)
        rows = estimates(kafka, pipeline)
        assert sum(row.count for row in rows) == sent[0] > 500
        assert len({row.interval for row in rows}) == len(rows)
        assert kafka.read_all(pipeline.settings.topic("dead-letter")) == []
        published = [m for m in kafka.read_all(pipeline.settings.topic("threshold")) if m.key() == b"version/1"]
        assert len(published) == 1
        assert 2_000 <= threshold_codec.decode(published[0].value()).reports <= 2_500
