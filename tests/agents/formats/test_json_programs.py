"""JSON behind a registry's framing is read in compiled code as it is in Python."""

import random

import pytest

from susurrus.agents.formats.json import Json
from susurrus.topics.compiled import compiled
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason
from tests.agents.formats.test_avro_programs import compare
from tests.samples import many_odd
from tests.topics.odd_json import Odd
from tests.topics.test_raw_batches import SCHEMAS

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

HEADS = {
    "confluent": [b"\0\0\0\0\x05", b"\0\0\0\0\x06", b"\0\x7f\xff\xff\xff"],
    "apicurio": [b"\0" + (5).to_bytes(8, "big"), b"\0" + (6).to_bytes(8, "big")],
    "apicurio-content-id": [b"\0" + (2**31 - 1).to_bytes(8, "big")],
}
OTHERS = [
    b"",
    b"\0",
    b"\0\0\0\0",
    b"\0\0\0\0\0",
    b"\0\xff\xff\xff\xff",
    b"\1\0\0\0\5",
    b"\xc3\x01",
    b"\0" * 9,
    b"\0\0\0\0\5\0",
]
PLAIN = RawSchema(user=("u",), key=("k",))


def fuzz(number: int, framing: str, name: str) -> None:
    dice, schema = random.Random(f"{framing} {name}"), SCHEMAS[name]
    payloads = [
        payload if payload is None else dice.choice(OTHERS if dice.random() < 0.05 else HEADS[framing]) + payload
        for payload in Odd(number).payloads(number)
    ]
    left, columns = compare(schema, Json(RawDecoder(schema).paths, None, framing), payloads)
    good = int((columns.reason == Reason.OK).sum())
    assert left < number or name == "nano"
    assert good > left / 20 or name in ("nano", "micro"), "hardly anything was good: the comparison says little"


@pytest.mark.parametrize("framing", HEADS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_odd_records(framing: str, name: str) -> None:
    fuzz(400, framing, name)


@pytest.mark.fuzz
@pytest.mark.parametrize("framing", HEADS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_many_odd_records(framing: str, name: str) -> None:
    fuzz(many_odd(680), framing, name)


@pytest.mark.parametrize("framing", HEADS)
def test_usual_records_are_all_taken_and_what_is_not_framed_so_is_refused_by_its_name(framing: str) -> None:
    form = Json(RawDecoder(PLAIN).paths, None, framing)
    usual = [HEADS[framing][0] + b'{"u": "user-%d", "k": "/"}' % number for number in range(30)]
    left, columns = compare(PLAIN, form, usual)
    assert left == 0
    assert not columns.reason.any()
    odd = [b"", HEADS[framing][0], b'{"u": 1, "k": 2}', b"\0\0\0\0\0{}", b"\xc3\x01" + b"f" * 8 + b"{}", None]
    left, columns = compare(PLAIN, form, [usual[0], *odd, usual[1]])
    assert left == len(odd)
    reasons = columns.reason.tolist()
    assert reasons[1:3] == [Reason.EMPTY] * 2
    assert reasons[5] == Reason.FRAMING_SINGLE_OBJECT


def test_what_is_not_framed_or_framed_by_headers_has_no_programs() -> None:
    paths = RawDecoder(PLAIN).paths
    assert Json(paths, None).programs(paths) is None
    assert Json(paths, None, "confluent-header").programs(paths) is None
    assert Json(paths, None, "apicurio-header").programs(paths) is None
