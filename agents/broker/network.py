"""Ports on loopback, and whether a broker behind one is ready."""

import contextlib
import itertools
import random
import socket
import struct
from typing import Final

from susurrus.agents.broker.artefacts import KafkaUnavailableError

HOST: Final = "127.0.0.1"
# Below Linux' ephemeral range (32768 and up): a client that retries a dead broker's port can otherwise be given that
# very port as its own source port, connect to itself, and keep the broker from coming back.
PORTS: Final = range(20_000, 30_000)
_given: Final[set[int]] = set()
"""What this process has asked for before: nothing may listen there yet."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on at this moment, and that this process has not been given before."""
    others = [port for port in PORTS if port not in _given]
    shuffled = random.SystemRandom().sample(others, len(others))
    found = list(itertools.islice(filter(is_free, shuffled), count))
    if len(found) < count:
        raise KafkaUnavailableError(f"ports={count}: so many are not free in {PORTS}; stop what listens there")
    _given.update(found)
    return found


def is_free(port: int) -> bool:
    """Whether nothing listens on this loopback port at this moment."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        # As a broker binds: connections of one that was there before do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False


def known_brokers(port: int, host: str = HOST) -> set[int]:
    """Ids of the unfenced brokers in the metadata of the broker on ``port``; empty while it does not answer.

    Speaks Kafka's Metadata request, version 1, by hand: a listening socket alone says nothing, because a KRaft broker
    listens before it is registered.
    """
    client = b"susurrus-kafka"
    body = struct.pack(">hhih", 3, 1, 7, len(client)) + client  # api, version, correlation
    body += struct.pack(">i", 0)  # no topics
    try:
        with socket.create_connection((host, port), timeout=2) as connection, connection.makefile("rb") as answer:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", answer.read(4))
            data = answer.read(size)
        _correlation, count = struct.unpack_from(">ii", data)
        at, ids = 8, set()
        for _ in range(count):
            (broker, name) = struct.unpack_from(">ih", data, at)
            at += 6 + name + 4
            (rack,) = struct.unpack_from(">h", data, at)
            at += 2 + max(rack, 0)
            ids.add(broker)
        return ids
    except (OSError, struct.error):
        return set()
