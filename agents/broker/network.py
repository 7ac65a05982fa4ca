"""Ports on loopback, and whether a broker behind one is ready."""

import contextlib
import fcntl
import functools
import itertools
import os
import random
import socket
import struct
from typing import Final

from susurrus.agents.broker.artefacts import KafkaUnavailableError, cache_directory

HOST: Final = "127.0.0.1"
# Below Linux' ephemeral range (32768 and up): a client that retries a dead broker's port can otherwise be given that
# very port as its own source port, connect to itself, and keep the broker from coming back.
PORTS: Final = range(20_000, 30_000)
_given: Final[set[int]] = set()
"""What this process has asked for before: nothing may listen there yet."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on at this moment, and that no living process of this user has been given.

    A broker needs seconds until it listens. So the ports stay reserved until this process ends.
    """
    others = [port for port in PORTS if port not in _given]
    shuffled = random.SystemRandom().sample(others, len(others))
    found = list(itertools.islice(filter(_reserve, shuffled), count))
    if len(found) < count:
        for port in found:
            _release(port)
        raise KafkaUnavailableError(f"ports={count}: so many are not free in {PORTS}; stop what listens there")
    _given.update(found)
    return found


def _reserve(port: int) -> bool:
    """Reserve a port for the life of this process. False: another process has reserved it, or something listens there.

    It reserves first and looks second. In between, another process may end and leave a broker behind, which is then seen.
    """
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):  # POSIX leaves it open which of the two a lock of another process gives
        return False
    if not is_free(port):
        _release(port)
        return False
    return True


def _release(port: int) -> None:
    fcntl.lockf(_reservations(), fcntl.LOCK_UN, 1, port)


@functools.cache
def _reservations() -> int:
    """An open file that stays empty. The process that has port n locks byte n, and the kernel unlocks it when that process ends."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    return os.open(cache_directory() / "ports.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


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
