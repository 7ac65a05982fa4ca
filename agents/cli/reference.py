"""``susurrus config reference``: every setting as Markdown, from the models themselves. docs/configuration.md is its output."""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from susurrus.agents.config.settings import Settings
from susurrus.agents.pipelines import KINDS
from susurrus.agents.types.durations import Duration, Instant, WindowLength, format_length
from susurrus.agents.types.one_of import OneOf
from susurrus.mechanisms.windows import CalendarLength
from susurrus.topics.wire.timestamps import format_time

PREFACE: Final = """\
# Configuration

One TOML file describes one pipeline. Print this page with `susurrus config reference`, the JSON schema for
editors with `susurrus config schema`, and check a file with `susurrus config check FILE`: it names every wrong
field and the fix, and says in plain words what the file promises and publishes.

```toml
{example}```

- **A new file** comes from `susurrus config init`, which asks a few questions and looks at the topic.
- **Durations** are texts such as `"500ms"`, `"15m"`, `"1h 30m"`, `"1d"`; a bare number is refused. **Instants** are ISO 8601
  with an offset, such as `"2026-01-31T00:00:00Z"`, or TOML date-times.
- **A setting without effect** under the other choices is refused, unless it has its default. Where the digest covers it, there is
  a warning instead, because a pipeline that has run must keep it.
- **Environment variables** override the file: `SUSURRUS__KAFKA__BOOTSTRAP_SERVERS=broker:9092` sets
  `kafka.bootstrap_servers`. Lists and tables are written as JSON (`SUSURRUS__INPUT__KEY='["url"]'`). Under
  `kafka.properties` an underscore stands for a dot: `SUSURRUS__KAFKA__PROPERTIES__SASL_PASSWORD`. A misspelt
  variable is an error, like a misspelt field.
- **Secrets** stay out of the file: any librdkafka property may be `{{ file = "/run/secrets/x" }}` or `{{ env =
  "NAME" }}`, and the noise secret comes from `privacy.secret_file` or `SUSURRUS_SECRET`. Make one with
  `susurrus config secret FILE`; all workers of a pipeline need the same.
- **Fixed** settings change what is published. They are covered by the configuration digest in the ledger, and a
  worker with another digest refuses to join a running pipeline. All others may change in a rolling restart, except
  `pipeline.prefix`: under another prefix it is another pipeline, which publishes and charges the same windows again.
- `kafka.properties` go to every librdkafka client as they are, and are translated for the consumer of the raw
  topic: security protocol, SASL PLAIN, SCRAM, GSSAPI and OAUTHBEARER, TLS files and verification, timeouts, fetch sizes,
  client id and rack. Properties that decide exactly-once (groups and their protocol, transactions, isolation,
  offsets) belong to Susurrus and are refused. Those that change nothing get a warning. `config check`,
  `preflight` and a worker that starts make every client once, without connecting, so a wrong name or value is found
  before the group is joined.
"""

EXAMPLE: Final = """\
[pipeline]
name = "page-views"

[kafka]
bootstrap_servers = "broker-1:9092,broker-2:9092"

[kafka.properties]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "susurrus"
"sasl.password" = { file = "/run/secrets/kafka" }

[input]
topic = "web-requests"
user = "host"
key = ["url"]

[clock]
kind = "producer"       # Kafka's default time stamps; "broker" if the topic has message.timestamp.type=LogAppendTime

[window]
length = "1d"
trigger_every = "15m"

[bounds]
max_records_per_user = 32

[[columns]]
name = "visits"
kind = "count"

[[columns]]
name = "bytes"
kind = "sum"
field = "bytes"
bound = 100000
grid = 100

[privacy]
epsilon = 6.0
delta = 1e-9
secret_file = "/run/secrets/susurrus"
"""


def markdown() -> str:
    """The whole page."""
    parts = [PREFACE.format(example=EXAMPLE), "## Sections of every kind", ""]
    # As the first kind has them: it may know more of a section than all kinds do.
    first = next(iter(KINDS.values())).settings_class
    parts += _sections(first, {n: f for n, f in first.model_fields.items() if n in Settings.model_fields})
    for kind, pipeline in KINDS.items():
        own = {n: f for n, f in pipeline.settings_class.model_fields.items() if n not in Settings.model_fields}
        parts += [f"## Kind `{kind}`", "", pipeline.description, "", *_sections(pipeline.settings_class, own)]
    return "\n".join(parts)


def _sections(settings: type[Settings], fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        if (model := _section(field.annotation)) is not None:
            title = f"[[{name}]]" if get_origin(field.annotation) is tuple else f"[{name}]"
            yield from _section_text(settings, name, model, title)


def _section_text(settings: type[Settings], name: str, model: type[BaseModel], title: str) -> Iterator[str]:
    yield from (f"### `{title}`", "", _text(model.__doc__ or ""), "")
    yield from ("| setting | type | default | fixed | meaning |", "|---|---|---|---|---|")
    nested: list[tuple[str, type[BaseModel]]] = []
    for field_name, field in model.model_fields.items():
        inner = _section(field.annotation)
        path = f"{name}.{field.alias or field_name}"
        if inner is not None and path not in (one for one, _ in nested):
            nested.append((path, inner))
            if _only_section(field.annotation):
                continue
        kind, meaning = _type(field), _text(field.description or "")
        if path == "pipeline.kind":  # the registry knows more about it than its own section
            kind = " \\| ".join(f"`{kind}`" for kind in KINDS)
            meaning += "".join(f" `{kind}`: {pipeline.description}" for kind, pipeline in KINDS.items())
        fixed = "yes" if settings.is_published(path) else ""
        yield f"| `{field.alias or field_name}` | {kind} | {_default(field)} | {fixed} | {meaning} |"
    yield ""
    for path, inner in nested:
        yield from _section_text(settings, path, inner, f"[{path}]")


def _section(annotation: Any) -> type[BaseModel] | None:
    if _is_section(annotation):
        return annotation  # type: ignore[no-any-return]
    return next((model for part in get_args(annotation) if (model := _section(part))), None)


def _only_section(annotation: Any) -> bool:
    """Whether a value can be nothing else than one section."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return all(part is type(None) or _only_section(part) for part in get_args(annotation))
    return _is_section(annotation)


_LENGTH = " | ".join(("duration", *(f"`{length}`" for length in CalendarLength)))


def _is_section(annotation: Any) -> bool:
    return get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _type(field: FieldInfo) -> str:
    if field.alias == "from":
        return "`earliest` \\| `latest` \\| instant"  # one validator for the whole, which says less about itself
    return _type_name(field.rebuild_annotation()).replace("|", "\\|")


def _type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    # A type carries the marks of its alias, with further constraints or without.
    marks = getattr(annotation, "__metadata__", ())
    aliases: dict[str, Any] = {"duration": Duration, "instant": Instant, _LENGTH: WindowLength}
    for name, alias in aliases.items():
        if any(mark is own for mark in marks for own in alias.__metadata__):
            return name
    if origin is typing.Annotated:
        registry = next((mark.registry for mark in arguments[1:] if isinstance(mark, OneOf)), None)
        if registry is not None:
            return " | ".join(f"`{name}`" for name in registry)
        return _type_name(arguments[0])
    if origin is typing.Literal:
        return " | ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(_type_name(part) for part in arguments if part is not type(None)))
    if origin is tuple:
        of = _type_name(arguments[0])
        return f"list of ({of})" if " | " in of else f"list of {of}"
    if origin is dict or _is_section(annotation):
        return "table"
    names: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "key"}
    return names.get(annotation, "path")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ("", (), {}):
        return ""
    kind = _type_name(field.rebuild_annotation())
    if kind in ("duration", "instant", _LENGTH):
        value = format_time(value) if kind == "instant" else format_length(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if isinstance(value, int | float) else f'`"{text}"`'


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def reference() -> None:
    """Print every setting with its meaning, as Markdown."""
    typer.echo(markdown(), nl=False)
