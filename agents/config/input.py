"""The section `[input]`: the raw topics, their formats, and where things are in its records."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from susurrus.agents.config.fields import (
    ComputedKey,
    EachSteps,
    KeyPart,
    TimeField,
    UserField,
    said,
    scalar_of,
)
from susurrus.agents.config.raw_topics import RawTopics
from susurrus.agents.config.sections import InputKafkaSettings
from susurrus.agents.expressions.section import ExpressionText
from susurrus.agents.formats.keys import KEY_FORMATS, TEXT
from susurrus.agents.types.instants import TimeFormat, TimeZone
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.topics.records.raw import WHOLE_NAME, ComputedField
from susurrus.topics.records.time_spellings import FORMATS as FORMATS_OF_TIME
from susurrus.topics.records.time_spellings import spelling
from susurrus.topics.records.times import DEFAULT_FORMAT

KAFKA: str = "kafka"
"""The value of ``input.time`` for the record's own timestamp."""


class InputSettings(RawTopics):
    """The raw topics and the meaning of the fields of its records."""

    kafka: InputKafkaSettings | None = None
    """How to reach the cluster that has the raw topics, if it is not that of the pipeline's own topics. It is only read, without
    transactions and without a consumer group; the positions are in the pipeline's own topics."""
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
    "split_part(url, '?', 1)" }`. `[]` groups by nothing: one key, `"all"`, for all records. Required for kind `histogram`."""
    grouping_sets: tuple[tuple[str, ...], ...] = ()
    """Kind `histogram`: groups the same records in several ways, as SQL's GROUPING SETS. Each set names parts of the key:
    `[["country"], ["country", "city"], []]`, where `[]` is the total. `[[levels]]` has their caps. By default the key is the only
    grouping: docs/grouping-sets.md."""
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
    def grouped_by_nothing(self) -> bool:
        """Whether the file says so, and does not only lack a key."""
        return not self.key and "key" in self.model_fields_set

    @property
    def key_text(self) -> str:
        """What is grouped by, as messages name it."""
        return " × ".join(self.key_names) if self.key else "all records together"

    @property
    def key_names(self) -> tuple[str, ...]:
        """What the parts of the key are called."""
        return tuple(part.name if isinstance(part, ComputedKey) else part for part in self.key) or (WHOLE_NAME,)
