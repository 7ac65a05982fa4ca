"""The interface of an envelope: a decoded value in, the value inside it and what is around that out.

It stands between a format and the fields: payload ──format──▶ whole value ──envelope──▶ value, around ──▶ fields. So one envelope
serves every format that makes objects.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers


class Envelope(ABC):
    """Takes one envelope off. It never raises for what a record holds, and may change the objects that it is given."""

    name: ClassVar[str]
    """Its name in the configuration."""
    meaning: ClassVar[str]
    """Its description in the reference of settings."""
    reads_headers: ClassVar[bool] = False
    """Whether ``unwrap`` needs the records' headers; else it is given none."""
    tombstone: ClassVar[Reason] = Reason.TOMBSTONE
    """What a record without a value is."""

    @abstractmethod
    def unwrap(self, value: Any, headers: Headers) -> Enveloped | Reason:
        """The value and what is around it, or why a record has none. value: as a format decodes it, of any type."""


class Bare(Envelope):
    """No envelope."""

    name = "none"
    meaning = "values stand for themselves"

    def unwrap(self, value: Any, headers: Headers) -> Enveloped | Reason:
        """The value itself."""
        return Enveloped(value, {})
