"""``susurrus ledger``: the record of what a pipeline has charged, and a new beginning of it. `show` is in ledger_show.py."""

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from susurrus.agents.cli.console import ConfigOption, SqlOption, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.operations.epoch_plan import EpochPlan
from susurrus.agents.operations.new_epoch import NewEpoch
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.types.durations import parse_instant
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.wire.timestamps import format_time

_SHOWN = 5


def new_epoch(
    config: ConfigOption = None,
    sql: SqlOption = None,
    first_window: Annotated[
        str,
        typer.Option(
            help="First window to publish: `next`, after everything that was published, so that nothing is charged twice; "
            "`current`, the window of the present time (clock replay: the last one published); or the start of a window."
        ),
    ] = "next",
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="First raw record to read: `earliest`, `latest` or an instant; by default what the first window needs.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """End the pipeline's epoch and begin another, with fresh noise and empty state. All workers must be stopped.

    For internal topics that are lost, or were restored from a copy older than the last published trigger. What the new epoch
    publishes of a window that was published before is charged again; the command shows the costs before it does anything.
    """
    first = _word_or_instant("--first-window", first_window, "next", "current")
    begin = None if origin is None else _word_or_instant("--from", origin, "earliest", "latest")
    settings = settings_of(config, sql)
    reach_both(settings)
    pipeline = pipeline_of(settings)
    services = pipeline.services()
    console = out()
    try:
        work = NewEpoch(pipeline, services, first_window=first, origin=begin)
        now = int(time.time() * 1000)
        plan = work.plan(now)
        for line in plan_lines(plan, settings.pipeline.name):
            console.print(line, soft_wrap=True, markup=False)
        if not yes:
            typer.confirm("Begin the new epoch?", abort=True)
        epoch = work.begin(plan, now)
    finally:
        services.ledger.close()
        services.clients.close()
    console.print(f"Epoch {plan.number} ({epoch[:8]}) begins; start the workers.", soft_wrap=True)


def _word_or_instant(option: str, text: str, *words: str) -> Any:
    """Returns one of the words as it is, or an instant in ms. Raises ConfigurationError for anything else."""
    if text in words:
        return text
    try:
        return parse_instant(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text}: {error}") from None


def plan_lines(plan: EpochPlan, name: str) -> Iterator[str]:
    """What the new epoch is and costs, line by line."""
    before = f"epoch {plan.number - 1} ({plan.before[:8]})" if plan.before else "the epoch that the ledger has lost"
    origin = plan.origin if isinstance(plan.origin, str) else format_time(plan.origin)
    yield f"{name}: {before} ends, epoch {plan.number} begins."
    yield f"First window {format_time(plan.first_window)}; the raw topic is read from {origin}."
    if plan.unfinished:
        windows = _listed([f"{format_time(p.window)} ({p.trigger} of {p.of_triggers})" for p in plan.unfinished])
        yield f"Left unfinished at the trigger reached so far: {windows}."
    g = plan.guarantee
    if not plan.again:
        yield "Nothing is published a second time, so nothing is charged twice."
    else:
        windows = _listed([f"{format_time(a.window)} ({a.trigger} of {a.of_triggers})" for a in plan.again])
        cost = f"epsilon={g.epsilon:g}, delta={g.delta:g}, mu={g.mu:.4g}"
        yield f"Published a second time, and charged {cost} each once more: {windows}."
        worst = max(plan.again, key=lambda a: a.spend.mu)
        yield (
            f"A user in such a window has then spent up to mu={worst.spend.mu:.4g} in {worst.epochs} epochs: "
            f"epsilon={worst.spend.epsilon_total(worst.delta):.4g} at delta={worst.delta:g}."
        )
    if plan.forgotten:
        yield (
            f"The log of charges lacks charged windows: the progress topic shows {len(plan.forgotten)} more. They are entered "
            "again, at what other windows of their epoch cost, or, if none of these is left, at what the configuration gives now."
        )
    if plan.renews:
        yield "The budget renews: a window that has no room in its period, published before or not, is skipped."
    elif plan.windows_left is None:
        yield "No [budget] is set, so nothing limits it."
    else:
        yield f"The budget allows it, and {plan.windows_left:,} more windows after that."


def _listed(items: list[str]) -> str:
    shown = ", ".join(items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
