"""The section `[input]`: the raw topic, its format, and where things are in its records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from susurrus.agents.config.fields import (
    ComputedKey,
    EachSteps,
    FieldName,
    KeyPart,
    TimeField,
    UserField,
    said,
    scalar_of,
)
from susurrus.agents.expressions.section import ExpressionText
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.compression import COMPRESSIONS, MAX_VALUE_BYTES, NONE
from susurrus.agents.formats.csv import Columns, Delimiter, Quote
from susurrus.agents.formats.encodings import ENCODINGS, UTF8
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.framing import FRAMINGS
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.keys import KEY_FORMATS, TEXT
from susurrus.agents.formats.protobuf import MessageType
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.types.instants import TimeFormat, TimeZone
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.agents.types.section import Section, TopicName
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.records.time_spellings import FORMATS as FORMATS_OF_TIME
from susurrus.topics.records.time_spellings import spelling
from susurrus.topics.records.times import DEFAULT_FORMAT

KAFKA: str = "kafka"
"""The value of ``input.time`` for the record's own timestamp."""


class InputSettings(Section):
    """The raw topic and the meaning of the fields of its records."""

    topic: TopicName
    """The existing topic of raw events. It is only read."""
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
    key_format: Annotated[str, OneOf(KEY_FORMATS)] = Field(
        default=TEXT.name,
        description=f"How Kafka's key is read, where a field or an expression names `$key`. {meanings(KEY_FORMATS)}",
    )
    user: UserField = ""
    r"""Field that identifies the user, the unit of privacy; a dotted path reaches into objects (in a name, `\.` is a dot and
    `\\` a backslash), and `$key` or `$headers.user-id` names what a record has beside its value. A list of fields makes one user of
    all of them together: `["tenant", "id"]`. A field may be computed: `{ expression = "coalesce(user_id, anonymous_id)" }`.
    The promise is about what the fields or the expression result in (docs/guarantees/bounding.md). Required for kind
    `histogram`."""
    key: tuple[KeyPart, ...] = ()
    """Fields to group by; several make a composite key. A part may be computed: `{ name = "path", expression =
    "split_part(url, '?', 1)" }`. Required for kind `histogram`."""
    where: ExpressionText | None = None
    """Kind `histogram`: a condition over a record's fields, in SQL, for example `status = 200`. Records that do not meet it
    are left out: they cost their users nothing, and are counted."""
    each: EachSteps = ()
    """Kind `histogram`: a list in the record, each of whose items becomes a row: `{ of = "items", as = "item" }`. Fields of an
    item are named `item.sku`, the record's own as without it. A list of up to four steps reaches into arrays in arrays:
    `[{ of = "orders", as = "order" }, { of = "order.items", as = "item" }]`."""
    time: TimeField = KAFKA
    """Field with the event time, or `kafka` for the record's own timestamp. It may be computed: `{ expression =
    "epoch_ms(created::TIMESTAMP)" }`: docs/times.md."""
    time_unit: Literal["s", "ms", "us", "ns", "d", "iso"] = "ms"
    """Unit of the time field, since 1970: of numbers, also of digits in texts. `d`: days. `iso`: texts, as `time_format` says. What
    is finer than a millisecond is cut off. Not used with `time = "kafka"`."""
    time_format: TimeFormat | None = Field(
        default=None,
        description=f"How texts are written, `{DEFAULT_FORMAT}` by default. {meanings(FORMATS_OF_TIME)} Or a pattern of "
        'directives, such as `"%d.%m.%Y %H:%M:%S"` (docs/times.md). With it, leave `time_unit` out.',
    )
    time_zone: TimeZone | None = None
    """The zone of times that have none (texts, dates, local times of Avro), such as `"Europe/Berlin"`. By default, such a record is
    a dead letter. The zone's rules in the package tzdata are part of what may not change."""
    null_user: Literal["dead-letter", "value"] = "dead-letter"
    """What happens to records whose user is null or absent: set aside, or all treated as one user called null."""
    empty_user: Literal["dead-letter", "value"] = "dead-letter"
    """What happens to records whose user is the empty text, as Protobuf's default and many producers write it for nobody: set
    aside, or all treated as one user."""
    null_key: Literal["dead-letter", "value"] = "value"
    """What happens to records whose key is null or absent: counted under the key null, or set aside."""
    max_key_bytes: Annotated[int, Field(ge=1, le=65_536)] = 4096
    """Longer keys and user ids (canonical JSON, UTF-8 bytes) go to the dead-letter topic."""

    _schema_text: bytes | None = PrivateAttr(default=None)

    @property
    def schema_text(self) -> bytes | None:
        """What is in ``schema_file``, once it was read."""
        return self._schema_text

    def read_files(self, directory: Path) -> None:
        """Read the schema. Raises ConfigurationError where it cannot be read."""
        if self.schema_file is not None:
            try:
                self._schema_text = (directory / self.schema_file).read_bytes()
            except OSError:
                raise ConfigurationError(
                    f'input.schema_file = "{self.schema_file}": cannot be read',
                    "give a file, relative to the pipeline's file",
                ) from None

    def time_problems(self) -> Iterator[str]:
        """What of the settings of times does not fit together, one line each that ends with the fix."""
        if self.time_format is None or self.time_field is None:
            return
        if self.time_unit not in ("iso", "ms"):
            yield (
                f'input.time_unit = "{self.time_unit}": input.time_format says that times are texts; leave one of the two out'
            )
        if self.time_zone is None and not spelling(self.time_format).may_be_zoned:
            yield f'input.time_format = "{self.time_format}": has no time zone; set input.time_zone, for example to "UTC"'

    @property
    def user_fields(self) -> tuple[str | ComputedField, ...]:
        """What makes the user, as the decoder wants it; empty where there is none."""
        parts = self.user if isinstance(self.user, tuple) else (self.user,) if self.user else ()
        return tuple(map(scalar_of, parts))

    @property
    def user_text(self) -> str:
        """The user as messages name it."""
        return " × ".join(map(said, self.user if isinstance(self.user, tuple) else (self.user,)))

    @property
    def time_field(self) -> str | ComputedField | None:
        """The event time, as the decoder wants it; None for the record's own timestamp."""
        return None if self.time == KAFKA else scalar_of(self.time)

    @property
    def time_text(self) -> str:
        """The event time as messages name it."""
        return said(self.time)

    @property
    def lists(self) -> tuple[tuple[str | ComputedField, str | None], ...]:
        """By which lists records are taken apart: (the list, what an item is called), from the outside in."""
        return tuple((scalar_of(step.of), step.as_) for step in self.each)

    @property
    def lists_text(self) -> tuple[tuple[str, str], ...]:
        """The same as messages name it; the second is empty where an item stands for the record."""
        return tuple((said(step.of), step.as_ or "") for step in self.each)

    @property
    def key_names(self) -> tuple[str, ...]:
        """What the parts of the key are called."""
        return tuple(part.name if isinstance(part, ComputedKey) else part for part in self.key)
