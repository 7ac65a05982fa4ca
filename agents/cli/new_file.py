"""The file that `susurrus config init` writes: text with comments, which no TOML writer makes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from susurrus.agents.histogram.clock import CLOCKS
from susurrus.agents.histogram.mechanism_settings import DEFAULT_REMEMBER
from susurrus.agents.operations.advice import toml_value


@dataclass(slots=True)
class FileAnswers:
    """What the file says."""

    servers: str
    topic: str
    name: str
    registry: str
    user: str
    key: list[str]
    layout: Mapping[str, Any]
    """Entries of `[input]` that say how records are written, as far as they differ from the defaults."""
    time: str
    """A field with the event time; empty for the record's own stamp."""
    stamped: int
    window: str
    time_zone: str
    """Of the windows; empty where they are of one length."""
    trigger: str
    records: int
    sum_of: str
    lower: float
    upper: float
    epsilon: float
    delta: float


def opening(name: str, servers: str, kind: str = "") -> str:
    """The sections with which every file begins. kind: of the pipeline; empty for the default."""
    of_kind = f"kind = {text_of(kind)}\n" if kind else ""
    return f"""\
# Written by `susurrus config init`. `susurrus config check` explains it, `susurrus config reference` has every setting.
[pipeline]
name = {text_of(name)} # topics are susurrus.{name}.<topic>
{of_kind}
[kafka]
bootstrap_servers = {text_of(servers)}

# [kafka.properties] # librdkafka's names, for every client; a password comes from a file or a variable
# "security.protocol" = "SASL_SSL"
# "sasl.mechanism" = "SCRAM-SHA-512"
# "sasl.username" = "susurrus"
# "sasl.password" = {{ file = "/run/secrets/kafka" }}

"""


def toml(answers: FileAnswers, *, secret: str) -> str:
    """The file: as short and as commented as the example in README.md."""
    a = answers
    zone = f"time_zone = {text_of(a.time_zone)} # on whose clocks windows begin, at midnight\n" if a.time_zone else ""

    clock = next(clock for clock in CLOCKS.values() if clock.live and clock.accepts == (a.stamped,))
    registry = f"\n[input.registry]\nurl = {text_of(a.registry)}\n" if a.registry else ""
    form = "".join(f"{name} = {toml_value(value)}\n" for name, value in a.layout.items())
    time = f"time = {text_of(a.time)} # the event's own time; without it, the record's stamp counts\n" if a.time else ""
    total = (
        f'\n[[columns]]\nname = {text_of(_column(a.sum_of))}\nkind = "sum"\nfield = {text_of(a.sum_of)}\n'
        f"lower = {a.lower:g}                               # values are clamped, and the noise follows the bounds:\n"
        f"upper = {a.upper:g}                            # choose them without looking at the data\n"
        if a.sum_of
        else ""
    )
    lines = f"""\
{opening(a.name, a.servers)}[input]
topic = {text_of(a.topic)} # Susurrus reads it and never changes it
{form}user = {text_of(a.user)} # the field that identifies the protected user
key = [{", ".join(map(text_of, a.key))}] # what to group by; several fields make a composite key
{time}{registry}
[clock]
kind = "{clock.kind}" # {clock.meaning}

[window]
length = {text_of(a.window)} # the guarantee is per user and window
{zone}trigger_every = {text_of(a.trigger)} # time between releases

[bounds] # public numbers: choose them without looking at the data
max_records_per_user = {a.records} # a user's first records of a window count ...
max_records_per_key = 1 # ... one per key

[[columns]]
name = "records"
kind = "count"
{total}
# [keys] # with strategy closing, the default where a window has two triggers or more
# remember = {DEFAULT_REMEMBER} # keys of so many users in a window's last row are public in the next window; 0: none
# evidence_windows = 4 # keys that few users bring are found over several windows; by default in one

[privacy]
epsilon = {a.epsilon:g} # per user and window, for all columns and releases together
delta = {f"{a.delta:g}".replace("e-0", "e-")} # far below one over the number of users
secret_file = {text_of(secret)} # the noise's secret, the same for all workers; beside this file
"""
    return aligned(lines)


def aligned(text: str) -> str:
    """Comments behind values begin in one column."""
    return "".join(map(_aligned, text.splitlines(keepends=True)))


def _aligned(line: str) -> str:
    found = re.fullmatch(r"([^#\s\"][^\n]*?) +# ([^\n]*)\n", line)
    return f"{found[1]:<40}# {found[2]}\n" if found and not line.startswith("#") else line


def _column(field: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", field).strip("-_") or "sum"
    return f"{name}-sum" if name == "records" else name


def text_of(value: str) -> str:
    """A text as TOML writes it."""
    return json.dumps(value, ensure_ascii=False)
