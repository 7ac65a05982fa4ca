"""Clients, collect and server on a real broker: every report counted once, thresholds and sums as published."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.local.server import FOLLOWED
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.reports import Reports, encode, encode_one
from tests.broker import Broker
from tests.local_pipeline import INTERVAL, client_of, estimates, local_pipeline, until, values


def test_clients_switch_and_every_report_counts_once(kafka: Broker, tmp_path: Path) -> None:
    with local_pipeline(kafka, tmp_path) as pipeline, client_of(pipeline) as client:
        # Reports come before there is any server: phase 1 needs none.
        assert client.phase == 1
        assert client.report_batch(values(6_500, 1)) == 6_500
        assert client.flush(30) == 0
        pipeline.start()
        until(lambda: client.phase == 2, pipeline)
        topic = pipeline.settings.topic("threshold")
        current = [
            threshold_codec.decode(m.value()) for m in kafka.read_all(topic) if m.key() == threshold_codec.CURRENT
        ]
        assert [threshold.version for threshold in current] == [1]
        assert 40 < current[0].theta < 300
        assert current[0].reports >= 6_000

        sent, total = 0, 0.0
        for seed in range(12):
            chunk = values(2_500, 100 + seed)
            sent += client.report_batch(chunk)
            total += float(np.minimum(chunk, current[0].theta).sum())
            client.flush(30)
            if seed == 5:
                pipeline.workers[-1].kill()
                pipeline.start()
            time.sleep(0.3)
        until(lambda: sum(row.count for row in estimates(kafka, pipeline)) >= sent, pipeline)
        rows = estimates(kafka, pipeline)
        assert sum(row.count for row in rows) == sent
        assert len({row.interval for row in rows}) == len(rows)
        last = rows[-1].running_sum
        assert last.estimate == pytest.approx(sum(row.sum.estimate for row in rows))
        assert abs(last.estimate - total) < 5 * last.std_error
        assert last.std_error < 0.1 * total


def test_bad_reports_go_to_the_dead_letter_topic_by_reference(kafka: Broker, tmp_path: Path) -> None:
    with local_pipeline(kafka, tmp_path, holdout=500) as pipeline, client_of(pipeline) as client:
        client.report_batch(values(600, 1))
        client.flush(30)
        pipeline.start()
        until(lambda: client.phase == 2, pipeline)
        settings = pipeline.settings
        now = int(time.time() * 1000)
        [threshold, *_] = [threshold_codec.decode(m.value()) for m in kafka.read_all(settings.topic("threshold"))]
        code = Hybrid(threshold.epsilon, threshold.alpha).randomise_one(0.5)
        bad = {
            "NOT_A_REPORT": b"hello",
            "WRONG_THRESHOLD": encode_one(phase=2, threshold_version=9, interval=now, code=1),
            "IMPOSSIBLE_CODE": encode_one(phase=2, threshold_version=1, interval=now, code=2**40),
            "LATE": encode_one(phase=2, threshold_version=1, interval=now - 3_600_000, code=code),
            "IN_FUTURE": encode_one(phase=2, threshold_version=1, interval=now + 86_400_000, code=code),
        }
        producer = kafka.producer()
        for payload in (*bad.values(), b"hello"):
            producer.produce(settings.topic("reports"), payload, partition=0)
        producer.flush(30)
        letters: list[Any] = []

        def all_there() -> bool:
            letters[:] = kafka.read_all(settings.topic("dead-letter"))
            return len(letters) >= 6

        until(all_there, pipeline)
        found = [decode_headers(letter.headers()) for letter in letters]
        assert sorted(letter.reason.name for letter in found) == sorted([*bad, "NOT_A_REPORT"])
        assert {letter.topic for letter in found} == {settings.topic("reports")}
        assert all(letter.value() is None for letter in letters)


def test_a_threshold_is_renewed_from_the_share_that_stays_phase_one(kafka: Broker, tmp_path: Path) -> None:
    renewed = {"refresh": "1s", "phase1_share": 0.5, "holdout": 2_000, "follow": False}
    with local_pipeline(kafka, tmp_path, **renewed) as pipeline, client_of(pipeline) as client:
        client.report_batch(values(2_500, 1))
        pipeline.start()
        until(lambda: client.phase == 2, pipeline)

        def report_more() -> bool:
            client.report_batch(values(1_000, int(time.monotonic() * 1e3)) * 4)
            return client.threshold_version >= 2

        until(report_more, pipeline)
        topic = pipeline.settings.topic("threshold")
        thetas = {}
        for message in kafka.read_all(topic):
            threshold = threshold_codec.decode(message.value())
            thetas[threshold.version] = threshold.theta
        assert thetas[2] > 1.5 * thetas[1]
        counters = pipeline.counters()
        assert counters["phase_1"] > 0
        keys = {message.key() for message in kafka.read_all(topic)}
        assert {b"version/1", b"version/2", b"current"} <= keys


def test_theta_follows_the_level_and_clients_take_it_up(kafka: Broker, tmp_path: Path) -> None:
    with local_pipeline(kafka, tmp_path, holdout=2_000) as pipeline, client_of(pipeline) as client:
        client.report_batch(values(2_500, 1))
        pipeline.start()
        until(lambda: client.phase == 2, pipeline)
        sent = 0

        def report_more() -> bool:
            nonlocal sent
            sent += client.report_batch(values(1_000, int(time.monotonic() * 1e3)) * 4)
            return client.threshold_version >= 2

        until(report_more, pipeline)
        assert client.flush(30) == 0
        found = {
            m.key(): threshold_codec.decode(m.value()) for m in kafka.read_all(pipeline.settings.topic("threshold"))
        }
        assert found[b"version/2"].theta > 1.2 * found[b"version/1"].theta
        assert found[b"version/2"].method == FOLLOWED
        until(lambda: sum(row.count for row in estimates(kafka, pipeline)) >= sent, pipeline)
        assert sum(row.count for row in estimates(kafka, pipeline)) == sent
        assert kafka.read_all(pipeline.settings.topic("dead-letter")) == []


def test_rows_are_what_the_topic_document_says(kafka: Broker, tmp_path: Path) -> None:
    with local_pipeline(kafka, tmp_path, holdout=500) as pipeline, client_of(pipeline) as client:
        client.report_batch(values(600, 1))
        pipeline.start()
        until(lambda: client.phase == 2, pipeline)
        client.report_batch(values(3_000, 2))
        client.flush(30)
        until(lambda: len(estimates(kafka, pipeline)) > 0, pipeline)
        [message, *_] = kafka.read_all(pipeline.settings.topic("estimate"))
        row = json.loads(message.value())
        assert json.loads(message.key()) == {"slot": row["slot_start"]}
        assert row["filtered_sum"] is not None
        assert row["mean"]["estimate"] == pytest.approx(row["sum"]["estimate"] / row["count"])
        assert message.timestamp()[1] % INTERVAL == 0


def test_codes_of_reports_survive_the_wire() -> None:
    columns = Reports(
        phase=np.array([1, 2]),
        threshold_version=np.array([0, 3]),
        interval=np.array([5, 6]),
        code=np.array([7, 2**32 + 1]),
    )
    assert encode(columns)[1] == encode_one(phase=2, threshold_version=3, interval=6, code=2**32 + 1)
