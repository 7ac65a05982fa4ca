"""Raw events in JSON, one object a record; also framed, as serializers of JSON Schema do it.

A framing is taken off and nothing else: no schema is asked for, and no record is compared with one.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from susurrus.agents.formats.format import Format, Overdue, Programs
from susurrus.agents.formats.framing import (
    FRAMINGS,
    Apicurio,
    ApicurioContentId,
    ApicurioHeader,
    Confluent,
    ConfluentHeader,
    Unframed,
    other_framing,
)  # fmt: skip
from susurrus.topics.compiled import compiled
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Chunk, JsonReader
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers


class Json(Format):
    """JSON needs nothing but the payload. framing: one of ``framings``, None for the first."""

    name = "json"
    meaning = "one JSON object a record; with a framing, as serializers of JSON Schema write it, and not checked by its schema"
    is_text = True
    framings = tuple(
        one.name for one in (Unframed, Confluent, ConfluentHeader, Apicurio, ApicurioContentId, ApicurioHeader)
    )
    options = ("framing",)

    def __init__(self, paths: Sequence[Path], setting: Any, framing: str | None = None) -> None:
        super().__init__(paths, setting)
        self._lists: Sequence[Path] = ()
        self.framing = FRAMINGS[framing or self.framings[0]]
        self.reads_headers = self.framing.reads_headers

    def prepare(self, first: Sequence[Path], lists: Sequence[Path]) -> None:
        """Reads the condition's fields of payloads of which others cannot be read, and leaves the members of lists."""
        super().prepare(first, lists)
        self._lists = lists

    @cached_property
    def _reader(self) -> JsonReader:
        return JsonReader(self.paths, self.first, self._lists)

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """The whole batch; nothing waits."""
        return self._reader.read(payloads) if isinstance(self.framing, Unframed) else self._framed(payloads, headers)

    def programs(self, paths: Sequence[Path]) -> Programs | None:
        """Answers `Format.programs`. Plain JSON needs none."""
        prefix = self.framing.prefix
        return None if prefix is None or isinstance(self.framing, Unframed) else JsonPrograms(prefix, paths)

    def _framed(self, payloads: Sequence[bytes | None], headers: Sequence[Headers] | None) -> Iterator[Chunk]:
        bodies: list[bytes | None] = []
        refused: dict[int, Reason] = {}
        prefix = self.framing.prefix
        size = 0 if prefix is None else len(prefix[0]) + prefix[1]
        known: set[bytes] = set()
        """Prefixes that the framing has taken off: it looks at nothing else of a record."""
        for row, payload in enumerate(payloads):
            if payload and payload[:size] in known:
                bodies.append(payload[size:])
                continue
            body, beside = payload, () if headers is None else headers[row]
            if payload:
                try:
                    body = self.framing.split(payload, beside, self.part).body
                    if size:
                        known.add(payload[:size])
                except ValueError:
                    refused[row] = other_framing(self.framing, payload, beside, self.part) or Reason.UNDECODABLE
                    body = b""
            bodies.append(body)
        start = 0
        for chunk in self._reader.read(bodies):
            if refused:
                # An empty body is refused in any case, so only its reason is another one.
                chunk.refused.update({row: refused.get(start + row, why) for row, why in chunk.refused.items()})
            yield chunk
            start += chunk.rows


class JsonPrograms(Programs):
    """One program for all numbers of schemas, which nobody looks up. paths: distinct ones."""

    def __init__(self, prefix: tuple[bytes, int, range], paths: Sequence[Path]) -> None:
        super().__init__(prefix)
        self._paths = paths

    def known(self) -> Iterator[tuple[int | None, Any]]:
        """Answers `Programs.known`."""
        yield None, compiled.json_program(list(map(list, self._paths)))
