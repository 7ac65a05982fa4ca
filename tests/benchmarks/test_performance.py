"""Every benchmark of docs/performance.md on a few records and a real broker; and what it does between the measurements."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks import latency, latency_floor, performance, recovery, replay, throughput, trigger
from benchmarks.inputs import fill, length
from benchmarks.latency import Latencies, live_toml
from benchmarks.rates import rows
from benchmarks.throughput import Inputs
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.pipelines import load_settings
from susurrus.topics.progress import Progress
from tests.broker import started

on_a_broker = [
    pytest.mark.broker,
    pytest.mark.thorough,
    pytest.mark.xdist_group("benchmarks"),  # which share a broker
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker of their own, because bytes and processor time are those of the whole broker."""
    found = KafkaCluster(heap="384m", short_lived=True, properties={"group.initial.rebalance.delay.ms": "0"})
    with started(found):
        yield found


def released(trigger: int, partition: int, window: int = 1_000_000) -> Progress:
    """Progress of one of two partitions."""
    return Progress(
        window=window, trigger=trigger, of_triggers=9, partition=partition, of_partitions=2, rows=0, epoch="00"
    )


def test_a_release_is_late_from_its_cut_until_the_last_partition_has_it() -> None:
    latencies = Latencies(every_ms=5_000, cut_ms=1_000)
    for partition in (0, 1):
        latencies.add(released(1, partition), 1_000_000 + 6_500)
    latencies.add(released(2, 0), 1_000_000 + 11_200)
    assert latencies.complete == []
    latencies.add(released(2, 1), 1_000_000 + 11_300)
    latencies.add(released(2, 1), 1_000_000 + 14_000)  # told again
    assert latencies.complete == [300]


def test_releases_whose_boundary_was_missed_by_starting_workers_do_not_count() -> None:
    latencies = Latencies(every_ms=5_000, cut_ms=0)
    for number, seen in ((1, 15_000), (2, 15_100), (3, 15_900), (4, 29_000)):
        for partition in (0, 1):
            latencies.add(released(number, partition), 1_000_000 + seen)
    assert latencies.complete == [900, 9_000]


@pytest.mark.parametrize("clock", ["broker", "producer"])
def test_live_pipelines_wait_as_long_as_the_figures_leave_out(clock: str, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(live_toml("localhost:1", "raw", clock, 5_000))
    settings = load_settings(config, {})
    waits = settings.clock.grace if clock == "broker" else settings.clock.idle_grace
    assert (waits, settings.window.trigger_every) == (latency.CUT_MS[clock], 5_000)


def test_the_floor_has_the_sizes_that_were_measured() -> None:
    stages = {"route": {"bytes": 900.0}, "bound": {"bytes": 700.4}, "release": {"bytes": 50.0}}
    assert latency_floor.sizes_of(stages) == [900, latency_floor.BYTES[1], 700, 50]
    assert len(latency_floor.STEPS) == len(latency_floor.BYTES)


def test_each_case_of_a_trigger_is_measured_once() -> None:
    found = trigger.cases(["release", "bound"], [100, 1_000], [24, 288])
    assert found[:3] == [("release", 100, 24), ("release", 1_000, 24), ("release", 100, 288)]
    assert len(found) == len(set(found)) == 6


def test_all_benchmarks_have_a_quick_size() -> None:
    assert performance.QUICK.keys() == performance.FULL.keys()


class TestOnABroker:
    """Figures are only looked at for what must hold on any machine."""

    pytestmark = on_a_broker

    def test_throughput(self, cluster: KafkaCluster) -> None:
        servers = cluster.bootstrap_servers
        inputs = Inputs(fill(servers, 2_000, 25, 100), fill(servers, 400, 5, 100))
        assert fill(servers, 2_000, 25, 100) == inputs.whole  # found again
        assert length(servers, inputs.whole.topic) == 2_000
        runs = throughput.measure({"json": inputs}, [("plain", "bare"), ("plain", "susurrus-2")], 1, cluster)
        found = {row["what"]: row for row in rows(runs)}
        assert [row["records"] for row in found.values()] == [2_000, 2_000]
        ours = found["susurrus (2)"]
        assert {"by-user", "bound-changelog", "bounded", "release-changelog"} <= ours["bytes_per_record"].keys()
        assert {"worker", "worker: main", "worker: bound", "broker"} <= runs[1].whole.cpu.keys()
        assert ours["memory_mb"] > 10
        assert ours["runs"][0]["first_records"] == 400
        left = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).topics
        assert not [name for name in left if name.startswith("benchmark.")]

    def test_a_row_in_sql_beside_kafka_streams(self, cluster: KafkaCluster) -> None:
        """That every side counted what was produced is what `measure` demands of it."""
        cases = throughput.chosen("sql", "tuned-1,pure-1")
        inputs = throughput.prepare(cluster.bootstrap_servers, cases, 2_000, 25, 100, "")
        found = {row["what"]: row for row in rows(throughput.measure(inputs, cases, 1, cluster))}
        assert found.keys() == {"kafka-streams tuned (1)", "susurrus pure (1)"}
        assert all(row["counted"] == {"in": 2_000, "filtered": 20, "counted": 1_980} for row in found.values())

    @pytest.mark.campaign
    def test_arrays_and_every_format_beside_kafka_streams(self, cluster: KafkaCluster, schema_registry: str) -> None:
        cases = throughput.chosen("filter,avro,protobuf,json-schema,arrays", "tuned-2,susurrus-1")
        inputs = throughput.prepare(cluster.bootstrap_servers, cases, 2_000, 25, 100, schema_registry)
        assert length(cluster.bootstrap_servers, inputs["arrays"].whole.topic) == 400
        found = rows(throughput.measure(inputs, cases, 1, cluster))
        assert [(row["row"], row["counted"]["in"]) for row in found] == [(row, 2_000) for row, _ in cases]

    @pytest.mark.campaign
    def test_latency_also_while_a_worker_is_killed(self, cluster: KafkaCluster) -> None:
        row = latency.measure(cluster, "broker", 200, 4, faults=True, every_ms=2_000, skipped=1)
        assert (row["triggers"], row["killed"], row["by_stage"]) == (
            4,
            True,
            {},
        )  # whose worker forgot what it had counted
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["worst_ms"]

    @pytest.mark.campaign
    def test_latency_by_stage(self, cluster: KafkaCluster) -> None:
        row = latency.measure(cluster, "producer", 200, 2, faults=False, every_ms=2_000, skipped=0)
        assert row["by_stage"].keys() == latency.WRITES.keys()
        assert all(min(figures.values()) > 0 for figures in row["by_stage"].values())

    def test_the_floor_of_latency(self, cluster: KafkaCluster) -> None:
        row = latency_floor.measure(cluster.bootstrap_servers, 100, 3, sizes=(900, 50, 700, 50), partitions=2, warm=1)
        assert [step["step"] for step in row["steps"]] == list(latency_floor.STEPS)
        assert row["hand_over"]["worst_ms"] >= row["commits"]["worst_ms"] > 0  # which are a part of it
        left = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=30).topics
        assert not [name for name in left if name.startswith("floor-")]

    @pytest.mark.campaign
    def test_recovery(self, cluster: KafkaCluster) -> None:
        found = list(recovery.measure(cluster, 300, 2, 1))
        assert [row["case"] for row in found] == list(recovery.CASES)
        assert found[-1]["disk_bytes"] == 0
        assert all(row["changelog_bytes"] > 0 for row in found)
        assert all(0 < row["recovering_seconds"] < row["seconds"] for row in found)

    @pytest.mark.campaign
    def test_replay(self, cluster: KafkaCluster) -> None:
        (row,) = replay.measure(cluster, ["closing"], [4], 500, 1)
        assert (row["strategy"], row["triggers"]) == ("closing", 4)
        assert row["intervals_per_second"] > 0

    @pytest.mark.campaign
    @pytest.mark.parametrize("stage", ["release", "bound"])
    def test_trigger(self, cluster: KafkaCluster, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUSURRUS_SECRET", "5a" * 32)
        row = trigger.measure(cluster.bootstrap_servers, stage, 60, 24, 10)
        assert (row["stage"], row["stored_rows"], row["touched_rows"]) == (stage, 60, 10)
        assert isinstance(row["fixed_ms"], float)
        assert row["fixed_ms"] > 0
