"""What is read of many payloads at once is what is read of each by itself: objects of formats, their columns, and record tables."""

import itertools
import json
import random
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.expressions.computation import Computation
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.framing import FRAMINGS
from susurrus.agents.formats.items import ListStep
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.msgpack import MessagePack
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.topics.records import payloads as payloads_module
from susurrus.topics.records.fields import Path, parse_path
from susurrus.topics.records.layout import certain_layout
from susurrus.topics.records.payloads import Chunk, chunk_of_objects
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.table import RecordTable
from tests.agents.formats.odd_formats import ODD_FORMATS
from tests.agents.formats.test_avro_programs import EVENT as AVRO_EVENT
from tests.agents.formats.test_avro_programs import event, registered
from tests.agents.formats.test_reader import source_of
from tests.record_batches import record_batch, section_of
from tests.samples import many_odd

msgpack = pytest.importorskip("msgpack")

PATHS: list[Path] = [("u",), ("k",), ("who", "id"), ("v",), ("t",)]
Payloads = Sequence[bytes | None]


def said(form: Format, payloads: Payloads) -> tuple[list[Any], dict[int, Reason]]:
    """A row for each payload, and why some are refused. NaN is equal to itself in a text."""
    rows: list[Any] = []
    refused: dict[int, Reason] = {}
    for chunk in form.read(payloads, lambda _: True, [[]] * len(payloads)):
        refused |= {len(rows) + row: why for row, why in chunk.refused.items()}
        columns = [chunk.spread(column) for column in chunk.columns]
        rows += zip(*columns, strict=True) if columns else [()] * chunk.rows
    return list(map(repr, rows)), refused


class Watched:
    """Of a format, what `_alike` says, and how often it knew the answer; or a format that looks at each payload."""

    def __init__(self, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.form, self.taken, self.left = form, 0, 0
        self._alike, self._patch = form._alike, monkeypatch

    def read(self, payloads: Payloads, *, at_once: bool) -> tuple[list[Any], dict[int, Reason]]:
        self._patch.setattr(self.form, "_alike", self._watched if at_once else lambda _: None)
        return said(self.form, payloads)

    def _watched(self, payloads: Payloads) -> list[Any] | None:
        found = self._alike(payloads)
        if found is None:
            self.left += 1
        else:
            self.taken += 1
        return found  # type: ignore[no-any-return]


def groups(payloads: Payloads, dice: random.Random) -> list[Payloads]:
    """Some of them together: most begin alike, as in a topic with one producer."""
    by_head: dict[bytes, list[bytes]] = {}
    for payload in payloads:
        by_head.setdefault((payload or b"")[:6], []).append(payload or b"")
    found: list[Payloads] = []
    for of in by_head.values():
        found += [of[at : at + 3] for at in range(0, len(of), 3)]
    some = list(payloads)
    dice.shuffle(some)
    return [*found, *(some[at : at + 7] for at in range(0, len(some), 7))]


def compare(form: Any, payloads: Payloads, dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often all was read at once, and how often not."""
    watched = Watched(form, monkeypatch)
    watched.read(payloads, at_once=False)  # finds the schemas
    for group in groups(payloads, dice):
        assert watched.read(group, at_once=True) == watched.read(group, at_once=False)
    return watched.taken, watched.left


def fuzz(name: str, number: int, seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = left = 0
    for turn in range(number // 100):
        odd = ODD_FORMATS[name](f"{seed} {turn}", [0.01, 0.05, 0.3][turn % 3])
        some = compare(odd.form(PATHS), odd.payloads(100), random.Random(turn), monkeypatch)
        taken, left = taken + some[0], left + some[1]
    assert min(taken, left) > (taken + left) // 20


OBJECTS = [name for name in ODD_FORMATS if name != "framed json"]


@pytest.mark.parametrize("name", OBJECTS)
def test_odd_payloads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz(name, 3_000, "some", monkeypatch)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", OBJECTS)
def test_many_odd_payloads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz(name, many_odd(10_000), "many", monkeypatch)


def test_messagepack(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(1)
    scalars = ["a", "", 1, -1.5, None, True, b"\xff", datetime.fromisoformat("2026-01-31T00:00:00Z"), [1], {"id": 2}]
    whole = [
        msgpack.packb({name: dice.choice(scalars) for name in "ukvt"} | {"who": dice.choice(scalars)}, datetime=True)
        for _ in range(300)
    ]
    good = [msgpack.packb({"u": "a", "k": number, "who": {"id": "x"}, "v": 1.5}) for number in range(300)]
    bad = [
        b"",
        None,
        b"\xc1",
        b"\x80\x80",
        msgpack.packb([1]),
        msgpack.packb("a"),
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 600,
    ]
    form = MessagePack(PATHS, None)
    taken, left = compare(form, [*whole, *good, *bad], dice, monkeypatch)
    assert min(taken, left) > 10


@pytest.mark.parametrize("framing", ["confluent", "apicurio", "apicurio-content-id"])
def test_json_behind_a_prefix_is_that_behind_none(framing: str) -> None:
    dice, form, plain = random.Random(2), Json(PATHS, None, framing), Json(PATHS, None)
    magic, size, _ = FRAMINGS[framing].prefix or (b"", 0, range(0))
    texts = [b'{"u":"a","k":1}', b'{"u":2}', b"{", b"", b"[]", b'{"u":"b","who":{"id":3}}', b'{"u":"\xff"}']
    heads = [magic + dice.randrange(1, 9).to_bytes(size, "big") for _ in range(40)]
    bodies = [dice.choice(texts) for _ in heads]
    rows, refused = said(form, [head + text for head, text in zip(heads, bodies, strict=True)])
    wanted, why = said(plain, bodies)
    assert (rows, refused) == (wanted, why)
    # A prefix that is none is refused among those that are.
    others = [magic + bytes(size), magic, b"\1" + bytes(size), magic + b"\xff" * size]
    mixed = [
        one for pair in zip(heads, itertools.cycle(others)) for one in (pair[0] + b'{"u":1}', pair[1] + b'{"u":1}')
    ]
    _, refused = said(form, mixed)
    assert set(refused) == set(range(1, len(mixed), 2))


def test_a_registry_that_does_not_answer_is_asked_once() -> None:
    form, known = registered(PATHS[:1], {5: AVRO_EVENT})
    good, other = b"\0\0\0\0\x05" + event(1), b"\0\0\0\0\x06" + event(1)
    known.answers = False
    assert said(form, [good, good]) == ([], {})
    assert known.asked == [5]
    known.answers = True
    assert len(said(form, [good] * 3)[0]) == 3
    assert known.asked == [5] * 4  # the first time one by one: `Schemas` itself asks once
    assert len(said(form, [good] * 3)[0]) == 3
    assert known.asked == [5] * 4
    # One that is not known yet is not read with the schema of its neighbour.
    found = said(form, [good, other, good])
    assert found[1] == {1: Reason.UNDECODABLE}


def test_columns_of_plain_objects_are_those_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(3)
    plain = ["a", "", 1, 1.5, True, None]
    odd = [Decimal("1.5"), b"x", [1], {"id": 1}, Reason.OK, msgspec.UNSET]

    def value(share: float) -> Any:
        return dice.choice(odd if dice.random() < share else plain)

    def one(share: float) -> Any:
        if dice.random() < share / 4:
            return dice.choice([None, Reason.EMPTY, [1], 5, "a"])
        found = {name: value(share) for name in ("u", "k", "v", "t") if dice.random() < 0.9}
        if dice.random() < 0.9:
            found["who"] = {"id": value(share)} if dice.random() >= share / 2 else value(1.0)
        return found

    def same(one: Chunk, other: Chunk) -> bool:
        return (one.rows, repr(one.columns), one.refused, one.pending) == (
            other.rows, repr(other.columns), other.refused, other.pending
        )  # fmt: skip

    at_once = 0
    for turn in range(2_000):
        objects = [one([0.0, 0.02, 0.3][turn % 3]) for _ in range(dice.randrange(6))]
        paths = dice.sample([*PATHS, ("who",)], 3) if turn % 5 else dice.choice([[()], [("", "envelope", "x")], []])
        if ("who",) in paths and ("who", "id") in paths:
            continue
        found = chunk_of_objects(objects, paths)
        at_once += payloads_module.plain_columns(objects, paths) is not None
        with monkeypatch.context() as patch:
            patch.setattr(payloads_module, "plain_columns", lambda *_: None)
            assert same(found, chunk_of_objects(objects, paths))
    assert 200 < at_once < 1_500


@pytest.mark.parametrize("key_format", ["text", "json"])
def test_a_table_is_read_as_its_records_are(key_format: str) -> None:
    paths = [("u",), ("", "key"), ("", "headers", "h"), ("", "offset"), ("", "timestamp"), ("", "topic")]
    sections = [
        section_of(record_batch([b'{"u":1}', b'{"u":2}', None], first=5, keys=[b'"a"', None, b"\xff"])),
        section_of(record_batch([b'{"u":3}', b"{"], first=8, headers=[("h", b"x"), ("h", None), ("h", b"\xc3\xbc")])),
        section_of(record_batch([b'{"u":4}'], first=10, headers=[("h", b"\xff"), ("g", b"y")])),
    ]
    layouts = [certain_layout(section) for section in sections]
    assert all(layouts)
    table = RecordTable.of(sections, [layout for layout in layouts if layout is not None])
    for where in (None, "u > 1"):
        reader = reader_of(
            source_of(key_format), paths, topic="orders", partition=3, asked=None if where is None else [("u",)]
        )
        assert list(map(repr, reader.read(table, lambda _: True))) == list(
            map(repr, reader.read(list(table), lambda _: True))
        )


STEPS = [
    ([("items", "item")], ["u", "item.k", "item.v"], None),
    ([("items", "item")], ["u", "item.k", "item.who.id"], "item.v > 1"),
    ([("items", "item")], ["u", "item"], None),
    ([("items", None)], ["k", "v"], None),
    ([("items", "item"), ("item.tags", "tag")], ["u", "item.k", "tag"], None),
    ([("items", "item"), ("item.tags", "tag")], ["u", "tag"], "item.v > 1"),
]


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(("lists", "paths", "where"), STEPS)
def test_lists_that_are_taken_apart(
    form: str, lists: Any, paths: list[str], where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, taken, left = random.Random(4), 0, 0

    def item(share: float) -> Any:
        if dice.random() < share:
            return dice.choice([None, "a", 5, [], [1], {"k": [1]}, {"who": 5}, {"tags": "x"}, {"tags": {"a": 1}}])
        found = {"k": dice.choice("abc"), "v": dice.randrange(4), "who": {"id": 1}, "tags": dice.sample("xyz", 2)}
        return {name: one for name, one in found.items() if dice.random() < 0.9}

    def one(share: float) -> Any:
        if dice.random() < share:
            return dice.choice([5, {"items": 5}, {"u": 1, "items": {"a": {"k": 1}}}, {"u": [1], "items": []}, {}])
        items = [item(share) for _ in range(dice.randrange(4))]
        return {"u": dice.randrange(5), "items": dice.choice([items, items, items, None])}

    real = ListStep._usual

    def watched(self: ListStep, table: Any) -> Any:
        nonlocal taken, left
        found = real(self, table)
        taken, left = taken + (found is not None), left + (found is None)
        return found

    for turn in range(150):
        share = [0.0, 0.0, 0.02, 0.3][turn % 4]
        values = [one(share) for _ in range(dice.randrange(1, 8))]
        packed = [json.dumps(value).encode() if form == "json" else msgpack.packb(value) for value in values]
        if form == "json" and turn % 4 == 3:
            packed.append(b'{"u":1,"items":[{"k":"\\xff"}, {"k":1}]}')
        found = []
        for usual in (watched, lambda *_: None):
            monkeypatch.setattr(ListStep, "_usual", usual)
            records = [ReadRecord("t", 0, at, 0, None, value, []) for at, value in enumerate(packed)]
            source = InputSettings.model_validate(
                {
                    "topic": "t",
                    "format": form,
                    "each": [{"of": of, "as": name} if name else {"of": of} for of, name in lists],
                }
            )
            computation = Computation([parse_path(path) for path in paths], where)
            reader = reader_of(source, computation.paths, topic=None, partition=None, asked=computation.asked)
            found.append([repr(chunk) for chunk in computation.applied(reader.read(records, lambda _: True))])
        assert found[0] == found[1]
    assert min(taken, left) > (taken + left) // 20
