"""Expressions over records in Avro: programs and typed columns find what fastavro and `Computation` find."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.typed import TypedComputation
from susurrus.agents.formats.beside import Beside
from susurrus.agents.formats.reader import RecordReader
from susurrus.agents.formats.whole import ComputedSource
from susurrus.topics.compiled import compiled
from susurrus.topics.raw_batches import RawBatchDecoder
from susurrus.topics.records.raw import ComputedField, RawDecoder, RawSchema
from susurrus.topics.records.scanning import InputRecord
from tests.agents.expressions.odd_expressions import expression
from tests.agents.formats.odd_avro import OddAvro
from tests.agents.formats.test_avro_programs import RAW, registered, sections, source
from tests.topics.test_raw_batches import difference

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

SIMPLE = (
    "coalesce({0}, 'none')",
    "CAST({0} AS VARCHAR)",
    "concat({0}, '/')",
    "{0} IS NULL",
    "TRY_CAST({0} AS DOUBLE)",
    "CAST({0} AS VARCHAR) <> 'ann'",
)


def drawn(dice: random.Random, fields: Sequence[str]) -> str:
    """An expression over these fields."""
    if dice.random() < 0.3:
        return expression(dice, depth=1)
    return dice.choice(SIMPLE).format(dice.choice(fields))


def fuzz(number: int, seed: str) -> tuple[int, int, int]:
    """Records, those left, those good."""
    done = left = good = 0
    for turn in range(number // 100):
        dice = random.Random(f"{seed} {turn}")
        odd, raw = OddAvro(f"{seed} {turn}", dice.choice([0.01, 0.05, 0.3])), RAW[turn % len(RAW)]
        fields = [name for name in (*raw.user, *raw.key) if isinstance(name, str)]
        schema: RawSchema = replace(
            raw, key=(*raw.key, ComputedField(drawn(dice, fields))), null_user="value", null_key="value"
        )
        where = f"coalesce(TRY_CAST(({drawn(dice, fields)}) AS BOOLEAN), true)" if turn % 2 else None
        try:
            computation = Computation(schema.scalars, where)
        except ValueError:  # one field's path leads through another's
            continue
        schemas = {one: odd.schema() for one in (1, 7)}
        form, _ = registered(computation.paths, schemas)
        beside = Beside((), "none", topic="t", partition=0)
        paths = computation.paths
        reader = RecordReader(form, beside, paths=paths, wanted=paths, asked=computation.asked)
        computed = ComputedSource(source(form), reader, computation.applied)
        payloads: list[bytes | None] = [
            b"\0" + one.to_bytes(4, "big") + payload
            for one, kind in schemas.items()
            for payload in odd.payloads(kind, 48)
        ]
        payloads += [b"", None, b"\0\0\0\0", b"\1\0\0\0\1a"]
        whole = RawBatchDecoder(schema, computed, TypedComputation(computation))
        records, columns = whole.decode(sections(payloads), 0)
        given = [InputRecord(row, 1_000 + row, 0, b"k", value) for row, value in enumerate(payloads)]
        wanted = RawDecoder(schema).decode(computation.applied(reader.read(given, lambda _: False)))
        assert difference(columns, wanted) == "", (where, schema)
        computation.close()
        left, good = left + len(records.left), good + int((columns.reason == 0).sum())
        done += len(payloads)
    return done, left, good


def test_odd_records_of_odd_schemas_with_expressions() -> None:
    done, left, good = fuzz(2_000, "some")
    assert good > done // 20
    assert left < 9 * done // 10


@pytest.mark.thorough
def test_20_000_odd_records_with_expressions() -> None:
    done, left, good = fuzz(20_000, "many")
    assert good > done // 20
    assert left < 9 * done // 10
