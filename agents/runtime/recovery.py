"""What a partition task does after a failure: its state, whether and when it tries again, and the refusal in the ledger.

States: starting -> running -> (refused | fenced | stopped).
- A refusal that an operator can fix from outside is retried with growing pauses. It stays visible until the task really runs: the
  task has committed, or it has not refused for the length of the trial. Every other refusal is final.
- A disk that cannot be used is tried for some seconds. Then the worker gives up, so that others take over (supervisor.py). If the
  disk as a whole is unusable, all tasks wait for it together (disk.py); otherwise it is this task's store alone.
- A missing topic or right is found by `lack`, and is a refusal that is retried.
- A start may find that more is public than the state knows (`MorePublic`). If the next one finds the same, that is a refusal.
- After any other error the task starts again from the changelog, which shows what was committed.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.finding import Finding, waits
from susurrus.agents.logs import describe
from susurrus.agents.runtime.disk import PATIENCE_SECONDS, disk_finding
from susurrus.agents.runtime.lacks import lack
from susurrus.agents.runtime.stage import MorePublic, NotYet
from susurrus.agents.runtime.store import is_corrupt
from susurrus.agents.runtime.task_context import Life, TaskContext
from susurrus.agents.runtime.transaction import Fenced
from susurrus.mechanisms.errors import PrivacyError, Refusal, StoreUnusable

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_TRIAL_SECONDS = 30.0
"""A task that was refused really runs when it has committed, or has not refused for so long."""
_DISK_SERIES_SECONDS = 60.0
"""Failures that follow each other within this are one series."""

Close = Callable[[bool], None]
State = Literal["starting", "running", "refused", "fenced", "stopped"]


@dataclass(eq=False)
class Recovery:
    """The state of one task and its way back after a failure. Changed by the task's thread, read by all."""

    context: TaskContext
    life: Life
    phase: State = field(default="starting", init=False)
    """The state of the thread; ``state`` is what status shows."""
    refusal: Finding | None = field(default=None, init=False)
    """Why the task refused, until it really runs again."""
    disk_finding: Finding | None = field(default=None, init=False)
    """What is wrong with the local disk, until the store could be opened and the task runs."""
    _reason: Finding | None = field(default=None, init=False)
    _finding: Finding | None = field(default=None, init=False)
    """Why the last attempt to start or to run failed."""
    _refused_times: int = field(default=0, init=False)
    _runs_since: float = field(default=0.0, init=False)
    _disk_failures: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    """Times of the first and the last of a series."""
    _public: object = field(default=None, init=False)
    """The evidence of the last start that found more public than the state knew."""

    @property
    def state(self) -> State:
        """The state that status shows: a refused task stays refused until it really runs again, even while it retries."""
        return "refused" if self.refusal and self.phase in ("starting", "running") else self.phase

    def stall(self) -> Finding | None:
        """Why a task that is not running makes no progress, or None."""
        if self.state == "refused":
            return self.refusal or self._reason
        if self.state == "starting":
            return self._finding or self._reason  # of the last attempt, not the step of this one
        return self._reason

    def take_after(self, before: "Recovery") -> None:
        """The worker's previous task of this partition was refused, so this one counts as refused until it really runs."""
        self.refusal, self._refused_times = before.refusal, before._refused_times

    # ---- the task goes on --------------------------------------------------------------------------------------------

    def starts(self, step: str) -> None:
        """The task has begun a step of its start."""
        self._set("starting", Finding(self.context.name, "ok", step, waits=True))

    def runs(self) -> None:
        """The start has succeeded."""
        self._set("running", None)
        self._finding = self.disk_finding = None
        self._public = None
        self._runs_since = time.monotonic()
        if not self.refusal:
            self._withdraw_refusal()

    def working(self) -> None:
        """The task is at work: withdraw the refusal once the trial is over."""
        if time.monotonic() > self._runs_since + _TRIAL_SECONDS:
            self.committed()

    def committed(self) -> None:
        """The task has committed, so it really runs: withdraw the refusal, if there is one. Not on a disk that the worker gives up:
        what is committed then is in memory only."""
        if self.refusal and not self.context.disk.finding:
            log.info("%s goes on after it had refused", self.context.name)
            self._withdraw_refusal()

    def ended(self) -> None:
        """The thread ends."""
        if self.phase not in ("refused", "fenced"):
            self._set("refused" if self.refusal else "stopped", self.refusal)

    def pause(self, seconds: float | None = None) -> None:
        """Between two attempts, which are signs of life: Kafka may be away for longer than the watchdog waits."""
        end = time.monotonic() + (_RETRY_SECONDS if seconds is None else seconds)
        while not self.life.stopping.is_set():
            self.life.mark_alive()
            if (left := end - time.monotonic()) <= 0:
                return
            self.life.stopping.wait(min(left, _RETRY_SECONDS))

    # ---- the task has failed -----------------------------------------------------------------------------------------

    def after(self, error: Exception | KafkaError, close: Close) -> bool:
        """Whether to start again, once this returns: what the last attempt held is closed by then, and the pause is over.

        close: closes what the task holds, and deletes what the store holds if True; never raises. It is not kept: it refers to the
        task, and a worker hardly ever runs the collector that would find a cycle.
        """
        if isinstance(error, (Refusal, PrivacyError)):
            return self._refused(error, close)
        if isinstance(error, MorePublic):
            before, self._public = self._public, error.evidence
            if error.evidence == before:
                return self._refused(error.refusal, close)
        if isinstance(error, NotYet):
            log.warning("%s waits: %s", self.context.name, str(error))
            return self._start_again(waits(self.context.name, error.text, error.action), close)
        if isinstance(error, Fenced):
            self._set(
                "fenced", waits(self.context.name, "another owner has this partition", "nothing, unless this stays")
            )
            log.info("%s: another worker has taken this partition over", self.context.name)
            return False
        if self.life.stopping.is_set():
            return False
        if isinstance(error, StoreUnusable):
            return self._disk_failed(error, close)
        # Kafka's errors name no topic and no right: `lack` asks for both.
        if (lacking := self.lack(error)) is not None:
            return self._refused(lacking, close)
        # The text of an unforeseen exception may hold data, so only its type and place are logged.
        place = describe(error)
        log.warning("%s starts again after %s", self.context.name, place)
        return self._start_again(
            waits(
                self.context.name,
                f"starting again after {place}",
                "look at the worker's log and the brokers if this stays",
            ),
            close,
            wipe=is_corrupt(error),
        )

    def lack(self, error: BaseException | KafkaError) -> Refusal | None:
        """The missing right or topic, if Kafka reports one."""
        try:
            return lack(error, self.context.services, self.context.name)
        except (Exception, KafkaError):
            return None  # Kafka does not answer that either

    def _refused(self, refusal: Refusal | PrivacyError, close: Close) -> bool:
        self.refusal = Finding.of(refusal, self.context.name)
        log.error("%s refuses: %s", self.context.name, str(refusal))
        self._record_refusal()
        if not refusal.retryable:
            self._set("refused", self.refusal)
            return False
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**self._refused_times)
        self._refused_times = min(self._refused_times + 1, 10)
        return self._start_again(self.refusal, close, pause)

    def disk_stays_unusable(self, found: Finding) -> None:
        """Called by another thread when the worker gives up: the partition is refused with the others until it is taken over."""
        self.refusal = self.disk_finding = found
        self._record_refusal()

    def _disk_failed(self, unusable: StoreUnusable, close: Close) -> bool:
        if found := self.context.disk.look():
            self.disk_finding = self._finding = found
            self._set("starting", found)
            self.context.disk.wait(self.life.stopping, self.life.mark_alive)
            close(False)
            return not self.life.stopping.is_set()
        now = time.monotonic()
        first, last = self._disk_failures
        first = now if now - last > _DISK_SERIES_SECONDS else first
        self._disk_failures = (first, now)
        self.disk_finding = disk_finding(unusable)
        log.warning("%s: %s", self.context.name, str(unusable))
        if now - first < PATIENCE_SECONDS:
            return self._start_again(self.disk_finding, close)
        self.refusal = self.disk_finding
        self._set("refused", self.refusal)
        close(False)
        self._record_refusal()
        self.context.give_up(f"{self.context.name}: {unusable}")
        return False

    def _start_again(self, found: Finding, close: Close, seconds: float | None = None, *, wipe: bool = False) -> bool:
        self._finding = found
        self._set("starting", found)
        close(wipe)
        self.pause(seconds)
        return True

    def _record_refusal(self) -> None:
        with contextlib.suppress(KafkaException, BufferError):  # it stays refused where that cannot be written, too
            context = self.context
            if self.refusal is not None:
                context.services.ledger.refuse(context.spec.name, context.partition, self.refusal)

    def _withdraw_refusal(self) -> None:
        self.refusal, self._refused_times = None, 0
        self.context.services.ledger.clear_refusal(self.context.spec.name, self.context.partition)

    def _set(self, phase: State, reason: Finding | None) -> None:
        self._reason = reason
        self.phase = phase
