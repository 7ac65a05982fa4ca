r"""What `[input]` may name: fields of a record by their paths, and scalars that are computed from them.

A path is written as topics/records/fields.py reads it: `geo.country`, `$key`, `$headers.user-id`, `\$type`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from susurrus.agents.expressions.section import ExpressionText, ListText
from susurrus.agents.types.section import Name, Section
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.raw import ComputedField

MOST_PARTS: Final = 8
"""Parts of a user that several fields make together."""
MOST_STEPS: Final = 4
"""Arrays in arrays that a record is taken apart by."""


class ComputedScalar(Section):
    """A user, or a part of one, or an event time that is computed from a record's fields."""

    expression: ExpressionText
    """One SQL expression over the record's fields, for example `coalesce(user_id, anonymous_id)`: docs/expressions.md."""


class ComputedKey(Section):
    """A part of the key that is computed from a record's fields."""

    name: Name
    """What the part is called in exports and schemas."""
    expression: ExpressionText
    """One SQL expression over the record's fields, for example `split_part(url, '?', 1)`: docs/expressions.md."""


class ComputedList(Section):
    """A list of texts that is computed from a record's fields."""

    expression: ListText
    """One SQL expression whose result is a list of texts, for example `string_split(tags, ',')`: docs/expressions.md."""


def _of_value(text: str) -> str:
    if text.startswith("$"):
        raise ValueError("write a field of the value")
    parse_path(text)
    return text


FieldName = Annotated[str, AfterValidator(_of_value)]
"""A field of the value, by its path."""


def _tag(value: Any) -> str:
    return "tag-expression" if isinstance(value, Mapping | Section) else "tag-field"


def _tag_of_user(value: Any) -> str:
    return "tag-fields" if isinstance(value, list | tuple) else _tag(value)


def _one(value: Any) -> Any:
    """A list of one field is that field."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _several(value: Any) -> Any:
    """One step is a list of one."""
    return (value,) if isinstance(value, Mapping | Section) else value


_Field = Annotated[str, Field(min_length=1), Tag("tag-field")]
KeyPart = Annotated[
    Annotated[str, Tag("tag-field")] | Annotated[ComputedKey, Tag("tag-expression")], Discriminator(_tag)
]
UserPart = Annotated[_Field | Annotated[ComputedScalar, Tag("tag-expression")], Discriminator(_tag)]
UserField = Annotated[
    Annotated[str, Tag("tag-field")]
    | Annotated[ComputedScalar, Tag("tag-expression")]
    | Annotated[tuple[UserPart, ...], Field(min_length=1, max_length=MOST_PARTS), Tag("tag-fields")],
    Discriminator(_tag_of_user),
    BeforeValidator(_one),
]
TimeField = Annotated[_Field | Annotated[ComputedScalar, Tag("tag-expression")], Discriminator(_tag)]
ListField = Annotated[_Field | Annotated[ComputedList, Tag("tag-expression")], Discriminator(_tag)]


class EachStep(Section):
    """A list in a record, each of whose items becomes a row of its own, with the record's user and time."""

    of: ListField
    """Path of a list or a map, `$value` for a value that is a list itself, or `{ expression = "string_split(tags, ',')" }`."""
    as_: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=80)] | None = Field(
        default=None,
        alias="as",
        description="What an item is called in paths and expressions: `item` for an item that is a scalar, `item.sku` for a field "
        'of one, `item.key` and `item.value` for an entry of a map. It may be left out with `of = "$value"`: an item then stands '
        "for the record, and paths begin in it.",
    )


EachSteps = Annotated[tuple[EachStep, ...], Field(max_length=MOST_STEPS), BeforeValidator(_several)]


def scalar_of(part: "str | ComputedScalar | ComputedKey | ComputedList") -> str | ComputedField:
    """A path as it is; what is computed as the decoder knows it."""
    return part if isinstance(part, str) else ComputedField(part.expression)


def said(part: "str | ComputedScalar | ComputedList") -> str:
    """A field as messages name it."""
    return part if isinstance(part, str) else part.expression
