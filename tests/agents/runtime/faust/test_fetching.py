"""aiokafka's fetcher asks again whenever it can, also where a fetch ends in the moment in which it is woken."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState

from susurrus.agents.runtime.faust import fetching

TP = TopicPartition("by-user", 0)


async def fetches_after_the_coincidence(told: bool) -> int:
    """How many fetches aiokafka has sent once everything stands still. told: whether it is told that one has ended."""
    loop = asyncio.get_running_loop()
    subscriptions = SubscriptionState(loop=loop)
    subscriptions.assign_from_user([TP])
    subscriptions.subscription.assignment.state_value(TP).seek(0)
    cluster = SimpleNamespace(leader_for_partition=lambda tp: 1, broker_metadata=lambda node: None)
    client: Any = SimpleNamespace(_loop=loop, _metadata_max_age_ms=1_000, cluster=cluster)
    ends: list[asyncio.Future[bool]] = []

    async def fetch(self: Fetcher, *_: Any) -> bool:
        ends.append(loop.create_future())
        return await ends[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fetcher, "_proc_fetch_request", fetch)
        fetcher = Fetcher(client, subscriptions, fetcher_timeout=1e6)
        if told:
            fetcher._in_flight = fetching._NodesAsked(fetcher)
        await stand_still()
        assert len(ends) == 1
        # The end comes to the loop just before what wakes the fetcher, so both steps are in one turn of the loop.
        loop.call_soon(ends[0].set_result, False)
        fetcher._notify(fetcher._wait_consume_future)
        await stand_still()
        sent = len(ends)
        with contextlib.suppress(asyncio.CancelledError):  # of the fetch that is under way
            await fetcher.close()
    return sent


async def stand_still() -> None:
    """Enough turns of the loop for everything that is ready, and what follows from it."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_fetch_that_ends_while_the_fetcher_is_woken_is_followed_by_another() -> None:
    assert asyncio.run(fetches_after_the_coincidence(told=True)) == 2


def test_aiokafka_by_itself_overlooks_it() -> None:
    """If this fails, aiokafka is mended, and `_NodesAsked` is not needed any more."""
    assert asyncio.run(fetches_after_the_coincidence(told=False)) == 1
