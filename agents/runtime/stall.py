"""What holds a running task back: one cause at a time, the one to fix first."""

import time

from susurrus.agents.finding import Finding, waits
from susurrus.agents.runtime.stage import Stage

MANY_ABORTS = 5
"""After so many aborted transactions in a row, an operator should look at the cause."""
_STALL_SECONDS = 10.0
"""A stage that has waited for so long stalls."""
_UNREADABLE_SECONDS = 20.0
"""A partition that cannot be read is reported every few seconds. A report that is not repeated is over."""


class StallReport:
    """The causes of one task, as they are noted. Thread-safe: every cause is replaced as a whole."""

    def __init__(self) -> None:
        self._aborts = 0
        self._abort_cause = ""
        self._unreadable: tuple[Finding | None, float] = (None, 0.0)
        self._waits: tuple[Finding | None, float] = (None, 0.0)

    def aborted(self, cause: str) -> int:
        """A transaction was aborted; how many there were in a row."""
        self._aborts += 1
        self._abort_cause = cause
        return self._aborts

    def committed(self) -> None:
        """A transaction was committed."""
        self._aborts = 0

    def cannot_read(self, reason: Finding) -> None:
        """Why no batches come; forgotten when one comes, or when it is not noted again."""
        self._unreadable = (reason, time.monotonic())

    def fed(self) -> None:
        """A batch has come."""
        self._unreadable = (None, 0.0)

    def of(self, stage: Stage) -> Finding | None:
        """What holds a running stage back, or None."""
        if self._aborts >= MANY_ABORTS:
            return waits(
                "transactions",
                f"the last {self._aborts} transactions were aborted ({self._abort_cause})",
                "compare the limits of the topics it writes (`susurrus topics check`), and look at the brokers",
            )
        now = time.monotonic()
        unreadable, noted_at = self._unreadable
        if unreadable and now - noted_at < _UNREADABLE_SECONDS:
            return unreadable
        waits_for, since = stage.stall(int(time.time() * 1000)), now
        if waits_for == self._waits[0]:
            since = self._waits[1]
        self._waits = (waits_for, since)
        return waits_for if now - since > _STALL_SECONDS else None
