"""What `susurrus tune` prints: the costs before it asks, the answers with the noise of each choice, and the lines to write."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from susurrus.agents.display.drawing import GREY
from susurrus.agents.frames import number
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.tune import (
    Answer,
    Answers,
    Candidate,
    Question,
    Questions,
    choices,
    larger_if_all_lasts,
    toml_lines,
)
from susurrus.mechanisms.histogram.registry import build_strategy

SCHEMA = 1
_MARK = "→"


def cost_table(
    questions: Questions,
    settings: HistogramSettings,
    source: str,
    *,
    budget: str,
    public: bool,
) -> Table:
    """What is asked, and what it costs. budget: what that means for the budget, in words."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("sample", Text(source))
    if public:
        table.add_row("asks", Text(", ".join(asked.setting for asked in questions.quantiles)))
        table.add_row("costs", "nothing: the file is public, as you say, and the answers are exact")
        return table
    asked = [f"how many users there are ({float(questions.users_epsilon):g})"]
    asked += [f"{one.setting} ({float(one.mechanism.epsilon):g})" for one in questions.quantiles]
    table.add_row("asks", Text(", ".join(asked)))
    promise, window = questions.guarantee, build_strategy(settings.plan()).guarantee
    table.add_row(
        "costs",
        f"epsilon {promise.epsilon:g} together, for everything that one user has in the sample; in the ledger mu {promise.mu:.3g}, "
        f"as much as {promise.mu**2 / window.mu**2:.2g} windows of this pipeline",
    )
    table.add_row("needs", f"about {questions.users_needed:,} users or more, else the answers mean nothing")
    table.add_row("budget", Text(budget))
    return table


def picture(
    answers: Answers, settings: HistogramSettings, width: int, *, notes: Sequence[str], public: bool
) -> RenderableType:
    """Everything that is printed after the charge."""
    if public:
        users = f"{answers.users:,} users."
    else:
        users = f"About {answers.users:,} users (± {answers.users_margin:,} with 95 % confidence)."
    parts: list[RenderableType] = [Text(users)]
    for answer in answers.answers:
        parts += [Text(), *_section(answer, settings, answer.question.users_needed + answers.users_margin)]
    if not all(answer.too_few for answer in answers.answers):
        parts += [Text(), Text(_legend(settings), style=GREY)]
    if lines := list(toml_lines(answers.answers, settings)):
        parts += [Text(), Text("To write, if you agree:"), Text("\n".join(f"    {line}".rstrip() for line in lines))]
    notes = [
        *notes,
        "Nothing was changed. A pipeline that has begun keeps its bounds: others need a new name or a new epoch.",
    ]
    return Group(*parts, Text(), *(Text(note, style=GREY) for note in notes))


def _section(answer: Answer, settings: HistogramSettings, needed: int) -> Iterator[RenderableType]:
    asked = answer.question
    yield Text.assemble((asked.setting, "bold"), ": ", (_said(answer), "bold"), f" (now {_plain(asked.now)})")
    if answer.too_few:
        yield Text(
            f"The sample has too few users for this epsilon: about {needed:,} are needed. Take more users, or a larger "
            "--epsilon."
        )
        return
    yield Text(_why(answer))
    if answer.value is None:
        yield Text(_beyond(asked))
    found = choices(answer, settings)
    shown = [
        column.name
        for column in settings.measured_columns
        if asked.field is None or (column.field is not None and column.field == settings.layout.values[asked.field])
        if "/count" not in column.name
    ]
    yield Padding(_table(found, shown), (0, 0, 0, 2))


def _said(answer: Answer) -> str:
    if answer.too_few:
        return "no answer"
    if answer.value is None:
        return f"more than {_plain(float(answer.question.numbers[-1]))}"
    return _plain(float(answer.value))


def _why(answer: Answer) -> str:
    asked, quantile = answer.question, float(answer.question.mechanism.quantile)
    if asked.field is None:
        what, name = "of the users lose nothing to this cap in a window", "cap"
        effect = "A larger cap keeps more of what the others bring, and adds noise to every key: it grows with the cap's root."
    else:
        what, name = "of the users' values are no larger, if every user weighs the same", "bound"
        effect = "A larger bound clamps fewer values, and adds noise to every key: it grows with the bound."
    sure = ""
    if answer.misses:
        low, high = 100 * max(0.0, quantile - answer.misses), 100 * min(1.0, quantile + answer.misses)
        sure = f" With 95 % confidence it is {low:.3g} % or more, and the next smaller {name} would do for {high:.3g} % at most."
    return f"About {100 * quantile:.4g} % {what}.{sure} {effect}"


def _beyond(asked: Question) -> str:
    fix = "--largest-cap" if asked.field is None else "a larger bound in the configuration"
    return f"The largest candidate is {_plain(float(asked.numbers[-1]))}: use {fix} to look further, which costs again."


def _legend(settings: HistogramSettings) -> str:
    refined = build_strategy(settings.plan()).refined
    more = f', before what "{settings.choice.name}" measures once more' if refined else ""
    return f"± : half of a 95 % interval at a window's last trigger{more}. It is the same for every key.{_memory(settings)}"


def _memory(settings: HistogramSettings) -> str:
    """What the noise leaves out: tune looks at one window."""
    if not settings.remember and settings.evidence_windows == 1:
        return ""
    text = " It is that of an epoch's first window: tune does not see what later windows have from those before them."
    if settings.remember:
        text += " There, rows of remembered keys are drawn to the window before and have smaller errors."
    if (more := larger_if_all_lasts(settings)) is not None:
        text += f" Other rows have up to {100 * more:.0f} % more noise, the more the more lasts."
    return f"{text} To see that for a cap, use `susurrus plan`."


def _table(found: Sequence[Candidate], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    for name in columns:
        table.add_column(f"± {name.replace('/sum', ' (its sum)')}", justify="right", no_wrap=True, overflow="ellipsis")
    table.add_column("", style=GREY)
    for choice in found:
        noise = ["refused" if choice.noise is None else number(round(choice.noise[name], 1)) for name in columns]
        style = "bold" if choice.recommended else ""
        table.add_row(
            _MARK if choice.recommended else "",
            _plain(float(choice.value)),
            *noise,
            "now" if choice.configured else "",
            style=style,
        )
    return table


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,g}"


def as_dict(
    answers: Answers, questions: Questions, settings: HistogramSettings, source: str, *, run: str | None
) -> dict[str, Any]:
    """The answers for programs. value: null where there is none, or where it is more than the largest candidate. run: the id under
    which they are charged; null where they are not."""
    promise = questions.guarantee
    return {
        "schema": SCHEMA,
        "sample": source,
        "run": run,
        "epsilon": promise.epsilon,
        "mu": promise.mu,
        "users": {"estimate": answers.users, "margin": answers.users_margin},
        "noise_of": "an epoch's first window",
        "recommendations": [
            {
                "setting": "bounds.max_records_per_user" if answer.question.field is None else "bound",
                "columns": list(answer.question.columns),
                "configured": answer.question.now,
                "value": None if answer.value is None or answer.too_few else float(answer.value),
                "beyond_largest": answer.value is None,
                "too_few_users": answer.too_few,
                "quantile": float(answer.question.mechanism.quantile),
                "misses": answer.misses,
                "choices": [
                    {"value": float(choice.value), "noise": choice.noise}
                    for choice in ([] if answer.too_few else choices(answer, settings))
                ],
            }
            for answer in answers.answers
        ],
    }
