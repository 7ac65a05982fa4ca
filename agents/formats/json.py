"""Raw events in JSON, one object a record."""

from collections.abc import Iterator, Sequence
from typing import Any

from susurrus.agents.formats.format import Format, Headers, Overdue
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Chunk, JsonReader


class Json(Format):
    """JSON needs nothing but the payload."""

    name = "json"
    meaning = "one JSON object a record"

    def __init__(self, paths: Sequence[Path], setting: Any) -> None:
        super().__init__(paths, setting)
        self._reader = JsonReader(paths)

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """The whole batch; nothing waits."""
        return self._reader.read(payloads)
