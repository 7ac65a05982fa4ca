"""Expressions over records of each format with programs: programs and typed columns find what the format and `Computation` find."""

import random

import pytest

pytest.importorskip("google.protobuf")

from susurrus.topics.compiled import compiled
from tests.agents.expressions.both_ways import Both
from tests.agents.expressions.odd_expressions import condition, random_schema, tame, tame_schema
from tests.agents.formats.odd_formats import ODD_FORMATS
from tests.samples import many_odd

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")


def fuzz(name: str, rounds: int, seed: str) -> tuple[int, int, int]:
    """Records, those left, those good."""
    done = left = good = 0
    for turn in range(rounds):
        dice = random.Random(f"{name} {seed} {turn}")
        records = ODD_FORMATS[name](f"{seed} {turn}", [0.01, 0.05, 0.2][turn % 3])
        where = condition(dice) if turn % 2 else f"{tame(dice, dice.choice(['u', 'k', 'v', 't']))} IS NOT NULL"
        try:
            both = Both(random_schema(dice) if turn % 5 == 0 else tame_schema(dice), where, form=records.form)
        except ValueError:  # one field's path leads through another's
            continue
        for size in (100, 8):
            found, columns = both.compared(records.payloads(size), dice.choice([1, 3]))
            done, left, good = done + len(found), left + len(found.left), good + int((columns.reason == 0).sum())
        both.close()
    return done, left, good


@pytest.mark.parametrize("name", ODD_FORMATS)
def test_odd_records_with_odd_expressions_are_what_they_are_in_the_definition(name: str) -> None:
    done, left, good = fuzz(name, 20, "some")
    assert good > done // 20
    assert left < 9 * done // 10


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ODD_FORMATS)
def test_many_odd_records_with_expressions(name: str) -> None:
    done, left, good = fuzz(name, many_odd(40), "many")
    assert good > done // 20
    assert left < 9 * done // 10
