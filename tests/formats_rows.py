"""What a format reads of payloads, row by row, as tests of formats compare it."""

from collections.abc import Sequence
from typing import Any

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.format import Format
from susurrus.topics.records.fields import parse_path
from susurrus.topics.wire.batch_reader import Headers


def overdue(row: int) -> bool:
    """Nothing may wait."""
    return True


def decoder(paths: Sequence[str], **settings: Any) -> Format:
    """The format of `[input]` with some settings. paths: as texts write them; the empty one is the whole value."""
    return decoder_of(InputSettings(topic="raw", **settings), [parse_path(path) if path else () for path in paths])


def rows(form: Format, payloads: Sequence[bytes | None], headers: Sequence[Headers] | None = None) -> list[Any]:
    """For each payload what is at the paths, or its reason."""
    if headers is None and form.reads_headers:
        headers = [()] * len(payloads)
    found: list[Any] = []
    for chunk in form.read(payloads, overdue, headers if form.reads_headers else None):
        columns = [iter(column) for column in chunk.columns]
        for row in range(chunk.rows):
            values = None if row in chunk.refused else [next(column) for column in columns]
            found.append(chunk.refused.get(row) or chunk.pending.get(row) or values)
        assert [next(column, None) for column in columns] == [None] * len(columns)
    assert len(found) == len(payloads)
    assert form.waits is None
    return found
