"""The one hierarchy of errors; every message says name=value and ends with what the operator should do.

    SusurrusError
    ├── ConfigurationError     a setting is wrong                        (agents/config/settings.py and mechanisms)
    │   ├── RegistryAway       ... or the schema registry that it names does not answer (agents/formats/)
    │   └── TokenAway          ... or who gives tokens for Kafka does not answer (agents/config/kafka_tokens.py)
    ├── PrivacyError           going on would break the guarantee
    │   ├── BudgetExhausted    the total (epsilon, delta) is spent
    │   └── ReplayMismatch     what is already published would be published differently
    ├── Refusal                a partition must not go on                (agents/)
    │   └── RetryableRefusal   ... until an operator fixes what is outside of it: topics, rights
    ├── KafkaUnavailableError  no broker runs on this machine            (agents/broker/artefacts.py)
    └── StoreUnusable          the local disk cannot be used: the worker ends, others take over (agents/runtime/store.py)

A ``retryable`` error is retried automatically: its cause can go away without a change of data, configuration or secret.
Every other error would fail again in the same way, or would seem fixed because data has changed.

No message identifies a user or a key.
"""

import errno
from pathlib import Path
from typing import ClassVar


class SusurrusError(Exception):
    """Base of every error this project raises on purpose.

    text: what is wrong. action: what the operator should do; empty where the text says so itself. As text, the error is both.
    """

    retryable: ClassVar[bool] = False
    """Whether what it stops, a partition or the start of a worker, tries again by itself."""
    _joint: ClassVar[str] = "; "
    """What stands between text and action."""

    def __init__(self, text: str, action: str = "") -> None:
        super().__init__(*filter(None, (text, action)))
        self.text, self.action = text, action

    def __str__(self) -> str:
        return self._joint.join(filter(None, (self.text, self.action)))


class ConfigurationError(SusurrusError):
    """A setting cannot be right. Operator action: change the setting the message names."""


class RegistryAway(ConfigurationError):
    """A schema registry does not answer. Operator action: start it, or change the setting the message names."""

    retryable = True


class TokenAway(ConfigurationError):
    """Who gives tokens for Kafka does not answer. Operator action: start it, or change the setting the message names."""

    retryable = True


class PrivacyError(SusurrusError):
    """Going on would break the guarantee. Operator action: as the message says; nothing was published."""

    _joint = ": "

    def __init__(self, text: str, action: str) -> None:
        super().__init__(text, action)


class BudgetExhausted(PrivacyError):
    """The total budget is spent. Operator action: stop the pipeline, or raise the total in the open."""

    retryable = True


class ReplayMismatch(PrivacyError):
    """What is already published would come out differently. Operator action: restore the raw log or start a new epoch."""


class Refusal(SusurrusError):
    """A partition must not go on. Operator action: as the message says; the other partitions run on."""

    _joint = ": "

    def __init__(self, text: str, action: str) -> None:
        super().__init__(text, action)


class RetryableRefusal(Refusal):
    """A partition must not go on until an operator fixes what the message names; it tries again by itself."""

    retryable = True


class StoreUnusable(SusurrusError, OSError):
    """The local disk is full, read-only or failing. Operator action: as the message says; the state there is a cache.

    ``errno`` and ``filename`` are the operating system's.
    """

    _joint = ": "

    def __init__(self, number: int, path: Path, reason: str) -> None:
        OSError.__init__(self, number, reason, str(path))
        name = errno.errorcode.get(number, str(number))
        self.text = f"errno={name} path={path}: the local state cannot be read or written ({reason})"
        self.action = (
            f"{_WAYS_OUT.get(number, 'look at that disk')}, or let worker.data_directory name another place; what is there is a "
            "cache and may be deleted"
        )


_WAYS_OUT = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "raise the quota or make room",
    errno.EROFS: "mount that disk for writing",
    errno.EACCES: "give the worker's user the right to write there",
    errno.EPERM: "give the worker's user the right to write there",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
}
