"""How records seem to be written, found by reading some of them: the settings of `[input]` with which the formats read them.

some records ──layouts.py: compression, encoding, framing, format──▶ values ──envelopes──▶ lists

What is found is a proposal for an operator. It decides nothing about records, and no record raises anything here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.layouts import layout_of
from susurrus.agents.operations.whole_values import MOST, SNIFFED, Layout, is_read, read_whole, section_of, share
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason


@dataclass(slots=True)
class SniffedValues:
    """What the values of records are. layout: how they are read, as far as that differs from the file's. values: one for each
    record that has one, the Reason where it cannot be read. around: what an envelope says around each. notes: what an operator
    has to add, a sentence each. sniffed: whether the layout was found, as the file's reads less than half of the records."""

    layout: Layout
    values: list[Any] = field(default_factory=list)
    around: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sniffed: bool = True


def values_of(
    records: Sequence[ReadRecord], registry: RegistrySettings | None, given: InputSettings | None = None
) -> SniffedValues:
    """How the values of records are written, and what they are.

    registry: where schemas are, if anywhere. given: `[input]` of a file, which counts where it reads most of the records.
    """
    filled = [record for record in records if record.value]
    form, envelopes = Json.name, [name for name in reversed(ENVELOPES) if name != Bare.name]
    found = SniffedValues({})
    if given is not None:
        found.values, form = read_whole(_bare(given), filled), given.format
        found.sniffed = bool(filled) and share(map(is_read, found.values)) < MOST
        if given.envelope != Bare.name:
            envelopes = [given.envelope, *envelopes]
    if found.sniffed:
        found.layout = layout_of(filled[:SNIFFED], registry, found.notes)
        form = found.layout.get("format", Json.name)
        readable = "format" in found.layout or not found.notes or "framing" not in found.layout
        found.values = read_whole(section_of(found.layout, registry), filled) if readable else []
    found.values += [Reason.UNDECODABLE] * (len(filled) - len(found.values))
    found.around = [{} for _ in filled]
    for name in envelopes:  # what was made for one tool is before what others wrap, too
        unwrapped = [
            value if isinstance(value, Reason) else ENVELOPES[name]().unwrap(value, record.headers)
            for value, record in zip(found.values, filled, strict=True)
        ]
        if share(isinstance(one, Enveloped) for one in unwrapped) >= MOST:
            if given is None or name != given.envelope:
                found.layout["envelope"] = name
            found.values = [_inside(one) for one in unwrapped]
            found.around = [one.around if isinstance(one, Enveloped) else {} for one in unwrapped]
            break
    _take_lines_apart(found, lines=FORMATS[form].has_lines)
    return found


def _bare(given: InputSettings) -> InputSettings:
    """The file's section for values as they come."""
    return given.model_copy(update={"envelope": Bare.name, "each": (), "decimals": {}})


def _inside(one: Any) -> Any:
    if isinstance(one, Enveloped):
        return one.value if one.reason == Reason.OK else one.reason
    return one


def _take_lines_apart(found: SniffedValues, *, lines: bool) -> None:
    """`input.each` is proposed where values are lists. lines: of lines; those of one are that line."""
    good = [value for value in found.values if not isinstance(value, Reason)]
    if share(isinstance(value, list) for value in good) < MOST:
        return
    if lines and all(isinstance(value, list) and len(value) == 1 for value in good):
        found.values = [value if isinstance(value, Reason) else value[0] for value in found.values]
    else:
        found.layout["each"] = {"of": "$value"}
