"""The section `[input]`: the raw topic, its format, and where things are in its records."""

from typing import Annotated, Literal

from pydantic import Field

from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.avro import RegistrySettings
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.protobuf import MessageClass
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.agents.types.section import Section, TopicName


class InputSettings(Section):
    """The raw topic and the meaning of the fields of its records."""

    topic: TopicName
    """The existing topic of raw events. It is only read."""
    format: Annotated[str, OneOf(FORMATS)] = Field(
        default=Json.name,
        description=f"How records are written. {meanings(FORMATS)} Not used by kind `local`, whose reports have their "
        "own format.",
    )
    message: MessageClass | None = None
    """`protobuf`: the class that protoc generated, as `package.module:Message`, on PYTHONPATH. Fields are resolved by
    it, without a registry."""
    registry: RegistrySettings | None = None
    """`avro`: where schemas are found."""
    user: str = ""
    """Field that identifies the user, the unit of privacy; a dotted path reaches into objects. Required for kind
    `histogram`."""
    key: tuple[str, ...] = ()
    """Fields to group by; several make a composite key. Required for kind `histogram`."""
    time: str = "kafka"
    """Field with the event time, or `kafka` for the record's own timestamp."""
    time_unit: Literal["s", "ms", "us", "ns", "iso"] = "ms"
    """Unit of the time field; `iso` is ISO 8601 text. Not used with `time = "kafka"`."""
    null_user: Literal["dead-letter", "value"] = "dead-letter"
    """What happens to records whose user is null: set aside, or all treated as one user called null."""
    null_key: Literal["dead-letter", "value"] = "value"
    """What happens to records whose key is null: counted under the key null, or set aside."""
    max_key_bytes: Annotated[int, Field(ge=1, le=65_536)] = 4096
    """Longer keys and user ids (canonical JSON, UTF-8 bytes) go to the dead-letter topic."""
