"""The group's hand on the consumer: a seek that is refused."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from susurrus.agents.runtime.batch import InputPartition
from tests.agents.cycles import no_cycles
from tests.agents.runtime.guarded import RAW, Handed, task_in


def test_a_seek_that_is_refused_keeps_nothing_of_the_task_that_asked(caplog: pytest.LogCaptureFixture) -> None:
    """That happens in many a rebalance, and then the task may end."""

    async def rewind(place: InputPartition, offset: int) -> None:
        raise RuntimeError("no assignment")

    caplog.set_level("INFO")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    handed = Handed(task_in("running"))
    handed.app.consumer = SimpleNamespace(rewind=rewind)
    group = asyncio.run_coroutine_threadsafe(handed.assign(), loop).result(60)
    try:
        with no_cycles():
            group._rewind(RAW, 7)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert "raw-0: seek refused (RuntimeError)" in caplog.text
