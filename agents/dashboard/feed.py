"""The thread that keeps a dashboard up to date: it reads, survives brokers that are away, and knows since when they are.

What it has read stays while the brokers are away. Why they are away goes to the log, not to the page: the page is for anyone who
may read the results, and the reason can name addresses and users.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard.budget import BudgetFeed
from susurrus.agents.display.board import Board, Query
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.brokers import admin_of, reach_brokers
from susurrus.mechanisms.errors import SusurrusError

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.3
_AGAIN_SECONDS: Final = 3.0
_CHECK_SECONDS: Final = 3.0


def milliseconds() -> int:
    """Now, in ms since the Unix epoch."""
    return int(time.time() * 1000)


class Feed:
    """Reads for one board until it is closed. budget: follows the charges, of a kind whose windows are charged. Thread-safe."""

    def __init__(self, settings: Settings, board: Board, budget: BudgetFeed | None = None) -> None:
        self.settings, self._board, self._budget = settings, board, budget
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._version = 0
        self._trouble: dict[str, Any] | None = None
        self._caught_up = False
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for run, name in ((self._read, "dashboard-feed"), (self._check, "dashboard-brokers"))
        ]

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop, and wait until the clients are closed."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def state(self) -> dict[str, Any]:
        """What the page needs at every refresh."""
        now = milliseconds()
        with self._lock:
            return {
                "version": self._version,
                "caught_up": self._caught_up,
                "trouble": self._trouble,
                **self._board.state(now),
                "budget": None if self._budget is None else self._budget.state(now),
            }

    def answer(self, question: str, query: Query) -> Mapping[str, Any]:
        """The answer to one question. Raises BadQuestion."""
        with self._lock:
            return {"version": self._version, **self._board.answer(question, query)}

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while not self._stop.is_set():
            clients = clients_of(self.settings, quiet=True)
            try:
                self._follow(clients)
            except (KafkaException, SusurrusError) as error:
                self._lost(error)
            except Exception:  # a defect must not leave a page that looks alive
                log.exception("reading failed; this tries again")
                self._say("defect", "Reading failed; the log of this dashboard says why. It tries again.")
            finally:
                self._board.close()
                clients.close()
            self._stop.wait(_AGAIN_SECONDS)

    def _follow(self, clients: Clients) -> None:
        self._board.open(clients)
        if self._budget is not None:
            self._budget.open(clients, self._board.opened)
        while not self._stop.is_set():
            news = self._board.poll(_POLL_SECONDS)
            charges = [] if self._budget is None else self._budget.poll()
            with self._lock:
                changed = bool(news) and self._board.take(news)
                if self._budget is not None:
                    changed = self._budget.take(charges) or changed
                first = self._board.caught_up and not news and not charges and not self._caught_up
                if changed or first:
                    self._version += 1
                    self._caught_up = self._caught_up or first
                if self._trouble is not None and self._trouble["kind"] != "away":
                    self._trouble = None

    def _lost(self, error: KafkaException | SusurrusError) -> None:
        log.warning("%s", error)
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if "does not exist" in str(error) or code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._say("topics", "The pipeline's topics do not exist yet. An operator runs `susurrus topics create`.")
        elif code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            self._say(
                "rights",
                "This dashboard's user may not read the results. An operator runs `susurrus acls --dashboard USER`.",
            )
        else:
            self._say("away", "Kafka does not answer. The page keeps what it has read, and goes on trying.")

    def _say(self, kind: str, text: str) -> None:
        with self._lock:
            if self._trouble is None or self._trouble["kind"] != kind:
                self._trouble = {"kind": kind, "text": text, "since": milliseconds()}
                self._version += 1

    # ---- brokers -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """A consumer that is not told anything does not know whether nothing happens or nobody is there: this asks."""
        errors: list[KafkaError] = []
        try:
            admin = admin_of(self.settings, errors)
        except SusurrusError as error:
            log.warning("%s", error)
            return
        said = ""
        while not self._stop.wait(_CHECK_SECONDS if not said else 1.0):
            errors.clear()
            found = reach_brokers(self.settings, admin, errors)
            if isinstance(found, Finding):
                if str(found) != said:
                    said = str(found)
                    log.warning("%s", said)
                self._say("away", "Kafka does not answer. The page keeps what it has read, and goes on trying.")
            elif said:
                said = ""
                log.warning("Kafka answers again")
            if not isinstance(found, Finding):
                with self._lock:
                    if self._trouble is not None and self._trouble["kind"] == "away":
                        self._trouble = None
                        self._version += 1
