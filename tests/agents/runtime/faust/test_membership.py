"""Static members of a group, as bare consumers on a real broker: who stays, who leaves, who is fenced, who watches."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from confluent_kafka.admin import NewPartitions

from susurrus.agents.runtime.faust.assignor import KeepingAssignor
from susurrus.agents.runtime.faust.membership import InstanceHeartbeat, StaticConsumer, StaticCoordinator
from tests.broker import SECONDS, Broker, wait_for


async def until(condition: Callable[[], object], what: str) -> None:
    """As wait_for, while the consumers go on."""
    deadline = time.monotonic() + 2 * SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {2 * SECONDS:.0f} s")
        await asyncio.sleep(0.05)


class Group:
    """A group on a topic of two partitions."""

    def __init__(self, kafka: Broker) -> None:
        self.kafka, self.name = kafka, kafka.new_prefix()
        self.topic = kafka.create_topic(f"raw-{self.name}", 2)
        self.fenced: list[StaticConsumer] = []

    @contextlib.asynccontextmanager
    async def member(self, instance: str, *, leaves: bool = False) -> AsyncIterator[StaticConsumer]:
        """A member that has got partitions."""
        consumer = StaticConsumer(
            bootstrap_servers=self.kafka.bootstrap_servers,
            group_id=self.name,
            group_instance_id=instance,
            partition_assignment_strategy=[KeepingAssignor(lambda: generation(consumer))],
            enable_auto_commit=False,
            session_timeout_ms=120_000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=500,
            on_fenced=lambda: self.fenced.append(consumer),
            leaves=lambda: leaves,
        )
        await consumer.start()
        try:
            consumer.subscribe([self.topic])
            await until(consumer.assignment, f"{instance} has partitions")
            yield consumer
        finally:
            await consumer.stop()

    def instances(self) -> list[str]:
        """The members that the broker knows, whether they run or not."""
        described = self.kafka.admin().describe_consumer_groups([self.name])[self.name].result(SECONDS)
        return sorted(member.group_instance_id for member in described.members)


def generation(consumer: StaticConsumer) -> int:
    found: int = consumer._coordinator.generation
    return found


def held(*consumers: StaticConsumer) -> list[int]:
    return sorted(tp.partition for consumer in consumers for tp in consumer.assignment())


@pytest.mark.parametrize(("leaves", "left"), [(False, ["a"]), (True, [])])
def test_a_member_that_ends_leaves_only_if_it_gives_up_its_place(kafka: Broker, leaves: bool, left: list[str]) -> None:
    group = Group(kafka)

    async def run() -> None:
        async with group.member("a", leaves=leaves):
            assert await asyncio.to_thread(group.instances) == ["a"]

    asyncio.run(run())
    assert group.instances() == left


def test_the_first_of_two_with_one_instance_is_fenced_once_and_takes_nothing_back(kafka: Broker) -> None:
    group = Group(kafka)

    async def run() -> None:
        async with group.member("same") as first, group.member("same") as second:
            member = second._coordinator.member_id
            await until(lambda: group.fenced, "the first is told")
            await asyncio.sleep(3.0)  # fifteen heartbeats: aiokafka alone takes the partitions back in one
            assert group.fenced == [first]
            assert (second._coordinator.member_id, held(second)) == (member, [0, 1])

    asyncio.run(run())


def test_a_leader_that_was_away_while_a_topic_grew_has_it_assigned(kafka: Broker) -> None:
    group = Group(kafka)

    def grow() -> None:
        kafka.admin().create_partitions([NewPartitions(group.topic, 4)])[group.topic].result(SECONDS)
        wait_for(lambda: len(kafka.admin().list_topics(group.topic).topics[group.topic].partitions) == 4, "they exist")

    async def run() -> None:
        async with contextlib.AsyncExitStack() as others:
            async with group.member("leader") as leader:
                other = await others.enter_async_context(group.member("other"))
                await until(lambda: held(leader, other) == [0, 1], "they share the partitions")
                before = generation(other)
            await asyncio.to_thread(grow)
            async with group.member("leader") as leader:
                await until(lambda: held(leader, other) == [0, 1, 2, 3], "all partitions are assigned")
                assert generation(leader) == generation(other) == before + 1

    asyncio.run(run())


@pytest.mark.parametrize("restarted", ["leader", "other"])
def test_a_restart_makes_no_generation(kafka: Broker, restarted: str) -> None:
    group = Group(kafka)

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stays, contextlib.AsyncExitStack() as goes:
            leader = await (goes if restarted == "leader" else stays).enter_async_context(group.member("leader"))
            other = await (stays if restarted == "leader" else goes).enter_async_context(group.member("other"))
            await until(lambda: held(leader, other) == [0, 1], "they share the partitions")
            gone, left = (leader, other) if restarted == "leader" else (other, leader)
            before, had = generation(left), held(gone)
            await goes.aclose()
            async with group.member(restarted) as again:
                await asyncio.sleep(2.0)  # several looks at the metadata
                assert (generation(again), held(again), held(again, left)) == (before, had, [0, 1])

    asyncio.run(run())


def test_members_with_and_without_an_instance_share_a_group(kafka: Broker) -> None:
    """As in a rolling upgrade to names, where the leader has none at first."""
    group = Group(kafka)

    async def run() -> None:
        plain = AIOKafkaConsumer(
            group.topic,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group.name,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )
        await plain.start()
        try:
            await until(lambda: held(plain) == [0, 1], "the leader has all")
            async with group.member("a") as named:
                await until(lambda: held(plain, named) == [0, 1] and held(plain), "they share the partitions")
            async with group.member("a") as named:
                assert sorted(held(plain) + held(named)) == [0, 1]
                await plain.stop()
                await until(lambda: held(named) == [0, 1], "it has all")
        finally:
            await plain.stop()

    asyncio.run(run())


def test_a_member_is_the_same_one_by_its_whole_instance() -> None:
    coordinator: Any = SimpleNamespace(_group_instance_id="web-1")
    was_here = StaticCoordinator._was_here
    uuid = "0b8f2c3e-1111-4222-8333-444455556666"
    assert was_here(coordinator, f"web-1-{uuid}")
    for other in (f"web-10-{uuid}", f"web-1-a-{uuid}", f"web-{uuid}", uuid, ""):
        assert not was_here(coordinator, other), other


def test_a_heartbeat_carries_the_instance() -> None:
    request = InstanceHeartbeat("group", 7, "member", "web-0").prepare({12: (0, 4)})
    assert request.to_object() == {
        "group": "group",
        "generation_id": 7,
        "member_id": "member",
        "group_instance_id": "web-0",
    }
    assert request.API_VERSION == 3
