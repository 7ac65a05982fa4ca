"""A partition task without Kafka."""

from types import SimpleNamespace
from typing import Any

from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.metrics import Metrics
from susurrus.agents.runtime.pipeline import StageSpec
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.task import PartitionTask
from susurrus.agents.runtime.task_context import TaskContext


def task_of(name: str, input_topic: str, stage: type[Stage] = Stage, *, services: dict[str, Any], **given: Any) -> Any:
    """The task of partition 0 of a stage. services: what it asks of them beside topics; given: other fields of its context."""
    fields: dict[str, Any] = {
        "open_store": lambda: None,
        "rewind": lambda offset: None,
        "give_up": lambda reason: None,
        "disk": SimpleNamespace(finding=None),
    }
    shared: Any = SimpleNamespace(topic=lambda of: of, **services)
    spec = StageSpec(name, input_topic, f"{name}-changelog", stage, purge=False)
    return PartitionTask(
        TaskContext(
            spec=spec,
            place=InputPartition(input_topic, 0),
            partition=0,
            services=shared,
            metrics=Metrics("p"),
            **fields | given,
        )
    )
