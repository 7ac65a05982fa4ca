"""The interface of an input format: payloads in, the fields at some paths out, chunk by chunk.

The content of a payload never raises: a payload that does not follow the format is refused as UNDECODABLE. A batch ends before a
payload whose schema cannot be had, and the caller offers that payload again:
- while the registry does not answer, because an outage must not send good records to the dead-letter topic
- while the registry does not know the id, until the patience is over.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from susurrus.agents.finding import Finding, waits
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import CHUNK, Chunk, Enveloped, chunk_of_objects
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen
from susurrus.topics.wire.batch_reader import Headers

Overdue = Callable[[int], bool]
"""Whether the payload of a row may no longer wait for its schema. If that is still unknown, the payload is bad input."""


class NoSchema(Exception):
    """The schema of a payload cannot be had now. finding: why, and what to do; None where the registry was not asked."""

    def __init__(self, text: str = "", action: str = "") -> None:
        super().__init__(text)
        self.finding = waits("schema registry", text, action) if text else None


class UnknownSchema(NoSchema):
    """The registry does not know the schema, yet."""


class Unanswered(NoSchema):
    """The registry did not answer or was not asked, which says nothing about the schema."""


class RefusedPayload(Exception):
    """A payload that a parser refuses for a reason of its own."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.name)
        self.reason = reason


class Programs(ABC):
    """Makes compiled readers (`compiled.Program`, topics/rust/src/framed.rs) of schemas, for the framing of a format.

    prefix: that of the framing (`Framing.prefix`).
    """

    def __init__(self, prefix: tuple[bytes, int, range]) -> None:
        self.prefix = prefix

    @abstractmethod
    def known(self) -> Iterator[tuple[int | None, Any]]:
        """Numbers of schemas and their programs, as far as they are known before any record. None as a number: all others. None as
        a program: records of the number are left to ``read``."""

    def of(self, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Of other numbers those whose schemas can be had now, each with its program or None. A registry may be asked."""
        return iter(())


class Format(ABC):
    """Reads the fields at ``paths`` of raw events in one format.

    paths: below the value, and below `$envelope` (fields.ENVELOPE) those that ``around`` names; nothing else that is beside the
    value. The empty path is the value itself, and is the only one of the value then; where fields are wanted, too, they are taken
    of it (`decoder_of`). A list or an object at a path is found as Python has it. setting: the value of the format's own field of
    `[input]`, None where it has none. Raises ConfigurationError where a package or a class is missing, or a property is refused.
    """

    name: ClassVar[str]
    """Its name in the configuration."""
    meaning: ClassVar[str]
    """Its description in the reference of settings."""
    setting: ClassVar[str | None] = None
    """The field of `[input]` that this format needs and that no other format may have."""
    example: ClassVar[str] = ""
    """A value of that field."""
    around: ClassVar[tuple[str, ...]] = ()
    """What this format itself says around a value, as names below `$envelope`: the name of a record's schema, for example."""
    framings: ClassVar[tuple[str, ...]] = ()
    """The names of the framings that it reads (framing.py), the default first; none where its records name no schema."""
    is_text: ClassVar[bool] = False
    """Whether payloads are text, whose encoding `[input]` may name."""
    has_lines: ClassVar[bool] = False
    """Whether the whole value is a list of its lines."""
    options: ClassVar[tuple[str, ...]] = ()
    """Fields of `[input]` that this format may have beside; its class takes them as keywords, None where they are not set."""

    def __init__(self, paths: Sequence[Path], setting: Any) -> None:
        self.paths = paths
        self.patience = 0
        """How long after a record was written its schema may become known, in ms."""
        self.first: Sequence[Path] = ()
        """Of the paths, those of the condition: a payload of which only these can be read is pending, not refused."""
        self.part = "value"
        """Which part of records the payloads are, "value" or "key": their schemas are in different headers."""
        self.reads_headers = False
        """Whether ``read`` needs the records' headers."""
        self.waits: Finding | None = None
        """What the first payload that was not read waits for; None where the caller may offer it again at once."""

    @classmethod
    def needs_setting(cls, source: Any) -> bool:
        """Whether ``setting`` must be there, in this section `[input]`."""
        return True

    @classmethod
    def problems(cls, source: Any) -> Iterator[str]:
        """What is wrong with this format's settings in a section `[input]`, beyond what is missing; one line each."""
        if "framing" in cls.options and source.framing is not None and source.framing not in cls.framings:
            known = ", ".join(cls.framings)
            yield f'input.framing = "{source.framing}": is no framing of input.format = "{cls.name}"; use one of {known}'

    @abstractmethod
    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """A batch of payloads, chunk by chunk, up to the first whose schema cannot be had. None is a tombstone.

        overdue: asked with rows of the batch. headers: of each record, where ``reads_headers``. ``waits`` is valid once the last
        chunk has been taken.
        """

    def programs(self, paths: Sequence[Path]) -> Programs | None:
        """What reads the fields at distinct ``paths`` in compiled code (`whole.py`); None where only ``read`` can."""
        return None

    def prepare(self, first: Sequence[Path], lists: Sequence[Path]) -> None:
        """Called before anything is read. first: the condition's paths. lists: those of lists and objects that are taken apart: a
        format may leave their members as msgspec.Raw in JSON, so that each of them is decoded by itself."""
        self.first = first

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[Finding]:
        """Which fields no record can have, a failure each; nothing where only the records can tell."""
        return iter(())

    def close(self) -> None:
        """Close connections."""


class ObjectFormat(Format):
    """A format whose parser makes one object of a payload."""

    @abstractmethod
    def parse(self, payload: bytes) -> Any:
        """The object of a payload that is not empty. Raises NoSchema, and RefusedPayload with a reason.

        The payload is refused where this raises anything else, too, or returns what is no Mapping; the empty path takes any value.
        An Enveloped stands for its value, and has what is around it.
        """

    def parse_with(self, payload: bytes, headers: Headers) -> Any:
        """The same with the record's headers; called instead where ``reads_headers``."""
        return self.parse(payload)

    def undecodable(self, payload: bytes, headers: Headers) -> Reason:
        """Why a payload is refused that cannot be parsed: what it seems to be."""
        return seen(payload) or Reason.UNDECODABLE

    def parser_of(self, payload: bytes) -> tuple[bytes, Callable[[bytes], Any]] | None:
        """How payloads like this one are parsed: all that begin with the same bytes, by what comes behind them. None where each has
        to be looked at by itself. The function returns what ``parse`` does, or raises where that does; this raises anything."""
        return None

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` says."""
        self.waits = None
        for start in range(0, len(payloads), CHUNK):
            chunk = payloads[start : start + CHUNK]
            objects = self._alike(chunk)
            if objects is None:
                objects = self._each(chunk, start, overdue, headers)
            yield chunk_of_objects(objects, self.paths, self.first)
            if len(objects) < len(chunk):
                return

    def _alike(self, payloads: Sequence[bytes | None]) -> list[Any] | None:
        """The objects of payloads that are all parsed alike, and good; None where one may be another. It says nothing else than
        `_each`, with less for each payload."""
        try:
            if not (first := payloads[0]) or (found := self.parser_of(first)) is None:
                return None
            head, parse = found
            start = len(head)
            # A null has no bytes to compare, and an empty payload is no object.
            if not all(payload and payload.startswith(head) for payload in payloads):
                return None
            objects = [parse(payload[start:]) for payload in payloads]  # type: ignore[index]  # none is None
        except Exception:  # as of a single payload; which one it is, and what that means, is found one by one
            return None
        return objects if set(map(type, objects)) == {dict} else None

    def _each(
        self,
        payloads: Sequence[bytes | None],
        start: int,
        overdue: Overdue,
        headers: Sequence[Headers] | None,
    ) -> list[Any]:
        """What `chunk_of_objects` takes of each payload, up to the first that waits. start: the row of the first in the batch."""
        objects: list[Any] = []
        for row, payload in enumerate(payloads, start):
            try:
                objects.append(self._object(payload, None if headers is None else headers[row]))
            except NoSchema as reason:
                if not (isinstance(reason, UnknownSchema) and overdue(row)):
                    self.waits = reason.finding
                    break
                objects.append(Reason.UNDECODABLE)
        return objects

    def _object(self, payload: bytes | None, headers: Headers | None) -> Any:
        if payload is None:
            return None
        if not payload:
            return Reason.EMPTY
        try:
            found = self.parse(payload) if headers is None else self.parse_with(payload, headers)
        except NoSchema:
            raise
        except RefusedPayload as refused:
            return refused.reason
        except Exception:  # a parser of hostile bytes may raise anything, and nothing else is involved
            return self.undecodable(payload, headers or ())
        if isinstance(found, Enveloped):
            good = found.reason != Reason.OK or self._is_value(found.value)
            return found if good else replace(found, reason=Reason.WRONG_TYPE)
        return found if self._is_value(found) else Reason.WRONG_TYPE

    def _is_value(self, found: Any) -> bool:
        return isinstance(found, Mapping) or () in self.paths
