"""Input formats: one file each, for every kind of pipeline that reads a raw topic. A new format is one file and one line here."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.topics.records.fields import Path

FORMATS: Final[dict[str, type[Format]]] = {form.name: form for form in (Json, Avro, Protobuf)}
"""Every format by its name in the configuration."""


class InputSection(Protocol):
    """The section `[input]` as far as formats need it: beside ``format``, a field for each format's own settings."""

    @property
    def format(self) -> str:
        """A name in ``FORMATS``."""


def decoder_of(source: InputSection, paths: Sequence[Path]) -> Format:
    """Reads the fields at ``paths`` of the raw topic. Raises ConfigurationError where a package, class or property is missing."""
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
