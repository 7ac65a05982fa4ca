"""The agents: which topic each one consumes, as the module says, and that it only hands batches over."""

import asyncio
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.pipelines import KINDS, pipeline_of, settings_from
from susurrus.agents.runtime import agents
from susurrus.agents.runtime.agents import agents_of
from susurrus.agents.runtime.batch import Batch, InputPartition
from tests.agents.test_pipelines import CONFIGURATIONS


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_says_which_topics_the_agents_of_a_kind_consume(kind: str) -> None:
    pipeline = pipeline_of(settings_from({"pipeline": {"name": "p", "kind": kind}, **CONFIGURATIONS[kind]}))
    raw, prefix = pipeline.settings.input.topic, pipeline.settings.topic("")
    raw_topics = "the raw topics" if pipeline.settings.several_topics else "the raw topic"
    said = re.findall(rf"^\| `{kind}` \| `([\w-]+)` \| (.+) \|$", agents.__doc__ or "", re.MULTILINE)
    expected = [
        (agent.name, f"`{agent.topics[0].removeprefix(prefix)}`" if agent.topics[0].startswith(prefix) else raw_topics)
        for agent in agents_of(pipeline.stages, lambda stage: stage.inputs([raw]), lambda place, batch: None)
    ]
    assert pipeline.stages[0].inputs([raw]) == (raw,)
    assert said == expected


def test_an_agent_hands_every_batch_to_its_partition_and_does_nothing_else() -> None:
    batches = [Batch(Offset(0), Offset(n), [], generation=1) for n in (1, 2, 3)]
    places = [("raw", 4), ("raw", 7), ("raw", 4)]
    offered: list[tuple[InputPartition, Batch]] = []

    async def events() -> AsyncIterator[Any]:
        for (topic, partition), batch in zip(places, batches, strict=True):
            yield SimpleNamespace(message=SimpleNamespace(topic=topic, partition=partition), value=batch)

    stage: Any = SimpleNamespace(name="route")
    [agent] = agents_of([stage], lambda of: ("raw", "more"), lambda place, batch: offered.append((place, batch)))
    assert (agent.name, agent.topics) == ("route", ("raw", "more"))
    asyncio.run(agent.consume(SimpleNamespace(events=events)))  # type: ignore[arg-type]
    assert offered == list(zip(places, batches, strict=True))
    assert not any(batch.finished for batch in batches)


def test_a_partition_equals_fausts_own() -> None:
    """The transport looks partitions up by Faust's pairs."""
    from faust.types import TP

    assert {InputPartition("raw", 4): 1}[TP("raw", 4)] == 1  # type: ignore[index]
