"""The interface of an output format: rows in, a topic's values out, and back."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from susurrus.agents.formats.registry import Registry
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import RowSchema

Reader = Callable[[bytes], bytes]
"""Turns a topic's value into the row as JSON. Raises MalformedRecord, ConfigurationError where the registry does not help."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes rows of one topic. schema_id: of the registered schema; writers with the same one write the same bytes."""

    schema_id: int | None
    encode: Callable[[PublicRows], Sequence[bytes]]
    """Turns rows into the topic's values."""


class OutputFormat(ABC):
    """How the rows of public topics are written. registry: None where the format needs none."""

    name: ClassVar[str]
    """Its name in the configuration."""
    meaning: ClassVar[str]
    """Its description in the reference of settings."""
    registered: ClassVar[bool]
    """Whether its schemas are in a registry."""

    def __init__(self, registry: Registry | None) -> None:
        self.registry = registry

    @classmethod
    def require(cls) -> None:
        """Raises ConfigurationError where an optional package is missing."""

    @classmethod
    @abstractmethod
    def text(cls, schema: RowSchema, namespace: str) -> str:
        """The schema as people read it and tools take it. Raises ConfigurationError where a package is missing."""

    @abstractmethod
    def writer(self, topic: str, schema: RowSchema, namespace: str) -> Writer:
        """Raises ConfigurationError where the registry does not answer or refuses the schema."""

    def look(self, topic: str, schema: RowSchema, namespace: str) -> str | None:
        """What the registry says of a topic's schema, which is not registered by this; None where the format needs no registry.

        Raises ConfigurationError as `writer`.
        """
        return None

    @abstractmethod
    def reader(self, schema: RowSchema, namespace: str) -> Reader:
        """A function that also reads rows in JSON: those from before the format was configured."""
