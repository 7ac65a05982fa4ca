"""``susurrus plan``: what a pipeline would publish, how exactly, and what it takes, before any budget is spent."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.cli.plan_tables import errors_table, rendered
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.operations.brokers import reach_both
from susurrus.agents.pipelines import pipeline_of, tables_of
from susurrus.agents.planning import plot as drawing
from susurrus.agents.planning.as_json import as_json as document_of
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.plan import make_plan
from susurrus.agents.planning.sample import read_file, read_topic
from susurrus.agents.planning.sources import NoData, OfLaw, OfSample, WindowSource, in_grid_units
from susurrus.agents.planning.variants import Configuration
from susurrus.agents.planning.variants import what_if as variants_of
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.registry import STRATEGIES, strategy_named

_SAMPLE = "A sample (raw data, used without protection)"
_LAW = "A synthetic law (no data)"


def plan(
    context: typer.Context,
    config: ConfigOption = None,
    sql: SqlOption = None,
    sample: Annotated[
        Path | None,
        typer.Option(help="JSON lines, CSV, TSV (also .gz) or Parquet.", rich_help_panel=_SAMPLE),
    ] = None,
    raw_records: Annotated[
        int | None,
        typer.Option(help="So many newest records of the raw topic.", rich_help_panel=_SAMPLE),
    ] = None,
    sample_time: Annotated[
        str | None,
        typer.Option(help="The file's field with the time.", rich_help_panel=_SAMPLE),
    ] = None,
    sample_time_unit: Annotated[
        Literal["s", "ms", "us", "ns", "d", "iso"],
        typer.Option(help="Its unit, if it is a number.", rich_help_panel=_SAMPLE),
    ] = "ms",
    sample_share: Annotated[
        float,
        typer.Option(help="Share of the users that are in the sample.", rich_help_panel=_SAMPLE),
    ] = 1.0,
    stretch: Annotated[
        bool,
        typer.Option(
            "--stretch",
            help="Spread the times over one whole window.",
            rich_help_panel=_SAMPLE,
        ),
    ] = False,
    windows: Annotated[int, typer.Option(min=1, help="Most windows, the newest.", rich_help_panel=_SAMPLE)] = 7,
    users: Annotated[int | None, typer.Option(help="Users per window.", rich_help_panel=_LAW)] = None,
    records_per_user: Annotated[float, typer.Option(help="Mean.", rich_help_panel=_LAW)] = 5.9,
    zipf: Annotated[float, typer.Option(help="Keys: exponent s of (rank + shift)^-s.", rich_help_panel=_LAW)] = 1.4,
    zipf_shift: Annotated[float, typer.Option(help="The shift.", rich_help_panel=_LAW)] = 0.0,
    keys: Annotated[int, typer.Option(help="Keys that there are.", rich_help_panel=_LAW)] = 100_000,
    profile: Annotated[
        Literal["uniform", "day"],
        typer.Option(help="When records come.", rich_help_panel=_LAW),
    ] = "uniform",
    strategy: Annotated[
        list[str] | None, typer.Option(help="Only this strategy and the one that runs; repeatable. All by default.")
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            help="Other constants, like C=8,16,32 or m=.. epsilon=.. delta=.. T=..; repeatable: all combinations."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs with other noise, for the spread.")] = 3,
    churn: Annotated[
        float | None,
        typer.Option(help="Share of the keys that change per window. By default a sample's, or 0.1."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Image to write (.png, .svg, .pdf); needs the extra plot.")] = None,
) -> None:
    """Forecast keys, errors and volumes of a histogram, for every strategy, and standard errors of the other kinds.

    It publishes nothing, charges nothing and never reads the noise secret.

    Without a sample or a law it shows thresholds and standard errors, from the configuration alone.
    """
    # Only the raw topic needs the passwords that are kept elsewhere.
    settings = settings_of(config, sql, unresolved=None if raw_records is not None else [])
    if plot is not None:
        drawing.check(plot)
    given = {"--sample": sample, "--raw-records": raw_records, "--users": users}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise ConfigurationError(f"{chosen[0]}: there is {chosen[1]}, too; give one of them")
    _without_meaning(context, chosen)
    if (expected := pipeline_of(settings).expected_errors()) is not None:
        if chosen or what_if or plot or churn is not None:
            raise ConfigurationError(
                f'pipeline.kind = "{settings.kind}": plan shows its standard errors only, from the configuration; leave '
                f"{', '.join(chosen or ['--what-if', '--plot'])} out. docs/plan.md says what measures more"
            )
        _show(settings, expected, as_json)
        return
    histogram = HistogramSettings.of(settings)
    if churn is not None:
        _with_memory(histogram, chosen)
    beside = config or sql
    configuration = Configuration(tables_of(config, sql=sql), Path() if beside is None else beside.parent)
    variants = variants_of(what_if or [])
    for name in strategy or ():
        strategy_named(name)
    with _Shown() as shown:
        source: WindowSource = NoData()
        if sample is not None or raw_records is not None:
            source = _sample_of(
                histogram,
                sample,
                raw_records,
                shown,
                time=(sample_time, sample_time_unit),
                scale=(sample_share, stretch),
                windows=windows,
            )
        elif users is not None:
            source = _law_of(
                users=users, records_per_user=records_per_user, zipf=zipf, shift=zipf_shift, keys=keys, profile=profile
            )
        made = make_plan(
            configuration,
            source,
            strategies=strategy or tuple(STRATEGIES),
            variants=variants,
            seeds=seeds,
            churn=churn,
            progress=shown,
        )
    if as_json:
        typer.echo(json.dumps(document_of(made), indent=2, ensure_ascii=False))
    else:
        console = out()
        console.print(rendered(made, console.width))
    if plot is not None:
        drawing.draw(made, plot)
        err().print(f"wrote {plot}")


def _without_meaning(context: typer.Context, chosen: list[str]) -> None:
    """Raises ConfigurationError for an option that says something about what is not there."""
    of_sample = ("sample_time", "sample_time_unit", "sample_share", "stretch", "windows")
    of_law = ("records_per_user", "zipf", "zipf_shift", "keys", "profile")
    for names, needed, said in (
        (
            of_sample,
            ("--sample", "--raw-records"),
            "scales or reads a sample, and there is none; give --sample or --raw-records",
        ),
        (of_law, ("--users",), "describes a law, and there is none; give --users"),
    ):
        for name in names:
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE" and not set(needed) & set(chosen):
                raise ConfigurationError(f"--{name.replace('_', '-')}: {said}")


def _with_memory(settings: HistogramSettings, chosen: list[str]) -> None:
    """Raises ConfigurationError where no later window differs from the first."""
    if not chosen:
        raise ConfigurationError(
            "--churn: describes how windows follow each other, and there are none; give --sample, --raw-records or --users"
        )
    if settings.grouping:
        raise ConfigurationError("--churn: a plan of grouping sets has no later window; leave it out")
    if not settings.remember and settings.evidence_windows == 1:
        raise ConfigurationError(
            "--churn: windows do not remember the ones before (keys.remember, with strategy closing); leave it out"
        )


def _sample_of(
    settings: HistogramSettings,
    file: Path | None,
    records: int | None,
    shown: "_Shown",
    *,
    time: tuple[str | None, Any],
    scale: tuple[float, bool],
    windows: int,
) -> WindowSource:
    def reading(done: int, total: int | None) -> None:
        shown("reading the sample, records", done, total or 0)

    share, stretch = scale
    if file is not None:
        found = read_file(file, settings, time=time[0], time_unit=time[1], wide=True, progress=reading)
        title = f"the sample {file}"
    else:
        assert records is not None

        reach_both(settings)
        found = read_topic(settings, records, wide=True, progress=reading)
        title = f"the newest {len(found):,} records of topic {settings.input.called}"
    return OfSample(in_grid_units(found, settings), title, share=share, stretch=stretch, most=windows)


def _law_of(**of: Any) -> WindowSource:
    def make(settings: HistogramSettings) -> Law:
        window = settings.window
        occupied = settings.calendar.windows.usual / (settings.triggers * window.trigger_every)
        return Law(fields=settings.layout.values, occupied=occupied, **of)

    return OfLaw(make)


def _show(settings: Settings, found: ExpectedErrors, as_json: bool) -> None:
    if not as_json:
        out().print(errors_table(settings.kind, found))
        return
    rows = [{"what": what, "values": values, "std_error_over_theta": error} for what, values, error in found.rows]
    document = {"schema": 1, "kind": settings.kind, "bound": found.bound, "note": found.note, "std_errors": rows}
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


class _Shown:
    """A bar on standard error for what is being done; nothing where that is no terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=err(), transient=True, disable=not err().is_terminal)
        self._what = ""
        self._task: Any = None

    def __enter__(self) -> "_Shown":
        self._bars.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bars.__exit__(*error)

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._what, self._task = what, self._bars.add_task(what, total=total or None)
        self._bars.update(self._task, completed=done)
