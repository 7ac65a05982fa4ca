"""The compiled decoder of values is the decoder in Python, on whatever a record may hold."""

import itertools
import random
from dataclasses import fields, replace

import numpy as np
import pytest

from susurrus.topics.compiled import compiled
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.values import ValuesColumns, ValuesDecoder, ValuesSchema
from tests.record_batches import record_batch, section_of
from tests.topics.odd_json import NUMBERS, OTHERS, TEXTS, WHOLES, Odd

if compiled is not None:
    from susurrus.topics.values_batches import ValuesBatchDecoder

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

SCHEMAS = {
    "field": ValuesSchema(stream="u", value="v", bound=100.0, grid=0.5),
    "nested": ValuesSchema(stream="who.id", value="w", bound=1000.0, grid=0.1, time="t", time_unit="s"),
    "key": ValuesSchema(value="v", bound=1.0, grid=1e-6, max_key_bytes=9),
    "key, timed": ValuesSchema(value="v", bound=2.0**31, grid=1.0, time="t", time_unit="iso"),
    "same": ValuesSchema(stream="v", value="v", bound=50.0, grid=0.25),
    "long": ValuesSchema(stream="k", value="z", bound=1e-3, grid=1e-9, time="t", time_unit="ns", max_key_bytes=5),
}
KEYS = [
    b"a",
    b"b",
    b"",
    None,
    b'"',
    b"\\",
    b"\x7f",
    b"\x1f",
    b"\xff",
    "ü".encode(),
    b"1",
    b"null",
    b"seven..",
    b"eight...",
]


def in_python(schema, payloads, keys):
    decoder = ValuesDecoder(schema)
    return decoder.decode(JsonReader(decoder.paths).read(payloads), keys if schema.stream is None else ())


def difference(found: ValuesColumns, wanted: ValuesColumns) -> str:
    """The first field that differs; empty if none does."""
    for name in (field.name for field in fields(ValuesColumns)):
        ours, theirs = getattr(found, name), getattr(wanted, name)
        if isinstance(theirs, np.ndarray):
            if (ours.dtype, ours.shape, ours.tobytes()) != (theirs.dtype, theirs.shape, theirs.tobytes()):
                return name
        elif ours != theirs:
            return name
    return ""


def compare(schema, payloads, keys, *, batches=3):
    cuts = np.linspace(0, len(payloads), batches + 1).astype(int).tolist()
    sections = [
        section_of(record_batch(payloads[a:b], first=a, keys=keys[a:b])) for a, b in itertools.pairwise(cuts) if b > a
    ]
    records, columns = ValuesBatchDecoder(schema).decode(sections, 0)
    assert difference(columns, in_python(schema, payloads, keys)) == ""
    assert records.timestamp.tolist() == [1_000 + row for row in range(len(payloads))]
    return records, columns


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hundred_thousand_odd_records_are_what_they_are_in_python(name: str) -> None:
    seed, left, rows, good = sorted(SCHEMAS).index(name), 0, 0, 0
    odd, dice = Odd(100 + seed), random.Random(seed)
    for number in (1, 2, 7, 100, 1_000, 6_000, 10_000):
        keys = [dice.choice(KEYS) if dice.random() < 0.3 else b"meter-%d" % dice.randrange(50) for _ in range(number)]
        records, columns = compare(SCHEMAS[name], odd.payloads(number), keys)
        left += records.left.size
        rows += number
        good += int((columns.reason == Reason.OK).sum())
    assert rows * len(SCHEMAS) >= 100_000
    assert left < rows or name == "long"
    assert good > rows / 20 or name == "long", "hardly anything was good: the comparison says little"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_odd_scalar_at_every_place(name: str) -> None:
    payloads: list[bytes | None] = list(WHOLES)
    plain = {"u": '"ann"', "k": '"/"', "z": "1", "v": "2", "w": "3", "t": "4", "who": '{"id":"bob"}'}
    for scalar, place in itertools.product([*TEXTS, *NUMBERS, *OTHERS], [*plain, "who.id"]):
        texts = {**plain, **({"who": f'{{"id":{scalar}}}'} if place == "who.id" else {place: scalar})}
        text = "{" + ",".join(f'"{n}":{t}' for n, t in texts.items()) + "}"
        payloads.append(text.encode("utf-8", "surrogatepass"))
    keys = [KEYS[row % len(KEYS)] for row in range(len(payloads))]
    for unit in ("s", "us", "d", "iso"):
        compare(replace(SCHEMAS[name], time_unit=unit), payloads, keys, batches=1)


def test_plain_records_are_taken_and_others_are_left() -> None:
    """Else all of this file could pass because nothing is ever taken."""
    plain = [b'{"u":"ann","v":1}', b'{"v":-2.25,"x":[1e9],"u":7}', b'{"u":true,"v":99999999999999999}']
    odd = [b'{"u":null,"v":1}', b'{"u":"ann","v":"1"}', b'{"u":"ann","v":1e3}', b'{"u":"\\u0061nn","v":1}', None]
    records, columns = compare(SCHEMAS["field"], plain + odd, [b"k"] * 8)
    assert records.left.tolist() == [3, 4, 5, 6, 7]
    assert columns.streams == [b'"ann"', b"7", b"true"]
    assert columns.value.tolist() == [2, 0, 200, 0, 0, 200, 2, 0]
    records, columns = compare(SCHEMAS["key"], [b'{"v":0.5}'] * len(KEYS), KEYS)
    assert 0 < records.left.size < len(KEYS)


def test_a_wrong_row_would_be_found() -> None:
    payloads, keys = Odd(99).payloads(500), [b"k"] * 500
    wanted = in_python(SCHEMAS["nested"], payloads, keys)
    _, found = compare(SCHEMAS["nested"], payloads, keys)
    good = np.flatnonzero(wanted.reason == 0)
    for name in ("stream", "value", "event_time", "reason"):
        wrong = getattr(found, name).copy()
        wrong[good[-1]] += 1
        assert difference(replace(found, **{name: wrong}), wanted) == name
