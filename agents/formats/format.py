"""The interface of an input format: payloads in, the fields at some paths out, chunk by chunk.

The content of a payload never raises: a payload that does not follow the format is refused as UNDECODABLE. A payload without a
schema ends the batch before it, and the caller offers it again. It does so while the registry does not answer, because an outage
must not send good records to the dead-letter topic, and while the registry does not know the id, until the patience is over.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.fields import Path
from susurrus.topics.payloads import CHUNK, Chunk, chunk_of_objects
from susurrus.topics.reason import Reason

Overdue = Callable[[int], bool]
"""Whether the payload of a row may wait for its schema no longer: an unknown one is then bad input."""


class UnknownSchema(Exception):
    """The format does not know the schema of a payload, yet. The text says what to do."""


class Unanswered(Exception):
    """Who knows the schemas was not asked any more (no text), or did not answer. Says nothing about the schema."""


class Format(ABC):
    """Reads the fields at ``paths`` of raw events in one format.

    setting: the value of the format's own field of `[input]`, None where it has none. Raises ConfigurationError where a package,
    a class or a property is missing.
    """

    name: ClassVar[str]
    """In the configuration."""
    meaning: ClassVar[str]
    """For the reference of settings."""
    setting: ClassVar[str | None] = None
    """The field of `[input]` that this format needs, and no other may have."""
    example: ClassVar[str] = ""
    """Of that field."""

    def __init__(self, paths: Sequence[Path], setting: Any) -> None:
        self.paths = paths
        self.patience = 0
        """How long after a record was written its schema may become known, in ms."""
        self.waits: str | None = None
        """What the payload behind the last that was read waits for; None while nothing keeps the caller from offering it again
        at once."""

    @abstractmethod
    def read(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Iterator[Chunk]:
        """A batch of payloads, chunk by chunk, up to the first whose schema cannot be had. None is a tombstone.

        overdue: of rows of the batch. ``waits`` is right when the last chunk has been taken.
        """

    def close(self) -> None:
        """Give back connections."""


class ObjectFormat(Format):
    """A format whose parser makes one object of a payload."""

    @abstractmethod
    def parse(self, payload: bytes) -> Any:
        """The object of a payload that is not empty; what is no Mapping is refused, and so is a payload that raises.

        Raises UnknownSchema and Unanswered.
        """

    def read(self, payloads: Sequence[bytes | None], overdue: Overdue) -> Iterator[Chunk]:
        """As `Format.read`."""
        self.waits = None
        for start in range(0, len(payloads), CHUNK):
            chunk = payloads[start : start + CHUNK]
            objects: list[Mapping[str, Any] | Reason | None] = []
            for row, payload in enumerate(chunk, start):
                try:
                    objects.append(self._object(payload))
                except UnknownSchema as unknown:
                    if not overdue(row):
                        self.waits = str(unknown)
                        break
                    objects.append(Reason.UNDECODABLE)
                except Unanswered as unanswered:
                    self.waits = str(unanswered) or None
                    break
            yield chunk_of_objects(objects, self.paths)
            if len(objects) < len(chunk):
                return

    def _object(self, payload: bytes | None) -> Mapping[str, Any] | Reason | None:
        if payload is None:
            return None
        if not payload:
            return Reason.EMPTY
        try:
            found = self.parse(payload)
        except (UnknownSchema, Unanswered):
            raise
        except Exception:  # a parser of hostile bytes may raise anything, and nothing but the bytes is involved here
            return Reason.UNDECODABLE
        return found if isinstance(found, Mapping) else Reason.WRONG_TYPE


def missing(name: str, error: ImportError) -> ConfigurationError:
    """What to say where a format's optional package is not installed."""
    return ConfigurationError(f'input.format = "{name}": needs the package {error.name}; install susurrus[registry]')
