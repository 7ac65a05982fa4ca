"""A plan as text: tables that fit 80 columns, each with a sentence that says how to read it."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from susurrus.agents.display.drawing import GREY
from susurrus.agents.display.panels import framed
from susurrus.agents.frames import number
from susurrus.agents.planning.later import LaterForecast
from susurrus.agents.planning.outcome import Spread, StrategyForecast, StrategyOutcome
from susurrus.agents.planning.plan import CLEAR, PipelinePlan, Variant
from susurrus.agents.planning.volumes import USER_BYTES, Volumes
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.agents.types.durations import format_duration
from susurrus.topics.records.reason import Reason

WARNING = (
    "The numbers below were computed from raw records, exactly, without privacy protection. Keep them inside the trust "
    "zone. Bounds, epsilon, keys or a strategy that are chosen by looking at the data that they are to protect are outside "
    "the guarantee: choose them from public knowledge, from data of other people, or with susurrus tune, which pays for it."
)
_MARK = "▶ "


def rendered(plan: PipelinePlan, width: int) -> Group:
    """The whole plan. width: of the terminal."""
    return Group(*_parts(plan, width))


def _parts(plan: PipelinePlan, width: int) -> Iterator[RenderableType]:
    if plan.private:
        yield framed(WARNING, "[bold]This forecast is not private[/bold]", "red")
    yield from _head(plan)
    own = plan.of(plan.runs)
    usable = [each for each in plan.forecasts if each.refused is None]
    if own.outcome is not None:
        yield from _section("At the end of a window")
        yield _ends(plan, usable)
        yield _note(
            f"Mean ± standard deviation over {plan.seeds} draws of noise"
            + (f" and {len(plan.sizes)} windows" if len(plan.sizes) > 1 else "")
            + ". ℓ1 is the sum of |published - true| over all keys; a key that is not published counts with all it has."
        )
    else:
        yield Text()
    yield from _verdict(plan)
    yield from _matrices(plan, usable)
    if own.outcome is not None:
        for each in usable if plan.settings.grouping else [own]:
            assert each.outcome is not None
            yield from _sizes(each.name, each.outcome, plan.settings.published_columns[0].name)
        if plan.later is not None:
            yield from _later(plan.later)
        yield from _losses(plan, own.outcome, usable)
        if plan.settings.grouping:
            yield _note(
                "Volumes are forecast for one grouping. Of several, by-user has each record once, and the other topics and states "
                "have the sum of all levels."
            )
        else:
            yield from _volumes(plan.runs, own.outcome.volumes, plan)
    else:
        yield Text()
        yield _note(
            "Keys found, errors and volumes depend on the data: give --users (a synthetic law), or --sample or --raw-records "
            "inside the trust zone."
        )
    if plan.what_if:
        yield from _what_if(plan, width)


def _head(plan: PipelinePlan) -> Iterator[RenderableType]:
    settings = plan.settings
    yield Text.assemble((plan.pipeline, "bold"), f": {plan.title}")
    yield Text(
        f"epsilon {settings.privacy.epsilon:g}, delta {settings.privacy.delta:g} per user and window of "
        f"{settings.window.length_text}; T = {settings.triggers_text} triggers"
        + ("" if settings.grouping else f", {_caps(plan)}"),
    )
    for size in plan.sizes:
        yield Text(f"{size.name}: {size.records:,} records, {size.users:,} users, {size.keys:,} keys")
    for note in plan.notes:
        yield Text(f"- {note}", style=GREY)
    if plan.dropped:
        why = ", ".join(f"{count:,} {_reason(name)}" for name, count in plan.dropped.items())
        yield Text(f"left out of {plan.read:,} records read: {why}")
    if plan.extrapolation is not None:
        tried = plan.extrapolation
        yield _note(
            f"- how far copies mislead, tried on the sample itself: {tried.share:.0%} of its users, scaled up in this way, gave "
            f"{_share(tried.keys)} of the keys and {_share(tried.l1)} of the error that the sample gives"
        )


def _caps(plan: PipelinePlan) -> str:
    bounds = plan.settings.bounds
    return f"C = {bounds.max_records_per_user} records per user, m = {bounds.max_records_per_key} per key"


def _kind(plan: PipelinePlan) -> str:
    """What the rows of the tables are."""
    return "level" if plan.settings.grouping else "strategy"


def _reason(name: str) -> str:
    return "by input.where" if name == "FILTERED" else f"{name} ({Reason[name].message})"


def _ends(plan: PipelinePlan, usable: Sequence[StrategyForecast]) -> Table:
    name = plan.settings.published_columns[0].name
    table = _table(_kind(plan), "keys published", "their records", f"ℓ1 of {name}", "of its total", "records kept")
    for each in usable:
        if each.outcome is None:
            continue
        end = each.outcome.triggers[-1]
        errors = end.columns[name]
        table.add_row(
            _named(each.name, plan),
            _spread(end.keys),
            _share(end.covered.mean),
            _spread(errors.l1),
            _share(errors.relative.mean),
            _share(each.outcome.kept),
        )
    return table


def _verdict(plan: PipelinePlan) -> Iterator[RenderableType]:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if levels := plan.settings.grouping:
        for level, each in zip(levels, plan.forecasts, strict=True):
            caps = f"C = {level.max_records}, m = {level.max_records_per_key}, {level.share:.1%} of the squared budget"
            table.add_row(level.name, f"{caps}; {each.summary.partition(':')[0]}")
    else:
        why = "as configured" if plan.why is None else f"the default: {plan.why}"
        table.add_row("runs", f"{plan.runs}, {why}")
    if plan.preferred is not None:
        table.add_row("forecast prefers", f"{plan.preferred} by {plan.by}")
        if "no clear difference" in plan.by:
            table.add_row("", f"(another one is preferred where it is lower by {CLEAR:g} standard deviations)")
    for sentence in plan.consider:
        table.add_row("consider", sentence)
    for each in plan.forecasts if plan.settings.grouping else [plan.of(plan.runs)]:
        for what, text in each.about:
            table.add_row(what, f"{each.name}: {text}" if plan.settings.grouping else text)
    if plan.rolling is not None:
        table.add_row("rolling view", plan.rolling)
    for each in plan.forecasts:
        if each.refused is not None:
            table.add_row("not possible", f"{each.name}: {each.refused}")
    yield table


def _matrices(plan: PipelinePlan, usable: Sequence[StrategyForecast]) -> Iterator[RenderableType]:
    at = plan.of(plan.runs).triggers
    heads = [_kind(plan), *(f"trigger {trigger}" for trigger in at)]
    if any(each.appears for each in usable):
        yield from _section("Users from which a key appears, 95 % (50 %)")
        table = _table(*heads)
        for each in usable:
            pairs = zip(each.appears[0.95], each.appears[0.5], strict=True) if each.appears else ()
            table.add_row(_named(each.name, plan), *(f"{most:,} ({half:,})" for most, half in pairs))
        yield table
        yield _note(
            "If they come steadily up to that trigger, and it is the first key of each of them (with strategies that rank keys)."
        )
    for column in plan.settings.published_columns:
        if not any(column.name in each.std_errors for each in usable):
            continue
        yield from _section(f"Standard error of {column.name}")
        table = _table(*heads)
        for each in usable:
            errors = [number(error) for error in each.std_errors.get(column.name, ())]
            table.add_row(_named(each.name, plan), *(_short(error) for error in errors))
        yield table
    if any(each.outcome is not None for each in usable):
        yield from _section("Keys published")
        table = _table(_kind(plan), *(f"trigger {row.trigger}" for row in _outcome(plan).triggers))
        for each in usable:
            if each.outcome is not None:
                table.add_row(_named(each.name, plan), *(f"{row.keys.mean:,.0f}" for row in each.outcome.triggers))
        yield table
        yield from _section(f"ℓ1 of {plan.settings.published_columns[0].name}, as a share of its total")
        table = _table(_kind(plan), *(f"trigger {row.trigger}" for row in _outcome(plan).triggers))
        for each in usable:
            if each.outcome is not None:
                name = plan.settings.published_columns[0].name
                shares = (_share(row.columns[name].relative.mean) for row in each.outcome.triggers)
                table.add_row(_named(each.name, plan), *shares)
        yield table


def _outcome(plan: PipelinePlan) -> StrategyOutcome:
    outcome = plan.of(plan.runs).outcome
    assert outcome is not None
    return outcome


def _sizes(name: str, outcome: StrategyOutcome, column: str) -> Iterator[RenderableType]:
    yield from _section(f"Keys by their users, at the end of a window ({name})")
    table = _table("users of the key", "keys", "published", f"mean error of {column}", "relative")
    for each in outcome.sizes:
        users = f"{each.least:,} or more" if each.most is None else f"{each.least:,} to {each.most:,}"
        table.add_row(
            users, f"{each.keys:,.0f}", _share(each.found.mean), _number(each.error.mean), _share(each.relative.mean)
        )
    yield table
    yield _note("Errors are those of the published keys, against the exact values without caps and clamps.")
    others = [name for name in outcome.triggers[-1].columns if name != column]
    if others:
        yield from _section(f"All columns, at the end of a window ({name})")
        table = _table("column", "ℓ1 of total", "mean error, published", "standard error")
        for each_name, errors in outcome.triggers[-1].columns.items():
            table.add_row(
                each_name,
                _share(errors.relative.mean),
                _number(errors.published.mean),
                _number(errors.std_error.mean),
            )
        yield table


def _later(later: LaterForecast) -> Iterator[RenderableType]:
    yield from _section(f"Once windows remember: the first and the {later.window}th, of {later.column}")
    table = _table("trigger", "usable rows", f"in the {later.window}th", "ℓ1 of its total", f"in the {later.window}th")
    for first, then in zip(later.first, later.later, strict=True):
        table.add_row(
            f"{first.trigger}",
            f"{first.usable:,}",
            f"{then.usable:,}",
            _share(first.relative),
            _share(then.relative),
        )
    yield table
    known = "as the windows of the sample show it" if later.measured else "which is assumed: --churn"
    yield _note(
        f"Usable rows are at most half of the true count off. When the {later.window}th window begins, {later.remembered:,} keys "
        "are remembered. Taken for granted: every window has as many users as this one, other ones; from one window to the next "
        f"{later.churn:.1%} of the keys swap places with each other ({known}), and the others stay as popular. One draw of users "
        "and noise."
    )


def _losses(
    plan: PipelinePlan, outcome: StrategyOutcome, usable: Sequence[StrategyForecast]
) -> Iterator[RenderableType]:
    yield from _section("What caps and clamps drop")
    for each in usable if plan.settings.grouping else ():
        if each.outcome is not None:
            yield Text(
                f"{each.name}: {each.outcome.kept:.1%} of the records count; {each.outcome.users_over:.1%} of the users lose some."
            )
    if not plan.settings.grouping:
        caps = _caps(plan).replace(" records per user,", " and").removesuffix(" per key")
        yield Text(f"{caps} keep {outcome.kept:.1%} of the records; {outcome.users_over:.1%} of the users lose some.")
    for name, (records, of_sum) in outcome.clamped.items():
        yield Text(
            f"The bounds of {name} change {records:.1%} of the values, and take {of_sum:.1%} of their sum."
            if plan.private
            else f"Values of {name} are drawn within the bounds, so that clamps take nothing."
        )


def _volumes(name: str, volumes: Volumes, plan: PipelinePlan) -> Iterator[RenderableType]:
    yield from _section(f"Volumes of a window ({name})")
    table = _table("topic", "bytes", "state at its end", "bytes")
    states = [(f"of stage {stage}", size) for stage, size in volumes.state.items()]
    for index, (topic, size) in enumerate(volumes.topics.items()):
        stage, kept = states[index] if index < len(states) else ("", None)
        table.add_row(topic, decimal(round(size)), stage, "" if kept is None else decimal(round(kept)))
    yield table
    yield _note(
        f"Of keys and values by the topics' own encoders, uncompressed, one replica; user ids of {USER_BYTES} bytes are "
        f"assumed. The busiest trigger has {volumes.busiest:,.0f} records; {volumes.rows:,.0f} rows are published in all, "
        f"{volumes.last_rows:,.0f} at the last trigger."
    )
    total = sum(volumes.seconds.values())
    parts = ", ".join(f"{stage} {_seconds(seconds)}" for stage, seconds in volumes.seconds.items())
    every = format_duration(plan.settings.window.trigger_every)
    yield Text(
        f"The busiest trigger takes about {_seconds(total)} of one core ({parts}), of {every} until the next; "
        f"{volumes.workers} worker process{'' if volumes.workers == 1 else 'es'} would do."
    )
    yield _note(
        "About: the mechanism was timed here, the rest is the cost per record and row of docs/scale.md and "
        "docs/performance.md, without Kafka's client and broker."
    )
    if volumes.open_records > plan.settings.worker.max_open_records:
        yield Text(
            f"A by-user partition has {volumes.open_records:,.0f} records of one trigger open, more than worker.max_open_records = "
            f"{plan.settings.worker.max_open_records:,}: they are spilled to disk; use more topics.by_user_partitions."
        )


def _what_if(plan: PipelinePlan, width: int) -> Iterator[RenderableType]:
    name = plan.settings.published_columns[0].name
    yield from _section("What if")
    constants = list(plan.what_if[0].changes)
    known = any(each.forecast is not None and each.forecast.outcome is not None for each in plan.what_if)
    heads = [*constants, "strategy"]
    heads += (
        ["keys", f"ℓ1 of {name}", "of total", "kept", "users 95 %"] if known else ["users 95 %", f"error of {name}"]
    )
    clamps = known and plan.private and bool(plan.settings.layout.values) and width >= 90
    table = _table(*heads, *(["clamped"] if clamps else []), left=len(constants) + 1)
    for each in plan.what_if:
        values = [f"{each.changes[constant]:g}" for constant in constants]
        table.add_row(*values, *_variant_cells(each, name, known, clamps))
    yield table
    for each in plan.what_if:
        if each.refused is not None:
            which = ", ".join(f"{constant} = {value:g}" for constant, value in each.changes.items())
            yield Text(f"{which}: {each.refused}", style=GREY)
    yield _note(
        "At the end of a window, by the strategy that would run. users 95 %: from how many users on a key appears by then."
    )


def _variant_cells(each: Variant, name: str, known: bool, clamps: bool) -> list[str]:
    found = each.forecast
    if found is None:
        return ["refused"]
    users = f"{found.appears[0.95][-1]:,}" if found.appears else ""
    if not known or found.outcome is None:
        return [found.name, users, number(found.std_errors[name][-1]) if name in found.std_errors else ""]
    end = found.outcome.triggers[-1]
    errors = end.columns[name]
    cells = [
        found.name,
        _spread(end.keys),
        _spread(errors.l1),
        _share(errors.relative.mean),
        _share(found.outcome.kept),
        users,
    ]
    if clamps:
        cells.append(_share(max((of_sum for _, of_sum in found.outcome.clamped.values()), default=math.nan)))
    return cells


def errors_table(kind: str, found: ExpectedErrors) -> Group:
    """The standard errors that a kind has formulas for."""
    table = _table("published number", "values", "error / theta", "at theta = bound", "at bound / 10")
    for what, values, error in found.rows:
        table.add_row(what, f"{values:,}", number(error), number(error * found.bound), number(error * found.bound / 10))
    return Group(
        Text.assemble("Standard errors of kind ", (kind, "bold"), ", from the configuration alone"),
        table,
        _note(
            f"Theta is the clipping threshold that the pipeline finds, at most the bound of {found.bound:g}. "
            f"The errors are {found.note}. Keys, volumes and what-if tables are forecast for histograms only; docs/plan.md says "
            "what to use instead."
        ),
    )


def _section(title: str) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")


def _note(text: str) -> Text:
    return Text(text, style=GREY)


def _named(name: str, plan: PipelinePlan) -> str:
    if plan.settings.grouping:
        return name
    return (_MARK if name == plan.runs else "  ") + name


def _table(*heads: str, left: int = 1) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index < left else "right", vertical="bottom")
    return table


def _spread(value: Spread) -> str:
    if math.isnan(value.mean):
        return "-"
    if not value.deviation:
        return _number(value.mean)
    deviation = f"{value.deviation:,.0f}" if value.mean >= 100 else f"{value.deviation:.2g}"
    return f"{_number(value.mean)} ± {deviation}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    if value >= 100_000_000:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"


def _short(text: str) -> str:
    """A number that would not fit a column of a narrow table."""
    plain = text.replace(",", "")
    return text if len(text) <= 9 else f"{float(plain):.3g}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}" if value < 0.9995 else f"{value:.0%}"


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value >= 0.0095 else f"{value * 1000:.1g} ms"
