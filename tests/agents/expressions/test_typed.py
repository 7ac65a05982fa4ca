"""Expressions over the typed columns of whole record batches are `Computation`, on whatever a record may hold."""

import itertools
import json
import random
import sys
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pytest

from susurrus.agents.expressions import evaluation, typed
from susurrus.agents.expressions.kinds import BIGINT, BOOLEAN, DOUBLE, NULL, TEXT
from susurrus.agents.expressions.lookup import LookupTable
from susurrus.topics.compiled import compiled
from susurrus.topics.records.raw import ComputedField, RawColumns, RawSchema, Reason, ValueField
from tests.agents.expressions.both_ways import Both
from tests.agents.expressions.odd_expressions import condition, random_schema
from tests.record_batches import record_batch, section_of
from tests.samples import many_odd
from tests.topics.odd_json import Odd, half_odd
from tests.topics.test_raw_batches import difference

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

PATH = ComputedField("split_part(k, '/', 1)")


def lines(*records: Any) -> list[bytes | None]:
    return [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]


def test_a_row_has_the_kind_numbers_that_the_definition_has() -> None:
    """table.rs numbers them by itself."""
    both = Both(RawSchema(user=("u",), key=("k",)), "v IS NULL")
    payloads = lines(
        {"v": None}, {"v": True}, {"v": 1}, {"v": 1.5}, {"v": "x"}, {}, b'{"v":[]}', b'{"v":18446744073709551615}'
    )
    found = both.whole._scanner.find([section_of(record_batch(payloads))], 0)
    groups, left = found.kinds([both.computation.paths.index(("v",))], np.arange(7), 100)
    assert [(kinds, rows.tolist()) for kinds, rows in groups] == [
        ((NULL,), [0, 5]), ((BOOLEAN,), [1]), ((BIGINT,), [2]), ((DOUBLE,), [3]), ((TEXT,), [4]),
    ]  # fmt: skip
    assert left.tolist() == [6]
    both.close()


def test_every_record_has_its_fate_and_plain_ones_are_not_left() -> None:
    schema = RawSchema(
        user=("u",),
        key=(PATH,),
        values=(ValueField(ComputedField("v * 2"), bound=100, grid=1, lower=3),),
        null_key="value",
    )
    both = Both(schema, "w = 200")
    payloads = lines(
        {"u": "a", "k": "x/1", "v": 1, "w": 200},
        {"u": "a", "k": "x/2", "v": 2, "w": 404},  # filtered
        b"not json",
        {"k": "y", "v": 3, "w": 500},  # filtered, and no user
        {"k": "y", "v": 3, "w": 200},  # no user
        {"u": "b", "k": 7, "v": 4, "w": 200},  # split_part of a number fails
        {"u": "b", "k": 7, "v": 4, "w": 1},  # ... which does not matter here
        {"u": "b", "k": "x", "v": 5, "w": "up"},  # the condition fails
        {"u": "b", "k": "x", "v": 6},  # null is not true
        {"u": "c", "v": 1000, "w": 200},  # a null key, and a large value
    )
    records, columns = both.compared(payloads)
    assert [Reason(reason).name for reason in columns.reason] == [
        "OK", "FILTERED", "NOT_JSON", "FILTERED", "MISSING_USER", "EXPRESSION_FAILED", "FILTERED", "EXPRESSION_FAILED", "FILTERED",
        "OK",
    ]  # fmt: skip
    assert records.left.tolist() == [2, 4]
    assert columns.values[columns.reason == 0].tolist() == [[3], [100]]
    assert columns.keys == [b'"x"', b"null"]
    both.close()


RESULTS = {
    "texts": "k", "upper": "upper(k)", "joined": "concat(k, chr(10), chr(8), chr(12), chr(13), chr(9), chr(0), chr(31), '\"\\')",
    "empty": "''", "null": "nullif(k, k)", "boolean": "v > 1", "tiny": "CAST(v AS UTINYINT)", "small": "CAST(v AS SMALLINT)",
    "integer": "CAST(v AS INTEGER)", "bigint": "v + 1", "unsigned": "TRY_CAST(v AS UBIGINT)", "huge": "CAST(v AS HUGEINT) * 10",
    "largest": "18446744073709551615", "double": "v / 2", "whole": "v / 1", "float": "CAST(v AS FLOAT)", "decimal": "v * 0.5",
    "date": "DATE '2026-01-31'", "instant": "TIMESTAMP '2026-01-31 12:00:00'", "bytes": "encode(k)", "not a number": "v / 0.0",
    "long": "concat(k, k, k, k, k, k, k, k)",
    "too long": f"concat(k, '{'x' * 65_536}')",
    "constant": "'x'",
    "failing": "CAST(k AS INTEGER)",
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("place", ["user", "key", "parts", "value", "time", "iso"])
def test_a_result_of_any_type_is_what_it_is_in_the_definition(name: str, place: str) -> None:
    computed = ComputedField(RESULTS[name])
    schema = RawSchema(
        user=(computed,) if place == "user" else ("u",),
        key=("k", computed, "u") if place == "parts" else (computed,) if place == "key" else (),
        values=(ValueField(computed, bound=100, grid=0.5),) if place == "value" else (),
        time=computed if place in ("time", "iso") else None,
        time_unit="iso" if place == "iso" else "ms",
        null_user="value",
    )
    both = Both(schema, None)
    texts = ["a", "", "ü", 'a"b', "a\\b", "\x7f", "12", "2026-01-31T12:00:00Z", "😀" * 9]
    payloads = [
        json.dumps({"u": f"u{n % 3}", "k": text, "v": number}, ensure_ascii=False).encode()
        for n, (text, number) in enumerate(
            itertools.product(texts, [0, 1, 3, -7, 200, 2**53, 2**62, 0.5, -0.0, 1e9 + 0.25])
        )
    ]
    for some in (payloads, payloads[:1]):
        records, _ = both.compared(some)
        if name in ("texts", "upper", "boolean", "integer", "bigint") and place in ("user", "parts", "key"):
            # Escapes are read in Python, as ever; large floats and the empty user are decided there.
            assert len(records.left) < len(some)
    both.close()


def fuzzed(seed: int, rounds: int, sizes: Sequence[int]) -> tuple[int, int, int]:
    """Records, of these left to the definition, and good ones."""
    dice, odd = random.Random(seed), Odd(seed)
    rows = left = good = 0
    for _ in range(rounds):
        try:
            where = condition(dice)
            both = Both(random_schema(dice), where)
        except ValueError:  # one field's path leads through another's
            continue
        for size in sizes:
            records, columns = both.compared(half_odd(dice, odd, size), dice.choice([1, 3]))
            rows, left, good = rows + size, left + records.left.size, good + int((columns.reason == 0).sum())
        both.close()
    return rows, left, good


@pytest.mark.parametrize("seed", range(1, 5))
def test_odd_records_and_odd_expressions_are_what_they_are_in_the_definition(seed: int) -> None:
    rows, left, good = fuzzed(seed, 6, (1, 2, 7, 64, 150))
    assert left < rows
    assert good > rows / 100


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_odd_records_are_what_they_are_in_the_definition(seed: int) -> None:
    rows, left, good = fuzzed(seed, many_odd(10), (1, 2, 7, 64, 150))
    assert rows >= many_odd(2_000)
    assert left < rows
    assert good > rows / 100


def outcomes(columns: RawColumns) -> list[tuple[Any, ...]]:
    """What becomes of each record, without codes."""
    return [
        (
            int(columns.reason[row]),
            columns.users[columns.user[row]] if columns.user[row] >= 0 else None,
            columns.keys[columns.key[row]] if columns.key[row] >= 0 else None,
            columns.values[row].tolist(),
        )
        for row in range(len(columns))
    ]


def test_a_record_of_another_type_pushes_no_other_to_another_result_or_to_the_definition() -> None:
    """Nothing of one record reaches another's: not its kinds, its failure, nor that it is left."""
    schema = RawSchema(
        user=("u",),
        key=(ComputedField("lower(k)"), ComputedField("v + 1")),
        values=(ValueField(ComputedField("v / 3"), 1e6, 0.25),),
    )
    both = Both(schema, "v >= 0 AND k <> 'gone'")
    plain = lines(*({"u": f"u{n % 7}", "k": f"K{n % 5}", "v": n} for n in range(200)))
    alone = outcomes(both.compared(plain)[1])
    assert {one[0] for one in alone} == {0}
    scalars = ["1", "1.0", "1e0", "-0.0", "null", "true", '"1"', '"x"', "[]", "{}", "18446744073709551615", "1e400", '"\\u0061"',
               '"\\ud800"', "9223372036854775807", '"' + "x" * 40_000 + '"', '"' + "ü" * 32_768 + '"']  # fmt: skip
    odd = [f'{{"u":"odd","k":{k},"v":{v}}}'.encode() for k, v in itertools.product(scalars, scalars)]
    for first in (True, False):
        for some in (odd, odd[3:4], odd[-1:]):
            payloads = [*some, *plain] if first else [*plain, *some]
            records, columns = both.compared(payloads)
            of_plain = slice(len(some), None) if first else slice(0, len(plain))
            assert outcomes(columns)[of_plain] == alone
            plain_rows = range(len(payloads))[of_plain]
            assert not set(records.left.tolist()) & set(plain_rows)
    for one in odd:
        both.compared([one], 1)
    both.close()


def test_a_query_that_breaks_off_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records go to the definition, and the next batch is evaluated as ever, by a new engine if need be."""
    both = Both(RawSchema(user=("u",), key=(ComputedField("lower(k)"),)), "v > 1")
    payloads = lines(*({"u": f"u{n % 7}", "k": f"K{n % 5}", "v": n % 3} for n in range(300)))
    assert not both.compared(payloads)[0].left.size
    engine = both.computation.engine
    assert engine is not None
    values = typed.PreparedQueries.values

    def broken(*_: Any) -> Any:
        engine.connection = engine._connect()
        raise duckdb.InternalException

    with monkeypatch.context() as patched:
        patched.setattr(typed.PreparedQueries, "values", broken)
        assert both.compared(payloads)[0].left.size == 300
    assert typed.PreparedQueries.values is values
    assert not both.compared(payloads)[0].left.size
    both.close()


def test_more_kinds_than_are_kept_are_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "_PREPARED", 2)
    schema = RawSchema(user=("u",), key=(ComputedField("CAST(k AS VARCHAR)"),), null_key="value")
    both = Both(schema, "v IS NOT NULL")
    kinds = [None, True, 1, 1.5, "x"]
    payloads = lines(*({"u": "u", "k": k, "v": v} for k, v in itertools.product(kinds, kinds)))
    for _ in range(3):
        records, columns = both.compared(payloads)
        assert not records.left.size
    assert len(columns.keys) == 5
    engine = both.computation.engine
    assert engine is not None
    tables = engine.connection.execute("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'batch_%'").fetchone()
    assert tables == (4,)  # two for each of the expressions
    both.close()


def test_long_texts_are_evaluated_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(RawSchema(user=("u",), key=(ComputedField("length(replace(k, 'a', 'bcd'))"),)), None)
    payloads = lines(*({"u": f"u{n}", "k": f"{n}" + "a" * 8_000} for n in range(1_001)))
    whole = both.compared(payloads, 1)[1]
    monkeypatch.setattr(evaluation, "MAX_BYTES", 1 << 22)
    sizes: list[int] = []
    values = typed.PreparedQueries.values
    monkeypatch.setattr(
        typed.PreparedQueries, "values", lambda self, table: [sizes.append(len(table)), values(self, table)][1]
    )
    records, columns = both.found(payloads, 1)
    assert not records.left.size
    assert difference(columns, whole) == ""
    assert sum(sizes) == 1_001
    assert max(sizes) < 200
    assert columns.keys == [b"24001", b"24002", b"24003", b"24004"]
    both.close()


def test_a_lookup_finds_what_it_finds_in_the_definition() -> None:
    table = LookupTable("", 2, {"country": {"K1": "France", "K2": "Chad"}})
    both = Both(RawSchema(user=("u",), key=(ComputedField("lookup('c.csv', k)"),)), None, {"c.csv": table})
    payloads = lines(*({"u": f"u{n % 7}", "k": f"K{n % 5}"} for n in range(300)), {"u": "a"}, {"u": "a", "k": 7})
    _, columns = both.compared(payloads)
    assert set(columns.keys) == {b'"France"', b'"Chad"'}
    assert (columns.reason == Reason.MISSING_KEY).sum() == 182
    both.close()


def test_a_table_outlives_its_owner_and_is_read_as_often_as_one_likes() -> None:
    """Arrow's structs keep what they point to; whoever reads none of them frees it."""
    both = Both(RawSchema(user=("u",), key=("k",)), "v IS NULL")
    payloads = lines(*({"u": f"u{n}", "k": True, "v": n / 2} for n in range(70)))
    found = both.whole._scanner.find([section_of(record_batch(payloads))], 0)
    paths = [both.computation.paths.index((name,)) for name in ("u", "k", "v")]
    table = found.table(paths, (TEXT, BOOLEAN, DOUBLE), np.arange(70))
    assert table.longest == 3
    assert len(table) == 70
    connection = duckdb.connect()
    connection.register("batch", table)
    unread = [table.__arrow_c_stream__() for _ in range(3)]
    del found, table
    both.close()
    for _ in range(2):
        assert connection.execute("SELECT c0, c1, c2 FROM batch").fetchall() == [
            (f"u{n}", True, n / 2) for n in range(70)
        ]
    del unread
    connection.close()
    with pytest.raises(ValueError, match="not of its kind"):
        Both(RawSchema(user=("u",), key=("k",)), "v IS NULL").whole._scanner.find(
            [section_of(record_batch(payloads))], 0
        ).table([0], (BIGINT,), np.arange(70))


def test_no_package_of_arrow_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    both = Both(RawSchema(user=("u",), key=(PATH,)), "v > 1")
    records, _ = both.compared(lines(*({"u": f"u{n}", "k": f"a/{n}", "v": n} for n in range(100))))
    assert not records.left.size
    both.close()
