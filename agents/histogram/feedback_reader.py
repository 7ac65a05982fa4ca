"""The thread that reads published-keys into the index of a worker's tasks: see feedback.py.

    published-keys, from the epoch's first record on ──▶ PublishedKeys.take ──▶ the tasks that wait are woken

After any failure, and where another topic has taken the name, the topic is read again from its start. A record that this pipeline
did not write ends the thread: every question is refused from then on.
"""

import contextlib
import logging
import threading
import time

from confluent_kafka import KafkaException, Message

from susurrus.agents.finding import Finding, waits
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import Follower
from susurrus.agents.logs import describe
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import Refusal

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_LOOK_AT_LOG_SECONDS = 30.0
_WAIT_SECONDS = 0.1


class _Foreign(Exception):
    """The topic holds what this pipeline did not write: reading it again would not help."""


class PublishedKeysReader(threading.Thread):
    """Keeps a PublishedKeys up to date; started by the first task of a worker that needs it."""

    def __init__(self, clients: Clients, index: PublishedKeys) -> None:
        super().__init__(name="published-keys", daemon=True)
        self._clients = clients
        self._index = index
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._begins = 0

    def ensure_started(self, epoch: bytes, begins: int = 0, *, first_window: WindowIndex | None = None) -> None:
        """Start it, unless it has been. begins: the epoch's first offset in the topic. first_window: as in `PublishedKeys`."""
        with self._starting:
            if self.ident is None:
                self._index.epoch, self._index.first_window, self._begins = epoch, first_window, begins
                self.start()

    def close(self) -> None:
        """End it."""
        self._stopping.set()
        if self.is_alive():
            self.join(10.0)

    def run(self) -> None:
        """Read until closed. After any failure, except of a record itself, the topic is read again from its start."""
        while not self._stopping.is_set():
            try:
                self._read()
            except _Foreign:
                return
            except Exception as error:
                # Also a topic that is not there: a broker that has just come back may not know it yet.
                if isinstance(error, Refusal):
                    reason = Finding.of(error, "published-keys")
                else:
                    text = f"topic={self._index.topic} cannot be read ({describe(error)})"
                    reason = waits("published-keys", text, "look at brokers and permissions")
                self._index.unreadable = reason
                log.warning("published keys are read again: %s", reason)
                self._stopping.wait(_RETRY_SECONDS)

    def _read(self) -> None:
        topic = self._index.topic
        topic_id = self._clients.topic_id(topic)
        start, _ = self._clients.watermarks(topic, 0)
        self._index.clear()
        looked_at = time.monotonic()
        with contextlib.closing(self._clients.reader("published-keys", follows=True)) as consumer:
            follower = Follower(consumer, {(topic, 0): max(start, self._begins)})
            while not self._stopping.is_set():
                messages = follower.read(_WAIT_SECONDS, at_once=True)
                if messages or follower.caught_up:
                    self._index.unreadable = None
                for message in messages:
                    self._accept(message)
                if messages:
                    self._index.tell()
                if time.monotonic() > looked_at + _LOOK_AT_LOG_SECONDS:
                    looked_at = time.monotonic()
                    with contextlib.suppress(KafkaException):
                        if self._clients.topic_id(topic) != topic_id:
                            return  # another topic of the same name

    def _accept(self, message: Message) -> None:
        try:
            self._index.take(message.value() or b"", message.offset())
        except Refusal as refusal:
            log.error("published keys are refused: %s", refusal)
            self._index.refuse(refusal)
            raise _Foreign from refusal
