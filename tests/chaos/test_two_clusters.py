"""A pipeline whose raw topics are on another cluster: the same bytes as with one cluster, whoever is killed, and nothing written
there."""

import contextlib
import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import NewPartitions
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations.add_input import add_input
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.preflight.run import preflight
from susurrus.agents.operations.status import PipelineStatus, collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import ledger
from susurrus.topics.spec import SOURCES
from tests.broker import Broker, wait_for
from tests.chaos.test_several_topics import live
from tests.pipeline import CRASH_POINTS, CRASHING, SECRET, Pipeline, Public, archive_topic, produce
from tests.stream_pipeline import TOPS, stream_pipeline

pytestmark = pytest.mark.chaos


def test_the_bytes_are_those_of_one_cluster_and_the_other_is_only_read(
    kafka: Broker, lone_broker: Broker, raw: str, undisturbed: Public, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(kafka.admin().list_topics(timeout=10).topics)
    with Pipeline(lone_broker, tmp_path, raw, elsewhere=kafka) as pipeline:
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == undisturbed
        # A stage may be without Kafka's answer for a moment.
        wait_for(lambda: not collect(pipeline_of(pipeline.settings)).problems, "no stage reports a problem")
        found = collect(pipeline_of(pipeline.settings))
        assert [(row.stage, row.partition) for row in found.partitions][:3] == [("route", n) for n in range(3)]
        assert all(row.lag == 0 for row in found.partitions if row.stage == "route")
        monkeypatch.setenv("SUSURRUS_SECRET", SECRET)
        said = list(preflight(pipeline_of(pipeline.settings)))
        assert [one for one in said if one.level == "failure"] == []
        group, standing = pipeline.settings.application, pipeline.settings.topic(SOURCES.name)
        [answer] = lone_broker.admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        committed = {place.topic for place in answer.result().topic_partitions}
        assert pipeline.settings.topic("by-user") in committed
        assert not committed & {raw, standing}
        assert lone_broker.read_all(standing) == []
    after = kafka.admin()
    assert pipeline.settings.topic("") not in "".join(set(after.list_topics(timeout=10).topics) - before)
    groups = after.list_consumer_groups().result().valid
    assert not [one.group_id for one in groups if one.group_id.startswith(pipeline.settings.application)]


COMMANDS = (
    ("topics", "check"),
    ("status",),
    ("try", "--records", "500"),
    ("tune", "--yes"),
    ("ledger", "new-epoch", "--first-window", "current", "--yes"),
)


def test_every_command_finds_the_raw_topics_there(
    kafka: Broker, lone_broker: Broker, raw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUSURRUS_SECRET", SECRET)
    with Pipeline(lone_broker, tmp_path, raw, {"window": {"trigger_every": "1d"}}, elsewhere=kafka) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        before, total = pipeline.public(), pipeline.counters()["in"]
        for command in COMMANDS:
            if command[0] == "ledger":
                assert worker.stop() == 0, worker.tail()
            run = CliRunner().invoke(app, [*command, "--config", str(pipeline.config)])
            assert run.exit_code == 0, (command, run.output)
        pipeline.start()
        wait_for(lambda: len(pipeline.progress()) and collected(pipeline).epoch_number == 2, "the second epoch")
        pipeline.wait_for_total(total, "in")
        wait_for(lambda: pipeline.public() != before, "the window is published again")


def collected(pipeline: Pipeline) -> PipelineStatus:
    return collect(pipeline_of(pipeline.settings))


def test_a_stream_of_another_cluster_is_that_of_one(kafka: Broker, lone_broker: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    dice = np.random.default_rng(3)
    readings = [
        (meter % 2, json.dumps({"meter": f"m{meter}", "reading": {"watts": round(watts, 2)}}).encode(), 1_000_000 + at)
        for at in range(500)
        for meter, watts in enumerate(dice.gamma(2.0, 8.0, 6).tolist())
    ]
    number = produce(kafka, raw, readings)
    found = []
    for broker, elsewhere in ((kafka, None), (lone_broker, kafka)):
        with stream_pipeline(broker, tmp_path, raw, TOPS, elsewhere=elsewhere) as pipeline:
            if elsewhere is not None:
                pipeline.crash("stream:after-commit:2")
            pipeline.start()
            pipeline.wait_for_total(number, "in")
            found.append(pipeline.public(("private-stream",)))
    assert sum(map(len, found[0]["private-stream"].values())) > 100
    assert found[1] == found[0]


@CRASH_POINTS
def test_workers_that_die_in_any_step_change_nothing(
    kafka: Broker, lone_broker: Broker, raw: str, undisturbed: Public, tmp_path: Path, points: tuple[str, ...]
) -> None:
    with Pipeline(lone_broker, tmp_path, raw, CRASHING, elsewhere=kafka) as pipeline:
        pipeline.crash_everywhere("route", 2, points)
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        pipeline.wait()
        assert pipeline.public() == undisturbed


@pytest.mark.thorough
def test_workers_that_come_and_go_change_nothing(
    kafka: Broker, lone_broker: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    with Pipeline(lone_broker, tmp_path, loaded_raw, CRASHING, elsewhere=kafka) as pipeline:
        pipeline.replace_at_random(Random(7), 6.0)
        pipeline.wait()
        assert pipeline.public() == loaded_undisturbed


def records(number: int, key: int) -> list[tuple[int, bytes | None, int | None]]:
    return [(0, json.dumps({"name": f"u{user}", "number": key}).encode(), None) for user in range(number)]


@pytest.mark.thorough
def test_a_topic_is_added_there_and_an_outage_is_said_and_ends(
    kafka: Broker, lone_broker: Broker, tmp_path: Path
) -> None:
    stamped = {"message.timestamp.type": "LogAppendTime"}
    first, second = (lone_broker.create_topic(f"raw-{kafka.new_prefix()}", 1, stamped) for _ in range(2))
    history = produce(lone_broker, second, records(30, 7))
    with Pipeline(kafka, tmp_path, "", live(first), elsewhere=lone_broker) as pipeline:
        worker = pipeline.start()
        read = produce(lone_broker, first, records(20, 1))
        wait_for(pipeline.progress, "the first trigger")
        with contextlib.closing(clients_of(pipeline.settings, quiet=True)) as clients:
            said = add_input(pipeline_of(pipeline.settings), clients, second)
            assert any(line.startswith("grown") and SOURCES.name in line for line in said)
        announced: list[ledger.SourcesRecord] = []

        def known() -> bool:
            found = [ledger.decode(m.key(), m.value()) for m in kafka.read_all(pipeline.settings.topic("ledger"))]
            announced[:] = [record for record in found if isinstance(record, ledger.SourcesRecord)]
            return bool(announced)

        wait_for(known, "source 0 announces the topic")
        assert announced[0].offsets == {1: history}
        read += produce(lone_broker, second, records(25, 2))
        pipeline.wait_for_total(read, "taken")
        # A partition more of a topic that is read, and then the brokers go away.
        lone_broker.admin().create_partitions([NewPartitions(first, 2)])[first].result()
        wait_for(lambda: lone_broker.partitions(first).keys() == {0, 1}, "the brokers know of it")
        with contextlib.closing(clients_of(pipeline.settings, quiet=True)) as clients:
            create_topics(pipeline.settings, kafka.admin(), raw_topics(pipeline.settings, clients), clients.raw.admin())
        wait_for(lambda: known() and len(announced) == 2, "source 0 announces the partition")
        read += produce(lone_broker, first, [(1, value, stamp) for _, value, stamp in records(10, 3)])
        pipeline.wait_for_total(read, "taken")
        lone_broker.kill(1)
        with pytest.raises(ConfigurationError, match=r"input\.kafka\.bootstrap_servers=.*nothing listens"):
            reach_both(pipeline.settings)
        wait_for(lambda: "input.kafka: the brokers at" in worker.log.read_text(), "the log of the worker says so")
        lone_broker.restart(1)
        read += produce(lone_broker, second, records(5, 4))
        pipeline.wait_for_total(read, "taken")
        totals = pipeline.counters()
        assert (totals["in"], totals["dead_letter"], totals["late"]) == (read, 0, 0)
        assert worker.stop() == 0, worker.tail()
