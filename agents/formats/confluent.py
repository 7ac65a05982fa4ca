"""Confluent's wire format: a magic byte, the id of a schema, and the record.

Payloads go to the packages fastavro and protobuf directly, because confluent-kafka's own deserializers look up associations and
rules for every record (measured: 11 to 17 us against 5 us). Rules and encryption of data contracts are therefore not applied.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from susurrus.agents.formats.format import ObjectFormat
from susurrus.agents.formats.registry import optional_modules
from susurrus.topics.records.fields import Path

MEANING: Final = 'in Confluent\'s wire format, by {}; needs the extra `registry` (`pip install "susurrus[registry]"`)'

MAGIC: Final = b"\0"
PREFIX: Final = 5
"""Bytes before the record: the magic byte and the schema id, big-endian."""


class ConfluentFormat(ObjectFormat):
    """A format whose records name their schema by an id. Raises ConfigurationError where an optional package is missing."""

    packages: ClassVar[tuple[str, ...]]
    """Modules of the optional dependencies ``susurrus[registry]``."""

    def __init__(self, paths: Sequence[Path], setting: Any) -> None:
        super().__init__(paths, setting)
        self.modules = optional_modules(self.packages, f'input.format = "{self.name}"')
        """The modules of ``packages``, in that order."""

    @abstractmethod
    def record(self, schema_id: int, data: bytes) -> Any:
        """The object that the bytes behind the prefix encode. Raises as `ObjectFormat.parse`."""

    def parse(self, payload: bytes) -> Any:
        """Parses as `ObjectFormat.parse` says."""
        if payload[:1] != MAGIC or len(payload) < PREFIX:
            raise ValueError("not in Confluent's wire format")
        return self.record(int.from_bytes(payload[1:PREFIX], "big"), payload[PREFIX:])
