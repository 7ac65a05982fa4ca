"""The users' lists at the last trigger: weighed within their norm, whatever is public, and distinguished from broken rules.

Three broken rules exceed what the noise was made for: `unscaled`, every key that counts weighs 1; `uncut`, keys beyond the cut
weigh as much as those before it; `unshrunk`, public keys weigh their units however long the list is.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.histogram.user_lists import KNEE, ListWeights, public_units

ONE = 1 << 20
SLACK = Fraction(1 - 1e-12)
"""What floating-point square roots are reduced by before they are rounded down."""

Ints = npt.NDArray[np.int64]


def root(square: Fraction) -> int:
    """floor(sqrt(square))."""
    return math.isqrt(square.numerator // square.denominator)


def slowly(units: Sequence[int], *, keys: int, max_keys: int) -> tuple[list[int], list[int]]:
    """The weights of one list, from the definition."""
    counted = [i for i, unit in enumerate(units) if unit == 0][: min(keys, max_keys)]
    each = root(Fraction(ONE**2, len(counted))) if counted else 0
    square, most = sum(unit**2 for unit in units), min(6, max_keys) * ONE**2
    public = list(units) if square <= most else [root(Fraction(u * u * most, square) * SLACK**2) for u in units]
    return [each if i in counted else 0 for i in range(len(units))], public


def weigh(lists: ListWeights, users: Sequence[Sequence[int]]) -> list[tuple[list[int], list[int]]]:
    """The real weights, list by list."""
    indptr = np.cumsum([0, *(len(user) for user in users)])
    weight, public = lists.weigh(indptr, np.array([unit for user in users for unit in user], np.int64))
    return [(weight[a:b].tolist(), public[a:b].tolist()) for a, b in pairwise(indptr.tolist())]


def random_lists(users: int, longest: int) -> list[list[int]]:
    """Lists of all lengths, with few and with many keys that are not public; the longest of one kind come last."""
    generator = np.random.default_rng(5)
    out = []
    for user in range(users):
        length = (0, 1, 2, longest)[user] if user < 4 else int(generator.integers(0, longest + 1) ** generator.random())
        unit = generator.choice([1, ONE, ONE - 1, *generator.integers(1, ONE, 4)], length)
        out.append(np.where(generator.random(length) < generator.choice([0, 0.1, 0.9, 1]), 0, unit).tolist())
    return [*out, [0] * longest, [ONE] * longest]


SIZES = [(1, 5), (2, 1000), (3, 40), (16, 40), (16, 3), (1000, 1000)]


class TestListWeights:
    def test_are_the_largest_on_the_grid_whose_squares_add_up_to_one(self) -> None:
        """w(k) = floor(2^20 / sqrt(k)), in exact integers for every k that there is."""
        lists = ListWeights(keys=1 << 16, max_keys=1 << 16)
        for k, weight in enumerate(lists._unknown.tolist()[1:], start=1):
            assert k * weight**2 <= ONE**2 < k * (weight + 1) ** 2
        assert lists.unknown_square == ONE**2, "one key counts in full, so the bound is reached"

    @pytest.mark.parametrize(("keys", "max_keys"), SIZES)
    def test_equal_those_of_a_slow_loop_over_users(self, keys: int, max_keys: int) -> None:
        users = random_lists(150, max_keys)
        lists = ListWeights(keys=keys, max_keys=max_keys)
        got = weigh(lists, users)
        assert got == [slowly(user, keys=keys, max_keys=max_keys) for user in users]
        assert all(sum(w > 0 for w in weight) <= lists.keys <= keys for weight, _ in got)
        assert all(sum(w * w for w in weight) <= lists.unknown_square <= ONE**2 for weight, _ in got)
        assert all(sum(w * w for w in public) <= lists.public_square <= 6 * ONE**2 for _, public in got)
        # The bounds are reached, or noise would be wasted.
        assert max(sum(w * w for w in weight) for weight, _ in got) == lists.unknown_square
        assert max(sum(w * w for w in public) for _, public in got) > lists.public_square * (1 - 1e-5)

    @pytest.mark.parametrize(("keys", "max_keys"), SIZES)
    def test_another_users_list_changes_nothing(self, keys: int, max_keys: int) -> None:
        users = random_lists(40, max_keys)
        lists = ListWeights(keys=keys, max_keys=max_keys)
        together = weigh(lists, users)
        for removed in range(0, 42, 3):
            assert weigh(lists, users[:removed] + users[removed + 1 :]) == together[:removed] + together[removed + 1 :]
        assert weigh(lists, users[::-1]) == together[::-1]

    def test_the_order_of_a_list_decides_who_counts_and_nothing_else(self) -> None:
        lists = ListWeights(keys=2, max_keys=10)
        given = [0, ONE, 0, 700_000, 0, ONE, ONE, ONE, ONE, ONE]
        weight, public = (dict(zip("abcdefghij", values, strict=True)) for values in weigh(lists, [given])[0])
        generator = np.random.default_rng(1)
        for _ in range(30):
            order = generator.permutation(10).tolist()
            again, shown = weigh(lists, [[given[i] for i in order]])[0]
            assert shown == [public["abcdefghij"[i]] for i in order]
            counted = [i for i in order if given[i] == 0][:2]
            assert again == [root(Fraction(ONE**2, 2)) if i in counted else 0 for i in order]
        assert [name for name, value in weight.items() if value] == ["a", "c"]

    @pytest.mark.parametrize("keys", [1, 2, 3, 4])
    def test_all_lists_and_all_public_sets_of_five_keys(self, keys: int) -> None:
        """In exact integers; the units differ by key, as published estimates do."""
        unit = (ONE, 900_000, 1, ONE, 400_000)
        orders = [order for length in range(6) for order in permutations(range(5), length)]
        users = [
            [unit[key] * (key in public) for key in order]
            for public in map(set, _subsets(range(5)))
            for order in orders
        ]
        lists = ListWeights(keys=keys, max_keys=5)
        got = weigh(lists, users)
        assert got == [slowly(user, keys=keys, max_keys=5) for user in users]
        assert max(sum(w * w for w in weight) for weight, _ in got) == lists.unknown_square
        assert max(sum(w > 0 for w in weight) for weight, _ in got) == keys

    @pytest.mark.parametrize("keys", [2, 3, 8])
    def test_all_lists_of_up_to_eight_keys_with_three_units(self, keys: int) -> None:
        """Long enough that public keys have to share the norm; each broken rule exceeds it."""
        users = [units for length in range(9) for units in product((0, 700_000, ONE), repeat=length)]
        lists = ListWeights(keys=keys, max_keys=8)
        got = weigh(lists, users)
        assert got == [slowly(user, keys=keys, max_keys=8) for user in users]
        assert max(sum(w * w for w in weight) for weight, _ in got) == lists.unknown_square
        squares = [sum(w * w for w in public) for _, public in got]
        assert lists.public_square * (1 - 1e-5) < max(squares) <= lists.public_square
        for rule in BROKEN:
            weight, public = BROKEN[rule](lists, np.array([0, 8, 16]), np.repeat([0, ONE], 8))
            worst = (int((weight**2).sum()) > lists.unknown_square, int((public**2).sum()) > lists.public_square)
            expected = {"unscaled": (True, False), "uncut": (keys < 8, False), "unshrunk": (False, True)}
            assert worst == expected[rule]

    def test_sums_that_leave_sixty_four_bits_do_not_touch_a_list(self) -> None:
        """As millions of users bring them together; larger units than there are, so that fewer users are enough."""
        users = [[1 << 28] * (1 + user % 8) for user in range(1000)]
        assert sum(unit**2 for user in users for unit in user) > 1 << 64
        assert weigh(ListWeights(keys=3, max_keys=8), users) == [slowly(user, keys=3, max_keys=8) for user in users]

    def test_no_user_and_no_key(self) -> None:
        lists = ListWeights(keys=3, max_keys=5)
        nothing = np.zeros(0, np.int64)
        for users in (0, 3):
            weight, public = lists.weigh(np.zeros(users + 1, np.int64), nothing)
            assert len(weight) == len(public) == 0


def _subsets(of: range) -> list[tuple[int, ...]]:
    return [tuple(key for key in of if mask >> key & 1) for mask in range(1 << len(of))]


Rule = Callable[[ListWeights, Ints, Ints], tuple[Ints, Ints]]


def unscaled(lists: ListWeights, indptr: Ints, unit: Ints) -> tuple[Ints, Ints]:
    weight, public = lists.weigh(indptr, unit)
    return np.where(weight > 0, ONE, 0), public


def uncut(lists: ListWeights, indptr: Ints, unit: Ints) -> tuple[Ints, Ints]:
    weight, public = lists.weigh(indptr, unit)
    most = np.array([weight[a:b].max(initial=0) for a, b in pairwise(indptr.tolist())])
    return np.where(unit == 0, np.repeat(most, np.diff(indptr)), 0), public


def unshrunk(lists: ListWeights, indptr: Ints, unit: Ints) -> tuple[Ints, Ints]:
    return lists.weigh(indptr, unit)[0], unit


BROKEN: dict[str, Rule] = {"unscaled": unscaled, "uncut": uncut, "unshrunk": unshrunk}


class TestUnits:
    def test_fall_with_the_cube_root_of_the_estimate(self) -> None:
        """In exact integers: u = floor(2^20 (60 / estimate)^(1/3)). A unit that differs by one would not replay."""
        estimates = np.concatenate([np.arange(1, 20_000), 60 * np.arange(1, 400) ** 3])
        got = public_units(estimates)
        for estimate, unit in zip(np.maximum(estimates, KNEE).tolist(), got.tolist(), strict=True):
            assert unit**3 * estimate <= KNEE * ONE**3 < (unit + 1) ** 3 * estimate

    def test_are_one_up_to_the_knee_whatever_noise_made_of_the_estimate(self) -> None:
        low = np.array([-(1 << 62), -1_000_000, -1, 0, 1, KNEE - 1, KNEE])
        assert public_units(low).tolist() == [ONE] * len(low)
        assert public_units(np.array([KNEE + 1]))[0] < ONE

    def test_never_rise_and_never_vanish(self) -> None:
        """A unit of 0 would turn a public key into one that is not."""
        estimates = np.unique(np.concatenate([np.arange(-50, 5000), np.geomspace(5000, 2**62, 3000).astype(np.int64)]))
        got = public_units(estimates)
        assert (np.diff(got) <= 0).all()
        assert got[0] == ONE
        assert got[-1] == public_units(np.array([2**63 - 1]))[0] >= 1

    def test_no_key(self) -> None:
        assert public_units(np.zeros(0, np.int64)).tolist() == []
