"""Three brokers, min.insync.replicas 2: the leader is killed while data flows."""

import time
from pathlib import Path

import pytest

from tests.broker import Broker
from tests.chaos.conftest import LOAD, same_archive
from tests.pipeline import Pipeline, Public

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]


def test_killing_leaders_while_data_flows_changes_no_byte(
    kafka_cluster: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    """The undisturbed run was on another cluster: outputs are a function of raw log, configuration and secret only."""
    raw = same_archive(kafka_cluster, loaded_raw, LOAD)
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
        pipeline.wait()
        assert pipeline.public() == loaded_undisturbed
