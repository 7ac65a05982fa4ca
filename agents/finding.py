"""A finding: what an operator should know of the setup, or of the running pipeline, and what to do about it.

`susurrus config check`, `preflight`, `topics check` and `status`, the log of a worker's start and its pages show findings. So the
text and the action stay two fields from where they are found to where they are shown, through the ledger's records, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from susurrus.mechanisms.errors import ConfigurationError, SusurrusError

Level = Literal["ok", "warning", "failure", "unknown"]
"""A worker goes on after a warning. A failure keeps it from its start, or stops one of its partitions. unknown: this user may not
ask, Kafka did not answer, or another machine would answer otherwise."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. As text, it is one sentence: what was found, and what to do.

    subject: what was looked at, a stable name. text: what was found; it names no user and no key. action: what the operator should
    do; its lines that begin with four spaces are to copy, into a shell or a file of settings. waits: it may pass by itself, and
    what it stops tries again. Every finding that is not ok has an action, or waits, or ends its text with what to do.

    The other fields are for a cause that keeps records out of the result. why: what lies behind it. number: how many the text
    counts, mostly records. share: the part of all records that the cause keeps out, 0 to 1.
    """

    subject: str
    level: Level
    text: str
    action: str = ""
    waits: bool = False
    why: str = ""
    number: int | None = None
    share: float = 0.0

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.text, self.action)))

    @classmethod
    def of(cls, error: SusurrusError, subject: str) -> "Finding":
        """What an error says, as a failure. It waits where the error is retried."""
        return cls(subject, "failure", error.text, error.action, waits=error.retryable)


def waits(subject: str, text: str, action: str = "") -> Finding:
    """What holds something back that goes on by itself, once that is over."""
    return Finding(subject, "warning", text, action, waits=True)


def refuse(findings: Iterable[Finding]) -> None:
    """Raises ConfigurationError with all that was found; returns where nothing was."""
    if found := tuple(findings):
        raise error_of(found)


def error_of(findings: Sequence[Finding]) -> ConfigurationError:
    """An error that says what was found, one line each. One finding's action stays apart."""
    [one, *others] = findings
    return ConfigurationError(sentences(findings)) if others else ConfigurationError(one.text, one.action)


def sentences(findings: Iterable[Finding]) -> str:
    """One line for each."""
    return "\n".join(map(str, findings))
