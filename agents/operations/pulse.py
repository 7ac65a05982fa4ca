"""Whether the brokers still answer, while a command that runs on shows other things: a client says nothing when they go away."""

import threading
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError

from susurrus.agents.finding import Finding
from susurrus.agents.operations.brokers import HasKafka, admin_of, reach_brokers

_PAUSE_SECONDS: Final = 3.0


class Pulse:
    """Asks now and then, in a thread of its own. ``text``: why no broker answers, in a sentence; empty while one does."""

    def __init__(self, settings: HasKafka) -> None:
        self.text = ""
        self._settings = settings
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def _run(self) -> None:
        errors: list[KafkaError] = []
        admin = admin_of(self._settings, errors)
        while not self._over.wait(_PAUSE_SECONDS):
            errors.clear()
            found = reach_brokers(self._settings, admin, errors)
            self.text = str(found) if isinstance(found, Finding) else ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()  # the thread may wait for brokers; nobody waits for it
