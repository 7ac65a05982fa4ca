"""Three brokers, min.insync.replicas 2: the leader is killed while data flows."""

import time
from pathlib import Path

import pytest

from tests.broker import Broker
from tests.chaos.conftest import COPIES, RAW_PARTITIONS
from tests.pipeline import Pipeline, Public, produce, web_log

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def test_killing_leaders_while_data_flows_changes_no_byte(
    kafka_cluster: Broker, raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    """The undisturbed run was on another cluster: outputs are a function of raw log, configuration and secret only."""
    # The raw topic's name is part of the configuration, hence of the noise's address: the copy has the same name.
    kafka_cluster.create_topic(raw, RAW_PARTITIONS, {"retention.ms": "-1"})
    produce(kafka_cluster, raw, web_log(RAW_PARTITIONS, COPIES))
    replicated = {"topics": {"replication_factor": 3, "min_insync_replicas": 2}}
    with Pipeline(kafka_cluster, tmp_path, raw, replicated) as pipeline:
        pipeline.start()
        pipeline.start()
        for topic in ("by-user", "release-changelog"):
            time.sleep(5)
            leader = kafka_cluster.leader(pipeline.settings.topic(topic))
            kafka_cluster.kill(leader)
            time.sleep(5)
            kafka_cluster.restart(leader)
        pipeline.wait(seconds=400)
        assert pipeline.public() == undisturbed
