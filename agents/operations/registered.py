"""What a schema registry says about how records are written: the format of the schema that a record names."""

import json
from typing import Any

from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.format import NoSchema, UnknownSchema
from susurrus.agents.formats.framing import Framing
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.message_types import read_indexes, read_reference
from susurrus.agents.formats.proto_files import file_of_schema
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.formats.schemas import RegistrySettings, Schemas
from susurrus.topics.wire.batch_reader import Headers

_FORMATS = {"AVRO": Avro.name, "JSON": Json.name, "PROTOBUF": Protobuf.name}


class NoAnswer(Exception):
    """The registry does not answer; the text says what to do."""


class RegisteredSchemas:
    """Asks a registry. Raises ConfigurationError where a package is missing, or the client refuses a property."""

    def __init__(self, registry: RegistrySettings) -> None:
        self._schemas: Schemas[Any] = Schemas(registry, lambda schema, others: schema, follow=False)
        self._schemas.begin()

    def layout_of(self, framing: Framing, payload: bytes, headers: Headers, part: str) -> dict[str, Any] | None:
        """The entries of `[input]` that a record's schema asks for; None where it has none that is known. Raises NoAnswer."""
        try:
            framed = framing.split(payload, headers, part)
            schema = None if framed.schema is None else self._schemas.get(framed.schema)
        except UnknownSchema:
            return None
        except NoSchema as error:
            said = "input.registry: does not answer" if error.finding is None else str(error.finding)
            raise NoAnswer(said) from None
        except ValueError:
            return None
        if schema is None:
            return None
        found: dict[str, Any] = {"format": _FORMATS.get(schema.schema_type) or _guessed(schema.schema_str)}
        if found["format"] == Protobuf.name:
            try:
                message = _message(framing, framed, schema.schema_str)
            except (ValueError, IndexError):
                return None
            if message is None:
                return None
            found["message"] = message
        return found

    def close(self) -> None:
        """Close the connections."""
        self._schemas.close()


def _guessed(text: str) -> str:
    """The format of a schema whose type the registry does not say."""
    try:
        schema = json.loads(text)
    except ValueError:
        return Protobuf.name
    known = isinstance(schema, dict) and ("$schema" in schema or "properties" in schema)
    return Json.name if known else Avro.name


def _message(framing: Framing, framed: Any, text: str) -> str | None:
    """The full name of the message that a record says it is."""
    file = file_of_schema(text)
    if framed.message is not None:
        return str(framed.message)
    if framing.refers:
        return file.named(read_reference(framed.body)[0])
    place = read_indexes(framed.body if framed.place is None else framed.place)[0]
    return file.name_at(place)
