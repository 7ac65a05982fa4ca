"""What-if tables: every variant is a configuration that a worker would accept, or is refused with its reason."""

import pytest

from susurrus.agents.planning.variants import MOST_VARIANTS, what_if
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.planning.settings import configuration


def test_options_make_all_combinations():
    assert what_if(["C=8,16", "epsilon=1,2.5"]) == [
        {"C": 8, "epsilon": 1.0},
        {"C": 8, "epsilon": 2.5},
        {"C": 16, "epsilon": 1.0},
        {"C": 16, "epsilon": 2.5},
    ]
    assert what_if(["c=8", "c=9"]) == [{"C": 8}, {"C": 9}]
    assert what_if([]) == []


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("C", "write a constant"),
        ("gamma=1", "C, m, epsilon, delta, T"),
        ("C=1.5", "C takes whole numbers"),
        ("epsilon=-1", "epsilon takes numbers above 0"),
        ("epsilon=nan", "above 0"),
        ("C=" + ",".join(map(str, range(1, MOST_VARIANTS + 2))), "give fewer values"),
    ],
)
def test_an_option_that_says_nothing_is_refused(option, said):
    with pytest.raises(ConfigurationError, match=said):
        what_if([option])


def test_a_variant_changes_its_constants_and_nothing_else():
    given = configuration(bounds={"max_records_per_key": 2})
    plan = given.histogram({"C": 20, "m": 3, "epsilon": 2.0, "delta": 1e-9, "T": 6}).plan()
    assert (plan.max_records, plan.max_records_per_key, plan.epsilon, plan.delta, plan.triggers) == (
        20,
        3,
        2.0,
        1e-9,
        6,
    )
    assert given.histogram().plan().triggers == 12
    assert given.tables["bounds"] == {"max_records_per_user": 8, "max_records_per_key": 2}


def test_a_variant_that_no_worker_accepts_is_refused():
    with pytest.raises(ConfigurationError, match="max_records_per_key"):
        configuration().histogram({"m": 9})
    with pytest.raises(ConfigurationError, match="T=7: does not divide the window"):
        configuration().histogram({"T": 7})


def test_another_strategy_leaves_the_sections_of_the_first_behind():
    given = configuration(privacy={"strategy": "closing", "closing": {"ranked_keys": 3}})
    assert given.histogram().strategy.name == "closing"
    assert given.histogram(strategy="toeplitz").strategy.name == "toeplitz"
    assert given.tables["privacy"]["strategy"] == "closing"
    # Closing has no numbers for a pipeline that counts no users.
    with pytest.raises(ConfigurationError, match="add a column of kind"):
        configuration(
            columns=[{"name": "b", "kind": "sum", "field": "b", "bound": 10.0}],
        ).histogram(strategy="closing")
