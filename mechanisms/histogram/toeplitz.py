"""The default strategy: one square-root Toeplitz mechanism per key for selection and counts.

With COUNT and distinct users at one record per user and key, selection and values are one mechanism and get the whole
budget. Otherwise the number of users is measured once (for selection and for a users column), each other column gets a
mechanism of its own, and all of them are accounted as the one Gaussian mechanism they are.
Argument: docs/guarantees/toeplitz.md. Source of the factorization: Fichtenberger, Henzinger, Upadhyay, ICML 2023.
"""

import math

import numpy as np

from susurrus.mechanisms.accounting import Caps, delta_gaussian, gaussian_mu, joint_cost
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.mechanisms.histogram.factored import Factored, Values
from susurrus.mechanisms.histogram.factorization import Factorization, power
from susurrus.mechanisms.histogram.selection import Selector
from susurrus.mechanisms.histogram.strategy import Column, Plan

USERS = "users"


class Toeplitz(Factored):
    """Design "one mechanism": C x + z with C = (1 - x)^-1/2.

    Privacy: (epsilon, delta) per (user, window), neighbours add or remove; see `guarantee`.
    """

    def __init__(self, plan: Plan) -> None:
        keys = most_keys(plan)
        budget = split_delta(plan, keys)
        measured = [column for column in plan.columns if not counts_users(column, plan)]
        needs_users = plan.discover or len(measured) < len(plan.columns)
        share = share_of_users(plan, needs_users, len(measured))
        scale, mu = scale_to_budget(plan, share, keys, budget.mu)
        users = value_mechanism(USERS, plan.triggers, 1, scale * share / keys) if needs_users else None
        squares_share = (1 - share) / len(measured) if measured else 0.0
        squares = joint_cost(user_caps(plan), per_square=1.0)
        values = [users] if users else []
        values += [
            value_mechanism("column/" + column.name, plan.triggers, column.bound, scale * squares_share / squares)
            for column in measured
        ]
        names = [value.mechanism for value in values]
        source = [0 if counts_users(column, plan) else names.index("column/" + column.name) for column in plan.columns]
        selector = None
        if plan.discover and users:
            selector = Selector(
                users.factorization,
                sigma=users.sigma,
                unit_bits=0,
                heights=np.ones(plan.triggers, np.int64),
                minimum_users=plan.minimum_users,
                beta=budget.delta_selection / keys,
            )
        super().__init__(
            plan,
            guarantee=budget,
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


def counts_users(column: Column, plan: Plan) -> bool:
    """Whether a column is the number of distinct users: then it costs nothing beside the selection statistic."""
    return column.kind == "users" or (column.kind == "count" and plan.max_records_per_key == 1)


def user_caps(plan: Plan) -> Caps:
    """The caps as accounting sees them."""
    return Caps(records=plan.max_records, records_per_key=plan.max_records_per_key, keys=plan.max_keys)


def most_keys(plan: Plan) -> int:
    """Distinct keys one user can bring."""
    return plan.max_records if plan.max_keys is None else min(plan.max_keys, plan.max_records)


def split_delta(plan: Plan, keys: int) -> Guarantee:
    """delta = delta_G(mu, epsilon) + keys * beta; without discovery beta is 0."""
    gaussian = plan.delta * plan.gaussian_delta_fraction if plan.discover else plan.delta
    mu = gaussian_mu(plan.epsilon, gaussian)
    return Guarantee(
        epsilon=plan.epsilon,
        delta=plan.delta,
        mu=mu,
        delta_gaussian=delta_gaussian(mu, plan.epsilon),
        delta_selection=(plan.delta - gaussian) * (1 - 1e-12),
    )


def share_of_users(plan: Plan, needs_users: bool, measured: int) -> float:
    """Share of mu^2 for the users mechanism: all, none, as the plan says, or an equal part without selection."""
    if not measured:
        return 1.0
    if not needs_users:
        return 0.0
    return plan.selection_share if plan.discover else 1 / (1 + measured)


def scale_to_budget(plan: Plan, share: float, keys: int, mu: float) -> tuple[float, float]:
    """(factor, mu): the factor by which the separate worst cases may be raised so that the joint one is mu^2.

    A user cannot both bring the most distinct keys and put the most records on one key, so the joint worst case is
    below the sum of the two.
    """
    caps = user_caps(plan)
    squares = joint_cost(caps, per_square=1.0)
    joint = joint_cost(caps, per_key=share / keys, per_square=(1 - share) / squares)
    factor = mu**2 / joint * (1 - 1e-12)
    return factor, math.sqrt(factor * joint)


def value_mechanism(name: str, triggers: int, bound: int, cost: float, exponent: float = 0.5) -> Values:
    """The mechanism whose noise makes one record of size `bound` cost `cost` of mu^2: sigma^2 = bound^2 col2 / cost."""
    factorization = power(triggers, exponent, 20)
    bits = coefficient_bits(bound * math.sqrt(factorization.col2 / cost))
    if bits != 20:
        factorization = power(triggers, exponent, bits)
    return Values(name, factorization, _sigma(factorization, bound, cost))


def _sigma(factorization: Factorization, bound: int, cost: float) -> float:
    return bound * math.sqrt(factorization.col2 / cost) * (1 + 1e-12)


def coefficient_bits(sigma: float) -> int:
    """Fractional bits of C and z: as fine as 2^-20, coarser for large noise so that draws stay below 2^34 or so."""
    return max(8, min(20, 30 - math.ceil(math.log2(sigma))))
