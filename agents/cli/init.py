"""``susurrus config init``: a few questions, a look at the topic, and a commented configuration that passes the check.

The file is checked as any other before it is written (agents/cli/new_file.py).
"""

import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from susurrus.agents.cli.console import err, out
from susurrus.agents.cli.field_table import field_table
from susurrus.agents.cli.new_file import FileAnswers, toml
from susurrus.agents.cli.questions import FileDialogue, noted
from susurrus.agents.cli.short_file import asked, plain_name, short_toml
from susurrus.agents.config import load
from susurrus.agents.config.input import KAFKA
from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.keys import TEXT
from susurrus.agents.histogram.clock import CREATE_TIME
from susurrus.agents.operations.advice import toml_value
from susurrus.agents.operations.look import MEMBERS, Found, look, times_in
from susurrus.agents.pipelines import KINDS, settings_from
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.windows import CalendarLength

_USERS: Final = re.compile(
    r"(^|[._-])(user|uid|host|visitor|customer|client|account|member|person|patient|device|meter)", re.I
)
"""Fields that probably name the user."""
_KEYS: Final = re.compile(r"(^|[._-])(url|path|page|category|product|item|type|country|city|status|name)", re.I)
_SHOWN_FIELDS: Final = 40


def init(
    bootstrap_servers: Annotated[str | None, typer.Option(help="Brokers, as host:port.")] = None,
    topic: Annotated[str | None, typer.Option(help="The raw topic.")] = None,
    user: Annotated[str | None, typer.Option(help="The field that names the protected user.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A field to group by; repeat it for a composite key.")] = None,
    time: Annotated[str | None, typer.Option(help="The field with the event time; kafka: the record's stamp.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the pipeline; that of the topic.")] = None,
    registry: Annotated[
        str | None, typer.Option(help="Address of the schema registry, where records name schemas.")
    ] = None,
    window: Annotated[str, typer.Option(help="Length of a window: 1d, or 1 day, 1 week, 1 month.")] = "1d",
    time_zone: Annotated[
        str | None, typer.Option(help="On whose clocks a window of 1 day, 1 week or 1 month begins.")
    ] = None,
    trigger: Annotated[str, typer.Option(help="Time between releases.")] = "15m",
    records: Annotated[int, typer.Option(help="Records of a user that count in a window.")] = 32,
    sum_of: Annotated[str | None, typer.Option("--sum", help="A numeric field to add up.")] = None,
    lower: Annotated[float | None, typer.Option(help="Its values' lower bound. Choose without the data.")] = None,
    upper: Annotated[float | None, typer.Option(help="Its values' upper bound. Choose without the data.")] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy loss per user and window.")] = 6.0,
    delta: Annotated[float, typer.Option(help="Far below 1 / number of users.")] = 1e-9,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; never replaced.")] = Path(
        "pipeline.toml"
    ),
    kind: Annotated[str | None, typer.Option(help="Kind of pipeline; a histogram by default.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="With --kind: a setting of its own, as stream.bound=100; repeatable."),
    ] = None,
    look: Annotated[bool, typer.Option("--look/--no-look", help="Look at ten records for the names of fields.")] = True,
    show_values: Annotated[bool, typer.Option("--show-values", help="Show a value of each field: raw data.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
) -> None:
    """Write a commented configuration after a few questions.

    It looks at ten records: how they are written, and the names and types of their fields.
    SUSURRUS__KAFKA__PROPERTIES__... variables give credentials.

        susurrus config init --topic web-requests --user host --key url --yes
    """
    if output.exists():
        raise ConfigurationError(f'--output "{output}": is there already and is never replaced; name another file')
    ask = FileDialogue(asks=not yes)
    servers = ask("Brokers (host:port, ...)", bootstrap_servers, "localhost:9092", "--bootstrap-servers")
    pipeline = _pipeline_class(kind, given, {"--user": user, "--key": key, "--time": time, "--sum": sum_of})
    if not pipeline.settings_class.reads_raw:
        text = short_toml(pipeline, servers=servers, name=name, answers=asked(pipeline, ask, given, {}), output=output)
        _finish(output, text)
        return
    topic = ask("Raw topic", topic, None, "--topic")
    found = _looked(servers, topic, registry, show_values) if look else None
    if registry is None and found is not None and found.needs_registry:
        registry = ask(
            "The records name a registered schema. Registry's address", None, "http://localhost:8081", "--registry"
        )
        found = _looked(servers, topic, registry, show_values)
    fields = _choices(found)
    layout = _layout(found, registry)
    if pipeline.questions:
        answers = asked(pipeline, ask, given, fields)
        if found is not None and found.key_format != TEXT.name and any(a.startswith("$key") for a in answers.values()):
            layout["key_format"] = found.key_format
        text = short_toml(
            pipeline,
            servers=servers,
            name=name or plain_name(topic),
            answers=answers,
            output=output,
            topic=topic,
            layout=layout,
            registry=registry if registry and "registry" in _may_have(layout) else "",
        )
        _finish(output, text)
        return
    user = ask("Field that names the protected user", user, _first(fields, _USERS), "--user", fields)
    keys = ask(
        "Fields to group by (a, b for a composite key)",
        ",".join(key) if key else None,
        _first(fields, _KEYS, user),
        "--key",
        fields,
    )
    times = {} if found is None else {name: how for name, how in times_in(found).items() if name in fields}
    if time is None and times and not yes:
        own = f"kafka: the record's own stamp; {', '.join(times)}"
        time = ask(f"Event time ({own})", None, KAFKA, "--time")
    time = "" if time in (None, KAFKA) else noted(time or "", fields)
    layout |= times.get(time, {})
    if (
        found is not None
        and found.key_format != TEXT.name
        and any(one.startswith("$key") for one in (user, keys, time))
    ):
        layout["key_format"] = found.key_format
    window = ask("Length of a window", window if yes else None, window, "--window")
    if window in set(CalendarLength):
        time_zone = ask("Time zone of the windows, such as Europe/Berlin", time_zone, None, "--time-zone")
    trigger = ask("Time between releases", trigger if yes else None, trigger, "--trigger")
    if sum_of is None and not yes:
        sum_of = typer.prompt("Numeric field to add up (empty: count records only)", default="", show_default=False)
    if sum_of:
        lower, upper = ask.bounds(sum_of, lower, upper)
    answer = ask(
        "Epsilon, the privacy loss per user and window", str(epsilon) if yes else None, str(epsilon), "--epsilon"
    )
    try:
        epsilon = float(answer)
    except ValueError:
        raise ConfigurationError(f'--epsilon "{answer}": write a number, for example 6.0') from None

    stamped = CREATE_TIME if found is None or found.stamped is None else found.stamped
    written = FileAnswers(
        servers=servers,
        topic=topic,
        name=name or plain_name(topic),
        registry=registry if registry and "registry" in _may_have(layout) else "",
        user=user,
        key=[part.strip() for part in keys.split(",")],
        layout=layout,
        time=time,
        stamped=stamped,
        window=window,
        time_zone=time_zone or "",
        trigger=trigger,
        records=records,
        sum_of=sum_of or "",
        lower=lower or 0.0,
        upper=upper or 0.0,
        epsilon=epsilon,
        delta=delta,
    )
    _finish(output, toml(written, secret=f"{output.stem}.secret"))


def _pipeline_class(kind: str | None, given: list[str] | None, own: Mapping[str, Any]) -> type[Pipeline[Any]]:
    """The kind of pipeline. own: options of the default kind, which others do not have. Raises ConfigurationError."""
    default = next(iter(KINDS))
    found = KINDS.get(kind or default)
    if found is None:
        raise ConfigurationError(f'--kind "{kind}": {use_one_of(KINDS)}')
    if found.questions and (foreign := [option for option, value in own.items() if value]):
        raise ConfigurationError(
            f'{foreign[0]}: belongs to --kind {default}; leave it out, and give settings of "{kind}" by --set'
        )
    if given and not found.questions:
        raise ConfigurationError("--set: belongs to other kinds of pipelines; write more settings into the file")
    return found


def _finish(output: Path, text: str) -> None:
    """Check the file as any other, write it, and say what comes next."""
    settings_from(tomllib.loads(text), directory=output.parent, environ={}, written=True)
    _write(output, text)
    _next(output)


def _looked(servers: str, topic: str, registry: str | None, show_values: bool) -> Found | None:
    """What the topic shows, and a table of it; None where it cannot be looked at, which is said."""
    kafka = load.read(None, _environment()).get("kafka", {})
    source: dict[str, Any] = {"topic": topic, "user": "user", "key": ["key"]}
    if registry:
        source |= {"format": Avro.name, "registry": {"url": registry}}
    try:
        found = look(
            settings_from(
                {
                    "pipeline": {"name": "init"},
                    "kafka": {**kafka, "bootstrap_servers": servers},
                    "input": source,
                    "privacy": {"epsilon": 1.0, "delta": 1e-9},
                }
            )
        )
    except ConfigurationError as problem:
        err().print(f"note: the topic is not looked at: {problem}", markup=False)
        return None
    if found.layout:
        said = ", ".join(f"{name} = {toml_value(value)}" for name, value in found.layout.items())
        err().print(f"the records are read with {said}", markup=False)
    for note in found.notes:
        err().print(f"note: {note}", markup=False)
    if found.fields:
        err().print(field_table(found, most=_SHOWN_FIELDS, values=show_values))
    else:
        seen = (
            f"the {found.records} records that were looked at show none"
            if found.records
            else "the topic has no records"
        )
        err().print(f"note: {seen}, so no fields are shown; name them yourself")
    return found


def _choices(found: Found | None) -> dict[str, str]:
    """The fields that a file may name, with their types."""
    if found is None:
        return {}
    return {name: seen.type for name, seen in found.named().items() if MEMBERS not in name and name.isprintable()}


def _may_have(layout: Mapping[str, Any]) -> Sequence[str | None]:
    """Settings of `[input]` that belong to the format."""
    form = FORMATS[layout.get("format", Json.name)]
    return (form.setting, *form.options)


def _layout(found: Found | None, registry: str | None) -> dict[str, Any]:
    """What the look proposes, as a file writes it. Without a look a registry means Avro, as most topics with one are."""
    layout = {} if found is None else dict(found.layout)
    if registry and "format" not in layout and (found is None or not found.fields):
        layout = {"format": Avro.name, **layout}
    return layout


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.upper().startswith("SUSURRUS__KAFKA__")}


def _first(fields: Mapping[str, str], wanted: re.Pattern[str], *but: str) -> str | None:
    """The field to suggest: the first whose name fits, else the first text that is not taken."""
    left = [name for name in fields if name not in but]
    fits = next((name for name in left if wanted.search(name)), None)
    return fits or next((name for name in left if fields[name] == "text"), None)


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(
            f'--output "{path}": cannot be written ({error.strerror}); name another file, in a directory that there is'
        ) from None


def _next(path: Path) -> None:
    console, name = out(), shlex.quote(str(path))
    secret = shlex.quote(str(path.with_name(f"{path.stem}.secret")))
    console.print(f"wrote {path}; next:", markup=False)
    for command, meaning in (
        (f"susurrus config secret {secret}", "make the noise's secret, once"),
        (f"susurrus config check {name}", "what the file promises, publishes and costs"),
        (f"susurrus try --config {name}", "what would become of the newest records"),
        (f"susurrus topics create --config {name}", "make the pipeline's topics"),
        (f"susurrus worker --config {name}", "start a worker; any number"),
        (f"susurrus watch --config {name}", "see the results"),
    ):
        console.print(f"    {command:<50} {meaning}", markup=False, soft_wrap=True)
