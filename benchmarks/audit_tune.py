"""The audit of `susurrus tune`: what each answer about a sample reveals of one user in it.

Neighbours differ in the records of one user, in any way; δ is 0. Every answer has an epsilon of its own, and its claim is that.
Flow: `SCENARIOS` (a sample with and without the change) → `play_tune` (it is asked again and again) → audit_statistics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.agents.planning import tune
from susurrus.agents.planning.sample import Sample
from susurrus.agents.planning.tune import Answers, questions_of
from susurrus.mechanisms import user_quantile
from susurrus.mechanisms.exact import Below, bernoulli_exp, discrete_laplace
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.user_quantile import MASS, UserQuantile

REAL = "none"
DEFECTS = {
    "users' noise halved": "the number of users has half the noise that its part of epsilon asks for",
    "score at twice its weight": "the quantile is chosen with epsilon times the score in place of half of it",
    "a user weighs its windows": "the quantile counts a user once for each of its windows",
}
USERS, CAP = "users", "cap"
LARGEST_CAP = 300
DAY = 86_400_000

Records = dict[int, int]
"""Of one user: window -> records, each of another key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneScenario:
    """users: of the sample; the first one is another (or gone, if it has no records) in the neighbour. asks: USERS or CAP. epsilon:
    of the whole run; `claim` is the part of the answer that is asked for."""

    what: str
    users: tuple[Records, ...]
    instead: Records
    asks: str
    epsilon: Fraction
    exposes: tuple[str, ...]

    @property
    def claim(self) -> float:
        """Epsilon of the answer."""
        asked = questions_of(_settings(), epsilon=self.epsilon, quantile=Fraction(1, 2), largest_cap=LARGEST_CAP)
        return float(asked.users_epsilon if self.asks == USERS else asked.quantiles[0].mechanism.epsilon)


SCENARIOS = {
    "a user more in a sample": TuneScenario(
        what="the number of users",
        users=({0: 1},) * 8,
        instead={},
        asks=USERS,
        epsilon=Fraction(10),
        exposes=("users' noise halved",),
    ),
    # Two users need 200 records and one needs more than can be found. The smaller caps then miss the median by as much as the
    # larger ones do; one user who needs more, in place of few, brings the larger ones nearer and the many smaller ones farther off.
    "a user of many windows": TuneScenario(
        what="the cap that covers half of the users",
        users=(dict.fromkeys(range(8), 1), {0: 200}, {0: 200}, {0: LARGEST_CAP + 1}),
        instead=dict.fromkeys(range(8), LARGEST_CAP + 1),
        asks=CAP,
        epsilon=Fraction(10, 9),
        exposes=("score at twice its weight", "a user weighs its windows"),
    ),
}


@dataclass(frozen=True, slots=True)
class Told:
    """The answers of N runs: int64[N], the number of users, or the place of the cap among the candidates."""

    answers: npt.NDArray[np.int64]
    support: tuple[int, ...]

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, 1]."""
        return self.answers[:, None].astype(np.float64)

    def flags(self) -> npt.NDArray[np.bool_]:
        """bool[N, support]: which answer it is."""
        return self.answers[:, None] == np.array(self.support)

    def names(self) -> list[str]:
        """What the flags say."""
        return [f"answer {number}" for number in self.support]


def play_tune(name: str, *, replaced: bool, trials: int, seed: int, defect: str = REAL) -> Told:
    """Ask `trials` times with randomness of its own, and return what is told. replaced: of the neighbour."""
    scenario, settings = SCENARIOS[name], _settings()
    sample = _sample([scenario.instead if replaced else scenario.users[0], *scenario.users[1:]])
    questions = questions_of(settings, epsilon=scenario.epsilon, quantile=Fraction(1, 2), largest_cap=LARGEST_CAP)
    below = Random(f"{seed} {name} {replaced}").randrange
    strategy = build_strategy(settings.plan())
    needs = tune.needs_of(sample, settings, strategy.bounding)
    with (
        # Functions of the sample and of constants: what differs from run to run are the draws.
        patch.object(tune, "build_strategy", lambda plan: strategy),
        patch.object(tune, "needs_of", lambda *of: needs),
        _planted(defect),
    ):
        told = [_answer(questions.answer(sample, settings, below), scenario.asks) for _ in range(trials)]
    support = range(max(0, sample.users - 3), sample.users + 4)
    if scenario.asks == CAP:
        support = range(len(questions.quantiles[0].numbers) + 1)
    return Told(np.array(told, np.int64), tuple(support))


def _answer(answers: Answers, asks: str) -> int:
    if asks == USERS:
        return answers.users
    [cap] = answers.answers
    numbers = cap.question.numbers
    return len(numbers) if cap.value is None else numbers.index(cap.value)


@contextmanager
def _planted(defect: str) -> Iterator[None]:
    """`tune` with one fault."""
    if defect == "users' noise halved":

        def quiet(epsilon: Fraction, below: Below) -> int:
            return discrete_laplace(2 * epsilon, below)

        with patch.object(tune, "discrete_laplace", quiet):
            yield
    elif defect == "score at twice its weight":

        def sharp(gamma: Fraction, below: Below) -> bool:
            return bernoulli_exp(2 * gamma, below)

        with patch.object(user_quantile, "bernoulli_exp", sharp):
            yield
    elif defect == "a user weighs its windows":

        def whole(mechanism: UserQuantile, user: npt.NDArray[np.int64], value: npt.NDArray[np.int64]) -> Any:
            found = np.zeros(len(mechanism.candidates) + 1, np.int64)
            np.add.at(found, np.searchsorted(np.array(mechanism.candidates, np.int64), value), MASS)
            up_to = np.cumsum(found)
            return up_to[:-1], int(up_to[-1])

        with patch.object(UserQuantile, "masses", whole):
            yield
    else:
        yield


def _settings() -> HistogramSettings:
    return HistogramSettings.of(
        settings_from(
            {
                "pipeline": {"name": "audit"},
                "input": {"topic": "raw", "user": "user", "key": ["key"]},
                "window": {"length": "1d", "trigger_every": "1d"},
                "columns": [{"name": "records", "kind": "count"}],
                "privacy": {"epsilon": 1.0, "delta": 1e-6, "strategy": "toeplitz"},
            }
        )
    )


def _sample(users: list[Records]) -> Sample:
    present = [user for user in users if user]
    rows = [
        (code, window, key)
        for code, user in enumerate(present)
        for window, records in user.items()
        for key in range(records)
    ]
    user, window, key = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Sample(
        user=user,
        key=key.astype(np.int32),
        time=window * DAY,
        values=np.zeros((len(rows), 0), np.int64),
        users=len(present),
        key_names=[b"%d" % code for code in range(LARGEST_CAP + 1)],
        read=len(rows),
        dropped={},
    )
