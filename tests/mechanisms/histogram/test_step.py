"""The vectorised step of `toeplitz` and `closing` against a slow one: every key at every trigger, exactly.

The reference keeps whole histories, decodes in fractions and knows no skip index. The two must agree on what is
published, when, and with which number, whatever the chunks, the order of keys, the storage round trips and the replays.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.histogram.per_key import Histories
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.states import UNKNOWN, FactoredStates
from susurrus.mechanisms.histogram.strategy import Increments, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from tests.mechanisms.histogram.dense_matrices import decoding_rows, entry
from tests.reference import NO_LAST_LOOK

VISITS = Column(name="visits", kind="count")
USERS = Column(name="users", kind="users")
BYTES = Column(name="bytes", kind="sum", bound=1000)
# Loose budgets, so that small numbers of users already give every outcome.
PLANS = {
    "toeplitz": plan_of(
        strategy="toeplitz", triggers=12, epsilon=8.0, delta=0.02, columns=(VISITS,), max_records=3, minimum_users=0
    ),
    "toeplitz, several columns": plan_of(
        strategy="toeplitz",
        triggers=9,
        epsilon=9.0,
        delta=0.02,
        columns=(VISITS, USERS, BYTES),
        max_records=4,
        max_records_per_key=2,
        max_keys=3,
        minimum_users=2,
    ),
    "no last look, gate": plan_of(
        strategy="closing",
        triggers=12,
        epsilon=7.0,
        delta=0.02,
        columns=(USERS,),
        max_records=3,
        ranked_keys=3,
        minimum_users=3,
        **NO_LAST_LOOK,
    ),
    "no last look, sum only": plan_of(
        strategy="closing",
        triggers=12,
        epsilon=8.0,
        delta=0.02,
        columns=(BYTES,),
        max_records=5,
        ranked_keys=4,
        **NO_LAST_LOOK,
    ),
    **{
        name: plan_of(
            strategy="closing",
            triggers=12,
            epsilon=8.0,
            delta=0.02,
            columns=(VISITS, BYTES),
            max_records=5,
            ranked_keys=3,
            minimum_users=1,
            **own,
        )
        for name, own in (("no last look", NO_LAST_LOOK), ("closing", {"keys": 4}))
    },
}
SEED = 11


def window(name: str = "p") -> WindowNoise:
    return NoiseSource(b"k" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def lists_for(strategy: Any, trigger: int, keys: int, rng: np.random.Generator | None = None) -> ListSums | None:
    """What lists add where the strategy measures them: nothing, or random numbers, with some keys (3, 10, ...) public."""
    if strategy.lists is None or trigger < strategy.plan.triggers:
        return None
    if rng is None:
        return ListSums(**dict.fromkeys(("users", "weight", "public_weight", "unit"), np.zeros(keys, np.int64)))
    users = np.where(np.arange(keys) % 4 == 0, rng.poisson(12, keys), rng.poisson(0.3, keys))
    unit = np.where(np.arange(keys) % 7 == 3, rng.integers(1, (1 << 20) + 1, keys), 0)
    weight = np.where(unit == 0, users * rng.choice(strategy.lists._unknown[1:], keys), 0)
    return ListSums(users=np.where(unit == 0, users, 0), weight=weight, public_weight=users * unit // 3, unit=unit)


def part_of(lists: ListSums | None, index: npt.NDArray[np.intp]) -> ListSums | None:
    """The same for some of the keys."""
    return None if lists is None else lists.take(index)


def workload(strategy: Any, keys: int) -> list[Increments]:
    """Increments per trigger: most keys sparse, some steady, some in one burst; weights as the strategy gives them."""
    rng = np.random.default_rng(SEED)
    plan = strategy.plan
    rate = np.where(np.arange(keys) % 3 == 0, 0.15, rng.exponential(1.5, keys))
    out = []
    for t in range(1, plan.triggers + 1):
        users = rng.poisson(rate)
        burst = (np.arange(keys) % 11 == 5) & (t == 1 + np.arange(keys) % plan.triggers)
        users = np.where(np.arange(keys) % 11 == 5, burst * 25, users)
        weights = strategy.bounding.weights
        if weights is None:
            weight = users << 20
        else:
            rank = rng.integers(0, len(weights), keys)
            weight = users * weights[rank, t - 1]
            users = np.where(weight > 0, users, 0)
        sums = np.stack(
            [
                users if c.kind == "users" or (plan.max_records_per_key == 1 and c.kind == "count") else users * 2
                for c in plan.columns
            ],
            axis=1,
        ) * np.array([c.bound for c in plan.columns])
        lists = lists_for(strategy, t, keys, rng)
        out.append(Increments(users=users, weight=weight, sums=sums, lists=lists))
    return out


class Reference:
    """One key, all triggers, in fractions."""

    def __init__(self, strategy: Any, noise: WindowNoise) -> None:
        self.strategy, self.noise, self.plan = strategy, noise, strategy.plan

    def draws(self, mechanism: str, key: bytes, factorization: Any, sigma: float, bits: int) -> list[int]:
        label = self.noise.labels(mechanism + "/" + self.plan.digest().hex(), [key])
        return self.noise.normal(label, 1, self.plan.triggers, sigma=sigma, bits=bits)[0].tolist()

    @staticmethod
    def decoded(factorization: Any, z: list[int], t: int) -> Fraction:
        row = decoding_rows(factorization)[t - 1]
        return sum((row[s] * z[s] for s in range(t)), Fraction(0))

    def key(
        self, key: bytes, steps: list[tuple[int, int, list[int]]], declared: bool, lists: ListSums | None = None
    ) -> list[list[int] | None]:
        """Published estimates per trigger, None before selection; lists: of this key at the last trigger."""
        selector, out, selected = self.strategy.selector, [], declared
        total, users, sums = [0] * self.plan.triggers, 0, [0] * len(self.plan.columns)
        for t, (new_users, weight, new_sums) in enumerate(steps, start=1):
            users += new_users
            total[t - 1] = weight
            sums = [a + b for a, b in zip(sums, new_sums, strict=True)]
            if not selected and selector is not None and users > self.plan.minimum_users:
                selected = self.passes(key, total, t)
            last = lists if t == self.plan.triggers else None
            if not selected and last is not None and last.users[0] > self.plan.minimum_users:
                selected = self.found(key, total, last)
            out.append(self.estimates(key, sums, t) if selected else None)
        return out

    def found(self, key: bytes, weight: list[int], lists: ListSums) -> bool:
        """The joint test: what lists say of users, and what the stream's matched filter says, noise of both included."""
        z = self.draws("closing/unknown", key, None, self.strategy.look.unknown_sigma, 20)[-1]
        statistic = Fraction(int(lists.weight[0]) + z, 1 << 20)
        selector, T = self.strategy.selector, self.plan.triggers
        nb, f = selector.noise_bits, selector.factorization
        drawn = self.draws("selection", key, f, selector.sigma, nb)
        filtered, steady = Fraction(0), Fraction(0)
        for s, gain in enumerate(selector._filter.tolist()):
            c = [entry(f, s, r) for r in range(s + 1)]
            row = sum((Fraction(weight[r], 1 << 20) * c[r] for r in range(s + 1)), Fraction(drawn[s], 1 << nb))
            filtered, steady = filtered + gain * row, steady + gain * sum(c, Fraction(0)) / T
        return statistic + Fraction(self.strategy.look.filter_weight) * filtered / steady >= self.strategy.look.level

    def passes(self, key: bytes, weight: list[int], t: int) -> bool:
        selector = self.strategy.selector
        f, nb = selector.factorization, selector.noise_bits
        z = self.draws(self.strategy._selection_mechanism.split("/")[0], key, f, selector.sigma, nb)
        x = [Fraction(w, 1 << 20) for w in weight]
        lift = selector.decoder.fraction_bits
        rounded = math.floor(self.decoded(f, z, t) * Fraction(2) ** (lift - nb) + Fraction(1, 2))
        if sum(x) * 2**lift + rounded >= int(selector._threshold[t - 1]):
            return True
        y = [sum(entry(f, s, r) * x[r] for r in range(s + 1)) * 2**nb + z[s] for s in range(t)]
        return sum(int(selector._filter[s]) * y[s] for s in range(t)) >= int(selector._filter_threshold[t - 1])

    def estimates(self, key: bytes, sums: list[int], t: int) -> list[int]:
        out = []
        for total, source in zip(sums, self.strategy.source, strict=True):
            value = self.strategy.values[source]
            bits = value.factorization.grid_bits
            z = self.draws(value.mechanism, key, value.factorization, value.sigma, bits)
            noise = self.decoded(value.factorization, z, t) / 2**bits
            out.append(total + math.floor(noise + Fraction(1, 2)))
        return out


def run(
    strategy: Any,
    work: list[Increments],
    declared: npt.NDArray[np.bool_],
    *,
    chunk: int = 10**9,
    order: npt.NDArray[np.intp] | None = None,
    store: bool = False,
    sparse: bool = True,
    forget: bool = False,
) -> list[list[list[int] | None]]:
    """[key][trigger] published estimates, feeding only touched, due and published keys if `sparse`."""
    size = len(work[0].users)
    order = np.arange(size) if order is None else order
    states, due = strategy.empty(size), np.full(size, strategy.plan.triggers + 1)
    due[declared] = 0
    out: list[list[list[int] | None]] = [[] for _ in range(size)]
    noise = window()
    for t, step in enumerate(work, start=1):
        if forget:
            noise = window()
        touched = (step.users != 0) | (step.weight != 0) | (step.sums != 0).any(axis=1)
        if step.lists is not None:
            touched |= step.lists.users != 0
        active = order[(touched | (due <= t))[order] if sparse else np.ones(size, bool)]
        for row in out:
            row.append(None)
        for begin in range(0, len(active), chunk):
            part = active[begin : begin + chunk]
            given = states.take(part)
            if store:
                given = strategy.unpack(strategy.pack(given))
            result = strategy.step(
                t,
                [b"key-%d" % i for i in part],
                given,
                Increments(
                    users=step.users[part],
                    weight=step.weight[part],
                    sums=step.sums[part],
                    lists=part_of(step.lists, part),
                ),
                noise,
                declared[part],
            )
            due[part] = result.due
            if store:
                before, after = strategy.pack(given), strategy.pack(result.states)
                assert [a != b for a, b in zip(before, after, strict=True)] == result.changed.tolist()
            for position, i in enumerate(part.tolist()):
                if result.published[position]:
                    out[i][-1] = result.estimates[position].tolist()
            rest = np.setdiff1d(np.arange(size), part)
            merged = FactoredStates.concatenate([states.take(rest), result.states])
            states = merged.take(np.argsort(np.concatenate([rest, part])))
    return out


@pytest.fixture(params=PLANS.values(), ids=PLANS.keys(), scope="module")
def setting(request: pytest.FixtureRequest) -> tuple[Any, list[Increments], npt.NDArray[np.bool_], Any]:
    strategy: Strategy = build_strategy(request.param)
    work = workload(strategy, 120)
    declared = np.arange(120) % 17 == 3
    return strategy, work, declared, run(strategy, work, declared)


def test_equals_testing_every_key_at_every_trigger_in_fractions(setting: Any) -> None:
    strategy, work, declared, published = setting
    reference = Reference(strategy, window())
    steps = [[(int(s.users[i]), int(s.weight[i]), s.sums[i].tolist()) for s in work] for i in range(120)]
    expected = [
        reference.key(b"key-%d" % i, steps[i], bool(declared[i]), part_of(work[-1].lists, np.array([i])))
        for i in range(120)
    ]
    assert published == expected
    first = [next((t for t, row in enumerate(rows) if row), None) for rows in published]
    assert None in first
    assert len(set(first)) >= 4, "the workload must reach selection at different triggers"
    if work[-1].lists is not None:
        late = [i for i in range(120) if first[i] == strategy.plan.triggers - 1]
        assert any(reference.key(b"key-%d" % i, steps[i], False)[-1] is None for i in late), "lists must find keys too"


def test_some_keys_are_selected_without_new_data(setting: Any) -> None:
    """Otherwise the equality above would say nothing about the skip index."""
    _, work, declared, published = setting
    quiet = sum(
        1
        for i, rows in enumerate(published)
        if not declared[i]
        and any(rows)
        and (t := next(t for t, row in enumerate(rows) if row)) is not None
        and work[t].users[i] == 0
    )
    assert quiet > 0


@pytest.mark.parametrize(
    "variant",
    [
        {"chunk": 7},
        {"chunk": 1},
        {"order": np.arange(120)[::-1]},
        {"store": True},
        {"sparse": False, "store": True},
        {"forget": True},
        {"order": np.random.default_rng(3).permutation(120), "chunk": 13, "store": True},
    ],
    ids=["chunks of 7", "chunks of 1", "reversed", "stored", "every key looked at", "no memory", "all of it"],
)
def test_results_do_not_depend_on_how_they_are_computed(setting: Any, variant: dict[str, Any]) -> None:
    strategy, work, declared, published = setting
    assert run(strategy, work, declared, **variant) == published


def test_another_window_has_other_noise(setting: Any) -> None:
    strategy, work, declared, _ = setting
    size = len(declared)
    everything = np.ones(size, np.bool_)
    results = [
        strategy.step(1, [b"%d" % i for i in range(size)], strategy.empty(size), work[0], window(name), everything)
        for name in "pq"
    ]
    assert (results[0].estimates != results[1].estimates).mean() > 0.3


def test_a_draw_serves_one_scale_and_one_plan_only(setting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same gaussian at two scales cancels: two mechanisms, or two plans, must not meet at one address."""
    strategy, work, declared, _ = setting
    drawn: dict[bytes, set[tuple[float, int]]] = {}
    normal = WindowNoise.normal

    def recording(noise: WindowNoise, labels: npt.NDArray[np.uint8], *place: int, sigma: float, bits: int) -> Any:
        for label in labels:
            drawn.setdefault(label.tobytes(), set()).add((sigma, bits))
        return normal(noise, labels, *place, sigma=sigma, bits=bits)

    monkeypatch.setattr(WindowNoise, "normal", recording)
    run(strategy, work, declared)
    assert drawn
    assert {len(scales) for scales in drawn.values()} == {1}
    here, other = set(drawn), build_strategy(replace(strategy.plan, epsilon=strategy.plan.epsilon * 2))
    drawn.clear()
    run(other, work, declared)
    assert drawn
    assert not here & set(drawn)


@pytest.mark.parametrize("room", [1 << 26, 0])
def test_no_two_published_numbers_share_their_noise(setting: Any, room: int) -> None:
    """Long keys with a common beginning or end, mechanisms, triggers: each has noise of its own, remembered or not."""
    strategy = setting[0]
    plan, noise = strategy.plan, window()
    noise.memory_bytes = room
    keys = [b"https://shop.example/" + b"x" * 80 + b"/%02d" % i for i in range(30)]
    keys += [b"%02d/" % i + b"y" * 80 for i in range(30)]
    states = strategy.empty(len(keys))
    nothing = np.zeros(len(keys), np.int64)
    rows = []
    for trigger in range(1, plan.triggers + 1):
        step = strategy.step(
            trigger,
            keys,
            states,
            Increments(
                users=nothing,
                weight=nothing,
                sums=np.zeros((len(keys), len(plan.columns)), np.int64),
                lists=lists_for(strategy, trigger, len(keys)),
            ),
            noise,
            np.ones(len(keys), np.bool_),
        )
        states = step.states
        rows.append(step.estimates)
    series = np.stack(rows).reshape(plan.triggers, len(keys), -1)
    measured = sorted({strategy.source.index(source) for source in strategy.source})
    for seen in (series, series[1:]):  # the first trigger draws what the later ones remember
        seen_by_key = {tuple(seen[:, key, column].tolist()) for key in range(len(keys)) for column in measured}
        assert len(seen_by_key) == len(keys) * len(measured)


def test_declared_keys_are_published_from_the_first_trigger_without_data(setting: Any) -> None:
    strategy, _, declared, published = setting
    assert all(all(row is not None for row in published[i]) for i in np.flatnonzero(declared))
    columns = len(strategy.plan.columns)
    nothing = Increments(
        users=np.zeros(1, np.int64), weight=np.zeros(1, np.int64), sums=np.zeros((1, columns), np.int64)
    )
    result = strategy.step(1, [b"never seen"], strategy.empty(1), nothing, window(), np.ones(1, np.bool_))
    assert result.published.tolist() == [True]
    assert result.due.tolist() == [0]
    assert result.changed.tolist() == [True]
    again = strategy.step(2, [b"never seen"], result.states, nothing, window(), np.ones(1, np.bool_))
    assert again.changed.tolist() == [False]


def test_standard_errors_are_those_of_the_published_numbers(setting: Any) -> None:
    """Many declared keys without data publish pure noise: its spread is the error bar."""
    strategy, _, _, _ = setting
    size, columns, t = 4000, len(strategy.plan.columns), strategy.plan.triggers
    nothing = Increments(
        users=np.zeros(size, np.int64),
        weight=np.zeros(size, np.int64),
        sums=np.zeros((size, columns), np.int64),
        lists=lists_for(strategy, t, size),
    )
    result = strategy.step(
        t, [b"%d" % i for i in range(size)], strategy.empty(size), nothing, window(), np.ones(size, np.bool_)
    )
    for column in range(columns):
        spread = result.estimates[:, column].std() / result.std_errors[0, column]
        assert abs(spread - 1) < 5 / math.sqrt(2 * size)
        assert abs(result.estimates[:, column].mean()) < 5 * result.std_errors[0, column] / math.sqrt(size)


@pytest.mark.parametrize("name", PLANS)
def test_the_gate_wants_strictly_more_users(name: str) -> None:
    """However much weight a key has: with exactly `minimum_users` users it is not named, with one more it is."""
    strategy: Any = build_strategy(PLANS[name])
    users = strategy.plan.minimum_users + np.arange(2)
    weight = np.full(2, 10**6 << 20)
    step = Increments(users=users, weight=weight, sums=np.full((2, len(strategy.plan.columns)), 10**6))
    result = strategy.step(1, [b"a", b"b"], strategy.empty(2), step, window(), np.zeros(2, np.bool_))
    assert result.published.tolist() == [False, True]
    assert result.due.tolist() == [strategy.plan.triggers + 1, 0]
    nothing = Increments(users=users * 0, weight=weight * 0, sums=step.sums * 0)
    later = strategy.step(2, [b"a", b"b"], result.states, nothing, window(), np.zeros(2, np.bool_))
    assert later.published.tolist() == [False, True]
    one_more = Increments(users=np.array([1, 0]), weight=np.array([1 << 20, 0]), sums=step.sums * 0)
    opened = strategy.step(3, [b"a", b"b"], later.states, one_more, window(), np.zeros(2, np.bool_))
    assert opened.published.tolist() == [True, True]


def test_columns_that_count_the_same_users_share_one_mechanism() -> None:
    plan = plan_of(
        strategy="toeplitz", triggers=5, epsilon=1.0, delta=1e-6, columns=(VISITS, USERS), max_records=4, discover=False
    )
    strategy = build_strategy(plan)
    sums = np.array([[3, 3]])
    step = Increments(users=np.array([3]), weight=np.array([3 << 20]), sums=sums)
    result = strategy.step(2, [b"k"], strategy.empty(1), step, window(), np.ones(1, np.bool_))
    assert result.estimates[0, 0] == result.estimates[0, 1]


class TestWithoutDiscovery:
    PLAN = plan_of(
        strategy="toeplitz", triggers=5, epsilon=1.0, delta=1e-6, columns=(VISITS,), max_records=4, discover=False
    )

    def test_all_of_delta_is_gaussian(self) -> None:
        strategy = build_strategy(self.PLAN)
        assert strategy.guarantee.delta_selection == 0
        assert strategy.guarantee.delta_gaussian == pytest.approx(1e-6, rel=1e-6)

    def test_only_declared_keys_are_published_and_remembered(self) -> None:
        strategy = build_strategy(self.PLAN)
        many = np.array([10**6, 10**6])
        step = Increments(users=many, weight=many << 20, sums=many[:, None])
        result = strategy.step(1, [b"a", b"b"], strategy.empty(2), step, window(), np.array([True, False]))
        assert result.published.tolist() == [True, False]
        assert result.due.tolist() == [0, 6]
        assert result.changed.tolist() == [True, False]
        assert abs(int(result.estimates[0, 0]) - 10**6) < 10 * result.std_errors[0, 0]


class TestStates:
    def test_foreign_bytes_are_refused(self) -> None:
        strategy = build_strategy(PLANS["toeplitz"])
        good = strategy.pack(strategy.empty(1))[0]
        for bad in (b"", good[:-1], good + b"x", b"\x09" + good[1:], good[:1] + b"\x07" + good[2:]):
            with pytest.raises(ValueError, match="stored state"):
                strategy.unpack([bad])

    def test_layout_is_pinned(self) -> None:
        strategy = build_strategy(PLANS["toeplitz"])
        states = FactoredStates(
            selected=np.array([False, True]),
            users=np.array([3, 0]),
            need=np.array([5, 0]),
            sums=np.array([[3], [-1]]),
            history=Histories(
                indptr=np.array([0, 2, 2]),
                when=np.array([1, 258], np.int32),
                weight=np.array([1 << 20, 2 << 20]),
            ),
        )
        assert [row.hex() for row in strategy.pack(states)] == [
            "0100" + "0300000000000000" * 2 + "0500000000000000" + "01000000100000000000" + "02010000200000000000",
            "0101" + "ffffffffffffffff",
        ]

    def test_keys_never_seen(self) -> None:
        strategy = build_strategy(PLANS["toeplitz"])
        states = strategy.unpack(strategy.pack(strategy.empty(2)))
        assert states.need.tolist() == [UNKNOWN, UNKNOWN]
        assert len(states) == 2
        assert strategy.unpack([]).sums.shape == (0, 1)
        assert strategy.pack(strategy.empty(0)) == []


@pytest.mark.parametrize("trigger", [0, 13])
def test_triggers_outside_the_window_are_refused(trigger: int) -> None:
    strategy = build_strategy(PLANS["toeplitz"])
    nothing = Increments(users=np.zeros(0, np.int64), weight=np.zeros(0, np.int64), sums=np.zeros((0, 1), np.int64))
    with pytest.raises(ValueError, match="trigger="):
        strategy.step(trigger, [], strategy.empty(0), nothing, window(), np.zeros(0, np.bool_))


@pytest.mark.parametrize(
    ("name", "own"),
    [("toeplitz", {}), ("closing", NO_LAST_LOOK), ("closing", {})],
    ids=["toeplitz", "no last look", "closing"],
)
def test_a_thousand_triggers(name: str, own: dict[str, Any]) -> None:
    """The last trigger of a long window, against the full rational decoder."""
    plan = plan_of(strategy=name, triggers=1000, epsilon=6.0, delta=1e-9, columns=(VISITS,), max_records=40, **own)
    strategy: Any = build_strategy(plan)
    keys, noise = [b"%d" % i for i in range(5)], window()
    many = np.full(5, 1000)
    step = Increments(users=many, weight=many << 20, sums=many[:, None])
    lists = lists_for(strategy, 1000, 5, np.random.default_rng(SEED))
    nothing = Increments(users=many * 0, weight=many * 0, sums=many[:, None] * 0, lists=lists)
    begun = strategy.step(3, keys, strategy.empty(5), step, noise, np.zeros(5, np.bool_))
    assert begun.published.all()
    ended = strategy.step(1000, keys, begun.states, nothing, noise, np.zeros(5, np.bool_))
    value = strategy.values[0]
    labels = noise.labels(strategy._value_mechanisms[0], keys)
    z = noise.normal(labels, 1, 1000, sigma=value.sigma, bits=value.factorization.grid_bits)
    stream = [1000 + value.decoder.rationally(row, 1000) for row in z.tolist()]
    assert ended.estimates[:, 0].tolist() == stream
