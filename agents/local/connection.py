"""A client's connection to Kafka: reports go out, thresholds come in.  It never sees a true value.

Reports wait in librdkafka's bounded queue while brokers are away, and are retried without duplicates.  One thread runs in
the background: it serves deliveries and reads the compacted threshold topic.  Needs confluent-kafka only.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer

from susurrus.agents.kafka.follow import Follower
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.threshold import ThresholdRecord
from susurrus.topics.wire.packing import MalformedRecord

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1

WhenFull = Literal["drop", "wait"]
"""What to do with a report while the queue is full: count it as dropped, or wait for room."""

OnDelivery = Callable[[str | None], None]
"""Called once for every report with None, or with the name of the Kafka error for which it was given up."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the reports so far. waiting: accepted, neither acknowledged nor given up."""

    accepted: int = 0
    acknowledged: int = 0
    failed: int = 0
    dropped: int = 0

    @property
    def waiting(self) -> int:
        return self.accepted - self.acknowledged - self.failed


class Connection:
    """Sends reports to ``reports`` and hands every well-formed current threshold of ``thresholds`` to ``adopt``.

    The other parameters are those of ToplClient. Thread-safe.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        reports: str,
        thresholds: str,
        adopt: Callable[[ThresholdRecord], object],
        max_queue: int,
        when_full: WhenFull,
        give_up: float,
        settle: float,
        on_delivery: OnDelivery | None,
    ) -> None:
        if str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))).upper() in (
            "OAUTHBEARER",
            "AWS_MSK_IAM",
        ):
            # Others need not load what it needs: this runs in applications.
            from susurrus.agents.config.kafka_properties import with_token

            properties = with_token(properties)
        self._topic = reports
        self._adopt = adopt
        self._when_full = when_full
        self._on_delivery = on_delivery
        self._counts = dict.fromkeys(("accepted", "acknowledged", "failed", "dropped"), 0)
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "linger.ms": 20,
                "compression.type": "lz4",
                "enable.idempotence": True,
                **properties,
                "queue.buffering.max.messages": max_queue,
                "message.timeout.ms": max(1, int(give_up * 1000)),
            },
            logger=_silent(),
        )
        self._consumer = Consumer(
            {
                **properties,
                "group.id": f"susurrus-client-{uuid.uuid4().hex}",  # required by librdkafka; nothing is ever committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            },
            logger=_silent(),
        )
        self._follower = Follower(self._consumer, {(thresholds, 0): OFFSET_BEGINNING})
        self._thread = threading.Thread(target=self._run, name="topl-client", daemon=True)
        self._thread.start()
        self._settled.wait(settle)

    @property
    def counts(self) -> Counts:
        """What became of the reports so far."""
        with self._lock:
            return Counts(**self._counts)

    def _count(self, what: str, reports: int = 1) -> None:
        with self._lock:
            self._counts[what] += reports

    # ---- reports go out ----------------------------------------------------------------------------------------------

    def send(self, payloads: Sequence[bytes]) -> int:
        """Queue a record for each payload. Returns how many were queued; the others were dropped because the queue was full.

        Raises RuntimeError after `close`, and KafkaException. Both may come after some were queued: `counts` says how many.
        """
        messages: list[dict[str, Any]] = [{"value": payload, "callback": self._delivered} for payload in payloads]
        while messages:
            if self._stopping.is_set():
                raise RuntimeError("the client is closed: make a new one")
            self._producer.produce_batch(self._topic, messages)
            refused = [message for message in messages if "_error" in message]
            self._count("accepted", len(messages) - len(refused))
            for message in refused:
                error = message.pop("_error")
                if error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
            messages = refused
            if messages and self._when_full == "drop":
                self._count("dropped", len(messages))
                break
            if messages:
                self._producer.poll(_POLL_SECONDS)
        return len(payloads) - len(messages)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self._count("acknowledged" if error is None else "failed")
        if self._on_delivery is not None:
            self._on_delivery(None if error is None else error.name())

    def flush(self, timeout: float) -> int:
        """Wait until the reports are delivered. Returns how many still wait."""
        deadline = time.monotonic() + timeout
        while True:
            # Not the producer's flush: after a fatal error it runs callbacks while an exception is pending.
            self._producer.poll(_POLL_SECONDS)
            waiting = self.counts.waiting
            if not waiting or time.monotonic() >= deadline:
                return waiting

    def close(self, timeout: float) -> int:
        """Flush and stop. Returns how many reports were not acknowledged; they are taken back. Safe to call twice."""
        if self._stopping.is_set():
            return 0
        waiting = self.flush(timeout)
        self._stopping.set()
        self._thread.join(5.0)
        self._consumer.close()
        self._producer.purge()
        self.flush(1.0)  # runs the callbacks of the reports that were taken back
        if waiting:
            log.warning("topl client: closed with %d reports not acknowledged", waiting)
        return waiting

    # ---- thresholds come in ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(0)
                self._read_thresholds()
            except Exception as error:  # no error ends the thread; its text could contain anything, so it is not logged
                log.warning("topl client: %s in the background; it continues", type(error).__name__)
                self._stopping.wait(_POLL_SECONDS)

    def _read_thresholds(self) -> None:
        try:
            messages = self._follower.read(_POLL_SECONDS)
        except KafkaException as error:
            # Without the topic or a broker the client stays in its phase.
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._settled.set()
            return
        for message in messages:
            if message.key() != threshold_codec.CURRENT or (value := message.value()) is None:
                continue
            try:
                self._adopt(threshold_codec.decode(value))
            except MalformedRecord as problem:
                log.warning("topl client: offset=%d of the threshold topic is ignored: %s", message.offset(), problem)
        if self._follower.caught_up:
            self._settled.set()


def _silent() -> logging.Logger:
    """A logger for librdkafka's own lines (connections, brokers). They are lost unless the program adds a handler to it."""
    logger = logging.getLogger(f"{__name__}.kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
