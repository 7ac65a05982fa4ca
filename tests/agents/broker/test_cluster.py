"""Kafka without Docker, and the fixtures on it: what is started answers, can be killed, never outlives its owner."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from susurrus.agents.broker import network
from susurrus.agents.broker.artefacts import (
    KafkaUnavailableError,
    cache_directory,
    fetch_jars,
    find_java,
    prepared_directory,
)
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.network import free_ports, known_brokers
from susurrus.agents.broker.prepared import CLASSES, DATA
from susurrus.agents.broker.process import command_line
from susurrus.agents.broker.properties import Node
from tests import broker as brokers
from tests.broker import Broker, wait_for
from tests.waiting import PATIENCE


def test_records_written_are_read_back_in_order(kafka: Broker) -> None:
    topic = kafka.create_topic(kafka.new_prefix(), 3)
    producer = kafka.producer(linger_ms=5)
    for number in range(300):
        producer.produce(topic, value=b"%d" % number, partition=number % 3)
    assert producer.flush(30) == 0
    found = kafka.read_all(topic)
    assert [int(message.value()) for message in found] == sorted(range(300), key=lambda number: number % 3)


def test_aborted_and_open_transactions_are_not_read(kafka: Broker) -> None:
    topic = kafka.create_topic(kafka.new_prefix())
    producer = kafka.producer(transactional_id=kafka.new_prefix())
    producer.init_transactions(30)
    for value, end in [(b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)]:
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    assert [message.value() for message in kafka.read_all(topic)] == [b"kept"]
    everything = [message.value() for message in kafka.read_all(topic, isolation="read_uncommitted")]
    assert everything == [b"kept", b"aborted", b"open"]
    producer.abort_transaction(30)


def test_a_cluster_survives_the_death_of_a_leader(kafka_cluster: Broker) -> None:
    topic = kafka_cluster.create_topic(kafka_cluster.new_prefix(), 1)
    (partition,) = kafka_cluster.partitions(topic).values()
    assert len(partition.replicas) == 3
    producer = kafka_cluster.producer(acks="all")
    producer.produce(topic, b"before")
    assert producer.flush(60) == 0
    leader = kafka_cluster.leader(topic)
    kafka_cluster.kill(leader)
    producer.produce(topic, b"after")
    assert producer.flush(60) == 0
    wait_for(lambda: kafka_cluster.leader(topic) not in (leader, -1), "another broker leads")
    assert [message.value() for message in kafka_cluster.read_all(topic)] == [b"before", b"after"]
    kafka_cluster.restart(leader)
    assert kafka_cluster.cluster is not None
    assert known_brokers(kafka_cluster.cluster.nodes[leader - 1].port) == {1, 2, 3}


def test_short_lived_brokers_start_from_what_is_prepared(kafka_cluster: Broker) -> None:
    """They map the classes that another broker has loaded; each has identities of its own."""
    cluster = kafka_cluster.cluster
    assert cluster is not None
    prepared = prepared_directory(find_java(), fetch_jars())
    identities = []
    for node in cluster.nodes:
        home = cluster.directory / f"broker-{node.id}"
        maps = Path(f"/proc/{(home / 'pid').read_text().strip()}/maps")
        if maps.exists() and (prepared / CLASSES).exists():  # Linux, and a Java that can write it
            assert str(prepared / CLASSES) in maps.read_text()
        lines = (home / "data" / "meta.properties").read_text().splitlines()
        identities.append(dict(line.split("=", 1) for line in lines if "=" in line))
    assert [each["node.id"] for each in identities] == [str(node.id) for node in cluster.nodes]
    assert len({each["cluster.id"] for each in identities}) == 1
    assert len({each["directory.id"] for each in identities}) == len(cluster.nodes)
    assert (prepared / DATA / "meta.properties").read_text().count(identities[0]["cluster.id"]) == 0


def test_the_embedded_broker_speaks_kafka(embedded: Broker) -> None:
    topic = embedded.new_prefix()
    producer = embedded.producer()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0
    with embedded.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        (message,) = consumer.consume(1, timeout=30)
    assert message.value() == b"x"


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_throw_away_cluster_dies_with_its_owner(death: signal.Signals, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "kafka").mkdir(parents=True)
    try:
        jars = fetch_jars()
    except KafkaUnavailableError as error:
        brokers.give_up(f"no real broker: {error}")
    (cache / "kafka" / jars.name).symlink_to(jars)
    (cache / "ports.lock").symlink_to(cache_directory() / "ports.lock")  # it must not choose what another test has
    code = (
        "from susurrus.agents.broker.cluster import KafkaCluster\n"
        "import time\n"
        "with KafkaCluster() as cluster:\n"
        "    print(int((cluster.directory / 'broker-1' / 'pid').read_text()), cluster.directory, flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = {**os.environ, "SUSURRUS_CACHE": str(cache)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert command_line(int(pid))
        owner.send_signal(death)
        try:
            owner.wait(60)
        finally:
            owner.kill()
    wait_for(lambda: not command_line(int(pid)), "the broker is gone")
    wait_for(lambda: not Path(directory).exists(), "its files are gone")


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["formatting", "launching"])
def test_nothing_is_left_of_a_cluster_whose_owner_dies_while_it_starts(moment: str, tmp_path: Path) -> None:
    """While the data directory is formatted, and before the owner has noted the process that it has just started."""
    java = tmp_path / "java"
    java.write_text(
        f"#!{sys.executable}\n"
        "import sys, time\n"
        "if 'kafka.tools.StorageTool' not in sys.argv:\n"
        f"    open({str(tmp_path / 'begins')!r}, 'w').write(str(__import__('os').getpid()))\n"
        f"    __import__('os').replace({str(tmp_path / 'begins')!r}, {str(tmp_path / 'runs')!r})\n"  # never empty
        "    time.sleep(900)\n"
    )
    java.chmod(0o755)
    code = f"""
import os, signal, subprocess
from pathlib import Path
from susurrus.agents.broker import cluster, process
cluster.find_java = lambda: {str(java)!r}
cluster.fetch_jars = lambda version: Path({str(tmp_path)!r})
real = subprocess.Popen
class Popen(real):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        formats = "kafka.tools.StorageTool" in command
        if "kafka.Kafka" in command or formats:
            while not formats and not os.path.exists({str(tmp_path / "runs")!r}):
                pass
            if formats == ({moment!r} == "formatting"):
                os.kill(os.getpid(), signal.SIGKILL)
process.subprocess.Popen = Popen
cluster.KafkaCluster(1).start()
"""
    environment = {**os.environ, "SUSURRUS_CACHE": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, timeout=PATIENCE, check=False)
    assert run.returncode == -signal.SIGKILL
    clusters = tmp_path / "cache" / "kafka" / "clusters"
    wait_for(lambda: not clusters.exists() or not list(clusters.iterdir()), "its files are gone")
    if moment == "launching":
        pid = int((tmp_path / "runs").read_text())
        try:
            wait_for(lambda: not command_line(pid), "the broker is gone")
        finally:
            if str(clusters) in " ".join(command_line(pid)):
                os.kill(pid, signal.SIGKILL)


def test_a_recycled_process_id_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        cluster = KafkaCluster(directory=tmp_path)
        cluster.nodes = [Node(1, 20_001, 20_002)]
        home = tmp_path / "broker-1"
        home.mkdir()
        (home / "pid").write_text(str(stranger.pid))
        assert cluster.running() == []
        cluster.kill(1)
        cluster.stop()
        time.sleep(0.1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_ports_are_below_the_ephemeral_range() -> None:
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert max(ports) < lowest_ephemeral


def test_processes_that_choose_at_the_same_time_choose_other_ports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker listens seconds after its port was chosen; until then only the reservation says that the port is taken."""
    monkeypatch.setenv("SUSURRUS_CACHE", str(tmp_path))
    monkeypatch.setattr(network, "PORTS", range(31_000, 31_003))
    monkeypatch.setattr(network, "_given", set())
    monkeypatch.setattr(network, "_reservations", functools.cache(network._reservations.__wrapped__))
    code = (
        "from susurrus.agents.broker import network\n"
        "network.PORTS = range(31_000, 31_003)\n"
        "print(*network.free_ports(2), flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        with pytest.raises(KafkaUnavailableError, match="ports=2: so many are not free"):
            free_ports(2)
        ours = set(free_ports(1))
        other.communicate("\n")
    assert theirs | ours == set(network.PORTS)
    assert set(free_ports(2)) == theirs


def test_without_java_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KafkaUnavailableError, match="no Java found"):
        find_java()


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_broker_fails_in_ci_and_is_skipped_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(brokers, "missing", {})
    with pytest.raises(outcome, match="no broker on the moon"):
        brokers.give_up("no broker on the moon")
    assert brokers.missing == {"no broker on the moon": 1}


def test_a_broker_that_a_cluster_does_not_have_cannot_be_stopped() -> None:
    cluster = KafkaCluster(1)
    for call in (cluster.kill, cluster.pause, cluster.resume):
        with pytest.raises(ValueError, match=r"broker=1: the brokers of this cluster are \[\]"):
            call(1)
