"""Visitors who are slow, idle, too many or gone: real sockets on a server that runs; the feed behind it is without Kafka."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from susurrus.agents.dashboard import server
from susurrus.agents.dashboard.assets import Asset
from susurrus.agents.dashboard.server import CONNECTIONS, DashboardServer
from tests.agents.operations.test_web import connected_to, endless_body, get, half_a_header, nothing, trickle
from tests.broker import wait_for
from tests.waiting import PATIENCE

BACKLOG = 64


class Feed:
    """Answers once ``go`` is set. computed: how often."""

    def __init__(self) -> None:
        self.go, self.asked, self.computed = threading.Event(), threading.Semaphore(0), 0

    def state(self) -> dict[str, Any]:
        return {"version": 1}

    def answer(self, question: str, query: object) -> dict[str, Any]:
        self.asked.release()
        assert self.go.wait(120)
        self.computed += 1
        return {"question": question}


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def served(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """``served(CONNECTION_SECONDS=...)``: the port of a server with these constants."""
    running = []

    def start(**constants: float) -> int:
        for name, value in constants.items():
            monkeypatch.setattr(server, name, value)
        of: Any = feed
        running.append(DashboardServer(of, host="127.0.0.1", port=0))
        running[-1]._assets["large"] = Asset(bytes(20_000_000), "text/plain")  # more than sockets buffer
        running[-1].start()
        return running[-1].port

    yield start
    feed.go.set()
    for one in running:
        one.close()


def no_reading(client: socket.socket) -> None:
    client.sendall(b"GET /assets/large HTTP/1.1\r\nHost: localhost\r\n\r\n")


def pipelines(client: socket.socket) -> None:
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            client.send(b"GET /assets/large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)


SLOW = (half_a_header, nothing, no_reading, endless_body, pipelines)


def connected(stack: contextlib.ExitStack, port: int) -> socket.socket:
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client


@pytest.mark.parametrize("slow", SLOW)
def test_a_connection_ends_in_time_whatever_its_client_does(served: Any, slow: Any) -> None:
    port = served(CONNECTION_SECONDS=2.0)
    with contextlib.ExitStack() as stack:
        client = connected(stack, port)
        local = client.getsockname()
        wait_for(lambda: local in connected_to(port), "the server has it")
        with contextlib.suppress(ConnectionError):
            slow(client)

        def gone() -> bool:
            if slow is half_a_header:
                trickle([client])
            return local not in connected_to(port)

        wait_for(gone, "the connection is cut off")


def test_a_connection_that_rests_after_an_answer_ends(served: Any) -> None:
    port = served(IDLE_SECONDS=0.5)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    client.request("GET", "/healthz")
    assert client.getresponse().read() == b"ok\n"
    wait_for(lambda: not connected_to(port), "it is closed")
    client.close()


def test_a_visitor_keeps_one_connection(served: Any) -> None:
    port = served()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    places = set()
    for path in ("/", "/assets/main.js", "/api/state", "/api/state", "/nowhere", "/healthz"):
        client.request("GET", path)
        client.getresponse().read()
        assert client.sock is not None, path
        places.add(client.sock.getsockname())
    assert len(places) == 1
    client.close()


def test_slow_visitors_neither_pile_up_nor_keep_others_out(served: Any) -> None:
    port = served()
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(6):
            for number in range(50):
                clients.append(connected(stack, port))
                with contextlib.suppress(ConnectionError):
                    SLOW[number % 4](clients[-1])
            trickle(clients)
            assert get(port, "/healthz") == (200, "ok\n")
            assert get(port, "/api/state")[0] == 200
            assert len(connected_to(port)) <= CONNECTIONS + BACKLOG


def test_who_is_being_answered_is_not_cut_off_for_newcomers(served: Any, feed: Feed) -> None:
    port = served()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE))
        )
        client.request("GET", "/api/table")
        assert feed.asked.acquire(timeout=PATIENCE)
        for _ in range(2 * CONNECTIONS):
            half_a_header(connected(stack, port))
        assert get(port, "/healthz") == (200, "ok\n")
        feed.go.set()
        assert client.getresponse().read() == b'{"question":"table"}'


def test_what_visitors_asked_who_have_gone_is_not_computed(served: Any, feed: Feed) -> None:
    port = served()
    with contextlib.ExitStack() as stack:
        for _ in range(2):  # as many as are computed at a time
            connected(stack, port).sendall(b"GET /api/table HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert feed.asked.acquire(timeout=PATIENCE)
        for _ in range(40):
            with contextlib.ExitStack() as visit:
                connected(visit, port).sendall(b"GET /api/table HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert get(port, "/healthz") == (200, "ok\n")  # accepted after all of them
        wait_for(lambda: len(connected_to(port)) == 2, "the server knows that they have gone")
        feed.go.set()
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        client.request("GET", "/api/table")  # after all of theirs
        assert client.getresponse().status == 200
        client.close()
        wait_for(lambda: feed.computed >= 3, "the slower of the first two is through, too")
        assert feed.computed == 3
