"""Which worker gets which partition: as many of each topic as round robin gives, and each keeps what it has as far as they allow.

The leader of the consumer group deals the partitions out whenever a worker joins or leaves. Round robin alone deals anew each
time: where one of four workers left, each of the others had two thirds of its partitions exchanged. A partition that moves stands
still while its new owner opens a producer and a store and reads the changelog. One that stays keeps its task (group.py).

- Each member says when it joins what it was given last, and in which generation of the group. The newest word counts: one that was
  away says what others have by now. Nothing depends on this being true, because the transactional producer fences.
- The numbers are those of round robin, so every topic, and with it every stage, is spread as evenly as before. Only which member
  gets which of its shares is chosen, so that the members keep as much as they can.
- The name is that of round robin, so workers of earlier versions may be in the group, in a rolling upgrade. They say nothing of
  what they have, and deal anew where one of them leads.
- Every assignment says of how many partitions it was made; membership.py says why.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

Counts = dict[str, int]
"""Topic -> number of its partitions."""
Partitions = Mapping[str, Sequence[int]]
"""Topic -> some of its partitions."""


class LastAssignment(msgspec.Struct):
    """What a member says of itself when it joins: the partitions that it was given last, and the generation that gave them."""

    generation: int = -1
    partitions: dict[str, list[int]] = {}


_LAST_ASSIGNMENT: Final = msgspec.json.Decoder(LastAssignment)


class KeepingAssignor:
    """The assignor of one worker, as aiokafka calls it, in the consumer's thread.

    generation: the group's, as this worker knows it when it is given partitions.
    """

    name = RoundRobinPartitionAssignor.name
    version = RoundRobinPartitionAssignor.version

    def __init__(self, generation: Callable[[], int]) -> None:
        self._generation = generation
        self._held = LastAssignment()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this worker says when it joins."""
        # The same each time until it is given others: of a follower that joins again with other words, brokers make a rebalance.
        return ConsumerProtocolMemberMetadata(self.version, list(topics), msgspec.json.encode(self._held))

    def on_assignment(self, given: ConsumerProtocolMemberAssignment) -> None:
        """What this worker was given."""
        partitions = {topic: list(numbers) for topic, numbers in given.assignment}
        self._held = LastAssignment(generation=self._generation(), partitions=partitions)

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Member -> its partitions, where this worker leads."""
        topics = {topic for member in members.values() for topic in member.subscription}
        counts = msgspec.json.encode(partition_counts(cluster, topics))
        shares = {
            member: dict(share.assignment)
            for member, share in RoundRobinPartitionAssignor.assign(cluster, members).items()
        }
        held = _undisputed({member: _said(metadata.user_data) for member, metadata in members.items()})
        alike: dict[frozenset[str], list[str]] = {}
        for member in sorted(members):
            alike.setdefault(frozenset(members[member].subscription), []).append(member)
        return {
            member: ConsumerProtocolMemberAssignment(self.version, sorted(share.items()), counts)
            for member, share in keep(shares, held, alike.values()).items()
        }


def partition_counts(cluster: Any, topics: Iterable[str]) -> Counts:
    """The numbers of partitions that a client knows of; 0 for a topic that it does not know."""
    return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in sorted(topics)}


def keep(
    shares: Mapping[str, Partitions], held: Mapping[str, Partitions], alike: Iterable[Sequence[str]]
) -> dict[str, dict[str, list[int]]]:
    """Deal the partitions of all shares out in shares of the same sizes, so that members keep what they hold.

    shares: of each member. held: by each member; no partition by two. alike: the members in groups that may exchange their shares.
    """
    sizes = {member: {topic: len(numbers) for topic, numbers in share.items()} for member, share in shares.items()}
    wanted = {member: size for members in alike for member, size in _exchanged(members, sizes, held)}
    there: dict[str, set[int]] = {}
    for share in shares.values():
        for topic, numbers in share.items():
            there.setdefault(topic, set()).update(numbers)
    kept = {
        member: {
            topic: sorted(there[topic].intersection(held[member].get(topic, ())))[:number]
            for topic, number in size.items()
        }
        for member, size in wanted.items()
    }
    for topic, every in there.items():
        free = iter(sorted(every.difference(*(share.get(topic, ()) for share in kept.values()))))
        for member in sorted(kept):
            if topic in kept[member]:
                missing = wanted[member][topic] - len(kept[member][topic])
                kept[member][topic] = sorted([*kept[member][topic], *islice(free, missing)])
    return kept


def _exchanged(
    members: Sequence[str], sizes: Mapping[str, Counts], held: Mapping[str, Partitions]
) -> Iterator[tuple[str, Counts]]:
    """Each member with the sizes of a share that was one of theirs. First goes what keeps most; then what brings least besides."""

    def order(pair: tuple[str, str]) -> tuple[int, int, str, str]:
        member, share = pair
        stays = sum(min(size, len(held[member].get(topic, ()))) for topic, size in sizes[share].items())
        return -stays, sum(sizes[share].values()) - stays, share, member

    waiting, left = set(members), set(members)
    for member, share in sorted(((member, share) for member in members for share in members), key=order):
        if member in waiting and share in left:
            waiting.remove(member)
            left.remove(share)
            yield member, sizes[share]


def _said(user_data: bytes) -> LastAssignment:
    """What a member said; nothing, if it is of another version."""
    try:
        return _LAST_ASSIGNMENT.decode(user_data)
    except msgspec.MsgspecError:
        return LastAssignment()


def _undisputed(said: Mapping[str, LastAssignment]) -> dict[str, dict[str, list[int]]]:
    """What each member holds: where several say so of a partition, the one with the newest generation."""
    owners: dict[tuple[str, int], str] = {}
    for member in sorted(said, key=lambda member: (said[member].generation, member)):
        owners |= {(topic, number): member for topic, numbers in said[member].partitions.items() for number in numbers}
    held: dict[str, dict[str, list[int]]] = {member: {} for member in said}
    for (topic, number), member in owners.items():
        held[member].setdefault(topic, []).append(number)
    return held
