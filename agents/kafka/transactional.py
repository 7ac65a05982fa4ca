"""A transactional producer whose calls end in time.

librdkafka's transactional calls may hang for good: while a coordinator is away, they ignore their time-outs (its issues 5456 and
5511; seen with a broker that was away, or stood still, for half a minute). Closing a producer after a failed abort hangs as well,
and its threads then keep a core busy, also when the brokers are back. Destroying it takes no time.

Destroying a fenced producer that still has records to report may crash the process: librdkafka 2.16 frees something twice. Six
threads that fenced each other crashed after 40 to 200 times. With a flush first they did not in 2,300 times
(tests/chaos/test_fenced_producers.py).
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

_LOCAL_SECONDS: Final = 5.0
"""The time-out of a call that asks no broker and has none of its own."""
_LATE_SECONDS: Final = 2.0
"""The time by which a call may exceed its time-out."""
_ABORT_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 2.0
_DESTROY_SECONDS: Final = 5.0
_OVERDUE: Final = object()
_MOST_IDLE: Final = 8
"""So many threads wait for the next call. When many partitions start, there are more for a moment."""


class TransactionalProducer:
    """One of confluent-kafka's producers, with every transactional call in a thread that can be left behind.

    A call that does not end in time raises KafkaException (_TIMED_OUT, retriable). Its outcome is unknown, and this producer can
    only be discarded. The next one with its transactional id fences it. Time-outs are in seconds.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._in_doubt = False
        """Whether a call has not told its outcome. No other call helps then."""
        self._hangs = False

    def init_transactions(self, timeout: float) -> None:
        """Does what confluent-kafka's method of this name does."""
        self._ask(self._producer.init_transactions, timeout)

    def begin_transaction(self) -> None:
        """Does what confluent-kafka's method of this name does."""
        self._ask(lambda _: self._producer.begin_transaction(), _LOCAL_SECONDS)

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float) -> None:
        """Does what confluent-kafka's method of this name does."""
        self._ask(lambda left: self._producer.send_offsets_to_transaction(positions, group_metadata, left), timeout)

    def commit_transaction(self, timeout: float) -> None:
        """Does what confluent-kafka's method of this name does."""
        self._ask(self._producer.commit_transaction, timeout)

    def abort_transaction(self, timeout: float) -> None:
        """Does what confluent-kafka's method of this name does."""
        self._ask(self._producer.abort_transaction, timeout)

    def produce(self, topic: str, value: bytes | None = None, key: bytes | None = None, **fields: Any) -> None:
        """Does what confluent-kafka's method of this name does."""
        self._producer.produce(topic, value, key, **fields)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], **fields: Any) -> int:
        """Does what confluent-kafka's method of this name does."""
        return int(self._producer.produce_batch(topic, messages, **fields))

    def poll(self, timeout: float) -> int:
        """Does what confluent-kafka's method of this name does."""
        return int(self._producer.poll(timeout))

    def __len__(self) -> int:
        return len(self._producer)

    def discard(self) -> bool:
        """Abort an open transaction, as far as that is possible, and destroy the producer. Returns whether that ended in time.

        It never raises. An open transaction would hold readers back until it times out.
        """
        held, in_doubt = [self._producer], self._in_doubt
        del self._producer

        def end() -> None:
            producer = held.pop()
            # Purged records are reported at once, so that flushing takes some milliseconds.
            steps: list[Callable[[], object]] = [producer.purge, partial(producer.flush, _FLUSH_SECONDS)]
            if not in_doubt:
                steps.insert(0, partial(producer.abort_transaction, _ABORT_SECONDS))
            for step in steps:
                # A fenced producer raises the exception that interrupted a callback (agents/kafka/requests.py).
                with contextlib.suppress(Exception, KafkaError):
                    step()
            # Its last reference ends here, unless a call hangs: that call's thread has one, because it still uses the producer.

        return _within(_ABORT_SECONDS + _FLUSH_SECONDS + _DESTROY_SECONDS, end) is not _OVERDUE and not self._hangs

    def _ask(self, call: Callable[[float], object], timeout: float) -> None:
        """Call with a time-out in seconds. Raises what the call raises, and _TIMED_OUT if it does not end soon after that."""
        error = _within(timeout + _LATE_SECONDS, partial(call, timeout))
        if error is None:
            return
        if error is _OVERDUE:
            self._hangs = True
            error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time", retriable=True))
        self._in_doubt = self._in_doubt or _is_retriable(error)
        try:
            raise error
        finally:
            del error, call  # the traceback would keep this frame, and with it the producer


class _Caller(threading.Thread):
    """Makes one call after the other. A new thread for each would wait for the interpreter's lock twice more."""

    def __init__(self) -> None:
        super().__init__(name="transaction", daemon=True)
        self.asked: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue[Any]]] = queue.SimpleQueue()

    def run(self) -> None:
        """Go on until enough others are idle."""
        while self._go_on():
            pass

    def _go_on(self) -> bool:
        call, answer = self.asked.get()
        found = _outcome(call)
        del call  # it refers to the producer, which may be the caller's to destroy
        stays = len(_idle) < _MOST_IDLE
        if stays:
            _idle.append(self)
        answer.put(found)
        return stays


_idle: Final[list[_Caller]] = []
"""Those that wait for a call. Taking one out of a list, and putting it in, are each one step to other threads."""


def _outcome(call: Callable[[], object]) -> Any:
    """What the call raised, or None."""
    try:
        call()
    except KafkaException as error:
        return error.with_traceback(None)
    except (Exception, KafkaError) as error:
        return error
    return None


def _within(seconds: float, call: Callable[[], object]) -> Any:
    """Make the call in a thread that can be left behind. Returns what it raised, or None; _OVERDUE if it has not ended in time."""
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        caller = _idle.pop()
    except IndexError:
        caller = _Caller()
        caller.start()
    caller.asked.put((call, answer))
    try:
        return answer.get(timeout=seconds)
    except queue.Empty:
        return _OVERDUE


def _is_retriable(error: Any) -> bool:
    return isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError) and error.args[0].retriable()
