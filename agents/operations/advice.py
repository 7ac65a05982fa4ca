"""What to write into a file, from what its topic's records show: settings that do not fit them, and names that no record has."""

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from susurrus.agents.config.format_settings import FormatSettings
from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import paths_of
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.beside import KEY
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.look import MEMBERS, Found, name_of
from susurrus.agents.runtime.decisions import Decisions
from susurrus.topics.records.fields import BESIDE, Path, parse_path, written

_CLOSE: Final = 0.75
_ALWAYS: Final = ("topic", "partition", "offset", "timestamp", "value")


@dataclass(slots=True)
class NamedField:
    """A field that a file names. settings: where it does. rows: that were looked at; present, null, absent: how many of them have
    it. The others could not be read. nearest: a field that some record has, where none has this one."""

    name: str
    settings: list[str]
    rows: int = 0
    present: int = 0
    null: int = 0
    absent: int = 0
    nearest: str = ""

    @property
    def unknown(self) -> bool:
        """Whether no record has it, although some could be read."""
        return not self.present and not self.null and self.absent > 0


def named_fields(
    decisions: Decisions, source: InputSettings, records: Sequence[ReadRecord], found: Found
) -> list[NamedField]:
    """The fields that a file names, in the order of its settings."""
    by_path: dict[Path, list[str]] = {}
    for part in decisions.parts():
        for path in paths_of(part.scalars, part.where):
            by_path.setdefault(path, []).append(part.setting)
    fields = []
    whole = source.model_copy(update={"each": ()})
    items = {step.as_ for step in source.each}
    for step in source.each:  # the first is a field of the record
        if isinstance(step.of, str) and step is source.each[0]:
            by_path.setdefault(parse_path(step.of), []).append(f'input.each.of = "{step.of}"')
    for path, names in by_path.items():
        if path[:1] == (BESIDE,) and path[1] in _ALWAYS:
            continue
        one = NamedField(written(path), list(dict.fromkeys(names)))
        _count(one, source if path[0] in items or None in items else whole, path, records)
        if one.unknown:
            one.nearest = nearest(path, candidates(source, found))
        fields.append(one)
    return fields


def _count(one: NamedField, source: InputSettings, path: Path, records: Sequence[ReadRecord]) -> None:
    with closing(reader_of(source, [path], topic=None, partition=None)) as reader:
        for chunk in reader.read(records, lambda row: True):
            one.rows += chunk.rows
            for value in chunk.columns[0]:
                one.absent += value is UNSET
                one.null += value is None
                one.present += value is not UNSET and value is not None


def candidates(source: InputSettings, found: Found) -> list[Path]:
    """The fields that some record has, as this file's paths name them."""
    return list(dict.fromkeys(_of_item(source, path) for path in found.fields))


def _of_item(source: InputSettings, path: Path) -> Path:
    """The path of a list's member as that of an item."""
    for step in source.each:
        if not isinstance(step.of, str) or step.as_ is None:
            continue
        of = parse_path(step.of)
        if of == (BESIDE, "value") and path[:1] != (BESIDE,):
            return (step.as_, *path)
        if path[: len(of)] == (*of[:-1], of[-1] + MEMBERS):
            return (step.as_, *path[len(of) :])
    return path


def nearest(path: Path, known: Sequence[Path]) -> str:
    """The known field that is most like a path: the same in another case, the same word in another spelling or place, a similar
    one; the empty text where none is."""
    others = [other for other in known if other != path]
    text = written(path)
    likenesses: tuple[Callable[[Path], str], ...] = (
        lambda one: written(one).casefold(), lambda one: _plain(".".join(one)), lambda one: _plain(one[-1])
    )  # fmt: skip
    for likeness in likenesses:
        wanted = likeness(path)
        if (found := next((other for other in others if likeness(other) == wanted), None)) is not None:
            return name_of(found)
    names = {name_of(other): other for other in others}
    close = difflib.get_close_matches(text, names, n=1, cutoff=_CLOSE)
    return close[0] if close else ""


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def to_write(
    source: InputSettings, found: Found, fields: Sequence[NamedField], *, all_refused: bool, section: str = "input"
) -> Iterator[str]:
    """What to write instead, one line each; a line of TOML where it is a setting.

    section: where the file says how the topic's records are written. all_refused: whether no record is good as it is. Otherwise how
    most records are read is not put into question.
    """
    if all_refused and found.records:
        layout = dict(found.layout)
        if found.sniffed and "format" not in layout and not found.notes and found.rows:
            layout = {"format": next(iter(FORMATS)), **layout}
        for name, value in layout.items():
            if _now(source, name) != value and not (name == "each" and source.each):
                yield f"{section if name in FormatSettings.model_fields else 'input'}.{name} = {toml_value(value)}"
    keys = [one for one in fields if parse_path(one.name)[:2] == KEY]
    if found.key_format != source.key_format and any(not one.present for one in keys):
        yield f'input.key_format = "{found.key_format}"'
    for one in fields:
        if one.unknown and one.nearest:
            if MEMBERS in one.nearest:
                yield f"input.each takes lists apart: {one.name} may be {one.nearest}, inside a list (docs/configuration.md)"
            else:
                yield from (f"{setting}: write {one.nearest} instead of {one.name}" for setting in one.settings)


def _now(source: InputSettings, name: str) -> Any:
    value = getattr(source, name)
    return value if name != "framing" or value is not None else (FORMATS[source.format].framings or ("none",))[0]


def toml_value(value: Any) -> str:
    """A value as a file writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml_value(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
