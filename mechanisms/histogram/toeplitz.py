"""One square-root Toeplitz mechanism per key for selection and counts.

With COUNT and distinct users at one record per user and key, selection and values are one mechanism and get the whole
budget. Otherwise the number of users is measured once (for selection and for a users column), each other column gets a
mechanism of its own, and all of them are accounted as the one Gaussian mechanism they are.
Columns of C are stretched to one norm, so that a record costs the same whenever it comes. Argument: docs/guarantees/toeplitz.md.
Sources: Fichtenberger, Henzinger, Upadhyay, ICML 2023; Henzinger, Kalinin, Upadhyay 2025, arXiv 2509.14334 (normalized columns).
"""

import math

import numpy as np

from susurrus.mechanisms.accounting import Caps, joint_cost
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.factored import USERS, Design, Factored, budget_of, counts_users, value_mechanisms
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.shares import counting_weight, inverse_share, measured_weight


class Toeplitz(Factored):
    """Design "one mechanism": C E x + z with C = (1 - x)^-1/2 and E what makes its columns equally long.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove; see `guarantee`.
    """

    name = "toeplitz"
    summary = "one mechanism for selection and values"

    def __init__(self, plan: Plan) -> None:
        keys = keys_of(plan)
        budget = budget_of(plan)
        needs_users = plan.discover or counting_weight(plan) > 0
        share = share_of_users(plan)
        scale, mu = scale_to_budget(plan, share, keys, budget.mu)
        total, squares = measured_weight(plan), joint_cost(caps_of(plan), per_square=1.0)
        values, source = value_mechanisms(
            plan,
            users_cost=scale * share / keys if needs_users else None,
            column_cost=lambda column: scale * ((1 - share) / inverse_share(column, total)) / squares,
            normalized=True,
        )
        selector = None
        if plan.discover:
            users = values[0]
            selector = Selector(
                users.factorization,
                sigma=users.sigma,
                unit_bits=0,
                heights=np.ones(plan.triggers, np.int64),
                minimum_users=plan.minimum_users,
                beta=budget.delta_selection / keys,
            )
        design = Design(
            bounding=Bounding(
                max_records=plan.max_records,
                max_records_per_key=plan.max_records_per_key,
                max_keys=plan.max_keys,
            ),
            selector=selector,
            selection_mechanism=USERS,
            values=values,
            source=source,
            notes={"keys_per_user": keys, "mu": mu},
        )
        super().__init__(plan, budget, design)

    @classmethod
    def unit_variances(cls, plan: Plan) -> tuple[float, ...]:
        """The inverse of what one record costs: columns that count users share the cost of the users' mechanism."""
        each = joint_cost(caps_of(plan), per_square=1.0)
        return tuple(
            (keys_of(plan) if counts_users(column, plan) else each) / share
            for column, share in zip(plan.columns, cls.shares(plan), strict=True)
        )

    @classmethod
    def shares(cls, plan: Plan) -> tuple[float, ...]:
        """Of mu^2, by column; the number of users has its share for selection, too."""
        share, total = share_of_users(plan), measured_weight(plan)
        return tuple(
            share if counts_users(column, plan) else (1 - share) / inverse_share(column, total)
            for column in plan.columns
        )


def keys_of(plan: Plan) -> int:
    """The most distinct keys of one user."""
    return plan.max_records if plan.max_keys is None else min(plan.max_keys, plan.max_records)


def caps_of(plan: Plan) -> Caps:
    """The caps as accounting sees them."""
    return Caps(records=plan.max_records, records_per_key=plan.max_records_per_key, keys=plan.max_keys)


def share_of_users(plan: Plan) -> float:
    """Share of mu^2 for the users mechanism: all, as the plan says, or by weight without selection (0 if nothing counts them)."""
    measured, counting = measured_weight(plan), counting_weight(plan)
    if not measured:
        return 1.0
    return plan.selection_share if plan.discover else float(counting / (counting + measured))


def scale_to_budget(plan: Plan, share: float, keys: int, mu: float) -> tuple[float, float]:
    """(factor, mu): the factor by which the separate worst cases may be raised so that the joint one is mu^2.

    A user cannot both bring the most distinct keys and put the most records on one key, so the joint worst case is
    below the sum of the two.
    """
    caps = caps_of(plan)
    squares = joint_cost(caps, per_square=1.0)
    joint = joint_cost(caps, per_key=share / keys, per_square=(1 - share) / squares)
    factor = mu**2 / joint * (1 - 1e-12)
    return factor, math.sqrt(factor * joint)
