"""Expressions, and schemas that compute with them, drawn by chance over the fields of tests/topics/odd_json.py and the other odd
records, for comparisons of their two evaluations."""

import random
from collections.abc import Callable
from typing import Final

from susurrus.agents.expressions.language import parse
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.raw import ComputedField, RawSchema, ValueField

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


_TAME: Final = (
    "coalesce({0}, 'none')", "CAST({0} AS VARCHAR)", "concat({0}, '/')", "{0} IS NULL", "TRY_CAST({0} AS DOUBLE)",
    "CAST({0} AS VARCHAR) <> 'ann'", "length(CAST({0} AS VARCHAR))", "coalesce(TRY_CAST({0} AS BIGINT), 7) + 1",
)  # fmt: skip


def tame(dice: random.Random, field: str) -> str:
    """An expression over one field that has a result, of whatever type the field is."""
    return parse(dice.choice(_TAME).format(field)).text


def condition(dice: random.Random) -> str | None:
    """One that most records meet, of whatever types their fields are; or any; or none."""
    if dice.random() < 0.4:
        return None
    where = expression(dice, depth=dice.randrange(1, 4))
    return f"coalesce(TRY_CAST({where} AS BOOLEAN), true)" if dice.random() < 0.6 else where


def random_schema(dice: random.Random) -> RawSchema:
    """Of any of the fields."""
    chance = dice.choice([0.1, 0.5])

    def scalar(name: str) -> str | ComputedField:
        return ComputedField(expression(dice, depth=dice.randrange(1, 4))) if dice.random() < chance else name

    return RawSchema(
        user=tuple(scalar(name) for name in dice.choice([("u",), ("u",), ("who.id", "u")])),
        key=tuple(scalar(name) for name in dice.choice([(), ("k",), ("k", "z"), ("z", "who.x", "u")])),
        values=tuple(ValueField(scalar(name), 100.0, 0.5, lower=3.0) for name in dice.choice([(), ("v",), ("v", "w")])),
        time=dice.choice([None, scalar("t")]),
        time_unit=dice.choice(["s", "ms", "us", "iso"]),
        null_user=dice.choice(["value", "dead-letter"]),
        null_key=dice.choice(["value", "dead-letter"]),
        empty_user=dice.choice(["value", "dead-letter"]),
        max_key_bytes=dice.choice([10, 4096]),
    )


def tame_schema(dice: random.Random) -> RawSchema:
    """Of fields that odd records of all formats have; most of them are good for it, whatever types their fields are."""

    def scalar(name: str) -> str | ComputedField:
        if dice.random() < 0.5:
            return name
        return ComputedField(tame(dice, name) if dice.random() < 0.7 else expression(dice, depth=2))

    number = dice.choice([ComputedField("coalesce(TRY_CAST(v AS DOUBLE), 1) * 1.5"), ComputedField("abs(v)"), "v"])
    return RawSchema(
        user=tuple(scalar(name) for name in dice.choice([("u",), ("u",), ("who.id", "u")])),
        key=tuple(scalar(name) for name in dice.choice([(), ("k",), ("k", "t"), ("who.id", "v", "u")])),
        values=(ValueField(number, 100.0, 0.5, lower=3.0),) if dice.random() < 0.3 else (),
        time=scalar("t") if dice.random() < 0.3 else None,
        time_unit=dice.choice(["ms", "ms", "us", "iso"]),
        null_user=dice.choice(["value", "value", "dead-letter"]),
        null_key=dice.choice(["value", "value", "dead-letter"]),
        empty_user=dice.choice(["value", "dead-letter"]),
        max_key_bytes=dice.choice([60, 4096]),
    )
