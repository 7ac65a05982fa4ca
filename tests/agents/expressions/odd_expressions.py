"""Expressions drawn by chance over the fields of tests/topics/odd_json.py, for comparisons of their two evaluations."""

import random
from collections.abc import Callable
from typing import Final

from susurrus.agents.expressions.language import parse
from susurrus.mechanisms.errors import ConfigurationError

FIELDS: Final = ("u", "k", "z", "v", "w", "t", "who.id", "who.x")
_CONSTANTS: Final = (
    "0", "1", "-3", "2.5", "1e3", "9223372036854775807", "''", "'ann'", "'1'", "'/'", "'ü'", "'a\"b'", "chr(10)", "'\\'", "true",
    "false", "NULL", "chr(0)", "chr(31)", "chr(127)", "'😀'", "0.1", "18446744073709551615",
)  # fmt: skip
_ONE: Final = (
    "upper({})", "lower({})", "length({})", "abs({})", "-({})", "CAST({} AS VARCHAR)", "CAST({} AS INTEGER)", "CAST({} AS DOUBLE)",
    "TRY_CAST({} AS BIGINT)", "TRY_CAST({} AS UBIGINT)", "CAST({} AS BOOLEAN)", "trim({})", "reverse({})", "({}) IS NULL",
    "NOT ({})", "md5({})", "floor({})", "sqrt({})", "TRY_CAST({} AS TIMESTAMP)", "TRY_CAST({} AS HUGEINT)", "CAST({} AS TINYINT)",
    "TRY_CAST({} AS DATE)", "encode({})", "({}) LIKE '%a%'", "regexp_replace({}, 'a+', 'b')", "CAST({} AS FLOAT)",
    "CAST({} AS DECIMAL(18, 3))", "TRY({})", "split_part({}, 'n', 1)", "({}) BETWEEN 0 AND 100", "({}) IN (1, 2, 'ann')",
)  # fmt: skip
_TWO: Final = (
    "{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} // {}", "{} % {}", "{} || {}", "concat({}, {})", "coalesce({}, {})", "{} = {}",
    "{} <> {}", "{} < {}", "{} >= {}", "({}) AND ({})", "({}) OR ({})", "nullif({}, {})", "greatest({}, {})", "starts_with({}, {})",
    "CASE WHEN {} IS NULL THEN {} ELSE 'none' END", "left({}, {})", "contains({}, {})",
)  # fmt: skip


def expression(dice: random.Random, *, depth: int = 3) -> str:
    """One that the language takes, in its canonical form."""
    while True:
        try:
            return parse(_drawn(dice, depth)).text
        except ConfigurationError:
            continue


def _drawn(dice: random.Random, depth: int) -> str:
    kinds: list[Callable[[], str]] = [lambda: dice.choice(FIELDS)] * 3 + [lambda: dice.choice(_CONSTANTS)]
    if depth:
        kinds += [lambda: dice.choice(_ONE).format(_drawn(dice, depth - 1))] * 4
        kinds += [lambda: "(" + dice.choice(_TWO).format(_drawn(dice, depth - 1), _drawn(dice, depth - 1)) + ")"] * 3
    return dice.choice(kinds)()
