"""The agents of Susurrus: one Faust agent for each stage.

An agent is a coroutine that consumes what a stage reads, on the partitions that the consumer group has given to this worker:

| kind of pipeline | agent | consumes |
|---|---|---|
| `histogram` | `route` | the raw topics |
| `histogram` | `bound` | `by-user` |
| `histogram` | `release` | `bounded` |
| `stream` | `stream` | the raw topic |
| `local` | `collect` | `reports` |
| `local` | `server` | `report-totals` |

Where the raw topics are on another cluster, `sources` stands for them: it is empty, and faust/elsewhere.py brings the batches.

All agents do the same: they hand each batch to the task of its partition (task.py), which gives it to the stage. An agent keeps no
state, commits nothing and perturbs nothing:

- One transaction commits a stage's outputs, its state and its input position. Faust's tables and its producers have no such
  transaction (decision 12), so all three belong to the task.
- Noise belongs to a commit: a stage draws it for the rows that the commit publishes. Local reports come perturbed from the devices.
- All agents of a worker share one event loop. An agent that computed something, or waited for a broker, would starve the others.

This file needs nothing of Faust. `faust/worker.py` attaches the agents to the application, and `faust/transport.py` makes the
batches that they get.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from susurrus.agents.runtime.batch import Batch, InputPartition
from susurrus.agents.runtime.pipeline import StageSpec


@dataclass(frozen=True, slots=True)
class Agent:
    """What Faust needs of one agent. ``consume`` runs as long as the worker does; Faust calls it with the topic's stream."""

    name: str
    topics: tuple[str, ...]
    consume: Callable[[Any], Awaitable[None]]


def agents_of(
    stages: Sequence[StageSpec],
    topics_of: Callable[[StageSpec], tuple[str, ...]],
    offer: Callable[[InputPartition, Batch], None],
) -> Iterator[Agent]:
    """Yield one agent for each stage. topics_of: the topics whose partitions the group shares out for it. offer: hands a batch to
    the task of its partition, and never blocks."""

    async def hand_over(stream: Any) -> None:
        async for event in stream.events():
            offer(InputPartition(event.message.topic, event.message.partition), event.value)

    for stage in stages:
        yield Agent(stage.name, topics_of(stage), hand_over)
