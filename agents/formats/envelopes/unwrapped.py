"""A format in an envelope: another format reads whole values, and the fields are those of what is inside."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from susurrus.agents.formats.envelopes.connect_types import decimal, from_base64
from susurrus.agents.formats.envelopes.envelope import Envelope
from susurrus.agents.formats.format import Format, Overdue
from susurrus.topics.records.fields import ENVELOPE, Path, walk
from susurrus.topics.records.payloads import Chunk, Enveloped, chunk_of_objects
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers


def inner_paths(paths: Sequence[Path], around: Sequence[str]) -> list[Path]:
    """What a format in an envelope reads: the whole value, and what the format itself says around it. around: `Format.around`."""
    wanted = {path[2] for path in paths if path[:2] == ENVELOPE and len(path) > 2}
    return [(), *((*ENVELOPE, name) for name in around if name in wanted)]


class Unwrapped(Format):
    """Reads the fields at ``paths`` of what is inside an envelope.

    form: made for `inner_paths`. decimals: the scale of decimals that are written as base64 or bytes, by their path in the value
    inside. A path below `$envelope` is that of the format where it has one of that name, else the envelope's.
    """

    def __init__(
        self, paths: Sequence[Path], form: Format, envelope: Envelope, decimals: Mapping[Path, int] | None = None
    ) -> None:
        super().__init__(paths, None)
        self._form, self._envelope, self._decimals = form, envelope, decimals or {}
        self.patience = form.patience
        self.reads_headers = form.reads_headers or envelope.reads_headers

    def prepare(self, first: Sequence[Path], lists: Sequence[Path]) -> None:
        """What is around a value that the form refuses can be had, where the condition asks for nothing else."""
        super().prepare(first, lists)
        self._form.prepare(first if set(first) <= set(self._form.paths) else (), ())

    def read(
        self, payloads: Sequence[bytes | None], overdue: Overdue, headers: Sequence[Headers] | None = None
    ) -> Iterator[Chunk]:
        """Reads as `Format.read` says."""
        start = 0
        for chunk in self._form.read(payloads, overdue, headers if self._form.reads_headers else None):
            some = headers[start : start + chunk.rows] if headers is not None and self._envelope.reads_headers else None
            yield chunk_of_objects(self._objects(chunk, some), self.paths, self.first)
            start += chunk.rows
        self.waits = self._form.waits

    def close(self) -> None:
        """Close connections."""
        self._form.close()

    def _objects(self, chunk: Chunk, headers: Sequence[Headers] | None) -> list[Enveloped | Reason]:
        """What is inside each payload, or why that is refused."""
        found: list[Enveloped | Reason] = []
        form_paths = self._form.paths[1:]
        values, *others = (iter(column) for column in chunk.columns)
        for row in range(chunk.rows):
            why = chunk.refused.get(row)
            if why is not None:
                found.append(self._envelope.tombstone if why == Reason.TOMBSTONE else why)
                continue
            around = {path[2]: next(column) for path, column in zip(form_paths, others, strict=True)}
            value = next(values)
            if row in chunk.pending:
                inside: Enveloped | Reason = Enveloped(None, around, chunk.pending[row])
            else:
                inside = self._unwrapped(value, around, () if headers is None else headers[row])
            found.append(inside)
        return found

    def _unwrapped(self, value: Any, around: Mapping[str, Any], headers: Headers) -> Enveloped | Reason:
        try:
            inside = self._envelope.unwrap(value, headers)
        except Exception:  # no envelope shall raise; if one does, that is about this record alone
            inside = Reason.UNDECODABLE
        if isinstance(inside, Reason):
            return Enveloped(None, around, inside) if around else inside
        if around:
            inside = Enveloped(inside.value, {**inside.around, **around}, inside.reason)
        if self._decimals and inside.reason == Reason.OK and not self._read_decimals(inside.value):
            return Enveloped(None, inside.around, Reason.WRONG_TYPE)
        return inside

    def _read_decimals(self, value: Any) -> bool:
        """Puts decimals where their digits are; False where a text is none. Numbers, which some producers write there, stay."""
        for path, scale in self._decimals.items():
            try:
                parent = walk(value, path[:-1])
                digits = walk(parent, path[-1:])
                if isinstance(digits, str):
                    digits = from_base64(digits)
                if isinstance(digits, bytes):
                    parent[path[-1]] = decimal(digits, scale)
            except (TypeError, ValueError):
                return False
        return True
