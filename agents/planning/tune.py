"""What bounds fit the users of a sample: questions to their records, answered privately, and what follows from the answers.

    Sample ──needs.py──▶ what each user needs ──mechanisms/user_quantile.py──▶ answers ──▶ recommendations

``Questions.guarantee`` covers everything that ``Questions.answer`` returns. What is made of it, such as the noise of each cap and
bound, follows from public constants: post-processing. Argument: docs/guarantees/quantile.md.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.needs import Needs, needs_of
from susurrus.agents.planning.sample import WIDE_STEPS, Sample
from susurrus.mechanisms.accounting import mu_of_pure
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.exact import Below, discrete_laplace
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.persistence import TENTHS
from susurrus.mechanisms.histogram.plan import MAX_BOUND
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.user_quantile import UserQuantile, round_numbers
from susurrus.topics.records.raw import ValueField

USERS_SHARE: Final = Fraction(1, 10)
"""The share of epsilon for the number of users; the rest is shared by the quantiles in equal parts."""
UNIT: Final = "user, sample"
NEIGHBOURS: Final = "one user's records in the sample, in any way"
_WRONG: Final = 0.05
"""The probability with which a margin may be exceeded. Half of it is for the number of users being smaller than it seems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One quantile. columns: those that the bound of a field concerns; none for the cap on records. steps: of the sample's grid in
    one unit of the candidates."""

    columns: tuple[str, ...]
    field: int | None
    now: float
    numbers: tuple[Fraction, ...]
    """The candidates as the configuration would have them."""
    mechanism: UserQuantile

    @property
    def setting(self) -> str:
        """The setting that it is about."""
        return "bounds.max_records_per_user" if self.field is None else f"bound of {', '.join(self.columns)}"

    @property
    def users_needed(self) -> int:
        """The number of users from which on the answer is worth something: it misses by less than the tail that it looks for."""
        tail = min(self.mechanism.quantile, 1 - self.mechanism.quantile)
        return math.ceil(self.mechanism.misses(_WRONG / 2) / float(tail))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """value: of the setting; None: more than the largest candidate. misses: a share of the users. With 95 % confidence more than
    quantile - misses of them are within the value, and fewer than quantile + misses within the next smaller candidate. 0 where the
    sample is public."""

    question: Question
    value: Fraction | None
    misses: float

    @property
    def too_few(self) -> bool:
        """Whether there are too few users for an answer that means something."""
        quantile = float(self.question.mechanism.quantile)
        return self.misses >= min(quantile, 1 - quantile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """users: how many the sample has, with noise unless it is public. users_margin: the noise is within it with 95 %."""

    users: int
    users_margin: int
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What one run asks. users_epsilon: of the number of users."""

    quantiles: tuple[Question, ...]
    users_epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for everything that `answer` returns. Neighbours: two samples, neither empty, that differ in the records
        of one user, in any way."""
        mus = [mu_of_pure(float(self.users_epsilon)), *(asked.mechanism.mu for asked in self.quantiles)]
        epsilon = self.users_epsilon + sum(asked.mechanism.epsilon for asked in self.quantiles)
        return Guarantee(
            epsilon=float(epsilon),
            delta=0.0,
            mu=math.sqrt(math.fsum(mu * mu for mu in mus)) * (1 + 2.0**-50),
            delta_gaussian=0.0,
            delta_selection=0.0,
            unit=UNIT,
            neighbours=NEIGHBOURS,
        )

    @property
    def users_margin(self) -> int:
        """P(|noise| > margin) <= 5 %."""
        return math.ceil(-math.log(_WRONG) / float(self.users_epsilon))

    @property
    def users_needed(self) -> int:
        """The number of users from which on all answers mean something."""
        return self.users_margin + max(asked.users_needed for asked in self.quantiles)

    def answer(self, sample: Sample, settings: HistogramSettings, below: Below | None) -> Answers:
        """The answers, with exact randomness from ``below``. None: the sample is public, and the answers are exact."""
        needs = needs_of(sample, settings, build_strategy(settings.plan()).bounding)
        users = sample.users
        if below is not None:
            users = max(0, users + discrete_laplace(self.users_epsilon, below))
        margin = 0 if below is None else self.users_margin
        return Answers(
            users=users,
            users_margin=margin,
            answers=tuple(self._one(asked, needs, max(1, users - margin), below) for asked in self.quantiles),
        )

    def _one(self, asked: Question, needs: Needs, at_least: int, below: Below | None) -> Answer:
        mechanism = asked.mechanism
        data = (needs.user, needs.records) if asked.field is None else (needs.by, needs.sizes[:, asked.field])
        if below is None:
            chosen, misses = mechanism.without_noise(*data), 0.0
        else:
            chosen, misses = mechanism.choose(*data, below), mechanism.misses(_WRONG / 2) / at_least
        value = None if chosen is None else asked.numbers[mechanism.candidates.index(chosen)]
        return Answer(question=asked, value=value, misses=misses)


def questions_of(
    settings: HistogramSettings, *, epsilon: Fraction, quantile: Fraction, largest_cap: int = 5_000
) -> Questions:
    """The cap on records, and the bound of every field that a column sums. epsilon: of the whole run. Where all records have one
    key there is no cap on records to choose beside that of a key. The range of quantiles is not asked for: of their fields the
    sample has buckets alone.

    Raises ConfigurationError for numbers that cannot be right.
    """
    fields = {place: value for place, value in enumerate(settings.layout.values) if isinstance(value, ValueField)}
    asked = len(fields) + (not settings.total)
    if not asked:
        raise ConfigurationError(
            "input.key = []: there is no cap and no bound to recommend; choose bounds.max_records_per_key from what is public"
        )
    share = epsilon * (1 - USERS_SHARE) / asked
    if not Fraction(1, 1000) <= share <= 10:
        raise ConfigurationError(
            f"--epsilon {float(epsilon):g}: each answer would have {float(share):g}; use 0.01 to 10"
        )
    least = settings.bounds.max_records_per_key
    round_caps = round_numbers(1, max(1, largest_cap))
    caps = [number for number in round_caps if number.denominator == 1 and least <= number <= largest_cap]
    if not caps:
        raise ConfigurationError(
            f"--largest-cap {largest_cap}: is below bounds.max_records_per_key = {least}; use a larger one"
        )
    of_records = [
        Question(
            columns=(),
            field=None,
            now=settings.bounds.max_records_per_user,
            numbers=tuple(caps),
            mechanism=UserQuantile(candidates=tuple(map(int, caps)), quantile=quantile, epsilon=share),
        )
    ]
    found = [] if settings.total else of_records
    for place, value in fields.items():
        numbers, candidates = _bounds(value)
        names = tuple(column.name for column in settings.columns if column.column().field == value)
        mechanism = UserQuantile(candidates=candidates, quantile=quantile, epsilon=share)
        found.append(Question(columns=names, field=place, now=value.bound, numbers=numbers, mechanism=mechanism))
    return Questions(quantiles=tuple(found), users_epsilon=epsilon * USERS_SHARE)


def _bounds(value: ValueField) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    """The bounds from one unit of the grid to the largest that the grid allows, and each in the grid of a wide sample."""
    grid = Fraction(value.grid)
    numbers = tuple(round_numbers(value.grid, value.grid * MAX_BOUND))
    return numbers, tuple(math.floor(number * WIDE_STEPS / grid) for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate beside the recommended one. noise: half of the 95 % interval at a window's last trigger, in the column's unit, by
    measured column; None where the strategy refuses the number."""

    value: Fraction
    recommended: bool
    configured: bool
    noise: dict[str, float] | None


def choices(answer: Answer, settings: HistogramSettings, around: int = 2) -> list[Candidate]:
    """The recommended candidate, those around it and the configured one, with the noise of each. Public constants alone decide."""
    asked = answer.question
    if answer.value is None:
        near = set(asked.numbers[-around - 1 :])
    else:
        place = asked.numbers.index(answer.value)
        near = set(asked.numbers[max(0, place - around) : place + around + 1])
    now = Fraction(str(asked.now))
    return [
        Candidate(
            value=number,
            recommended=number == answer.value,
            configured=number == now,
            noise=_noise(_with(settings, asked, number)),
        )
        for number in sorted(near | {now})
    ]


def _with(settings: HistogramSettings, asked: Question, number: Fraction) -> HistogramSettings:
    """The settings with another cap or bound."""
    if asked.field is None:
        bounds = settings.bounds.model_copy(update={"max_records_per_user": int(number)})
        return settings.model_copy(update={"bounds": bounds})
    columns = tuple(
        column.model_copy(update={"bound": float(number)}) if column.name in asked.columns else column
        for column in settings.columns
    )
    return settings.model_copy(update={"columns": columns})


def _noise(settings: HistogramSettings) -> dict[str, float] | None:
    try:
        if settings.problems():
            return None
        strategy = build_strategy(settings.plan())
    except ConfigurationError:
        return None
    errors, layout = strategy.standard_errors()[-1], settings.layout
    named = zip(layout.measured, layout.places, strict=True)
    return {column.name: 1.96 * float(errors[place].max()) * column.grid for column, place in named}


def larger_if_all_lasts(settings: HistogramSettings) -> float | None:
    """By what part the noise at a window's last trigger is larger where all of the window before had lasted than where nothing had;
    None where shares do not follow that."""
    if not settings.follows_persistence:
        return None
    plan = settings.plan()
    first, lasting = (build_strategy(plan.at_persistence(kappa)).standard_errors()[-1] for kappa in (0, TENTHS))
    return float((lasting / first).max()) - 1


def toml_lines(answers: Sequence[Answer], settings: HistogramSettings) -> Iterator[str]:
    """What to write into the configuration, for answers that mean something."""
    good = {
        answer.question.field: answer.value for answer in answers if answer.value is not None and not answer.too_few
    }
    if (cap := good.pop(None, None)) is not None:
        yield from ("[bounds]", f"max_records_per_user = {int(cap)}")
    for answer in answers:
        asked = answer.question
        if asked.field not in good:
            continue
        for column in asked.columns:
            yield from ("", "[[columns]]", f'name = "{column}"', f"bound = {number_text(good[asked.field])}")


def number_text(value: Fraction | None) -> str:
    """A candidate as TOML writes it."""
    assert value is not None
    return str(int(value)) if value.denominator == 1 else f"{float(value):g}"
