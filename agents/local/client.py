"""client: value -> reports (on the device);  threshold -> client.  The only part of Susurrus that sees a true value.

    with ToplClient("kafka:9092", pipeline="meters", epsilon=1.0, bound=5000.0, interval=60_000) as client:
        client.report(231.4)

Each report is eps-locally private by itself, even against a dishonest server: the randomisers and their epsilon are the
device's own, and a threshold from the server only says where to clip. Before there is a threshold, every report is phase 1
(Square Wave over [0, bound]). Then reports are phase 2 (hybrid over [0, theta]), except for the share that the threshold
keeps in phase 1.

Needs numpy and confluent-kafka only. The true value is never kept, logged, or put into an exception, a header or a key.
Of what leaves `report`, only the report's code depends on it.
"""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from susurrus.agents.local.connection import Connection, Counts, OnDelivery, WhenFull
from susurrus.mechanisms.arrays import Floats
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.randomness import WORD, Words, secure_word, secure_words
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics import reports as report_codec
from susurrus.topics.reports import Reports
from susurrus.topics.spec import REPORTS, THRESHOLD, topic_name
from susurrus.topics.threshold import ThresholdRecord

log = logging.getLogger(__name__)

_BATCH = 20_000


@dataclass(frozen=True)
class _Phase:
    """How to make a report right now; replaced as a whole, so that readers need no lock.

    share: of 2**64, probability of a phase 1 report although there is a threshold.
    """

    version: int
    theta: float
    perturber: Hybrid | None
    share: int


class ToplClient:
    """Perturbs values on this device and sends the reports.

    epsilon, bound: of the device's own configuration; every report is epsilon-locally private, and values are clipped
    to [0, bound]. interval: length in ms of the time intervals that reports are assigned to. scale: of the phase 1 domain,
    "log" or "linear", as the server's. max_queue: reports that may wait for brokers. when_full: what `report` does then:
    "drop" (count it, return False) or "wait". give_up: seconds after which a waiting report is given up. settle:
    seconds to wait at the start for the threshold that may exist; without an answer reports are phase 1. properties:
    raw librdkafka properties (SASL, TLS).

    Thread-safe. Not fork-safe: make a client in each process. Raises ConfigurationError for impossible parameters, and where
    brokers want a token and there is none: TokenAway if that may pass, so that the client can be made later.
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
        when_full: WhenFull = "drop",
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
        self._words = words
        self._phase = _Phase(0, bound, None, WORD)
        self._ignored: set[int] = set()
        self._connection = Connection(
            {"bootstrap.servers": bootstrap_servers, **(properties or {})},
            reports=self._topic,
            thresholds=topic_name(prefix, pipeline, THRESHOLD.name),
            adopt=self.adopt,
            max_queue=max_queue,
            when_full=when_full,
            give_up=give_up,
            settle=settle,
            on_delivery=on_delivery,
        )

    def __repr__(self) -> str:
        return f"ToplClient(topic={self._topic!r}, epsilon={self._epsilon}, phase={self.phase})"

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
        return self._connection.counts

    def report(self, value: float, *, at: int | None = None) -> bool:
        """Perturb one value and queue its report. `at`: when it was measured, ms since the epoch; now by default.

        Returns False when the queue was full and the report was dropped (when_full="drop"). Never blocks otherwise.
        Raises ValueError for a value that is not a finite number (the message does not contain it), RuntimeError after
        `close`.
        """
        number = _number(value)
        phase = self._phase
        if phase.perturber is None or (phase.share and secure_word() < phase.share):
            report = {"phase": 1, "threshold_version": 0, "code": self._wave.randomise_one(number)}
        else:
            code = phase.perturber.randomise_one(number / phase.theta)
            report = {"phase": 2, "threshold_version": phase.version, "code": code}
        moment = int(time.time() * 1000) if at is None else at
        return bool(
            self._connection.send([report_codec.encode_one(**report, interval=moment - moment % self._interval)])
        )

    def report_batch(self, values: Sequence[float] | Floats, *, at: Sequence[int] | int | None = None) -> int:
        """Perturb many values at once, each with its own randomness, and queue a report for each. Returns how many were
        queued.

        For gateways that speak for many devices: the reports are the same as from `report`, one record each. `at`: one
        moment for all, or one for each. Raises ValueError before anything is queued. RuntimeError (closed meanwhile) and
        KafkaException may come after some were queued, and `counts` says how many: to repeat those would report them twice.
        """
        numbers = _numbers(values)
        moments = np.asarray(int(time.time() * 1000) if at is None else at, dtype=np.int64)
        intervals = np.broadcast_to(moments - moments % self._interval, numbers.shape)
        queued = 0
        for start in range(0, numbers.size, _BATCH):
            part = slice(start, start + _BATCH)
            queued += self._connection.send(report_codec.encode(self._perturbed(numbers[part], intervals[part])))
        return queued

    def _perturbed(self, numbers: Floats, intervals: npt.NDArray[np.int64]) -> Reports:
        phase, n = self._phase, numbers.size
        first = np.full(n, phase.perturber is None)
        if phase.perturber is not None and phase.share:
            first = self._words(n) < np.uint64(min(phase.share, WORD - 1))
        codes = np.empty(n, dtype=np.int64)
        if first.any():
            codes[first] = self._wave.randomise(numbers[first], self._words)
        if phase.perturber is not None and not first.all():
            with np.errstate(over="ignore"):  # a warning in a log would show that a value was huge
                fractions = numbers[~first] / phase.theta
            codes[~first] = phase.perturber.randomise(fractions, self._words)
        return Reports(
            phase=np.where(first, 1, 2).astype(np.int32),
            threshold_version=np.where(first, 0, phase.version).astype(np.int64),
            interval=intervals,
            code=codes,
        )

    def adopt(self, threshold: ThresholdRecord) -> bool:
        """Use a threshold from now on. Returns False if it is older than ours, or not for our epsilon and bound.

        Reports stay epsilon-private for every threshold: it chooses the clipping point and the mixture, nothing else.
        """
        theirs = (threshold.epsilon, threshold.bound, threshold.scale)
        if theirs != (self._epsilon, self._bound, self._wave.scale) or not 0 < threshold.theta <= threshold.bound:
            if threshold.version not in self._ignored:
                self._ignored.add(threshold.version)
                log.warning(
                    "topl client: threshold version=%d is for epsilon=%s, bound=%s, scale=%s, which are not this client's, so "
                    "it is ignored: correct the client's or the server's configuration",
                    threshold.version,
                    *theirs,
                )
            return False
        if threshold.version <= self._phase.version:
            return False
        perturber = Hybrid(self._epsilon, threshold.alpha)
        _ = perturber.window.inside, perturber.rounding.decoder  # computed now, not at the next report
        share = math.floor(threshold.phase1_share * WORD)
        self._phase = _Phase(threshold.version, threshold.theta, perturber, share)
        log.info("topl client: phase 2 with threshold version=%d", threshold.version)
        return True

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until the reports are delivered. Returns how many still wait."""
        return self._connection.flush(timeout)

    def close(self, timeout: float = 10.0) -> int:
        """Flush and stop. Returns how many reports were not acknowledged. Safe to call twice.

        Waiting reports are taken back and never sent. Those that were sent and not answered may have arrived, so to report
        any of these values again costs epsilon twice.
        """
        return self._connection.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _number(value: object) -> float:
    """Return value as a finite float. The error is raised outside the except block, so its context does not hold the value."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("value is not a finite number: report numbers only")
    return number


def _numbers(values: object) -> Floats:
    """Return values as finite floats, float64[n]. The error is raised as in `_number`."""
    numbers: Floats | None
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None or numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise ValueError("values are not a list of finite numbers: report numbers only")
    return numbers
