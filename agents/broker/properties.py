"""The settings of brokers that run together on one machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from susurrus.agents.broker.network import HOST


@dataclass(frozen=True, slots=True)
class Node:
    """One broker-and-controller; ``id`` is the broker id that Kafka's metadata shows, counted from 1."""

    id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


def node_properties(node: Node, nodes: Sequence[Node], data: Path) -> dict[str, str]:
    """What is this node's own: its ids, addresses and data directory. ``nodes`` are all of the cluster."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{peer.id}@{HOST}:{peer.controller_port}" for peer in nodes),
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }


def common_properties(brokers: int) -> dict[str, str]:
    """Broker settings that tests rely on, whatever starts the brokers: replication by their number, and short waits."""
    replicas, in_sync = min(3, brokers), min(2, brokers)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        # The coordinators' own topics: replicated like the rest, few partitions, so that they come up quickly.
        "offsets.topic.num.partitions": "8",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        # A topic that exists by accident has the wrong partitions and the wrong timestamp type.
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        # Tests wait for these: rebalances, expired transactions, deleted or compacted records, a dead broker's heirs.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        "log.segment.bytes": str(64 << 20),
        "log.index.size.max.bytes": str(1 << 20),
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "5000",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
