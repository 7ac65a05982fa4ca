"""The operators' page of a worker, as HTML: what each of its partitions does, how far it is, what stalls and why.

It shows exact totals, positions and times, and so never leaves the trust zone; it says so. It shows no user, no key and no
figure of a single key. agents/operations/web.py serves it to browsers. Style and script are in the page, and the page may load
nothing else.
"""

import base64
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final, NamedTuple

from rich.filesize import decimal

from susurrus.agents.config.settings import Settings
from susurrus.agents.operations.metrics import due_interval, state_of
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.agents.runtime.task import PartitionTask
from susurrus.agents.types.durations import format_duration
from susurrus.topics.wire.timestamps import format_time

TRUST_ZONE: Final = (
    "For operators only. This page shows exact totals and positions. An exact total beside a published noisy one reveals "
    "the noise, so this page must never leave the trust zone."
)
_CLASSES: Final = {"running": "good", "starting": "warn", "stalled": "warn", "fenced": "warn", "refused": "bad"}
_NUMBERS: Final = ("position", "behind", "last commit", "on disk", "rows", "seconds")


class Asset(NamedTuple):
    """A text of the page, and its hash for the policy that allows no other."""

    text: str
    source: str


@cache
def asset(name: str) -> Asset:
    """health.css or health.js."""
    text = files("susurrus.agents.operations").joinpath(name).read_text()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Asset(text, f"'sha256-{digest}'")


def policy() -> str:
    """The Content-Security-Policy: this page's own style and script, its own address, nothing else."""
    style, script = asset("health.css").source, asset("health.js").source
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def html(supervisor: Supervisor, settings: Settings) -> str:
    """The whole page, as it is at this moment."""
    tasks = [task for _, task in sorted(supervisor.group.tasks.items())]
    parts = "".join(_live(name, text) for name, text in _parts(supervisor, settings, tasks))
    title = escape(f"{settings.application}: worker {supervisor.worker}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>' + title + "</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{asset('health.css').text}</style></head><body><header><h1>{title}</h1>"
        f'<p class="zone" role="note">{escape(TRUST_ZONE)}</p></header><main>{parts}</main>'
        '<footer class="quiet"><p id="said" role="status">As of the moment at which it was loaded.</p>'
        '<p>The same in numbers: <a href="/metrics">/metrics</a>. The whole pipeline: <code>susurrus status</code>.</p></footer>'
        f"<script>{asset('health.js').text}</script></body></html>\n"
    )


def _live(name: str, text: str) -> str:
    return f'<section id="{name}" data-live>{text}</section>'


def _parts(supervisor: Supervisor, settings: Settings, tasks: Sequence[PartitionTask]) -> Iterator[tuple[str, str]]:
    yield "worker", _worker(supervisor, tasks)
    # Asked once, so that all parts of the page say the same of a task that is just moving on.
    reasons = [task.stall() or "" for task in tasks]
    troubles = [(task.name, why) for task, why in zip(tasks, reasons, strict=True) if why]
    if supervisor.health.waits_for:
        troubles.insert(0, ("this worker", supervisor.health.waits_for))
    yield "troubles", _troubles(troubles)
    yield "partitions", _partitions(settings, tasks, reasons)
    yield "totals", _totals(tasks)
    yield "releases", _releases(supervisor)


def _worker(supervisor: Supervisor, tasks: Sequence[PartitionTask]) -> str:
    unready, unhealthy = supervisor.health.unready(), supervisor.health.unhealthy()
    state = ("bad", "unhealthy") if unhealthy else ("warn", "not ready") if unready else ("good", "ready")
    facts = [
        ("this worker", f'<span class="state {state[0]}">{state[1]}</span>'),
        ("why", escape(unhealthy or unready or "")),
        ("partitions here", str(len(tasks))),
        ("generation of the group", str(supervisor.group.generation)),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts if value)
    return f'<dl class="facts">{shown}</dl>'


def _troubles(troubles: Sequence[tuple[str, str]]) -> str:
    if not troubles:
        return "<h2>What stalls</h2><p>Nothing.</p>"
    rows = "".join(f"<li><strong>{escape(place)}</strong>: {escape(why)}</li>" for place, why in troubles)
    return f"<h2>What stalls</h2><ul>{rows}</ul>"


def _partitions(settings: Settings, tasks: Sequence[PartitionTask], reasons: Sequence[str]) -> str:
    calendar, due, now = settings.calendar, due_interval(settings), time.monotonic()
    rows = []
    for task, reason in zip(tasks, reasons, strict=True):
        closed, state = task.report().get("interval"), state_of(task, reason)
        rows.append(
            (
                task.name,
                f'<span class="state {_CLASSES.get(state, "bad")}">{state}</span>',
                f"{task.position:,}" if task.position >= 0 else "",
                "" if closed is None else format_time(calendar.boundary(closed)),
                "" if closed is None else _behind(max(0, due - closed)),
                "" if task.committed_at is None else f"{format_duration(int(now - task.committed_at) * 1000)} ago",
                decimal(task.store_bytes),
                escape(reason),
            )
        )
    names = ("partition", "state", "position", "closed up to", "behind", "last commit", "on disk", "why")
    return f"<h2>Partitions of this worker</h2>{_table('Partitions of this worker', names, rows)}"


def _behind(intervals: int) -> str:
    return f"{intervals:,} interval" + ("" if intervals == 1 else "s")


def _totals(tasks: Sequence[PartitionTask]) -> str:
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        sums[task.stage_name].update(task.committed_counters)
    rows = [
        (stage, ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items()))
        for stage, counts in sums.items()
    ]
    return f"<h2>Committed, all time</h2>{_table('Totals by stage', ('stage', 'records'), rows)}"


def _releases(supervisor: Supervisor) -> str:
    rows = [
        (r.place, escape(r.what), f"{r.rows:,}", f"{r.seconds:.2f}", format_time(r.at))
        for r in reversed(supervisor.metrics.releases)
    ]
    names = ("partition", "what", "rows", "seconds", "at")
    return f"<h2>Last releases of this worker</h2>{_table('Last releases of this worker', names, rows)}"


def _table(caption: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are HTML already. On a narrow screen each row becomes a list (health.css)."""
    body = ""
    for row in rows:
        first, *others = row
        cells = "".join(
            f'<td data-name="{name}"{_class(name)}>{cell}</td>' for name, cell in zip(names[1:], others, strict=True)
        )
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    if not body:
        return '<p class="quiet">None yet.</p>'
    head = "".join(f'<th scope="col"{_class(name)}>{name}</th>' for name in names)
    return (
        f'<div class="table" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _class(name: str) -> str:
    kind = "number" if name in _NUMBERS else {"why": "why", "closed up to": "time", "at": "time"}.get(name)
    return f' class="{kind}"' if kind else ""
