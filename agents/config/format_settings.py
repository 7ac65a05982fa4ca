"""How records are written: the settings of a raw topic's format, which several topics may each have of their own.

A new format's own setting, and every setting about how values are written, belongs here: so it may differ from topic to topic.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, PrivateAttr

from susurrus.agents.config.fields import FieldName
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.compression import COMPRESSIONS, MAX_VALUE_BYTES, NONE
from susurrus.agents.formats.csv import Columns, Delimiter, Quote
from susurrus.agents.formats.encodings import ENCODINGS, UTF8
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.framing import FRAMINGS
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import MessageType
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.agents.types.section import Section
from susurrus.mechanisms.errors import ConfigurationError


class FormatSettings(Section):
    """How the values of a raw topic are written."""

    format: Annotated[str, OneOf(FORMATS)] = Field(
        default=Json.name,
        description=f"How records are written. {meanings(FORMATS)} With kind `local`: how reports are written that "
        "Susurrus' own clients did not pack.",
    )
    framing: Annotated[str, OneOf(FRAMINGS)] | None = Field(
        default=None,
        description=f"How records name their schema. {meanings(FRAMINGS)} By default, "
        + ", ".join(f"`{form.framings[0]}` for `{name}`" for name, form in FORMATS.items() if form.framings)
        + ". Keys have the same in their own headers.",
    )
    schema_file: str | None = None
    """A file with a schema, relative to the pipeline's file. `avro`: the reader's schema as JSON, for defaults and aliases; with
    the framings `single-object` and `none`, the records' own. `protobuf`: descriptors of `input.message`, as `protoc
    --include_imports --descriptor_set_out` writes them. Its content is part of what may not change."""
    message: MessageType | None = None
    """`protobuf`: the type of records. Either the class that protoc generated, as `package.module:Message` or
    `package.module:Outer.Message`, on PYTHONPATH; or the full name of a message, as `package.Message`, whose fields the registry or
    `schema_file` tells. A record of another type is bad input, unless `where` leaves it out by `$envelope.message`."""
    registry: RegistrySettings | None = None
    """`avro`: where schemas are found. `protobuf`, optional with a class or file: where the schema of a record's id says which type
    the record is; without it the first messages of two .proto files are one type. With the framings of Apicurio: its own interface,
    `https://host/apis/registry/v2` or `/v3`."""
    columns: Columns | None = None
    """`csv`: what the fields of a line are called, in their order. A line with more or fewer fields is a dead letter."""
    delimiter: Delimiter | None = None
    r"""`csv`: the character between fields, `,` if not set; `"\t"` for TSV."""
    quote: Quote | None = None
    r"""`csv`: the character around fields that hold a delimiter, a line end or a quote (which is doubled there, RFC 4180), `"` if
    not set. `""`: no field has quotes, as in most TSV."""
    pattern: str | None = None
    r"""`text`: a regular expression with named groups, `(?P<user>\S+) (?P<url>.*)`, in RE2's syntax. It has to match the whole
    text. A group that took no part is null."""
    compression: Annotated[str, OneOf(COMPRESSIONS)] = Field(
        default=NONE,
        description="How producers compressed each value by itself; Kafka's own compression (`compression.type`) is none of this. "
        f"{meanings(COMPRESSIONS)}",
    )
    max_value_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = MAX_VALUE_BYTES
    """Values that are longer when they are decompressed go to the dead-letter topic."""
    encoding: Annotated[str, OneOf(ENCODINGS)] = Field(
        default=UTF8, description=f"Formats of text: how their characters are written. {meanings(ENCODINGS)}"
    )
    envelope: Annotated[str, OneOf(ENVELOPES)] = Field(
        default=Bare.name,
        description="What stands around each value. Fields are those of the value inside, and `$envelope.x` is what is around "
        f"it. {meanings(ENVELOPES)}",
    )
    decimals: dict[FieldName, Annotated[int, Field(ge=0, le=100)]] = Field(default_factory=dict)
    """Decimals that the producer writes as base64 (JSON) or bytes of their digits, as Kafka Connect and Debezium do without a
    schema in the record: the digits behind the point, by field, for example `{ amount = 2 }`. Fields in an envelope are those of
    the value inside. A number stays as it is."""

    _schema_text: bytes | None = PrivateAttr(default=None)

    @property
    def schema_text(self) -> bytes | None:
        """What is in ``schema_file``, once it was read."""
        return self._schema_text

    def read_schema(self, directory: Path, path: str) -> None:
        """Read the schema. path: of the section, for the message. Raises ConfigurationError where it cannot be read."""
        if self.schema_file is not None:
            try:
                self._schema_text = (directory / self.schema_file).read_bytes()
            except OSError:
                raise ConfigurationError(
                    f'{path}.schema_file = "{self.schema_file}": cannot be read',
                    "give a file, relative to the pipeline's file",
                ) from None
