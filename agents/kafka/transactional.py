"""A transactional producer whose calls end in time.

librdkafka's transactional calls may hang for good: while a coordinator is away, they ignore their time-outs (its issues 5456 and
5511; seen with a broker that was away, or stood still, for half a minute). Closing or destroying such a producer hangs as well.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

_LOCAL_SECONDS: Final = 5.0
"""For a call that asks no broker. It has no time-out of its own."""
_LATE_SECONDS: Final = 2.0
"""By how much a call may exceed its time-out."""
_ABORT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0
_LEFT_BEHIND: Final[set[Producer]] = set()
"""Producers that hang inside librdkafka. They are kept, because destroying them would hang as well. Most of them end at last."""


class TransactionalProducer(Producer):  # type: ignore[misc]
    """confluent-kafka's producer, with every transactional call in a thread that can be left behind.

    A call that does not end in time raises KafkaException (_TIMED_OUT, retriable). Its outcome is unknown, and this producer can
    only be discarded. The next one with its transactional id fences it. Time-outs are in seconds.
    """

    def __init__(self, properties: dict[str, Any], **options: Any) -> None:
        super().__init__(properties, **options)
        self.hangs = False
        """Whether a call has not ended in time."""

    def init_transactions(self, timeout: float) -> None:
        """As confluent-kafka's."""
        call = super().init_transactions
        self._in_time(lambda: call(timeout), timeout)

    def begin_transaction(self) -> None:
        """As confluent-kafka's."""
        self._in_time(super().begin_transaction, _LOCAL_SECONDS)

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float) -> None:
        """As confluent-kafka's."""
        call = super().send_offsets_to_transaction
        self._in_time(lambda: call(positions, group_metadata, timeout), timeout)

    def commit_transaction(self, timeout: float) -> None:
        """As confluent-kafka's."""
        call = super().commit_transaction
        self._in_time(lambda: call(timeout), timeout)

    def abort_transaction(self, timeout: float) -> None:
        """As confluent-kafka's."""
        call = super().abort_transaction
        self._in_time(lambda: call(timeout), timeout)

    def discard(self) -> bool:
        """Abort what is open, as far as that is possible, and close. Whether that ended in time; never raises."""
        if not self.hangs:
            with contextlib.suppress(KafkaException):
                self._in_time(self._end, _ABORT_SECONDS + _CLOSE_SECONDS)
        return not self.hangs

    def _end(self) -> None:
        # An open transaction holds readers back until it times out. Closing aborts as well, but waits without end.
        abort = super().abort_transaction
        for step in (self.purge, lambda: abort(_ABORT_SECONDS), self.close):
            # A fenced producer raises the exception that interrupted a callback (agents/kafka/requests.py).
            with contextlib.suppress(Exception, KafkaError):
                step()

    def _in_time(self, call: Callable[[], object], timeout: float) -> None:
        """What the call raises, or _TIMED_OUT some seconds after its own time-out."""
        answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def run() -> None:
            try:
                call()
            except (Exception, KafkaError) as error:
                answer.put(error)
            else:
                answer.put(None)
            if self.hangs:  # it was late, and nobody waits any more
                self._end()
                _LEFT_BEHIND.discard(self)

        threading.Thread(target=run, name="transaction", daemon=True).start()
        try:
            error = answer.get(timeout=timeout + _LATE_SECONDS)
        except queue.Empty:
            self.hangs = True
            _LEFT_BEHIND.add(self)
            late = "no answer in time; a new producer takes over"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, late, retriable=True)) from None
        if error is not None:
            raise error
