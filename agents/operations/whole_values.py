"""Whole values of raw records, read by a section `[input]` for values as they come: the ground that the look stands on.

some records ──whole_values──▶ values ──layouts.py, key_layouts.py──▶ how records are written ──sniffing.py──▶ what they are
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers

Layout = dict[str, Any]
"""Entries of `[input]` that differ from their defaults."""
SNIFFED: Final = 200
"""Records that are read once for each format."""
MOST: Final = 0.5
"""The share of records from which on something is taken for all."""


def section_of(layout: Layout, registry: RegistrySettings | None) -> InputSettings:
    """The section with a layout, for values as they come: lists, envelopes and fields are no part of it."""
    own = {name: value for name, value in layout.items() if name not in ("envelope", "each")}
    section = InputSettings.model_validate({"topic": "looked-at", **own})
    return section.model_copy(update={"registry": registry})


def read_whole(section: InputSettings, records: Sequence[ReadRecord]) -> list[Any]:
    """The whole value of each record, as its format reads it; the Reason where it does not. Nothing where a package is missing."""
    try:
        form = decoder_of(section, [()])
    except ConfigurationError:
        return []
    with closing(form):
        return _whole(form, [record.value for record in records], [record.headers for record in records])


def _whole(form: Format, payloads: Sequence[bytes | None], headers: Sequence[Headers]) -> list[Any]:
    found: list[Any] = []
    for chunk in form.read(payloads, lambda row: True, headers if form.reads_headers else None):
        column = iter(chunk.columns[0])
        found += [chunk.refused[row] if row in chunk.refused else next(column) for row in range(chunk.rows)]
    return found + [Reason.UNDECODABLE] * (len(payloads) - len(found))


def is_read(value: Any) -> bool:
    """Whether a value could be read; of a list any of its members."""
    if isinstance(value, list) and value:
        return not all(isinstance(member, Reason) for member in value)
    return not isinstance(value, Reason)


def share(hits: Iterable[Any]) -> float:
    """Of all hits, those that are true, 0 to 1."""
    found = list(hits)
    return sum(found) / len(found) if found else 0.0
