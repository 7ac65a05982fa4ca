"""The strategy that looks once more at the end: `adaptive`, and one measurement of whole lists at the last trigger.

    list of a user at T: its distinct kept keys, in order ──ListWeights──▶ per key: users, weight, public weight
    (bound)                                                                (release: one noisy number per key and measure)

What a stream of T releases pays for again and again, a single release pays for once. So a share of the budget is kept for the last
trigger: users put weight on those of their keys that are still not public, which finds keys with half as many users as the stream
needs, and measure the public ones again. Rows of the last trigger are means of both measurements, by inverse variance.
Argument and the price: docs/guarantees/closing.md.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.accounting import tail_quantile
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.adaptive import RANKED_KEYS, geometric
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.strategy import Increments, ListSums, Plan
from susurrus.mechanisms.histogram.toeplitz import counts_users
from susurrus.mechanisms.histogram.weighted import Weighted
from susurrus.mechanisms.noise import WindowNoise, grid_units

UNKNOWN, PUBLIC = "closing/unknown", "closing/public"
BITS = 20
"""Weights and noise share the grid 2^-20 of `WEIGHT_ONE`."""
UNKNOWN_NORM = 2.0
"""Squared norm of one user's weights on keys that are not public: so many such keys count in full."""
PUBLIC_NORM = 6.0
"""The same for the public ones."""
KNEE = 60
"""A public key with an estimate n up to this weighs 1, others (KNEE / n)^(1/3), so that popular keys leave room for rare ones."""
BIAS_DEVIATIONS = 3.0
"""The closing estimate counts less where it is further below the stream's than so many standard deviations of the difference."""
LAW = (UNKNOWN_NORM, PUBLIC_NORM, KNEE, "-1/3", BIAS_DEVIATIONS)
"""Everything above, for the digest of a plan."""


class ListWeights:
    """What the keys of one user's list weigh in the closing measurement; a pure function of list and public units.

    Privacy: one user's weights have a squared norm of at most `unknown_square` on keys that are not public, and of at most
    `public_square` on the others (both in units of 2^-40), whatever the list and whatever is public; of the keys that are not
    public, at most `keys` get positive weight.
    """

    def __init__(self, *, keys: int, max_keys: int) -> None:
        """keys: of those not public, how many count. max_keys: the longest list the caps allow."""
        self.keys = min(keys, max_keys)
        counts = range(1, self.keys + 1)
        self._unknown = np.array(
            [0, *(math.floor(WEIGHT_ONE * min(1.0, math.sqrt(UNKNOWN_NORM / k)) * (1 - 1e-12)) for k in counts)],
            np.int64,
        )
        self._unknown[1:][: int(UNKNOWN_NORM)] = WEIGHT_ONE
        self.unknown_square = max(k * int(self._unknown[k]) ** 2 for k in counts)
        self.public_square = math.floor(min(PUBLIC_NORM, max_keys) * WEIGHT_ONE**2)

    def weigh(
        self, indptr: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(weight on keys not public, weight on public keys), int64[n] each, in units of 2^-20.

        indptr: int64[U + 1], the users' lists; unit: int64[n], of the list's keys in order of first occurrence: 0 where the key is
        not public, else what a user whose list is short puts on it (`units`), at most 2^20.
        """
        users = len(indptr) - 1
        owner = np.repeat(np.arange(users), np.diff(indptr))
        unknown = unit == 0
        before = np.concatenate(([0], np.cumsum(unknown)))
        counted = unknown & (before[:-1] - before[indptr[owner]] < self.keys)
        number = np.minimum(before[indptr[1:]] - before[indptr[:-1]], self.keys)
        weight = np.where(counted, self._unknown[number[owner]], 0)
        # The running sum may wrap around; a list's own, 2^40 at most per key, does not.
        square = np.concatenate(([0], np.cumsum(unit * unit)))
        total = square[indptr[1:]] - square[indptr[:-1]]
        scale = np.ones(users)
        long = total > self.public_square
        scale[long] = np.sqrt(self.public_square / total[long]) * (1 - 1e-12)
        public = np.where(long[owner], np.floor(unit * scale[owner]), unit).astype(np.int64)
        squares = np.concatenate(([0], np.cumsum(public * public)))
        if np.any(squares[indptr[1:]] - squares[indptr[:-1]] > self.public_square):
            raise AssertionError("closing weights exceed the sensitivity they were made for")
        return weight, public

    def add_up(
        self, indptr: npt.NDArray[np.int64], key: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """int64[keys, 3]: users with weight on each key where it is not public, their weight, and all users' where it is.

        indptr: int64[U + 1]; key: int64[n], the lists' keys; unit: int64[keys], of every key.
        """
        weight, public = self.weigh(indptr, unit[key])
        # Sums of integers below 2^53 are exact in bincount's float64.
        columns = [np.bincount(key, weights=values, minlength=len(unit)) for values in (weight > 0, weight, public)]
        return np.stack(columns, axis=1).astype(np.int64)


def units(estimates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """int64[k] in 1..2^20: what one user's record weighs on a public key, from the key's published estimate.

    Exactly floor(2^20 (KNEE / n)^(1/3)) for n > KNEE, everywhere: how a processor rounds cube roots must not show in a replay.
    """
    # floor(2^60 KNEE / n) without leaving int64, for which n may not either: units are its integer cube roots.
    n = np.clip(estimates, KNEE, 1 << 55)
    whole, rest = np.divmod(np.int64(1 << 60), n)
    cubes = whole * KNEE + rest * KNEE // n
    unit = np.rint(np.cbrt(cubes.astype(np.float64))).astype(np.int64)
    unit -= unit**3 > cubes
    unit += (unit + 1) ** 3 <= cubes
    return np.maximum(unit, 1)


class Closing(Weighted):
    """`Adaptive` with the budget shared out among the stream and two measurements at the last trigger.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove, for outputs that steer what is measured next.
    """

    def __init__(self, plan: Plan) -> None:
        counting = [index for index, column in enumerate(plan.columns) if counts_users(column, plan)]
        if not counting:
            raise ConfigurationError(
                'strategy="closing": measures users, and no column counts them; add a column of kind "users" '
                "(or count at max_records_per_key=1)"
            )
        closing = plan.closing_unknown_share + plan.closing_public_share
        if closing >= 1:
            raise ConfigurationError(
                f"closing_unknown_share={plan.closing_unknown_share}, closing_public_share={plan.closing_public_share}: "
                "together they must be below 1, the rest is the stream's"
            )
        super().__init__(
            plan,
            lag=plan.lag,
            ranked_keys=RANKED_KEYS,
            prior=geometric,
            stream_share=1 - closing,
            selection_delta_share=0.5,
        )
        lists = ListWeights(keys=plan.closing_keys, max_keys=plan.max_records)
        self.lists = lists
        self.counting = tuple(counting)
        mu2 = self.guarantee.mu**2
        one = float(WEIGHT_ONE)
        # In units of weight; rounded up like every sigma.
        self.unknown_sigma = math.sqrt(lists.unknown_square / (mu2 * plan.closing_unknown_share)) / one * (1 + 1e-9)
        self.public_sigma = math.sqrt(lists.public_square / (mu2 * plan.closing_public_share)) / one * (1 + 1e-9)
        grid_units(self.unknown_sigma, BITS)
        grid_units(self.public_sigma, BITS)
        beta = self.guarantee.delta_selection * 0.5 / lists.keys
        self.quantile = tail_quantile(beta)
        # stat + rounded noise >= level + 1/2 unit implies that stat + noise >= level.
        self.level = plan.minimum_users + 1 + self.quantile * self.unknown_sigma * (1 + 1e-12)
        self._threshold = math.ceil(self.level * one * (1 + 1e-15) + 0.5)
        suffix = "/" + plan.digest().hex()
        self._unknown_mechanism, self._public_mechanism = UNKNOWN + suffix, PUBLIC + suffix
        cost = lists.unknown_square / self.unknown_sigma**2 + lists.public_square / self.public_sigma**2
        self._notes["mu"] = math.sqrt(self._notes["mu"] ** 2 + cost / one**2)
        self._notes["closing"] = {
            "unknown_share": plan.closing_unknown_share,
            "public_share": plan.closing_public_share,
            "keys": lists.keys,
            "unknown_sigma": self.unknown_sigma,
            "public_sigma": self.public_sigma,
            "unknown_square": lists.unknown_square / one**2,
            "public_square": lists.public_square / one**2,
            "threshold": self.level,
            "quantile": self.quantile,
        }

    def _select_again(
        self,
        trigger: int,
        keys: Sequence[bytes],
        public: npt.NDArray[np.bool_],
        increments: Increments,
        noise: WindowNoise,
    ) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(keys), np.bool_)
        lists = self._lists_of(trigger, increments)
        if lists is None:
            return found
        candidates = np.flatnonzero(~public & (lists.users > self.plan.minimum_users))
        drawn = self._drawn(self._unknown_mechanism, self.unknown_sigma, trigger, keys, candidates, noise)
        found[candidates] = lists.weight[candidates] + drawn >= self._threshold
        return found

    def _refine(
        self,
        trigger: int,
        keys: Sequence[bytes],
        shown: npt.NDArray[np.intp],
        increments: Increments,
        noise: WindowNoise,
        estimates: npt.NDArray[np.int64],
        std_errors: npt.NDArray[np.float64],
    ) -> None:
        lists = self._lists_of(trigger, increments)
        if lists is None:
            return
        # Which measurement a row uses follows from what was published before; the noise is there with and without users.
        unknown, public = shown[lists.unit[shown] == 0], shown[lists.unit[shown] > 0]
        for rows, mechanism, sigma, weight, unit in (
            (unknown, self._unknown_mechanism, self.unknown_sigma, lists.weight, np.full(len(keys), WEIGHT_ONE)),
            (public, self._public_mechanism, self.public_sigma, lists.public_weight, lists.unit),
        ):
            drawn = self._drawn(mechanism, sigma, trigger, keys, rows, noise)
            again = (weight[rows] + drawn) / unit[rows]
            variance = (sigma * WEIGHT_ONE / unit[rows]) ** 2
            for column in self.counting:
                estimate, stream = estimates[rows, column], std_errors[rows, column] ** 2
                # Long lists count for less than they are. What is short by more than noise explains is taken for that; both
                # estimates are public, so is what they are compared for.
                short = np.maximum(estimate - again, 0)
                bias = np.maximum(short**2 - BIAS_DEVIATIONS**2 * (stream + variance), 0)
                share = stream / (stream + variance + bias)
                estimates[rows, column] = np.rint(estimate * (1 - share) + again * share).astype(np.int64)
                std_errors[rows, column] = np.sqrt((1 - share) ** 2 * stream + share**2 * variance + 1 / 12)

    def _lists_of(self, trigger: int, increments: Increments) -> ListSums | None:
        if trigger < self.plan.triggers:
            return None
        if increments.lists is None:
            raise ValueError(f"trigger={trigger}: the last trigger measures the users' lists, and none are given")
        return increments.lists

    @staticmethod
    def _drawn(
        mechanism: str,
        sigma: float,
        trigger: int,
        keys: Sequence[bytes],
        rows: npt.NDArray[np.intp],
        noise: WindowNoise,
    ) -> npt.NDArray[np.int64]:
        labels = noise.labels(mechanism, [keys[i] for i in rows.tolist()])
        drawn: npt.NDArray[np.int64] = noise.normal(labels, trigger, trigger, sigma=sigma, bits=BITS)[:, 0]
        return drawn
