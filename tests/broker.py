"""Brokers for tests: which one a run gets, and a pleasant handle on it.

A test asks for a fixture of conftest.py (``kafka``, ``kafka_cluster``, ``embedded``) and gets a :class:`Broker`. Where
none can be had, the test is skipped and the summary says why in capital letters; with ``CI=true`` it fails instead.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from susurrus.agents.broker.artefacts import KafkaUnavailableError, kafka_version
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.network import free_ports, known_brokers
from susurrus.agents.broker.properties import common_properties
from susurrus.agents.kafka.embedded import EmbeddedBroker
from tests.prepared import prepare
from tests.waiting import PATIENCE

KAFKA_IMAGE = f"apache/kafka:{kafka_version()}"
SECONDS = 120.0
"""For one answer of a client."""

# A broker that no test kills has no heirs. On a machine with much other work its heartbeats may come very late.
NEVER_FENCED = {"broker.session.timeout.ms": "600000"}
# It keeps the topics of all tests, thousands of partitions. No test waits for it to compact them, and a look at all of them each
# second takes a tenth of a processor.
RARELY_CLEANED = {"log.cleaner.backoff.ms": "60000"}
# Of several, one that is dead is missed after this time; as long a silence of one that lives is no reason for an election.
SLOWLY_FENCED = {
    "broker.session.timeout.ms": "9000",
    "controller.quorum.fetch.timeout.ms": "6000",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.quorum.request.timeout.ms": "6000",
}

# Why tests that need a broker could not run, for the summary: reason -> how many.
missing: dict[str, int] = {}


class Broker:
    """A Kafka under test. ``cluster`` is set where its brokers can be killed, paused and restarted one by one."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        description: str,
        cluster: KafkaCluster | None = None,
        idempotence: bool = True,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.idempotence = idempotence
        self.description = description
        self.cluster = cluster

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def admin(self) -> AdminClient:
        return self._admin

    def new_prefix(self) -> str:
        """A topic prefix (or group, or transactional id) that no other test uses."""
        return f"t{uuid.uuid4().hex[:10]}"

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic with the broker's default replication; returns when every partition has a leader."""
        create_topic(self._admin, name, partitions, config)
        return name

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """The metadata of an existing topic's partitions. A broker that has not heard of the topic is asked again."""
        found: dict[int, PartitionMetadata] = {}

        def known() -> bool:
            found.update(self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
            return bool(found)

        wait_for(known, f"the asked broker knows topic {topic}")
        return found

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the metadata no longer has it."""
        self._admin.delete_topics([name])[name].result(SECONDS)
        while name in self._admin.list_topics(timeout=SECONDS).topics:
            time.sleep(0.05)

    def producer(self, **config: object) -> Producer:
        """A producer; keyword arguments are librdkafka properties with _ for the dots (``linger_ms=5``).

        Idempotent where the broker can: a batch that is sent again must not overtake or double what tests count on.
        """
        defaults = {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": self.idempotence}
        return Producer({**defaults, **_properties(config)})

    @contextlib.contextmanager
    def consumer(self, **config: object) -> Iterator[Consumer]:
        """A read_committed consumer that starts at the beginning and commits nothing; closed with the block."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.new_prefix(),
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **_properties(config),
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def read_all(self, topic: str, *, isolation: str = "read_committed", seconds: float = SECONDS) -> list[Message]:
        """Every record of a topic up to its ends as they are now, and maybe some later ones, sorted by (partition, offset).

        With read_committed the ends are the last stable offsets: what an open transaction holds is not waited for.
        """
        with self.consumer(isolation_level=isolation, enable_partition_eof=True) as consumer:
            partitions = sorted(consumer.list_topics(topic, timeout=seconds).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            ends = {}
            for partition in partitions:
                low, ends[partition] = self._bounds(consumer, TopicPartition(topic, partition), seconds)
                if low > 0:
                    consumer.seek(TopicPartition(topic, partition, low))
            found: list[Message] = []
            unfinished = set(partitions)
            deadline = time.monotonic() + seconds
            while unfinished:
                for message in consumer.consume(10_000, timeout=0.2):
                    if message.error() is None:
                        found.append(message)
                        # The client reports an end only where nothing comes for half a second.
                        if message.offset() >= ends[message.partition()] - 1:
                            unfinished.discard(message.partition())
                    elif message.error().name() == "_PARTITION_EOF":
                        unfinished.discard(message.partition())
                    elif not message.error().retriable():
                        raise RuntimeError(f"reading {topic}: {message.error()}")
                if unfinished and time.monotonic() > deadline:
                    raise TimeoutError(f"topic {topic}: partitions {sorted(unfinished)} not read within {seconds} s")
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    @contextlib.contextmanager
    def following(self, topic: str) -> Iterator[Callable[[], list[Message]]]:
        """``more()`` returns the committed records that it has not returned before, within a third of a second.

        Who waits for records asks often, and each `read_all` costs the broker a new client.
        """
        with self.consumer() as consumer:
            places: list[TopicPartition] = []

            def known() -> bool:
                with contextlib.suppress(KafkaException):  # a broker that was away may not know its partitions yet
                    partitions = consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions
                    places[:] = [TopicPartition(topic, partition, 0) for partition in partitions]
                return bool(places)

            wait_for(known, f"topic {topic} is there")
            consumer.assign(places)
            yield lambda: [each for each in consumer.consume(10_000, timeout=0.3) if each.error() is None]

    @staticmethod
    def _bounds(consumer: Consumer, place: TopicPartition, seconds: float) -> tuple[int, int]:
        """The first offset of a partition, and its end. A broker that was away is asked again until it knows its partitions."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                low, end = consumer.get_watermark_offsets(place, timeout=seconds)
                return int(low), int(end)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Id of the broker that leads a partition, as ``kill``, ``pause`` and ``restart`` name it; -1 for none."""
        leader: int = self.partitions(topic)[partition].leader
        return leader

    def kill(self, broker: int) -> None:
        """SIGKILL one broker."""
        self._own().kill(broker)

    def pause(self, broker: int) -> None:
        """SIGSTOP one broker."""
        self._own().pause(broker)

    def resume(self, broker: int) -> None:
        """SIGCONT one broker."""
        self._own().resume(broker)

    def restart(self, broker: int) -> None:
        """Start a killed broker again (or kill and start a running one)."""
        self._own().restart(broker)

    def heal(self) -> None:
        """Bring every broker back and wait until no partition lacks an in-sync replica; for after a chaos test."""
        cluster = self._own()
        for node in cluster.nodes:
            cluster.resume(node.id)
        for node in cluster.nodes:
            if node.id not in cluster.running():
                cluster.restart(node.id)
        wait_for(
            lambda: all(
                len(partition.isrs) == len(partition.replicas)
                for topic in self._admin.list_topics(timeout=SECONDS).topics.values()
                for partition in topic.partitions.values()
            ),
            "every replica in sync",
        )

    def _own(self) -> KafkaCluster:
        if self.cluster is None:
            pytest.skip(f"the brokers of {self.description} are not ours to stop")
        return self.cluster


def _properties(config: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in config.items()}


def create_topic(
    admin: AdminClient,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> None:
    """Create a topic. A broker may answer before it knows of the topic itself, so this waits until each partition has a leader."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
    admin.create_topics([topic])[name].result(seconds)

    def led() -> bool:
        found = admin.list_topics(name, timeout=seconds).topics[name].partitions
        return [partition.leader >= 0 for partition in found.values()] == [True] * partitions

    wait_for(led, f"topic {name} has a leader for each of its {partitions} partitions")


def wait_for(condition: Callable[[], object], what: str, *, seconds: float = PATIENCE) -> None:
    """Poll until ``condition()`` is true; TimeoutError names ``what`` otherwise.

    The pause after a question is as long as its answer took, so one that costs a new client of Kafka is not asked all the time.
    """
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not condition():
        answered = time.monotonic()
        if answered > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(min(max(0.1, answered - asked), 1.0))
        asked = time.monotonic()


@contextlib.contextmanager
def found_broker() -> Iterator[Broker]:
    """The broker of ``SUSURRUS_TEST_BOOTSTRAP``, else one from Maven's JARs, else a container.

    Raises KafkaUnavailableError, which names what is missing.
    """
    if bootstrap := os.environ.get("SUSURRUS_TEST_BOOTSTRAP"):
        yield Broker(bootstrap, description=f"SUSURRUS_TEST_BOOTSTRAP={bootstrap}")
        return
    with contextlib.ExitStack() as stack:
        try:
            prepare(_first_use)
            cluster = stack.enter_context(
                KafkaCluster(brokers=1, short_lived=True, properties=NEVER_FENCED | RARELY_CLEANED)
            )
            broker = Broker(cluster.bootstrap_servers, description="Java and Maven", cluster=cluster)
        except KafkaUnavailableError as no_java:
            try:
                broker = stack.enter_context(container_broker())
            except KafkaUnavailableError as no_docker:
                raise KafkaUnavailableError(
                    f"no real broker: {no_java}; {no_docker}; and SUSURRUS_TEST_BOOTSTRAP is not set"
                ) from no_docker
        yield broker


@contextlib.contextmanager
def real_cluster(brokers: int = 3) -> Iterator[Broker]:
    """Brokers (of three: replication 3, min.insync.replicas 2) that a test may kill; skipped without Java and Maven."""
    with contextlib.ExitStack() as stack:
        try:
            prepare(_first_use)
            cluster = stack.enter_context(
                KafkaCluster(brokers=brokers, heap="384m", short_lived=True, properties=SLOWLY_FENCED)
            )
        except KafkaUnavailableError as no_java:
            give_up(f"no {brokers}-broker cluster: {no_java}")
        yield Broker(cluster.bootstrap_servers, description=f"{brokers} brokers, Java and Maven", cluster=cluster)


@contextlib.contextmanager
def started(cluster: KafkaCluster) -> Iterator[None]:
    """A cluster of the test's own making, ready for a block; a skip where it cannot run."""
    with contextlib.ExitStack() as stack:
        try:
            if cluster.short_lived and cluster.version is None:
                prepare(_first_use)
            stack.enter_context(cluster)
        except KafkaUnavailableError as error:
            give_up(str(error))
        yield


def _first_use(cluster: KafkaCluster) -> None:
    """What most tests do first: a topic, a transaction, a group that reads."""
    kafka = Broker(cluster.bootstrap_servers, description="one that is only to load its classes")
    topic = kafka.create_topic("t", 2)
    producer = kafka.producer(transactional_id="p")
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    with kafka.consumer() as consumer:
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), "a consumer has partitions")
        places = [TopicPartition(topic, partition, 0) for partition in range(2)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)
        consumer.poll(1.0)
    kafka.read_all(topic)


@contextlib.contextmanager
def container_broker() -> Iterator[Broker]:
    """One broker in a container, where a Docker daemon answers; raises KafkaUnavailableError."""
    try:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.docker_client import DockerClient
    except ImportError as error:
        raise KafkaUnavailableError(f"testcontainers is not installed ({error.name})") from error
    try:
        host = DockerClient().host()
    except Exception as error:  # docker-py and requests each have their own trees of errors for "no daemon"
        raise KafkaUnavailableError(f"no Docker daemon answers ({error})") from error
    (port,) = free_ports(1)  # chosen here, because the broker must advertise the port it is reached by
    settings = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "LISTENERS": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:9093",
        "ADVERTISED_LISTENERS": f"PLAINTEXT://{host}:{port}",
        "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        **{name.upper().replace(".", "_"): value for name, value in common_properties(1).items()},
    }
    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(port, port)
    for name, value in settings.items():
        container = container.with_env(f"KAFKA_{name}", value)
    with container:
        wait_for(lambda: known_brokers(port, host), f"a broker in a container of {KAFKA_IMAGE}")
        yield Broker(f"{host}:{port}", description=f"a container of {KAFKA_IMAGE}")


@contextlib.contextmanager
def embedded_broker() -> Iterator[Broker]:
    """librdkafka's in-process broker: the real protocol, without transactions, CreateTopics or compaction."""
    with EmbeddedBroker() as host:
        yield Broker(host.bootstrap_servers, description="librdkafka's in-process broker", idempotence=False)


def give_up(reason: str) -> None:
    """Fail in CI, skip elsewhere; either way the summary tells."""
    missing[reason] = missing.get(reason, 0) + 1
    if os.environ.get("CI", "").lower() in ("true", "1", "yes"):
        pytest.fail(f"{reason}. In CI this is a failure, not a skip.", pytrace=False)
    pytest.skip(reason)
