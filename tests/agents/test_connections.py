"""Which connection has to go when there are too many, and when its time begins anew."""

import asyncio
from typing import Any

from susurrus.agents.connections import Connections


class Transport:
    """As much of a transport as is looked at. unread: bytes that its client has still to read."""

    def __init__(self, unread: int = 0) -> None:
        self.unread, self.cut = unread, False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.cut = True


class Limits:
    """Connections, and how often the time of one began."""

    def __init__(self, most: int) -> None:
        self.begun = 0
        self.connections = Connections(most=most, seconds=self._seconds)

    def _seconds(self) -> float:
        self.begun += 1
        return 3_600.0

    def open(self, unread: int = 0) -> Any:
        transport: Any = Transport(unread)
        self.connections.opened(transport)
        return transport


async def _oldest_rests() -> None:
    limits = Limits(2)
    first, second = limits.open(), limits.open()
    third = limits.open()
    assert (first.cut, second.cut, third.cut) == (True, False, False)
    limits.connections.lost(second)
    limits.open()
    assert (second.cut, third.cut) == (False, False)


async def _answered_stays() -> None:
    limits = Limits(3)
    asked, reading, resting = limits.open(), limits.open(unread=1), limits.open()
    with limits.connections.answering(asked):
        for _ in range(10):
            limits.open()
        assert (asked.cut, reading.cut, resting.cut) == (False, False, True)
    reading.unread = 0
    for _ in range(3):
        limits.open()
    assert (asked.cut, reading.cut) == (True, True)


async def _all_are_answered() -> None:
    limits = Limits(2)
    first, second = limits.open(), limits.open()
    with limits.connections.answering(second), limits.connections.answering(first):
        third = limits.open()  # the server may not stand still
    assert (first.cut, second.cut, third.cut) == (False, True, False)


async def _time_begins_anew() -> None:
    limits = Limits(2)
    one = limits.open()
    assert limits.begun == 1
    for number in range(2, 5):
        with limits.connections.answering(one):
            assert limits.begun == number
    limits.connections.lost(one)
    with limits.connections.answering(one):  # its client has gone in the meantime
        assert limits.begun == 4
    limits.connections.close()
    assert not one.cut


async def _all_end_with_the_server() -> None:
    limits = Limits(5)
    opened = [limits.open() for _ in range(4)]
    limits.connections.close()
    assert [one.cut for one in opened] == [True] * 4


def test_one_more_closes_the_oldest_that_rests() -> None:
    asyncio.run(_oldest_rests())


def test_what_is_being_answered_or_read_stays() -> None:
    asyncio.run(_answered_stays())


def test_where_none_rests_the_oldest_goes() -> None:
    asyncio.run(_all_are_answered())


def test_the_time_of_a_connection_begins_anew_at_each_whole_request() -> None:
    asyncio.run(_time_begins_anew())


def test_all_are_cut_off_at_the_end() -> None:
    asyncio.run(_all_end_with_the_server())
