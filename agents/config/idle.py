"""Settings that have no effect under the chosen options: a file that has one does not say what its author thinks.

One whose value differs from its default is refused, with the line to delete. The digest covers some of them, as it did before
they were looked for. To delete one of those would make a running pipeline another one, so they are warnings, and not refused.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from pydantic import BaseModel

from susurrus.agents.config.explain import quoted
from susurrus.agents.config.written import is_duration, is_instant
from susurrus.agents.finding import Finding
from susurrus.agents.types.durations import format_length
from susurrus.topics.wire.timestamps import format_time

CLOCK: Final = ("kind", "grace", "idle_grace", "max_ahead", "until", "max_future")
WINDOW: Final = ("length", "time_zone", "trigger_every", "allowed_lateness", "publication_pad")
INPUT: Final = (
    "key_format",
    "user",
    "key",
    "grouping_sets",
    "each",
    "time",
    "time_unit",
    "time_format",
    "time_zone",
    "null_user",
    "empty_user",
    "null_key",
    "max_key_bytes",
)
TOPICS: Final = ("by_user_partitions", "bounded_partitions", "retention")
"""Fields that only a histogram follows, of sections that all kinds have."""


class Idle(NamedTuple):
    """A field or section without effect. path: dotted, as the file has it. under: what makes it so. instead: what would use it."""

    path: str
    under: str
    instead: str = ""


class Judged(Protocol):
    """The settings, as far as this module needs them."""

    def idle(self) -> Iterable[Idle]:
        """What has no effect under the chosen options."""

    def in_digest(self, path: str) -> bool:
        """Whether the digest covers a field or section."""


def fields(section: str, names: Iterable[str], under: str, instead: str = "") -> Iterator[Idle]:
    """Several fields of one section."""
    yield from (Idle(f"{section}.{name}", under, instead) for name in names)


def findings(settings: Judged) -> Iterator[Finding]:
    """A finding for each setting without effect that the file has. It is a warning where the digest covers the setting, because a
    pipeline that has run with it must keep it. Otherwise it is a failure, because deleting the setting changes nothing."""
    for path, under, instead in dict.fromkeys(settings.idle()):
        other = f", or choose {instead}" if instead else ""
        if not (line := written(settings, path)):
            continue
        if settings.in_digest(path):
            action = (
                f"leave it out of a new pipeline{other}, but keep it in one that has run, because the digest covers it"
            )
            yield Finding("settings", "warning", f"{path}: has no effect with {under}", action)
        else:
            yield Finding("settings", "failure", f"{path}: has no meaning for {under}", f"delete {line}{other}")


def written(settings: Any, path: str) -> str:
    """The line or section of the file that holds a setting; empty where it has its default."""
    model, value, default, field = settings, None, None, None
    *sections, last = path.split(".")
    for name in sections:
        model = getattr(model, _attribute(model, name))
        if not isinstance(model, BaseModel):
            return ""
    name = _attribute(model, last)
    field = type(model).model_fields[name]
    value, default = getattr(model, name), field.get_default(call_default_factory=True, validated_data={})
    if value == default:
        return ""
    if isinstance(value, BaseModel):
        return f"the section [{path}]"
    return f"the line {last} = {_toml(value, field)} of [{'.'.join(sections)}]"


def _attribute(model: BaseModel, name: str) -> str:
    return next(attribute for attribute, field in type(model).model_fields.items() if name in (attribute, field.alias))


def _toml(value: Any, field: Any) -> str:
    annotation = field.rebuild_annotation()
    if is_duration(annotation):
        return f'"{format_length(value)}"'
    return f'"{format_time(value)}"' if is_instant(annotation) and isinstance(value, int) else quoted(value)
