"""Inputs that strategy `closing` alone must stand.

Most of them put keys at the boundary of the last trigger's gate: the audited user opens it. There, delta pays for a failure of the
joint test, and a test that is too easy fails more often than that. audit_closing_defects.py has what is planted.
"""

from functools import partial

from audit_inputs import USERS, Input, Scenario, make


def long_list(present: bool, *, others: int, keys: int, halves: bool) -> Input:
    """The user brings every key (`halves`: half of them a trigger later). Each other user brings one, before the user does."""
    rows = [(1 + key * others + other, key, 1) for key in range(keys) for other in range(others)]
    return make(rows + [(0, key, 1 + (halves and 2 * key >= keys)) for key in range(keys) if present])


def alone(present: bool, *, keys: int, trigger: int) -> Input:
    """The user brings keys that nobody else has."""
    return make([(0, key, trigger) for key in range(keys)] if present else [])


def hidden(present: bool, *, others: int, keys: int, before: int, behind: int) -> Input:
    """Each key has `others` users of its own, who bring so many other keys before it and behind it. The user brings the keys alone.

    The others' other keys are those from `keys` on, the same for all who bring the same key. What comes before comes a trigger
    before: within a trigger a hash decides, which is another one in every trial.
    """
    rows = []
    when = 2 if before else 1
    for key in range(keys):
        own = [keys + key * (before + behind) + i for i in range(before + behind)]
        order = [*((each, 1) for each in own[:before]), (key, when), *((each, when) for each in own[before:])]
        rows += [(1 + key * others + other, each, trigger) for other in range(others) for each, trigger in order]
    return make(rows + [(0, key, 1) for key in range(keys) if present])


def nearly_enough(present: bool, *, keys: int, others: int) -> Input:
    """Each key has `others` users of its own, who come at the end. The user brings one more key, which nobody else has."""
    rows = [(1 + key * others + other, key, 2) for key in range(keys) for other in range(others)]
    return make(rows + [(0, keys, 2)] * present)


def repeats(present: bool, *, records: int) -> Input:
    """All the user's records are of one key, at the first trigger."""
    return make([(0, 0, 1)] * records if present else [])


def pairs(present: bool, *, others: int) -> Input:
    """Each other user brings two keys, in one fetch if the audited user is not there. The audited user's record is the first."""
    return make([(0, 2, 1)] * present + [(1 + other, key, 1) for other in range(others) for key in range(2)])


def again(present: bool, *, others: int, returning: int, triggers: int, window: int) -> Input:
    """One key in two windows in a row. So many others bring it in the first, some of them in the second. The user does in one."""
    rows = [(1 + other, 0, 1) for other in range(others)] + [(1 + other, 0, triggers + 1) for other in range(returning)]
    return make(rows + [(0, 0, 1 + window * triggers)] * present)


AT_THE_END = {"columns": USERS, "max_records": 4, "public_share": 0.01}
"""Of scenarios about the test at the last trigger."""
IN_A_ROW = {
    "columns": USERS,
    "epsilon": 1.5,
    "triggers": 2,
    "max_records": 1,
    "ranked_keys": 1,
    "gaussian_delta_fraction": 0.95,
    "discovery_share": 0.1,
    "unknown_share": 0.1,
    "public_share": 0.05,
}
"""Of scenarios about a key that a window finds and the next one remembers: few users are enough for its row, and not to find it."""
LENGTH = 80
HIDDEN_KEYS = 4

SCENARIOS: dict[str, Scenario] = {
    "long list": Scenario(
        what="a user with many keys that the last trigger finds",
        keys=6,
        users=1 + 6 * 4,
        build=partial(long_list, others=4, keys=6, halves=True),
        plan={
            "epsilon": 2.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 6,
            "gaussian_delta_fraction": 0.95,
            "ranked_keys": 6,
            "keys": 6,
            "filter_weight": 0.0,
            "discovery_share": 0.02,
            "unknown_share": 0.95,
            "public_share": 0.01,
        },
        only=("closing",),
        exposes=("list not scaled",),
    ),
    "long list, all public": Scenario(
        what="a user with many public keys, counted when they come and once more at the last trigger",
        keys=24,
        users=1,
        build=partial(long_list, others=0, keys=24, halves=False),
        plan={
            "epsilon": 2.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 24,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": 0.004,
            "unknown_share": 0.004,
            "public_share": 0.98,
        },
        declared=True,
        pipeline_trials=20_000,
        only=("closing",),
        exposes=("list not scaled", "closing unpaid"),
    ),
    "boundary at the end": Scenario(
        what="a key that nobody else has, tested with what the stream knows of it",
        keys=1,
        users=1,
        build=partial(alone, keys=1, trigger=1),
        plan={
            **AT_THE_END,
            "epsilon": 2.5,
            "triggers": 2,
            "ranked_keys": 1,
            "keys": 1,
            "filter_weight": 10.0,
            "discovery_share": 0.88,
            "unknown_share": 0.1,
        },
        only=("closing",),
        pipeline_trials=16_000,
        exposes=("filter without height", "filter without noise"),
    ),
    "many keys at the end": Scenario(
        what="a user with many keys that nobody else has, of which one counts",
        keys=LENGTH,
        users=1,
        build=partial(alone, keys=LENGTH, trigger=8),
        plan={
            **AT_THE_END,
            "epsilon": 0.5,
            "triggers": 8,
            "max_records": LENGTH,
            "ranked_keys": 1,
            "keys": 1,
            "filter_weight": 3.0,
            "discovery_share": 0.6,
            "unknown_share": 0.35,
        },
        only=("closing",),
        trials=10_000,
        pipeline_trials=2_000,
        exposes=("list cut by hope", "no gate at the end", "gate before the cut"),
    ),
    "keys that others bring first": Scenario(
        what="keys that others rank, and that are not the last ones of their lists",
        keys=HIDDEN_KEYS * (1 + HIDDEN_KEYS),
        users=1 + HIDDEN_KEYS * 7,
        build=partial(hidden, others=7, keys=HIDDEN_KEYS, before=0, behind=HIDDEN_KEYS),
        plan={
            **AT_THE_END,
            "epsilon": 1.0,
            "triggers": 24,
            "ranked_keys": HIDDEN_KEYS,
            "keys": HIDDEN_KEYS,
            "prior": (1.0,),
            "filter_weight": 100.0,
            "discovery_share": 0.95,
            "unknown_share": 0.03,
        },
        only=("closing",),
        trials=20_000,
        pipeline_trials=4_000,
        exposes=("list cut from its end",),
    ),
    "keys that others bring second": Scenario(
        what="a key that others rank second",
        keys=2,
        users=1 + 8,
        build=partial(hidden, others=8, keys=1, before=1, behind=0),
        plan={
            **AT_THE_END,
            "epsilon": 1.0,
            "triggers": 24,
            "ranked_keys": 64,
            "keys": 64,
            "prior": (1.0, 1.0),
            "filter_weight": 100.0,
            "discovery_share": 0.95,
            "unknown_share": 0.03,
        },
        only=("closing",),
        pipeline_trials=4_000,
        exposes=("fewer keys than ranks",),
    ),
    "a key without a rank": Scenario(
        what="a key that nobody else ranks, and that many others have",
        keys=2,
        users=1 + 30,
        build=partial(hidden, others=30, keys=1, before=1, behind=0),
        plan={
            **AT_THE_END,
            "epsilon": 1.0,
            "triggers": 2,
            "ranked_keys": 1,
            "keys": 2,
            "discovery_share": 0.3,
            "unknown_share": 0.6,
        },
        only=("closing",),
        pipeline_trials=2_000,
        exposes=("only behind the stream's gate",),
    ),
    "repeats of one key": Scenario(
        what="records on one key, as many as are kept",
        keys=1,
        users=1,
        build=partial(repeats, records=13),
        plan={
            "epsilon": 1.0,
            "triggers": 4,
            # 5 records of a key, counted and summed, cost 5^2 + 1 = 2 * 13.
            "max_records": 13,
            "max_records_per_key": 13,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": 0.02,
            "unknown_share": 0.01,
            "public_share": 0.01,
        },
        declared=True,
        only=("closing",),
        exposes=("repeats at the price of one",),
    ),
    "lists shared with others": Scenario(
        what="a record that moves where every later fetch begins, and keys that the caps do not keep",
        keys=3,
        users=1 + 12,
        build=partial(pairs, others=12),
        plan={
            "epsilon": 1.0,
            "triggers": 2,
            "columns": USERS,
            "max_records": 1,
            "gaussian_delta_fraction": 0.95,
            "discovery_share": 0.02,
            "unknown_share": 0.01,
            "public_share": 0.9,
        },
        declared=True,
        only=("closing",),
        fetch=2,
        pipeline_trials=4_000,
        exposes=("dropped too early",),
    ),
    "a list of the next window": Scenario(
        what="a key that has one user too few to be remembered",
        keys=1,
        users=1 + 30,
        build=partial(again, others=30, returning=6, triggers=2, window=0),
        plan=IN_A_ROW,
        only=("closing",),
        pipeline_trials=250,
        apart=True,
        remember=31,
        windows=2,
        exposes=("list from exact counts",),
    ),
    "lists of two levels": Scenario(
        what="a key of two levels of grouping sets, which has one user too few to be remembered at either",
        keys=2,
        users=1 + 50,
        build=partial(again, others=50, returning=9, triggers=2, window=0),
        plan=IN_A_ROW,
        only=("closing",),
        pipeline_trials=250,
        apart=True,
        remember=51,
        windows=2,
        levels=2,
        exposes=("list from exact counts",),
    ),
    "a remembered row that is hidden": Scenario(
        what="a remembered key that has one user too few for its row to be shown",
        keys=1,
        users=1 + 30,
        build=partial(again, others=30, returning=2, triggers=2, window=1),
        plan=IN_A_ROW,
        only=("closing",),
        pipeline_trials=250,
        apart=True,
        remember=6,
        windows=2,
        exposes=("shown by exact counts",),
    ),
    "one row too few": Scenario(
        what="one published row too few for a calibration, and a key that fails",
        keys=200,
        users=1 + 199 * 8,
        build=partial(nearly_enough, keys=199, others=8),
        plan={
            **AT_THE_END,
            "epsilon": 2.0,
            "triggers": 2,
            "ranked_keys": 1,
            "keys": 1,
            "filter_weight": 0.0,
            "discovery_share": 0.01,
            "unknown_share": 0.95,
        },
        only=("closing",),
        trials=800,
        pipeline_trials=300,
        apart=True,
        exposes=("calibrated by failures",),
    ),
}
