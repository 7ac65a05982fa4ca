"""MessagePack: what its types become, and payloads that ask for more than they have."""

import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from susurrus.agents.formats.format import RefusedPayload
from susurrus.agents.formats.msgpack import check
from susurrus.topics.records.reason import Reason
from tests.formats_rows import decoder, rows
from tests.samples import many_odd

msgpack = pytest.importorskip("msgpack")

pack: Callable[[Any], bytes] = msgspec.msgpack.encode
WHOLE = {"format": "msgpack"}


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (pack({"u": "ann", "n": [1, -2.5, None, True]}), {"u": "ann", "n": [1, -2.5, None, True]}),
        (pack({"b": b"\xff", "big": 2**64 - 1}), {"b": b"\xff", "big": 2**64 - 1}),
        (b"\x82\xa1a\x01\xa1a\x02", {"a": 2}),  # the last of two equal names
        (b"\x82\x01\x07\x02\xc4\x01x", {"1": 7, "2": b"x"}),
        (b"\x81\xc4\x01a\x01", {"a": 1}),
        (b"\xd6\xff" + struct.pack(">I", 1_790_834_400), datetime(2026, 10, 1, 6, tzinfo=UTC)),
        # Cut, and not rounded to the next second:
        (b"\xd7\xff" + (999_999_999 << 34 | 5).to_bytes(8, "big"), datetime(1970, 1, 1, 0, 0, 5, 999_999, UTC)),
        (b"\xc7\x0c\xff" + struct.pack(">Iq", 999_999_999, -1), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (b"\xd6\x05abcd", b"abcd"),
        (b"\xc7\x00\x01", b""),
        (b"\xca\x3f\xc0\0\0", 1.5),
    ],
)
def test_types_become_what_they_are(payload: bytes, value: Any) -> None:
    assert rows(decoder([""], **WHOLE), [payload]) == [[value]]


GOOD = pack({"u": "ann"})


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (GOOD[:-1], Reason.UNDECODABLE),
        (GOOD + b"\0", Reason.UNDECODABLE),
        (b"\xc1", Reason.UNDECODABLE),
        (b"\x81\xc0\x01", Reason.UNDECODABLE),
        (b"\x81\x91\x01\x01", Reason.UNDECODABLE),
        (b"\x81\x81\x01\x01\x01", Reason.UNDECODABLE),
        (b"\x81\xa1u\xa1\xff", Reason.INVALID_UTF8),
        (b"\x81\xa1u\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**62), Reason.UNDECODABLE),  # no year that there is
        (b"\x91\x01", Reason.WRONG_TYPE),
        (b"\x07", Reason.WRONG_TYPE),
        (b"\x1f\x8b\x08\0\0", Reason.COMPRESSED),
        (b"", Reason.EMPTY),
        (None, Reason.TOMBSTONE),
        (b"\x91" * 401 + b"\0", Reason.TOO_DEEP),
        (b"\x81\xa1a" * 401 + b"\0", Reason.TOO_DEEP),
        (b"\x91" * 100_000 + b"\0", Reason.TOO_DEEP),
        (b"\xdd\xff\xff\xff\xff", Reason.UNDECODABLE),
        (b"\xdd\0\0\xff\xff" * 300 + b"\0" * 1000, Reason.UNDECODABLE),
        (b"\xdf\xff\xff\xff\xff", Reason.UNDECODABLE),
    ],
    ids=lambda x: x.name if isinstance(x, Reason) else "",
)
def test_bad_payloads_are_refused_alone(payload: bytes | None, reason: Reason) -> None:
    assert rows(decoder(["u"], **WHOLE), [GOOD, payload, GOOD]) == [["ann"], reason, ["ann"]]


def test_the_deepest_nesting_is_read() -> None:
    (found,) = rows(decoder([""], **WHOLE), [b"\x91" * 400 + b"\x07"])
    (value,) = found
    for _ in range(400):
        (value,) = value
    assert value == 7


def test_the_walk_takes_what_the_library_takes() -> None:
    """Every payload that is whole passes; every one that the walk refuses, the library refuses, too."""
    draw = random.Random(3)

    def value(depth: int) -> Any:
        kind = draw.randrange(9 if depth else 7)
        if kind < 7:
            return draw.choice(
                [None, True, 0, -1, 2**40, -(2**40), 1.5, "", "x" * 40, "y" * 300, b"z" * 70_000, b"q", "w" * 66_000]
            )
        many = draw.choice((0, 1, 3, 20))
        return (
            [value(depth - 1) for _ in range(many)] if kind == 7 else {f"n{n}": value(depth - 1) for n in range(many)}
        )

    refused = 0
    for _ in range(400):
        payload = pack(value(3))
        check(payload)
        broken = bytearray(payload[: draw.randrange(len(payload)) + 1])
        broken[draw.randrange(len(broken))] = draw.randrange(256)
        try:
            check(bytes(broken))
        except RefusedPayload:
            refused += 1
            with pytest.raises((ValueError, TypeError, msgpack.UnpackException)):
                msgpack.unpackb(bytes(broken), strict_map_key=False, raw=True, max_array_len=10_000, max_map_len=10_000)
    assert refused > 50


@pytest.mark.parametrize("number", [5_000, pytest.param(many_odd(20_000), marks=pytest.mark.fuzz)])
def test_odd_payloads_raise_nothing_and_each_is_decided_alone(number: int) -> None:
    draw = random.Random(9)
    good = [GOOD, pack({"u": [1, {"a": b"x"}]}), b"\xd7\xff" + bytes(8), pack({"u": "x" * 300, "n": list(range(40))})]
    payloads: list[bytes | None] = []
    for _ in range(number):
        payload = bytearray(draw.choice(good))
        for _ in range(draw.choice((0, 1, 2))):
            payload[draw.randrange(len(payload))] = draw.choice([draw.randrange(256), 0xDD, 0xDF, 0xC7, 0xFF])
        payloads.append(None if draw.random() < 0.02 else bytes(payload) if draw.random() < 0.8 else draw.randbytes(12))
    form = decoder(["u"], **WHOLE)
    together = rows(form, payloads)
    assert {type(one) for one in together} == {list, Reason}
    for row in draw.sample(range(number), 1_000):
        assert repr(rows(form, payloads[row : row + 1])) == repr(together[row : row + 1])
