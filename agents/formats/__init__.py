"""Input formats: one file each, for every kind of pipeline that reads a raw topic. A new format is one file and one line here.

payload ──format──▶ fields, or payload ──format──▶ whole value ──envelope──▶ fields of what is inside
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.envelopes.unwrapped import Unwrapped, inner_paths
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.topics.records.fields import Path, parse_path

FORMATS: Final[dict[str, type[Format]]] = {form.name: form for form in (Json, Avro, Protobuf)}
"""Every format by its name in the configuration."""


class InputSection(Protocol):
    """The section `[input]` as far as formats need it: beside ``format``, a field for each format's own settings."""

    @property
    def format(self) -> str:
        """A name in ``FORMATS``."""

    @property
    def envelope(self) -> str:
        """A name in ``ENVELOPES``."""

    @property
    def decimals(self) -> Mapping[str, int]:
        """The scales of decimals that are written as bytes or base64, by their fields."""


def decoder_of(source: InputSection, paths: Sequence[Path]) -> Format:
    """Reads the fields at ``paths`` of the raw topic. Raises ConfigurationError where a package, class or property is missing."""
    if source.envelope == Bare.name and not source.decimals:
        return _bare(source, paths)
    envelope = ENVELOPES[source.envelope]()
    form = _bare(source, inner_paths(paths, FORMATS[source.format].around))
    return Unwrapped(paths, form, envelope, {parse_path(field): scale for field, scale in source.decimals.items()})


def is_plain_json(source: InputSection) -> bool:
    """Whether payloads are JSON objects as they come, which the compiled path reads."""
    return source.format == Json.name and source.envelope == Bare.name and not source.decimals


def _bare(source: InputSection, paths: Sequence[Path]) -> Format:
    form = FORMATS[source.format]
    options = {name: getattr(source, name) for name in form.options}
    return form(paths, None if form.setting is None else getattr(source, form.setting), **options)


def problems(source: InputSection) -> Iterator[str]:
    """What is wrong with the formats' own settings, one line each."""
    chosen = FORMATS[source.format]
    for form in FORMATS.values():
        if form.setting is None:
            continue
        given, wanted = getattr(source, form.setting) is not None, form is chosen
        if given and not wanted and form.setting not in chosen.options:
            yield f'input.{form.setting}: has no meaning for input.format = "{source.format}"; leave it out'
        elif wanted and not given:
            yield f'input.{form.setting}: is missing; input.format = "{form.name}" needs it, for example {form.example}'
