"""What a task takes of a batch: everything from its position on, once, whatever the batch says of itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.task import PartitionTask
from susurrus.agents.transport import Batch


class Taking:
    """A stage that only remembers offsets."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def take(self, batch: Batch) -> None:
        self.offsets += [record.offset for record in batch.records]


@pytest.fixture
def task() -> Any:
    """A task without Kafka, at position 2037 of its input."""
    made = PartitionTask(
        input_topic="reports",
        partition=0,
        make_stage=lambda services, partition: Taking(),  # type: ignore[arg-type,return-value]
        stage_name="collect",
        changelog_topic="collect-changelog",
        services=SimpleNamespace(clients=None, max_record_bytes=1),  # type: ignore[arg-type]
        open_store=lambda stage, partition: None,  # type: ignore[arg-type,return-value]
        rewind=lambda offset: None,
    )
    made.next = 2037
    made._look_at_log = lambda seconds: None  # type: ignore[method-assign]
    return made


def batch(start: int, end: int, first: int) -> Batch:
    return Batch(start, end, [SimpleNamespace(offset=offset) for offset in range(first, end)], 1)


@pytest.mark.parametrize("start", [687, 2037], ids=["overlapping", "a seek fell into the fetch"])
def test_records_below_the_position_are_not_taken_twice(task: Any, start: int) -> None:
    task._accept(batch(start, 2087, first=687), 1)
    assert task._stage.offsets == list(range(2037, 2087))
    assert task.next == 2087


def test_a_batch_ahead_of_the_position_is_not_taken(task: Any) -> None:
    task._accept(batch(2040, 2087, first=2040), 1)
    assert task._stage.offsets == []
    assert task.next == 2037


def test_holes_move_the_position(task: Any) -> None:
    task._accept(batch(2037, 2050, first=2050), 1)
    assert task._stage.offsets == []
    assert task.next == 2050
