"""What the processes of one test run share: a broker that the first who needs it starts, and results that are made once.

With pytest-xdist there are several processes. Their controller starts the broker, when a test first asks for it, and stops it at
the end of the run; its workers ask over a socket. Without xdist the one process does both for itself.
"""

import contextlib
import fcntl
import gc
import pickle
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection
from multiprocessing.connection import Client, Listener
from typing import Any, TypeVar

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError
from tests.broker import Broker, found_broker, give_up

Value = TypeVar("Value")


class Host:
    """One broker for all who ask at ``address``."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="test-host-"))
        self.address = f"{directory}/socket"
        self._listener = Listener(self.address)
        self._stack.callback(self._listener.close)
        self._answer: dict[str, Any] | None = None
        threading.Thread(target=self._serve, name="broker for all", daemon=True).start()

    def _serve(self) -> None:
        """One after the other, so that no process starts a second broker."""
        with contextlib.suppress(OSError):  # closed
            while True:
                with self._listener.accept() as connection:
                    connection.send(self._broker())

    def _broker(self) -> dict[str, Any]:
        if self._answer is None:
            self._answer = self._started()
            if "unavailable" in self._answer:
                # A broker that ends while it starts would be missed by hundreds of tests.
                self._answer = self._started()
            with warnings.catch_warnings():  # docker-py leaves the socket open on which it found no daemon
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        return self._answer

    def _started(self) -> dict[str, Any]:
        try:
            broker = self._stack.enter_context(found_broker())
        except KafkaUnavailableError as error:
            return {"unavailable": str(error)}
        return {"bootstrap_servers": broker.bootstrap_servers, "description": broker.description}

    def close(self) -> None:
        """Stop the broker."""
        self._stack.close()


def broker_of(address: str) -> Broker:
    """The host's broker; a skip, or a failure in CI, where there is none."""
    with Client(address) as connection:
        answer = connection.recv()
    if "unavailable" in answer:
        give_up(answer["unavailable"])
    return Broker(**answer)


def end_unneeded(item: pytest.Item, next_item: pytest.Item | None, names: Collection[str]) -> None:
    """End the session's fixtures of these names that a test had and the next one of this process has not.

    They would last to the end of the run: three idle brokers for two tests, for example. A test that comes later gets a new one.
    """
    needed = getattr(next_item, "fixturenames", ())
    for name in (set(names) & set(getattr(item, "fixturenames", ()))).difference(needed):
        item._fixtureinfo.name2fixturedefs[name][-1].finish(item._request)  # type: ignore[attr-defined]


def made_once(factory: pytest.TempPathFactory, worker: str, name: str, make: Callable[[], Value]) -> Value:
    """The result of ``make``, which one process of the run calls while the others wait for it.

    worker: the name that xdist gives this process, or "master" without xdist. name: of the result, once a run.
    """
    base = factory.getbasetemp()
    base = base if worker == "master" else base.parent
    file = base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            value = make()
            file.write_bytes(pickle.dumps(value))
        found: Value = pickle.loads(file.read_bytes())
        return found
