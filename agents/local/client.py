"""client: value -> reports (on the device);  threshold -> client.  The only part of Susurrus that sees a true value.

    with ToplClient("kafka:9092", pipeline="meters", epsilon=1.0, bound=5000.0, interval=60_000) as client:
        client.report(231.4)

Each report is eps-locally private by itself, whatever the server does: the randomisers and their epsilon are the
device's own, and a threshold from the server only says where to clip. Before a threshold exists, reports are phase 1
(Square Wave over [0, bound]); after that they are phase 2 (hybrid over [0, theta]), but for the share that the threshold
keeps in phase 1.

Needs numpy and confluent-kafka only. One thread runs in the background: it serves deliveries and reads the compacted
threshold topic. Reports wait in librdkafka's bounded queue while brokers are away and are retried without duplicates.
The true value is never kept, logged, or put into an exception, a header or a key. Of what leaves `report`, only the
report's code depends on it.
"""

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer

from susurrus.agents.kafka.follow import Follower
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.randomness import WORD, Words, secure_word, secure_words
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics import reports as report_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.packing import MalformedRecord
from susurrus.topics.reports import Reports
from susurrus.topics.spec import REPORTS, THRESHOLD, topic_name
from susurrus.topics.threshold import Threshold

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_BATCH = 20_000

OnDelivery = Callable[[str | None], None]
"""Called once for every report with None, or with the name of the Kafka error for which it was given up."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the reports so far. waiting: accepted, neither acknowledged nor given up."""

    accepted: int
    acknowledged: int
    failed: int
    dropped: int

    @property
    def waiting(self) -> int:
        return self.accepted - self.acknowledged - self.failed


@dataclass(frozen=True)
class _Phase:
    """How to make a report right now; replaced as a whole, so that readers need no lock."""

    version: int
    theta: float
    perturber: Hybrid | None
    share: int
    """Of 2**64: probability of a phase 1 report although there is a threshold."""


class ToplClient:
    """Perturbs values on this device and sends the reports.

    epsilon, bound: of the device's own configuration; every report is epsilon-locally private, and values are clipped
    to [0, bound]. interval: length in ms of the time intervals a report is assigned to. scale: of the phase 1 domain, "log"
    or "linear", as the server's. max_queue: reports that may wait for brokers. when_full: what `report` does then:
    "drop" (count it, return False) or "wait". give_up: seconds after which a waiting report is given up. settle:
    seconds to wait at the start for the threshold that may exist; without an answer reports are phase 1. properties:
    raw librdkafka properties (SASL, TLS).

    Thread-safe. Not fork-safe: make a client in each process. Raises ConfigurationError for impossible parameters.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        pipeline: str,
        epsilon: float,
        bound: float,
        interval: int,
        prefix: str = "susurrus",
        scale: Literal["linear", "log"] = "log",
        properties: Mapping[str, Any] | None = None,
        max_queue: int = 100_000,
        when_full: Literal["drop", "wait"] = "drop",
        give_up: float = 86_400.0,
        settle: float = 3.0,
        on_delivery: OnDelivery | None = None,
        words: Words = secure_words,
    ) -> None:
        if interval < 1 or max_queue < 1:
            raise ConfigurationError(f"interval={interval}, max_queue={max_queue}: both must be positive")
        if when_full not in ("drop", "wait"):
            raise ConfigurationError(f"when_full={when_full!r} is not known: use 'drop' or 'wait'")
        self._wave = SquareWave(epsilon, bound, scale)
        _ = self._wave.window.inside  # computed now, not at the first report
        self._epsilon, self._bound, self._interval = epsilon, bound, interval
        self._topic = topic_name(prefix, pipeline, REPORTS.name)
        self._threshold_topic = topic_name(prefix, pipeline, THRESHOLD.name)
        self._when_full = when_full
        self._on_delivery = on_delivery
        self._words = words
        self._phase = _Phase(0, bound, None, WORD)
        self._accepted = self._acknowledged = self._failed = self._dropped = 0
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._stopping = threading.Event()
        self._ignored: set[int] = set()
        common = {"bootstrap.servers": bootstrap_servers, **(properties or {})}
        self._producer = Producer(
            {
                "linger.ms": 20,
                "compression.type": "lz4",
                "enable.idempotence": True,
                **common,
                "queue.buffering.max.messages": max_queue,
                "message.timeout.ms": max(1, int(give_up * 1000)),
            },
            logger=_silent(),
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": f"susurrus-client-{uuid.uuid4().hex}",  # required by librdkafka; nothing is ever committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            },
            logger=_silent(),
        )
        self._follower = Follower(self._consumer, {(self._threshold_topic, 0): OFFSET_BEGINNING})
        self._thread = threading.Thread(target=self._run, name="topl-client", daemon=True)
        self._thread.start()
        self._settled.wait(settle)

    def __repr__(self) -> str:
        return f"ToplClient(topic={self._topic!r}, epsilon={self._epsilon}, phase={self.phase})"

    # ---- reporting ---------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> int:
        """1 until a threshold is known, then 2."""
        return 1 if self._phase.perturber is None else 2

    @property
    def threshold_version(self) -> int:
        """Version of the threshold in use; 0 in phase 1."""
        return self._phase.version

    @property
    def counts(self) -> Counts:
        """What became of the reports so far."""
        with self._lock:
            return Counts(self._accepted, self._acknowledged, self._failed, self._dropped)

    def report(self, value: float, *, at: int | None = None) -> bool:
        """Perturb one value and queue its report. `at`: when it was measured, ms since the epoch; now by default.

        Returns False when the queue was full and the report was dropped (when_full="drop"). Never blocks otherwise.
        Raises ValueError for what is no finite number (the message does not say what it was), RuntimeError after
        `close`.
        """
        number = _number(value)
        self._check_open()
        phase = self._phase
        if phase.perturber is None or (phase.share and secure_word() < phase.share):
            number_of_phase, version, code = 1, 0, self._wave.randomise_one(number)
        else:
            number_of_phase, version = 2, phase.version
            code = phase.perturber.randomise_one(number / phase.theta)
        moment = int(time.time() * 1000) if at is None else at
        return self._queue_one(
            report_codec.encode_one(
                phase=number_of_phase, threshold_version=version, interval=moment - moment % self._interval, code=code
            )
        )

    def report_batch(
        self, values: Sequence[float] | npt.NDArray[np.float64], *, at: Sequence[int] | int | None = None
    ) -> int:
        """Perturb many values at once, each with randomness of its own, and queue a report for each; how many were
        queued.

        For gateways that speak for many devices: the reports are the same as from `report`, one record each. `at`: one
        moment for all, or one for each. Raises ValueError before anything is queued; RuntimeError (closed meanwhile) and
        KafkaException may come when some are, and `counts` says how many: to repeat those would report them twice.
        """
        numbers = _numbers(values)
        self._check_open()
        moments = np.asarray(int(time.time() * 1000) if at is None else at, dtype=np.int64)
        intervals = np.broadcast_to(moments - moments % self._interval, numbers.shape)
        queued = 0
        for start in range(0, numbers.size, _BATCH):
            queued += self._report_some(numbers[start : start + _BATCH], intervals[start : start + _BATCH])
        return queued

    def _report_some(self, numbers: npt.NDArray[np.float64], intervals: npt.NDArray[np.int64]) -> int:
        phase, n = self._phase, numbers.size
        first = np.full(n, phase.perturber is None)
        if phase.perturber is not None and phase.share:
            first = self._words(n) < np.uint64(min(phase.share, WORD - 1))
        codes = np.empty(n, dtype=np.int64)
        if first.any():
            codes[first] = self._wave.randomise(numbers[first], self._words)
        if phase.perturber is not None and not first.all():
            codes[~first] = phase.perturber.randomise(_share(numbers[~first], phase.theta), self._words)
        payloads = report_codec.encode(
            Reports(
                phase=np.where(first, 1, 2).astype(np.int32),
                threshold_version=np.where(first, 0, phase.version).astype(np.int64),
                interval=intervals,
                code=codes,
            )
        )
        messages: list[dict[str, Any]] = [{"value": payload, "callback": self._delivered} for payload in payloads]
        total = len(messages)
        while messages:
            self._producer.produce_batch(self._topic, messages)
            failed = [message for message in messages if "_error" in message]
            with self._lock:
                self._accepted += len(messages) - len(failed)
            for message in failed:
                error = message.pop("_error")
                if error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
            messages = failed
            if messages and not self._wait_for_room(len(messages)):
                break
        return total - len(messages)

    def _queue_one(self, payload: bytes) -> bool:
        while True:
            try:
                self._producer.produce(self._topic, payload, on_delivery=self._delivered)
            except BufferError:
                if not self._wait_for_room(1):
                    return False
                continue
            with self._lock:
                self._accepted += 1
            return True

    def _wait_for_room(self, reports: int) -> bool:
        """The queue is full: poll once and return True, or drop that many reports and return False."""
        if self._when_full == "drop":
            with self._lock:
                self._dropped += reports
            return False
        self._check_open()
        self._producer.poll(_POLL_SECONDS)
        return True

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        with self._lock:
            if error is None:
                self._acknowledged += 1
            else:
                self._failed += 1
        if self._on_delivery is not None:
            self._on_delivery(None if error is None else error.name())

    def _check_open(self) -> None:
        if self._stopping.is_set():
            raise RuntimeError("the client is closed: make a new one")

    # ---- background --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(0)
                self._read_threshold()
            except Exception as error:  # the thread must outlive whatever a broker does; the text could hold anything
                log.warning("topl client: %s in the background; going on", type(error).__name__)
                self._stopping.wait(_POLL_SECONDS)

    def _read_threshold(self) -> None:
        try:
            messages = self._follower.read(_POLL_SECONDS)
        except KafkaException as error:
            # Without topic or broker we go on in phase 1, or with the threshold we have.
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._settled.set()
            return
        for message in messages:
            if message.key() != threshold_codec.CURRENT or (value := message.value()) is None:
                continue
            try:
                self.adopt(threshold_codec.decode(value))
            except MalformedRecord as problem:
                log.warning("topl client: offset=%d of the threshold topic is ignored: %s", message.offset(), problem)
        if self._follower.caught_up:
            self._settled.set()

    def adopt(self, threshold: Threshold) -> bool:
        """Use a threshold from now on. Returns False if it is older than ours, or not for our epsilon and bound.

        Whatever it says, reports stay epsilon-private: it chooses the clipping point and the mixture, nothing else.
        """
        theirs = (threshold.epsilon, threshold.bound, threshold.scale)
        if theirs != (self._epsilon, self._bound, self._wave.scale) or not 0 < threshold.theta <= threshold.bound:
            if threshold.version not in self._ignored:
                self._ignored.add(threshold.version)
                log.warning(
                    "topl client: threshold version=%d is for epsilon=%s, bound=%s, scale=%s and this client is not; "
                    "it stays with its own: correct the client's or the server's configuration",
                    threshold.version,
                    *theirs,
                )
            return False
        if threshold.version <= self._phase.version:
            return False
        perturber = Hybrid(self._epsilon, threshold.alpha)
        _ = perturber.window.inside, perturber.rounding.decoder
        share = math.floor(threshold.phase1_share * WORD)
        self._phase = _Phase(threshold.version, threshold.theta, perturber, share)
        log.info("topl client: phase 2 with threshold version=%d", threshold.version)
        return True

    # ---- the end -----------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until the reports are delivered; how many still wait."""
        deadline = time.monotonic() + timeout
        while True:
            # Not its flush, which runs callbacks with an exception pending once the producer has failed for good.
            self._producer.poll(_POLL_SECONDS)
            waiting = self.counts.waiting
            if not waiting or time.monotonic() >= deadline:
                return waiting

    def close(self, timeout: float = 10.0) -> int:
        """Flush and stop; how many reports were not acknowledged. Safe to call twice.

        Waiting reports are taken back and never sent. Those that were sent and not answered may have arrived, so to report
        any of these values again costs epsilon twice.
        """
        if self._stopping.is_set():
            return 0
        waiting = self.flush(timeout)
        self._stopping.set()
        self._thread.join(5.0)
        self._consumer.close()
        self._producer.purge()
        self.flush(1.0)  # runs the callbacks of what was taken back
        if waiting:
            log.warning("topl client: closed with %d reports not acknowledged", waiting)
        return waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _share(numbers: npt.NDArray[np.float64], theta: float) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore"):  # a warning would tell somebody's log that a value was huge
        return numbers / theta


def _number(value: object) -> float:
    """value as a finite float. The error is raised outside the except block: its context must not hold the value
    either.
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("value is no finite number: report numbers only")
    return number


def _numbers(values: object) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] | None
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None or numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise ValueError("values are no list of finite numbers: report numbers only")
    return numbers


def _silent() -> logging.Logger:
    """librdkafka's own lines (connections, brokers) go to a logger of their own, and nowhere if nobody listens."""
    logger = logging.getLogger(f"{__name__}.kafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
