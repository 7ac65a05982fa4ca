"""``susurrus tune``: which cap and bounds fit the users, by a differentially private look at a sample. It changes nothing."""

import json
import math
import secrets
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from confluent_kafka import KafkaException
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.cli.recommendations import as_dict, cost_table, picture
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.planning.charging import ChargingAccount, Extent
from susurrus.agents.planning.sample import Sample, read_file
from susurrus.agents.planning.tune import questions_of
from susurrus.agents.planning.window_sample import read_window, window_named
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.charges import name_of_command
from susurrus.topics.wire.timestamps import EARLIEST

Answer = TypeVar("Answer")

_COMMAND = "tune"


def tune(
    config: ConfigOption = None,
    sql: SqlOption = None,
    sample: Annotated[
        Path | None,
        typer.Option(help="File of raw records instead of the raw topic: .jsonl, .csv, .tsv (also .gz) or .parquet."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            help="Window to look at: `first`, `last`, `current`, or an instant in it. By default the last one that is over, or all "
            "of a file."
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy loss of this run, for all its answers together.")] = 0.5,
    quantile: Annotated[float, typer.Option(help="Share of the users whom the cap and the bounds should fit.")] = 0.95,
    largest_cap: Annotated[int, typer.Option(help="The largest cap to consider.")] = 5_000,
    time_field: Annotated[
        str | None, typer.Option("--time", help="Field of the file with the time, where input.time is Kafka's stamp.")
    ] = None,
    public_sample: Annotated[
        bool, typer.Option("--public-sample", help="The file is public: answer exactly, and charge nothing.")
    ] = False,
    uncharged: Annotated[
        bool,
        typer.Option(
            "--uncharged", help="Charge nothing, though the file is not public: you must account for it yourself."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, and read no record.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before charging.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Recommend max_records_per_user and the bounds of sums and means, by private quantiles over the users of a sample.

    The answers cost privacy: they are charged to the ledger before they are shown, and count against the budget. The command
    changes no file: it prints the lines to write, and why. docs/tune.md explains the output.
    """
    settings = _histogram(settings_of(config, sql))
    _check(sample, public_sample=public_sample, uncharged=uncharged, window=window, time_field=time_field)

    questions = questions_of(
        settings,
        epsilon=_exactly("--epsilon", epsilon),
        quantile=_exactly("--quantile", quantile),
        largest_cap=largest_cap,
    )
    console = err() if as_json else out()
    free = public_sample or uncharged
    if not free and not (dry_run and sample is not None):
        _reach(settings, sample)
    clients = None if free else clients_of(settings, quiet=True)
    try:
        start = _window(settings, window, sample, clients)
        source = str(sample) if sample is not None else f"topic={settings.input.called}"
        if start is not None:
            source += f", window {settings.window.instant_text(start)}"
        account = None if clients is None else ChargingAccount(settings, clients, _COMMAND)
        extent = _extent(settings, start)
        if account is not None and not dry_run:
            _reached(lambda: account.check(questions.guarantee, extent), sample)
        budget = "not charged"
        if account is not None:
            budget = _budget(account, settings, questions.guarantee, extent, sample, dry_run)
        console.print(cost_table(questions, settings, source, budget=budget, public=public_sample))
        if dry_run:
            return
        if not free and not yes:
            typer.confirm("Charge this, and look at the sample?", abort=True, err=as_json)
        records = _read(settings, sample, start, clients, account, time_field)
        run = None
        if account is not None:
            charged_to = start if start is not None else _now(settings)
            run = _reached(lambda: account.charge(charged_to, questions.guarantee, extent), sample)
    finally:
        if clients is not None:
            clients.close()
    answers = questions.answer(records, settings, None if public_sample else secrets.randbelow)
    if as_json:
        print(json.dumps(as_dict(answers, questions, settings, source, run=run), indent=2))
        return
    notes = _notes(records, window, sql)
    if run is not None:
        name = name_of_command(settings.pipeline.name, _COMMAND)
        notes.append(f"Charged as {name}, run {run[:8]}. Another run draws anew and costs again.")
    console.print()
    console.print(picture(answers, settings, console.width, notes=notes, public=public_sample))


def _exactly(option: str, number: float) -> Fraction:
    """The decimal number that was typed. Raises ConfigurationError for infinity and for what is no number."""
    if not math.isfinite(number):
        raise ConfigurationError(f"{option} {number}: is no finite number; give one")
    return Fraction(str(number))


def _histogram(settings: Settings) -> HistogramSettings:
    if settings.not_tuned:
        raise ConfigurationError(f'pipeline.kind = "{settings.kind}": {settings.not_tuned}')
    histogram = HistogramSettings.of(settings)
    if histogram.grouping:
        raise ConfigurationError(
            "input.grouping_sets: tune asks for one cap, and every level has caps of its own; tune a copy of the file without "
            "grouping sets, with input.key as one level has it, and write what it says into [[levels]]"
        )
    return histogram


def _check(
    sample: Path | None, *, public_sample: bool, uncharged: bool, window: str | None, time_field: str | None
) -> None:
    if public_sample and uncharged:
        raise ConfigurationError("--public-sample, --uncharged: exclude each other; name one of them")
    needs_file = {"--public-sample": public_sample, "--uncharged": uncharged, "--time": time_field is not None}
    for option in (name for name, given in needs_file.items() if given and sample is None):
        raise ConfigurationError(f"{option}: needs a file; name it with --sample, or leave {option} out")
    if sample is not None and not sample.exists():
        raise ConfigurationError(f"--sample {sample}: does not exist; correct its name")
    if uncharged:
        err().print(
            "[bold red]Nothing is charged.[/bold red] The answers still cost the users in this file their epsilon. It is on you to "
            "account for that: the ledger and \\[budget] will not know of it."
        )


def _window(
    settings: HistogramSettings, window: str | None, sample: Path | None, clients: Clients | None
) -> WindowStart | None:
    """The window that is looked at; None for all of a file."""
    if window is None and sample is not None:
        return None
    now = int(time.time() * 1000)
    return _reached(lambda: window_named(settings, window or "last", now, clients), sample)


def _extent(settings: HistogramSettings, start: WindowStart | None) -> Extent:
    """The event times, [begin, end) in ms, that records of the sample may have: those of its window, or of a file all that is
    over."""
    if start is not None:
        return start, settings.calendar.end_of(start)
    return EARLIEST, int(time.time() * 1000) + settings.clock.max_future


def _budget(
    account: ChargingAccount,
    settings: HistogramSettings,
    cost: Guarantee,
    extent: Extent,
    sample: Path | None,
    dry_run: bool,
) -> str:
    """What the budget has room for, in words. A dry run with a file asks for no broker."""
    window = build_strategy(settings.plan()).guarantee
    if dry_run and sample is not None:
        try:
            reach_both(settings)
        except ConfigurationError:
            return "unknown, since no broker can be reached"
    before = account.windows_left(window)
    after = account.windows_left(window, after=cost, extent=extent)
    if before is None or after is None:
        return "none is set, so nothing limits it"
    return f"room for {before:,} windows of this pipeline before this run, {after:,} after it"


def _reach(settings: HistogramSettings, sample: Path | None) -> None:
    """Raises SusurrusError where no broker answers. With a file, that is no reason to go on unpaid."""
    try:
        reach_both(settings)
    except ConfigurationError as error:
        if sample is None:
            raise
        raise SusurrusError(
            f"{error}. Nothing can be charged without brokers; give --public-sample if the file is public, --uncharged if you "
            "account for it yourself"
        ) from None


def _reached(ask: Callable[[], Answer], sample: Path | None) -> Answer:
    """What ``ask`` returns. With a file, brokers that do not answer are no reason to go on unpaid."""
    try:
        return ask()
    except KafkaException as error:
        if sample is None:
            raise
        raise SusurrusError(
            f"the log of charges cannot be reached ({error.args[0].name()}), so nothing can be charged: start the brokers, or "
            "correct kafka.bootstrap_servers; give --public-sample if the file is public, --uncharged if you account for it "
            "yourself"
        ) from error


def _now(settings: HistogramSettings) -> WindowStart:
    """The window of the present time: where a file without --window is charged. No record decides it."""
    calendar = settings.calendar
    return calendar.window_start(calendar.window_at(int(time.time() * 1000)))


def _read(
    settings: HistogramSettings,
    sample: Path | None,
    start: WindowStart | None,
    clients: Clients | None,
    account: ChargingAccount | None,
    time_field: str | None,
) -> Sample:
    """The sample. How many records it has is shown nowhere: it is not part of the answers."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bars:
        bars.add_task("reading the sample", total=None)
        if sample is None:
            assert start is not None
            assert clients is not None
            assert account is not None  # only a file can be free
            return read_window(settings, start, clients, topics=account.topics, wide=True)
        records = read_file(sample, settings, time=time_field, wide=True)
    if start is None:
        return records
    if not records.timed:
        raise ConfigurationError(
            f"--window: the records of {sample} have no time, since input.time is Kafka's stamp; name a field with --time, or "
            "leave --window out"
        )
    records = records.between(start, settings.calendar.end_of(start))
    if not len(records):
        raise SusurrusError(
            f"{sample}: has no good record of the window {settings.window.instant_text(start)}; name another with --window"
        )
    return records


def _notes(records: Sample, window: str | None, sql: Path | None) -> list[str]:
    """What a reader must know of this run. Public: it follows from the options and the configuration."""
    notes = []
    if window == "current":
        notes.append(
            "The window still runs: its users will have more records at its end. `last` is the last one that is over."
        )
    if not records.timed:
        notes.append("The file has no times, so all of it was taken for one window.")
    if sql is not None:
        notes.append(
            "In a statement the cap is max_rows_contributed (or max_groups_contributed), a bound the upper end of CLAMPED BETWEEN."
        )
    return notes
