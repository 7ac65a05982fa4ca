"""Formats whose records name their schema (framing.py), and are objects of that schema.

Payloads go to the packages fastavro and protobuf directly, because confluent-kafka's own deserializers look up associations and
rules for every record (measured: 11 to 17 us against 5 us). Rules and encryption of data contracts are therefore not applied.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from susurrus.agents.formats.format import ObjectFormat, Overdue, Unanswered, UnknownSchema
from susurrus.agents.formats.framing import FRAMINGS, Framed, Unframed, other_framing
from susurrus.agents.formats.registry import optional_modules
from susurrus.agents.formats.schemas import Schemas
from susurrus.topics.records.fields import ENVELOPE, Path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import framing_seen, seen
from susurrus.topics.wire.batch_reader import Headers

MEANING: Final = 'by {}; needs the extra `registry` (`pip install "susurrus[registry]"`)'


class FramedFormat(ObjectFormat):
    """A format whose records name their schema. framing: one of ``framings``, None for the first.

    Raises ConfigurationError where an optional package is missing.
    """

    packages: ClassVar[tuple[str, ...]]
    """Modules of the optional dependencies ``susurrus[registry]``."""

    def __init__(self, paths: Sequence[Path], setting: Any, framing: str | None) -> None:
        super().__init__(paths, setting)
        self.modules = optional_modules(self.packages, f'input.format = "{self.name}"')
        """The modules of ``packages``, in that order."""
        self.framing = FRAMINGS[framing or self.framings[0]]
        self.reads_headers = not isinstance(self.framing, Unframed)
        """Also where the framing has none: a header may say what else the record is."""
        self.tells = any(path[:2] == ENVELOPE for path in paths)
        """Whether it is asked what is around the value."""
        self.schemas: Schemas[Any] | None = None
        """Those of a registry; None where none is asked."""

    @classmethod
    def problems(cls, source: Any) -> Iterator[str]:
        """A registry must not be there for framings that name no schema which one has."""
        yield from super().problems(source)
        if not cls.asks(source) and source.registry is not None and source.key_format != cls.name:
            yield f'input.registry: is not asked with input.framing = "{source.framing}"; leave it out'

    @classmethod
    def asks(cls, source: Any) -> bool:
        """Whether the framing of a section `[input]` names schemas by what a registry knows."""
        return FRAMINGS[source.framing or cls.framings[0]].asks

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` does. It asks a registry at most once for an id, and only for some seconds."""
        if self.schemas is not None:
            self.schemas.begin()
        return super().read(payloads, overdue, headers)

    def close(self) -> None:
        """Close the connections to the registry."""
        if self.schemas is not None:
            self.schemas.close()

    def found(self, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Of the schemas that numbers name in the framing's prefix those that can be had now: each number, and what is kept of its
        schema. It asks a registry as `read` does, which asks once more for those that it did not know."""
        if self.schemas is None:
            return
        self.schemas.begin()
        for number in numbers:
            name = self.framing.named(number)
            try:
                if name is not None:
                    yield number, self.schemas.get(name)
            except UnknownSchema:
                continue
            except Unanswered:
                return

    def parser_of(self, payload: bytes) -> tuple[bytes, Callable[[bytes], Any]] | None:
        """Those that name the same schema in the framing's prefix are parsed alike. Headers say nothing about them."""
        if self.framing.prefix is None or self.tells:
            return None
        framed = self.framing.split(payload, (), self.part)
        body, parse = self.reader_of(framed)
        return payload[: len(payload) - len(body)], parse

    @abstractmethod
    def reader_of(self, framed: Framed) -> tuple[bytes, Callable[[bytes], Any]]:
        """What is left of the body of a record behind what says its type, and how that is read.

        Raises as `record`, and where a registry has not been asked for the schema yet: `record` asks.
        """

    @abstractmethod
    def record(self, framed: Framed) -> Any:
        """The object of a record that was taken apart. Raises as `ObjectFormat.parse`."""

    def parse(self, payload: bytes) -> Any:
        """Parses as `ObjectFormat.parse` says."""
        return self.parse_with(payload, ())

    def parse_with(self, payload: bytes, headers: Headers) -> Any:
        """Parses as `ObjectFormat.parse_with` says."""
        return self.record(self.framing.split(payload, headers, self.part))

    def undecodable(self, payload: bytes, headers: Headers) -> Reason:
        """Names another framing than the configured one, or what else a payload seems to be that is not framed."""
        other = other_framing(self.framing, payload, headers, self.part)
        if other is None and framing_seen(payload) is None:
            other = seen(payload)
        return other or Reason.UNDECODABLE
