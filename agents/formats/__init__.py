"""Input formats: one file each, for every kind of pipeline that reads a raw topic. A new format is one file and one line here.

payload ──decompress, to UTF-8──▶ payload ──format──▶ fields, or ──format──▶ whole value ──envelope──▶ fields of what is inside
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.compression import COMPRESSIONS, MAX_VALUE_BYTES, NONE, within
from susurrus.agents.formats.csv import Csv
from susurrus.agents.formats.encodings import ENCODINGS, UTF8
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.envelopes.unwrapped import Unwrapped, inner_paths
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.framing import FRAMINGS, Unframed
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.json_lines import JsonLines
from susurrus.agents.formats.keys import SCALAR_KEYS
from susurrus.agents.formats.msgpack import MessagePack
from susurrus.agents.formats.prepared import Prepared, Step
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.text import Text
from susurrus.topics.records.fields import BESIDE, Path, parse_path
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.batch_reader import Headers

FORMATS: Final[dict[str, type[Format]]] = {
    form.name: form for form in (Json, Avro, Protobuf, Csv, Text, JsonLines, MessagePack)
}
"""Every format by its name in the configuration."""


_OF_VALUES: Final = ("framing", "message", "schema_file")
"""Settings that say what values are."""


class InputSection(Protocol):
    """The section `[input]` as far as formats need it: beside ``format``, a field for each format's own settings."""

    @property
    def format(self) -> str:
        """A name in ``FORMATS``."""

    @property
    def registry(self) -> Any:
        """The settings of a schema registry; None where there is none."""

    @property
    def framing(self) -> str | None:
        """A name in ``FRAMINGS``; None for the format's default."""

    @property
    def schema_text(self) -> bytes | None:
        """What is in ``schema_file``, once it was read."""

    @property
    def key_format(self) -> str:
        """A name in ``FORMATS``, where the key is no scalar."""

    @property
    def envelope(self) -> str:
        """A name in ``ENVELOPES``."""

    @property
    def decimals(self) -> Mapping[str, int]:
        """The scales of decimals that are written as bytes or base64, by their fields."""

    @property
    def compression(self) -> str:
        """A name in ``COMPRESSIONS``."""

    @property
    def max_value_bytes(self) -> int:
        """The most bytes of a decompressed value."""

    @property
    def encoding(self) -> str:
        """A name in ``ENCODINGS``."""


def decoder_of(source: InputSection, paths: Sequence[Path], part: str = "value") -> Format:
    """Reads the fields at ``paths`` of a part of records, "value" or "key"; only values have envelopes.

    The whole value, as the empty path, may be wanted beside fields of it: then all of a payload must be readable. Raises
    ConfigurationError where a package, class or property is missing.
    """
    if part == "key":
        return _key(source, paths)
    beside = () in paths and any(path[:1] != (BESIDE,) for path in paths if path)
    if source.envelope == Bare.name and not source.decimals and not beside:
        return _bare(source, paths)
    envelope = _Object() if source.envelope == Bare.name and beside else ENVELOPES[source.envelope]()
    form = _bare(source, inner_paths(paths, FORMATS[source.format].around))
    return Unwrapped(paths, form, envelope, {parse_path(field): scale for field, scale in source.decimals.items()})


class _Object(Bare):
    """No envelope, around a value of which fields are wanted, too. It must be an object, as where fields alone are wanted."""

    def unwrap(self, value: Any, headers: Headers) -> Enveloped | Reason:
        """The value itself."""
        return super().unwrap(value, headers) if isinstance(value, Mapping) else Reason.WRONG_TYPE


def is_plain_json(source: InputSection) -> bool:
    """Whether payloads are JSON objects as they come, which the compiled path reads."""
    return source.format == Json.name and source.framing in (None, Unframed.name) and is_bare(source)


def is_bare(source: InputSection) -> bool:
    """Whether payloads are what the format reads, as they come, and nothing is around the fields in them."""
    plain = source.envelope == Bare.name and not source.decimals
    return plain and source.compression == NONE and source.encoding == UTF8


def _bare(source: InputSection, paths: Sequence[Path]) -> Format:
    form = FORMATS[source.format]
    options = {name: source.schema_text if name == "schema_file" else getattr(source, name) for name in form.options}
    made = form(paths, None if form.setting is None else getattr(source, form.setting), **options)
    steps: list[Step] = []
    if (decompress := COMPRESSIONS[source.compression].read) is not None:
        steps.append(within(decompress, source.max_value_bytes))
    if (to_utf8 := ENCODINGS[source.encoding].read) is not None:
        steps.append(to_utf8)
    return Prepared(made, steps) if steps else made


def _key(source: InputSection, paths: Sequence[Path]) -> Format:
    """The key's format: with the framing of values, if keys can have it, and without the schemas of values."""
    form, framing = FORMATS[source.key_format], source.framing
    of_values: dict[str, Any] = dict.fromkeys(_OF_VALUES)
    of_values["framing"] = framing if framing in form.framings and FRAMINGS[framing].asks else None
    names = {name: of_values[name] if name in of_values else getattr(source, name) for name in _names(form)}
    setting = None if form.setting is None else names.pop(form.setting)
    made = form(paths, setting, **{name: names[name] for name in form.options})
    made.part = "key"
    return made


def _names(form: type[Format]) -> tuple[str, ...]:
    return form.options if form.setting is None else (form.setting, *form.options)


def problems(source: InputSection) -> Iterator[str]:
    """What is wrong with the formats' own settings, one line each."""
    chosen = FORMATS[source.format]
    key = None if source.key_format in SCALAR_KEYS else FORMATS[source.key_format]
    used = {*_names(chosen), *([] if key is None else _names(key))}
    for name in sorted({name for form in FORMATS.values() for name in _names(form)} - used):
        if getattr(source, name) is not None:
            yield f'input.{name}: has no meaning for input.format = "{source.format}"; leave it out'
    if chosen.setting is not None and getattr(source, chosen.setting) is None and chosen.needs_setting(source):
        yield f'input.{chosen.setting}: is missing; input.format = "{chosen.name}" needs it, for example {chosen.example}'
    elif key is not None and "registry" in _names(key) and source.registry is None:
        yield f'input.registry: is missing; input.key_format = "{key.name}" needs it'
    if source.encoding != UTF8 and not chosen.is_text:
        yield f'input.encoding: has no meaning for input.format = "{source.format}", which is no text; leave it out'
    if source.envelope != Bare.name and chosen.has_lines:
        yield (
            f'input.envelope = "{source.envelope}": a value of input.format = "{source.format}" is a list of lines, which no '
            "envelope is around; leave it out"
        )
    if source.compression == NONE and source.max_value_bytes != MAX_VALUE_BYTES:
        yield f'input.max_value_bytes: has no meaning for input.compression = "{NONE}"; leave it out'
    yield from chosen.problems(source)
