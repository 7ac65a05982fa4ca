"""aiokafka's fetcher asks again whenever it can, also where a fetch ends in the moment in which it is woken."""

import asyncio
import contextlib
import math
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
            fetcher._in_flight = fetching._NodesAsked(fetcher, lambda: 100)
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


def test_a_fetch_ends_when_another_partition_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker holds one fetch of a consumer at a time, and with it whatever is wanted meanwhile."""
    now = 50.0
    monkeypatch.setattr(fetching, "time", SimpleNamespace(monotonic=lambda: now))
    fetcher: Any = SimpleNamespace(
        _fetch_max_wait_ms=100, _in_flight={1}, _prefetch_backoff=1.0, _notify=lambda _: None, _wait_consume_future=None
    )
    waits = fetching.FetchWaits()
    waits.others(math.inf)
    waits.govern(fetcher)
    assert fetcher._fetch_max_wait_ms == 100
    waits.others(0.25)
    now += 0.1875
    fetcher._in_flight.discard(1)  # the fetch is over, and aiokafka sends another before anybody asks for records
    assert fetcher._fetch_max_wait_ms == 63
    now += 1.0
    fetcher._in_flight.discard(1)
    assert fetcher._fetch_max_wait_ms == fetching._SHORT_WAIT_MS
    waits.others(math.inf, full=True)
    waits.govern(fetcher)
    assert fetcher._fetch_max_wait_ms == fetching._FULL_WAIT_MS


def test_no_fetch_waits_longer_than_the_consumers_options_allow() -> None:
    fetcher: Any = SimpleNamespace(_fetch_max_wait_ms=1, _in_flight=set())
    waits = fetching.FetchWaits()
    for seconds, full in ((math.inf, False), (0.01, False), (math.inf, True)):
        waits.others(seconds, full=full)
        waits.govern(fetcher)
        assert fetcher._fetch_max_wait_ms == 1


def test_aiokafka_by_itself_overlooks_it() -> None:
    """If this fails, aiokafka is mended, and `_NodesAsked` is not needed any more."""
    assert asyncio.run(fetches_after_the_coincidence(told=False)) == 1
