"""What listens at an address: each kind of it, real ones where they are Kafka's."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError

from susurrus.agents.broker.network import free_ports
from susurrus.agents.operations.brokers import admin_of, reach, reach_brokers
from susurrus.agents.operations.listener import Listener, listener
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.operations.test_probe import settings_for
from tests.broker import Broker
from tests.guarded import Guarded


@pytest.fixture
def answering() -> Iterator[Callable[[bytes | None], int]]:
    """Starts something that answers so to what it is sent, or not at all; returns its port."""
    servers: list[socket.socket] = []

    def start(answer: bytes | None) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.recv(1000)
                if answer is None:
                    servers.append(connection)  # it stays open
                    continue
                with connection:
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for server in servers:
        with contextlib.suppress(OSError):  # the other side may have left
            server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.mark.broker
@pytest.mark.parametrize(
    ("of", "found"), [("open", Listener.OPEN), ("password", Listener.SASL), ("secure", Listener.TLS)]
)
def test_each_listener_of_kafka_is_known(guarded: Guarded, of: str, found: Listener) -> None:
    host, _, port = getattr(guarded, of).rpartition(":")
    assert listener(host, int(port), 30.0) is found


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (struct.pack(">iihi", 10, 0, 34, 0), Listener.OPEN),
        (struct.pack(">iihi", 10, 0, 33, 0), Listener.SASL),
        (struct.pack(">iihi", 10, 1, 33, 0), Listener.OTHER),
        (struct.pack(">iihi", 1_000_000_000, 0, 33, 0), Listener.OTHER),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Listener.OTHER),
        (b"", Listener.OTHER),
        (None, Listener.SILENT),
    ],
)
def test_what_else_answers(answering: Callable[[bytes | None], int], answer: bytes | None, found: Listener) -> None:
    assert listener("127.0.0.1", answering(answer), 1.0) is found


def test_where_nothing_listens() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectionRefusedError):
        listener("127.0.0.1", port, 1.0)


def test_a_broker_that_listens_as_it_should_is_called_slow(answering: Callable[[bytes | None], int]) -> None:
    """Not one with another protocol: an operator would look for the wrong thing."""
    settings = settings_for(f"127.0.0.1:{answering(struct.pack('>iihi', 10, 0, 34, 0))}", {})
    errors: list[KafkaError] = []
    assert "no broker answers within 3 s" in str(reach_brokers(settings, admin_of(settings, errors), errors))


def test_a_server_that_is_not_kafka_is_named(answering: Callable[[bytes | None], int]) -> None:
    server = f"127.0.0.1:{answering(b'')}"
    with pytest.raises(ConfigurationError, match=f"what answers at {server} is no Kafka broker"):
        reach(settings_for(server, {}))


@pytest.mark.broker
def test_a_command_waits_for_brokers_that_are_slow(lone_broker: Broker) -> None:
    """A worker reports them and goes on; a command has only this one chance."""
    assert lone_broker.cluster is not None
    settings = settings_for(lone_broker.bootstrap_servers, {})
    errors: list[KafkaError] = []
    lone_broker.cluster.pause(1)
    resumed = threading.Timer(5.0, lone_broker.cluster.resume, (1,))
    try:
        assert "no broker answers within 3 s" in str(reach_brokers(settings, admin_of(settings, errors), errors))
        resumed.start()
        reach(settings)
        assert resumed.finished.is_set()
    finally:
        resumed.cancel()
        lone_broker.cluster.resume(1)
