"""Who gets which partition: shares of the sizes of round robin, and nobody loses what need not move."""

from collections.abc import Iterable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from susurrus.agents.runtime.faust.assignor import Counts, KeepingAssignor

OF_A_PIPELINE: Counts = {"raw": 32, "by-user": 8, "bounded": 8}
Owners = dict[tuple[str, int], str]


class Members:
    """Members of a group, each with an assignor of its own; ``subscribed`` are the topics of those that read not all."""

    def __init__(
        self, counts: Counts, names: Iterable[str] = "", subscribed: Mapping[str, list[str]] | None = None
    ) -> None:
        self.counts = counts
        self.subscribed = subscribed or {}
        self.generation = 0
        self.assignors: dict[str, KeepingAssignor] = {}
        self.given: dict[str, ConsumerProtocolMemberAssignment] = {}
        self.dealt: dict[str, ConsumerProtocolMemberAssignment] = {}
        """What round robin would have given."""
        self.join(*names)

    def join(self, *names: str) -> None:
        for name in names:
            self.assignors[name] = KeepingAssignor(lambda: self.generation)

    def metadata(self) -> dict[str, Any]:
        """What they say when they join, as it comes over the wire."""
        return {
            name: ConsumerProtocolMemberMetadata.decode(
                assignor.metadata(self.subscribed.get(name, sorted(self.counts))).encode()
            )
            for name, assignor in self.assignors.items()
        }

    def rebalance(self, said: Mapping[str, Any] | None = None, *, leader: str | None = None) -> Owners:
        """Deal the partitions out, and tell all members; who has which."""
        cluster: Any = SimpleNamespace(partitions_for_topic=lambda topic: set(range(self.counts[topic])))
        said = said or self.metadata()
        self.generation += 1
        self.given = self.assignors[leader or min(self.assignors)].assign(cluster, said)
        self.dealt = RoundRobinPartitionAssignor.assign(cluster, said)
        for name, assignor in self.assignors.items():
            assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(self.given[name].encode()))
        return owners(self.given)


def owners(given: Mapping[str, ConsumerProtocolMemberAssignment]) -> Owners:
    pairs = [((topic, number), name) for name, share in given.items() for topic, number in share.partitions()]
    found = dict(pairs)
    assert len(found) == len(pairs), "a partition has two owners"
    return found


def sizes(given: Mapping[str, ConsumerProtocolMemberAssignment]) -> list[list[tuple[str, int]]]:
    """The shares of all members, whoever has which."""
    return sorted([(topic, len(numbers)) for topic, numbers in share.assignment] for share in given.values())


def test_the_others_keep_all_that_they_have_when_one_leaves_and_all_but_its_share_when_it_comes_back() -> None:
    members = Members(OF_A_PIPELINE, "abcd")
    before = members.rebalance()
    del members.assignors["d"]
    without = members.rebalance()
    assert {place for place in before if before[place] != without[place]} == {
        place for place in before if before[place] == "d"
    }
    members.join("d")
    again = members.rebalance()
    assert {again[place] for place in again if again[place] != without[place]} == {"d"}
    assert sum(name == "d" for name in again.values()) == 12
    # And round robin alone, which this is about, moves what need not move.
    assert sum(without[place] != owner for place, owner in owners(members.dealt).items()) > 12


@pytest.mark.parametrize("seed", range(40))
def test_shares_are_those_of_round_robin_and_little_moves_beyond_what_must(seed: int) -> None:
    dice = Random(seed)
    counts = {f"topic {n}": dice.randint(1, 40) for n in range(dice.randint(1, 6))}
    members = Members(counts, "abcdefgh"[: dice.randint(1, 8)])
    before = members.rebalance()
    for turn in range(10):
        what = dice.choice(["one leaves", "one joins", "nothing"]) if len(members.assignors) > 1 else "one joins"
        if what == "one leaves":
            del members.assignors[dice.choice(sorted(members.assignors))]
        elif what == "one joins":
            members.join(dice.choice("abcxyz") + str(turn))
        after = members.rebalance(leader=dice.choice(sorted(members.assignors)))
        assert after.keys() == {(topic, n) for topic, number in counts.items() for n in range(number)}
        assert sizes(members.given) == sizes(members.dealt)
        moved = {place for place in after if after[place] != before[place]}
        # Everything that leaves its owner without need; a newcomer must get its share, and what one leaves behind must move.
        needless = {p for p in moved if before[p] in members.assignors and after[p] in before.values()}
        assert len(needless) <= (0 if what == "nothing" else len(counts))
        before = after


def test_the_same_is_dealt_out_by_whoever_leads() -> None:
    members = Members(OF_A_PIPELINE, "abc")
    members.rebalance()
    members.join("d")
    said = members.metadata()
    assert members.rebalance(said, leader="a") == members.rebalance(said, leader="d")


def test_partitions_that_are_added_move_no_other() -> None:
    members = Members({"raw": 6}, "ab")
    before = members.rebalance()
    members.counts = {"raw": 8}
    after = members.rebalance()
    assert before.items() <= after.items()
    assert sorted(after.values()) == [*"aaaabbbb"]


def test_a_partition_that_is_gone_is_nobodys() -> None:
    members = Members({"raw": 6, "old": 3}, "ab")
    members.rebalance()
    members.counts = {"raw": 4}
    assert members.rebalance().keys() == {("raw", n) for n in range(4)}


def words(generation: int, partitions: Mapping[str, list[int]], topics: list[str]) -> ConsumerProtocolMemberMetadata:
    """What a member says that was given these partitions in that generation."""
    return ConsumerProtocolMemberMetadata(
        0, topics, msgspec.json.encode({"generation": generation, "partitions": partitions})
    )


@pytest.mark.parametrize("was_away", ["a", "z"])
def test_of_two_that_say_they_have_a_partition_the_one_that_was_given_it_later_keeps_it(was_away: str) -> None:
    members = Members({"raw": 8}, ["b", "c", was_away])
    said = {
        was_away: words(4, {"raw": [0, 1, 2, 3]}, ["raw"]),
        "b": words(5, {"raw": [0, 1, 2, 3]}, ["raw"]),
        "c": words(5, {"raw": [4, 5, 6, 7]}, ["raw"]),
    }
    after = members.rebalance(said)
    for name, had in (("b", {0, 1, 2, 3}), ("c", {4, 5, 6, 7})):
        assert {number for (_, number), owner in after.items() if owner == name} < had


def test_a_member_that_no_longer_reads_a_topic_gets_nothing_of_it() -> None:
    members = Members({"raw": 4, "left": 4}, "ab")
    said = {"a": words(1, {"raw": [0], "left": [0, 1, 2, 3]}, ["raw"]), "b": words(1, {}, ["left", "raw"])}
    after = members.rebalance(said)
    assert {owner for (topic, _), owner in after.items() if topic == "left"} == {"b"}
    assert after["raw", 0] == "a"


def test_members_with_other_topics_get_only_theirs_and_keep_them() -> None:
    members = Members({"raw": 8, "added": 4}, "abcd", {"a": ["raw"], "b": ["raw"]})
    before = members.rebalance()
    assert {owner for (topic, _), owner in before.items() if topic == "added"} == {"c", "d"}
    assert members.rebalance() == before
    members.subscribed = {}  # all have heard of the new topic
    after = members.rebalance()
    assert sizes(members.given) == sizes(members.dealt)
    assert sum(after[place] != before[place] for place in after) <= 4


@pytest.mark.parametrize(
    "said", [b"", b"{", b"\xff\x00", b'{"generation": "x"}', b"[1]", b'{"partitions": {"raw": [7, 99]}}']
)
def test_what_another_version_says_of_itself_is_no_obstacle(said: bytes) -> None:
    members = Members({"raw": 4}, "ab")
    before = members.rebalance()
    heard = members.metadata() | {"b": ConsumerProtocolMemberMetadata(0, ["raw"], said)}
    after = members.rebalance(heard, leader="a")
    assert {place for place in after if after[place] == "a"} == {place for place in before if before[place] == "a"}
    assert len(after) == 4


def test_a_member_says_the_same_until_it_is_given_others() -> None:
    """A broker makes a rebalance of a follower that joins again with other words."""
    members = Members({"raw": 4}, "ab")
    members.rebalance()
    before = members.metadata()["a"]
    members.generation += 1  # it has joined, and the answer with its partitions is lost
    assert members.metadata()["a"].user_data == before.user_data
    members.rebalance()
    assert members.metadata()["a"].user_data != before.user_data


def test_an_assignment_says_of_how_many_partitions_it_was_made() -> None:
    cluster: Any = SimpleNamespace(partitions_for_topic={"a": {0, 1, 2}, "b": {0}}.get)
    member = ConsumerProtocolMemberMetadata(0, ["a", "b", "unknown"], b"")
    given = KeepingAssignor(lambda: 1).assign(cluster, {"x": member, "y": member})
    assert sorted(owners(given)) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert [msgspec.json.decode(one.user_data) for one in given.values()] == [{"a": 3, "b": 1, "unknown": 0}] * 2
