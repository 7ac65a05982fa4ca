"""Output formats: one file each, for the rows of every kind of pipeline. A new format is one file and one line here."""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from susurrus.agents.formats.outputs.avro import AvroRows
from susurrus.agents.formats.outputs.format import OutputFormat, Reader, Writer
from susurrus.agents.formats.outputs.json import JsonRows
from susurrus.agents.formats.outputs.protobuf import ProtobufRows
from susurrus.agents.formats.registry import Registry
from susurrus.topics.wire.row_schema import RowSchema

OUTPUT_FORMATS: Final[dict[str, type[OutputFormat]]] = {form.name: form for form in (JsonRows, AvroRows, ProtobufRows)}
"""Every format by its name in the configuration."""


class Target(Protocol):
    """The section `[output]` as far as formats need it."""

    @property
    def format(self) -> str:
        """A name in ``OUTPUT_FORMATS``."""

    @property
    def registry(self) -> Registry | None:
        """Where schemas are registered; None where the format needs no registry."""


def writers_of(target: Target, schemas: Mapping[str, RowSchema], namespace: str) -> dict[str, Writer]:
    """A writer for each topic, by its full name; what must be registered is registered.

    Raises ConfigurationError where the registry does not answer or refuses a schema.
    """
    forms = _forms(target, schemas)
    return {topic: form.writer(topic, schemas[topic], namespace) for topic, form in forms.items()}


def looks_of(target: Target, schemas: Mapping[str, RowSchema], namespace: str) -> Iterator[str]:
    """What the registry says of each topic's schema; nothing is registered. Raises ConfigurationError as `writers_of`."""
    for topic, form in _forms(target, schemas).items():
        if said := form.look(topic, schemas[topic], namespace):
            yield said


def _forms(target: Target, schemas: Mapping[str, RowSchema]) -> dict[str, OutputFormat]:
    plain, rows = JsonRows(None), OUTPUT_FORMATS[target.format](target.registry)
    return {topic: plain if schema.always_json else rows for topic, schema in schemas.items()}


def reader_of(target: Target, schema: RowSchema, namespace: str) -> Reader:
    """A function from a topic's values to JSON: of the configured format, and of JSON from before it was configured.

    Raises ConfigurationError where a package is missing or the registry's client refuses a property.
    """
    return OUTPUT_FORMATS[target.format](target.registry).reader(schema, namespace)
