"""Two topics of different formats whose records are lists: the same bytes after kills, empty disks, rebalances; and a new epoch.

Each item of a record is a row of its own (`input.each`), the user is computed, and some records and items cannot be read.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest

from susurrus.agents.runtime.crash_points import POINTS
from susurrus.topics import charges
from susurrus.topics.dead_letter import decode_headers
from tests.broker import Broker, wait_for
from tests.chaos.conftest import Once, published_in_peace
from tests.chaos.test_restored import command, epoch_of, estimates, wait_until_alone
from tests.pipeline import CRASHING, SEEDS, THREE_POINTS, Pipeline, Public, archive_topic, produce

pytestmark = pytest.mark.chaos

START = 807_235_200_000  # 1995-08-01T00:00:00Z
DAY = 86_400_000
PARTITIONS = (2, 3)
RECORDS = 6_000
"""Of each topic. A record has up to five items."""
Topics = tuple[str, str]


def event(number: int, dice: Random) -> bytes | dict[str, Any]:
    """A record; one in thirty cannot be read."""
    if dice.random() < 1 / 30:
        return dice.choice([b"", b"{", b"\xff", b"[]", b'{"user": "u1", "items": 5}', b"\xdd\xff\xff\xff\xff"])
    items: list[Any] = [
        {"page": f"/{int(dice.expovariate(0.2))}", "bytes": number % 100} for _ in range(dice.randrange(5))
    ]
    if dice.random() < 0.1:
        items.insert(dice.randrange(len(items) + 1), dice.choice([None, 5, {"page": []}, {"bytes": 1}, "page"]))
    return {"user": dice.choice(["U%d", "u%d"]) % dice.randrange(400), "items": items}


def two_topics(broker: Broker, records: int = RECORDS) -> Topics:
    dice, names = Random(3), []
    for partitions, write in zip(PARTITIONS, (lambda value: json.dumps(value).encode(), msgpack.packb), strict=True):
        names.append(archive_topic(broker, partitions))
        made = (event(number, dice) for number in range(records))
        stamped = [
            (number % partitions, one if isinstance(one, bytes) else write(one), START + number * (DAY // records))
            for number, one in enumerate(made)
        ]
        produce(broker, names[-1], stamped)
    first, second = names
    return first, second


def over(topics: Topics, **sections: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "input": {
            "topic": None,
            "topics": list(topics),
            "formats": {topics[1]: {"format": "msgpack"}},
            "user": {"expression": "lower(user)"},
            "key": ["item.page"],
            "each": {"of": "items", "as": "item"},
            "where": "item.page IS NULL OR item.page <> '/0'",
            "null_key": "dead-letter",
        },
        "bounds": {"max_records_per_user": 8, "max_records_per_key": 2},
        "columns": [
            {"name": "visits", "kind": "count"},
            {"name": "bytes", "kind": "sum", "field": "item.bytes", "bound": 100, "grid": 1},
            {"name": "size", "kind": "mean", "field": "item.bytes", "lower": 0, "upper": 100, "grid": 1},
        ],
    }
    return {**own, **sections}


@pytest.fixture(scope="session")
def topics(kafka: Broker, once: Once) -> Topics:
    first, second = once("topics-of-lists", lambda: list(two_topics(kafka)))
    return first, second


@pytest.fixture(scope="session")
def in_peace(kafka: Broker, topics: Topics, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Public:
    return once(
        "lists-in-peace",
        lambda: published_in_peace(kafka, tmp_path_factory.mktemp("lists"), topics[0], over(topics)),
    )


def letters(pipeline: Pipeline) -> Counter[tuple[str, int, int, int | None, str]]:
    """Where the dead letters are, and why: each item of a record once."""
    found = [
        decode_headers(message.headers())
        for message in pipeline.broker.read_all(pipeline.settings.topic("dead-letter"))
    ]
    return Counter((one.topic, one.partition, one.offset, one.item, one.reason.name) for one in found)


@pytest.mark.parametrize(
    ("stage", "points"),
    [
        pytest.param("route", THREE_POINTS, id="route"),
        *(pytest.param(s, THREE_POINTS, id=s, marks=pytest.mark.thorough) for s in ("bound", "release")),
        *(
            pytest.param(stage, POINTS, id=f"{stage}, every point", marks=pytest.mark.campaign)
            for stage in ("route", "bound", "release")
        ),
    ],
)
def test_a_worker_killed_between_two_steps_changes_no_byte_and_no_dead_letter(
    kafka: Broker, topics: Topics, in_peace: Public, tmp_path: Path, stage: str, points: Sequence[str]
) -> None:
    with Pipeline(kafka, tmp_path, topics[0], over(topics, **CRASHING)) as pipeline:
        pipeline.crash_everywhere(stage, 1, points)
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        pipeline.wait()
        assert pipeline.public() == in_peace
        found = letters(pipeline)
        assert set(found.values()) == {1}
        totals = pipeline.counters()
        assert totals["dead_letter"] == len(found) > RECORDS / 30
        assert totals["in"] > 2 * RECORDS
        assert totals["in"] == sum(totals[name] for name in ("kept", "capped", "late", "filtered", "dead_letter"))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_workers_killed_at_random_and_replaced_with_empty_disks_change_no_byte(
    kafka: Broker, topics: Topics, in_peace: Public, tmp_path: Path, seed: int
) -> None:
    """Two workers, so that each kill is also a rebalance."""
    with Pipeline(kafka, tmp_path, topics[0], over(topics, **CRASHING)) as pipeline:
        pipeline.replace_at_random(Random(seed), 4.0)
        pipeline.wait()
        assert pipeline.public() == in_peace
        assert set(letters(pipeline).values()) == {1}


@pytest.mark.thorough
def test_a_rebalance_between_two_workers_changes_no_byte(
    kafka: Broker, topics: Topics, in_peace: Public, tmp_path: Path
) -> None:
    """The second takes half of the tasks while the first is in the midst of them, and all of them when that one dies."""
    with Pipeline(kafka, tmp_path, topics[0], over(topics, **CRASHING)) as pipeline:
        first = pipeline.start()
        pipeline.wait(2)
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "second"))
        pipeline.wait(8)
        first.kill()
        pipeline.wait()
        assert pipeline.public() == in_peace
        assert set(letters(pipeline).values()) == {1}


@pytest.mark.parametrize(
    "point", ["after-commit", *(pytest.param(p, marks=pytest.mark.thorough) for p in ("after-fence", "after-ledger"))]
)
def test_a_new_epoch_reads_all_topics_again_and_is_charged_on_each(
    kafka: Broker, topics: Topics, in_peace: Public, tmp_path: Path, point: str
) -> None:
    """Also where the command dies on its way, and is run again."""
    drawn: dict[str, Any] = {
        "start": {"epoch": None},
        "window": {"trigger_every": "6h"},
        "worker": {"session_timeout": "2s"},
    }
    with Pipeline(kafka, tmp_path, topics[0], over(topics, **drawn)) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        first, before, old = estimates(pipeline), pipeline.counters(), epoch_of(pipeline)
        assert worker.stop() == 0, worker.tail()
        wait_until_alone(pipeline)
        arguments = ("--yes", "--first-window", "current", "--from", "earliest")
        died = command(pipeline, *arguments, SUSURRUS_CRASH_AT=f"new-epoch:{point}:1")
        assert died.returncode == -9, died.stderr
        if point != "after-commit":
            assert epoch_of(pipeline) == old
            said = command(pipeline, *arguments)
            assert said.returncode == 0, said.stderr
        new = epoch_of(pipeline)
        assert new != old
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "empty"))
        last = max(trigger for _, _, trigger in first)
        wait_for(lambda: any(e == new and t == last for e, _, t in estimates(pipeline)), "all is published again")
        pipeline.wait_for_total(before["kept"] + before["capped"], "kept", "capped")
        after = pipeline.counters()
        assert {name: after[name] for name in ("in", "kept", "capped", "filtered", "dead_letter")} == {
            name: before[name] for name in ("in", "kept", "capped", "filtered", "dead_letter")
        }
        assert {place: values for place, values in estimates(pipeline).items() if place[0] == old} == first
        # Fresh noise over the same counts.
        again = {place[1:]: values for place, values in estimates(pipeline).items() if place[0] == new}
        assert again != {place[1:]: values for place, values in first.items()}
        charged = [charges.decode(m.value()) for m in kafka.read_all(pipeline.settings.topics.charges)]
        assert Counter((charge.raw_topic, charge.epoch) for charge in charged) == {
            (topic, epoch): 1 for topic in topics for epoch in (old, new)
        }
