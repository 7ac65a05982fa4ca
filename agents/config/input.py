"""The section `[input]`: the raw topic, its format, and where things are in its records."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from susurrus.agents.expressions.section import ExpressionText
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import MessageClass
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.agents.types.section import Name, Section, TopicName


class ComputedKey(Section):
    """A part of the key that is computed from a record's fields."""

    name: Name
    """What the part is called in exports and schemas."""
    expression: ExpressionText
    """One SQL expression over the record's fields, for example `split_part(url, '?', 1)`: docs/expressions.md."""


def _tag(value: Any) -> str:
    return "tag-expression" if isinstance(value, Mapping | ComputedKey) else "tag-field"


KeyPart = Annotated[
    Annotated[str, Tag("tag-field")] | Annotated[ComputedKey, Tag("tag-expression")], Discriminator(_tag)
]


class InputSettings(Section):
    """The raw topic and the meaning of the fields of its records."""

    topic: TopicName
    """The existing topic of raw events. It is only read."""
    format: Annotated[str, OneOf(FORMATS)] = Field(
        default=Json.name,
        description=f"How records are written. {meanings(FORMATS)} With kind `local`: how reports are written that "
        "Susurrus' own clients did not pack.",
    )
    message: MessageClass | None = None
    """`protobuf`: the class that protoc generated, as `package.module:Message` or `package.module:Outer.Message`, on
    PYTHONPATH. Fields are resolved by it. A record whose message indexes lead to another message is bad input."""
    registry: RegistrySettings | None = None
    """`avro`: where schemas are found. `protobuf`, optional: where the schema of a record's id says which type the record is;
    without it the first messages of two .proto files are one type."""
    user: str = ""
    r"""Field that identifies the user, the unit of privacy; a dotted path reaches into objects (in a name, `\.` is a dot and
    `\\` a backslash). Required for kind `histogram`."""
    key: tuple[KeyPart, ...] = ()
    """Fields to group by; several make a composite key. A part may be computed: `{ name = "path", expression =
    "split_part(url, '?', 1)" }`. Required for kind `histogram`."""
    where: ExpressionText | None = None
    """Kind `histogram`: a condition over a record's fields, in SQL, for example `status = 200`. Records that do not meet it
    are left out: they cost their users nothing, and are counted."""
    time: str = "kafka"
    """Field with the event time, or `kafka` for the record's own timestamp."""
    time_unit: Literal["s", "ms", "us", "ns", "iso"] = "ms"
    """Unit of the time field; `iso` is ISO 8601 text. Not used with `time = "kafka"`."""
    null_user: Literal["dead-letter", "value"] = "dead-letter"
    """What happens to records whose user is null: set aside, or all treated as one user called null."""
    empty_user: Literal["dead-letter", "value"] = "dead-letter"
    """What happens to records whose user is the empty text, as Protobuf's default and many producers write it for nobody: set
    aside, or all treated as one user."""
    null_key: Literal["dead-letter", "value"] = "value"
    """What happens to records whose key is null: counted under the key null, or set aside."""
    max_key_bytes: Annotated[int, Field(ge=1, le=65_536)] = 4096
    """Longer keys and user ids (canonical JSON, UTF-8 bytes) go to the dead-letter topic."""

    @property
    def key_names(self) -> tuple[str, ...]:
        """What the parts of the key are called."""
        return tuple(part.name if isinstance(part, ComputedKey) else part for part in self.key)
