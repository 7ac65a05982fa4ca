"""Confluent's wire format: a magic byte, the id of a schema, and the record."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from susurrus.agents.formats.format import ObjectFormat

_MAGIC = b"\0"
_PREFIX = 5  # magic byte and schema id, big-endian

Parse = Callable[[bytes], Any]


class ConfluentFormat(ObjectFormat):
    """A format whose records name their schema by an id."""

    @abstractmethod
    def parser(self, schema_id: int) -> Parse | None:
        """Parses the bytes behind the prefix; None for what is no schema. Raises UnknownSchema and Unanswered."""

    def parse(self, payload: bytes) -> Any:
        """As `ObjectFormat.parse`."""
        if payload[:1] != _MAGIC or len(payload) < _PREFIX:
            raise ValueError("not in Confluent's wire format")
        parse = self.parser(int.from_bytes(payload[1:_PREFIX], "big"))
        if parse is None:
            raise ValueError("the schema is none")
        return parse(payload[_PREFIX:])
