"""What came after a trigger, where `closing` itself has calibrated the window's end: the whole chain, on simulated users."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.histogram.rest import RestOfWindow
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import public_units
from tests.mechanisms.histogram.closing_cases import USERS, closing, names, sums_of, window
from tests.samples import FACTOR

T = 12
Floats = npt.NDArray[np.float64]


class Day:
    """Declared keys of all sizes, and users with lists of one to twenty of them, who come during the whole window."""

    SIZE, PEOPLE = 3000, 12_000 * FACTOR

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self.strategy = closing(
            (USERS,), triggers=T, epsilon=3.0, delta=1e-6, max_records=20, keys=12, public_share=0.3, unknown_share=0.05
        )
        popularity = 1 / (1 + np.arange(self.SIZE)) ** 0.7
        popularity /= popularity.sum()
        lists = [np.unique(rng.choice(self.SIZE, size=rng.integers(1, 21), p=popularity)) for _ in range(self.PEOPLE)]
        flat = np.concatenate(lists)
        come = rng.integers(1, T + 1, len(flat))
        keys, noise = names(self.SIZE), window("calibrated")
        every, declared = np.zeros(self.SIZE, np.int64), np.ones(self.SIZE, np.bool_)
        states = self.strategy.empty(self.SIZE)
        self.truth = np.zeros((T + 1, self.SIZE), np.int64)
        self.rows = np.zeros((T + 1, self.SIZE), np.int64)
        for trigger in range(1, T + 1):
            news = np.bincount(flat[come == trigger], minlength=self.SIZE)
            self.truth[trigger] = self.truth[trigger - 1] + news
            found = None
            if trigger == T:
                unit = public_units(self.rows[T - self.strategy.bounding.lag])
                found = sums_of(self.strategy.lists, [rng.permutation(each) for each in lists], unit)
            step = self.strategy.step(
                Trigger(trigger),
                keys,
                states,
                Increments(users=every, weight=every, sums=news[:, None], lists=found),
                noise,
                declared,
            )
            states, self.rows[trigger] = step.states, step.estimates[:, 0]
        pooled = step.pooled_rows
        assert pooled is not None
        assert len(pooled.index) == self.SIZE
        self.end, self.errors = self.strategy.calibrate(
            step.estimates, step.std_errors, pooled.evidence, pooled.evidence
        )
        self.own = step.std_errors

    def scores(self, trigger: int) -> Floats:
        """Errors of the rest in units of its standard errors."""
        since = np.full(self.SIZE, trigger)
        rest = RestOfWindow.of(self.strategy, since, Trigger(T))
        found, variance = rest.rows(since, self.rows[trigger][:, None], self.rows[T][:, None], self.end, self.errors)
        truth = self.truth[T] - self.truth[trigger]
        return np.asarray((found[:, 0] - truth) / np.sqrt(variance[:, 0]))

    def independent(self, trigger: int) -> Floats:
        """The same of what subtracts the row from the calibrated end, as if their errors were independent."""
        variance = self.errors[:, 0] ** 2 + self.strategy.covariance(Trigger(trigger), Trigger(trigger))[0] + 1 / 12
        truth = self.truth[T] - self.truth[trigger]
        return np.asarray((self.end[:, 0] - self.rows[trigger] - truth) / np.sqrt(variance))


@pytest.fixture(scope="module")
def day() -> Day:
    return Day()


@pytest.mark.statistical
def test_the_end_is_calibrated_and_holds(day: Day) -> None:
    assert day.errors.mean() < 0.8 * day.own.mean()
    scores = (day.end[:, 0] - day.truth[T]) / day.errors[:, 0]
    assert 0.93 < np.mean(np.abs(scores) <= 1.96) < 0.995


@pytest.mark.statistical
@pytest.mark.parametrize("trigger", [1, 3, 6, 9, 11])
def test_intervals_of_the_rest_hold_and_are_not_too_wide(day: Day, trigger: int) -> None:
    scores = day.scores(trigger)
    assert np.mean(np.abs(scores) <= 1.96) == pytest.approx(0.955, abs=0.025)
    assert abs(scores.mean()) < 0.1 + 4 / math.sqrt(day.SIZE)


@pytest.mark.statistical
@pytest.mark.parametrize("trigger", [9, 11])
def test_independent_errors_would_be_too_wide(day: Day, trigger: int) -> None:
    assert np.std(day.independent(trigger)) < 0.96 < 0.99 < np.std(day.scores(trigger))
