"""A format whose payloads are decompressed and put into UTF-8 first.

payload ──decompress──▶ ──to UTF-8──▶ payload of a format ──▶ fields
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from susurrus.agents.finding import Finding
from susurrus.agents.formats.format import Format, Overdue
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import CHUNK, Chunk
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers

Step = Callable[[bytes], bytes | Reason]
_AT_ONCE: Final = 1 << 26
"""Bytes of prepared payloads after which these are read: a batch that stands for very many more must not be in memory at once."""


class Prepared(Format):
    """Reads with another format what steps make of a payload. A payload that a step refuses is refused for its reason."""

    def __init__(self, form: Format, steps: Sequence[Step]) -> None:
        super().__init__(form.paths, None)
        self._form, self._steps = form, steps
        self.patience, self.reads_headers = form.patience, form.reads_headers

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` says."""
        self.waits = None
        start = 0
        while start < len(payloads):
            some, refused = self._prepared(payloads, start)
            read = 0
            for chunk in self._form.read(
                some,
                lambda row, first=start: overdue(first + row),  # type: ignore[misc]
                None if headers is None else headers[start : start + len(some)],
            ):
                # The format has refused an empty payload in its place.
                chunk.refused.update({row: refused[read + row] for row in range(chunk.rows) if read + row in refused})
                read += chunk.rows
                yield chunk
            start += read
            if read < len(some):
                self.waits = self._form.waits
                return

    def prepare(self, first: Sequence[Path], lists: Sequence[Path]) -> None:
        """Says it to the format."""
        super().prepare(first, lists)
        self._form.prepare(first, lists)

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[Finding]:
        """Answers as the format does."""
        return self._form.unknown_fields(paths)

    def close(self) -> None:
        """Close connections."""
        self._form.close()

    def _prepared(self, payloads: Sequence[bytes | None], start: int) -> tuple[list[bytes | None], dict[int, Reason]]:
        """The next payloads, and why some of them, by their place among these, are refused."""
        some: list[bytes | None] = []
        refused: dict[int, Reason] = {}
        size = 0
        for payload in payloads[start : start + CHUNK]:
            found: bytes | Reason | None = payload
            for step in self._steps:
                if found and not isinstance(found, Reason):
                    found = step(found)
            if isinstance(found, Reason):
                refused[len(some)], found = found, b""
            some.append(found)
            size += len(found or b"")
            if size >= _AT_ONCE:
                break
        return some, refused
