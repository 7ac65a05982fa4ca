"""Payloads that are compressed or not in UTF-8, before any format reads them."""

import gzip
import json
import random
import zlib
from itertools import pairwise
from typing import Any

import cramjam
import pytest

from susurrus.agents.formats import prepared as prepared_module
from susurrus.agents.formats.compression import gunzip, unzstd
from susurrus.agents.formats.encodings import ENCODINGS
from susurrus.topics.records.reason import Reason
from tests.formats_rows import decoder, overdue, rows
from tests.samples import many_odd


def zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def streamed(data: bytes, *, blocks: int = 1) -> bytes:
    """A frame that does not say how long its content is, in raw blocks."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x50"  # a window of 1 MiB
    cuts = [len(data) * n // blocks for n in range(blocks + 1)]
    for number, (start, end) in enumerate(pairwise(cuts), 1):
        frame += ((end - start) << 3 | (number == blocks)).to_bytes(3, "little") + data[start:end]
    return frame


def repeated(byte: bytes, *, blocks: int) -> bytes:
    """A frame of blocks that repeat a byte 2^17 times each."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x50"
    for number in range(blocks):
        frame += ((1 << 17) << 3 | 1 << 1 | (number == blocks - 1)).to_bytes(3, "little") + byte
    return frame


EVENT = json.dumps({"u": "ann", "x": "y" * 3000}).encode()
PACKED = {"gzip": [gzip.compress(EVENT), gzip.compress(EVENT, 0)], "zstd": [zstd(EVENT), streamed(EVENT, blocks=3)]}


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("form", [{}, {"format": "json-lines"}, {"format": "csv", "columns": ["u"]}])
def test_a_compressed_value_is_read_as_what_it_was(name: str, form: dict[str, Any]) -> None:
    whole = decoder([""], **form)
    for payload in PACKED[name]:
        for compression in (name, "auto"):
            assert rows(decoder([""], **form, compression=compression), [payload]) == rows(whole, [EVENT])


def test_auto_leaves_a_value_that_is_not_compressed() -> None:
    payloads = [EVENT, PACKED["gzip"][0], PACKED["zstd"][0], None, b"", b"\x1f\x8b", gzip.compress(b"")]
    assert rows(decoder(["u"], compression="auto"), payloads) == [
        ["ann"], ["ann"], ["ann"], Reason.TOMBSTONE, Reason.EMPTY, Reason.INVALID_UTF8, Reason.EMPTY,
    ]  # fmt: skip


def damaged(good: bytes, at: int) -> list[bytes]:
    return [
        good[:-1],
        good[:9],
        good[:5],
        good + b"\0",
        good + good,
        b"x" + good,
        EVENT,
        good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :],
    ]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_damaged_values_are_refused_alone(name: str) -> None:
    good, form = PACKED[name][0], decoder(["u"], compression=name)
    for bad in damaged(good, 12 if name == "gzip" else 8):  # in the data; in the head of a block
        assert rows(form, [good, bad, good]) == [["ann"], Reason.NOT_DECOMPRESSED, ["ann"]]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_the_bound_is_of_what_a_value_becomes(name: str) -> None:
    for payload in PACKED[name]:
        assert rows(decoder(["u"], compression=name, max_value_bytes=len(EVENT)), [payload]) == [["ann"]]
        assert rows(decoder(["u"], compression=name, max_value_bytes=len(EVENT) - 1), [payload]) == [
            Reason.NOT_DECOMPRESSED
        ]


def test_bombs_are_refused_within_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = gzip.compress(bytes(64 << 20))
    members = b"".join(gzip.compress(b"") for _ in range(100))
    frames = [repeated(b"\0", blocks=10_000), zstd(bytes(64 << 20)), b"".join(zstd(b"") for _ in range(100))]
    lengths: list[int] = []

    class Measured(bytearray):
        def __init__(self, size: int) -> None:
            lengths.append(size)
            super().__init__(size)

    monkeypatch.setattr("susurrus.agents.formats.compression.bytearray", Measured, raising=False)
    for bomb in (zeros, members):
        assert gunzip(bomb, 1 << 20) is Reason.NOT_DECOMPRESSED
    for bomb in frames:
        assert unzstd(bomb, 1 << 20) is Reason.NOT_DECOMPRESSED
    assert max(lengths) <= 1 << 20
    assert unzstd(repeated(b"x", blocks=8), 1 << 20) == b"x" * (1 << 20)


def test_a_frame_may_have_all_parts_of_a_head() -> None:
    """A checksum, the length in each of its sizes, no content at all."""
    for size in (0, 1, 255, 256, 70_000, 300_000):
        data = random.Random(size).randbytes(size)
        assert unzstd(zstd(data), 1 << 20) == data
    single = b"\x28\xb5\x2f\xfd" + b"\x20\x03" + (3 << 3 | 1).to_bytes(3, "little") + b"abc"
    assert unzstd(single, 10) == b"abc"
    assert unzstd(single + b"\0", 10) is Reason.NOT_DECOMPRESSED
    assert unzstd(streamed(b""), 10) == b""
    other_dictionary = b"\x28\xb5\x2f\xfd" + b"\x21\x03\x07" + (3 << 3 | 1).to_bytes(3, "little") + b"abc"
    assert isinstance(unzstd(other_dictionary, 10), Reason)


def test_a_batch_of_values_that_become_long_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasons and waits keep their rows across the parts."""
    payloads = [gzip.compress(EVENT), b"?", gzip.compress(b"{"), gzip.compress(EVENT)] * 5
    expected = [["ann"], Reason.NOT_DECOMPRESSED, Reason.NOT_JSON, ["ann"]] * 5
    assert rows(decoder(["u"], compression="gzip"), payloads) == expected
    monkeypatch.setattr(prepared_module, "_AT_ONCE", 2 * len(EVENT))
    form = decoder(["u"], compression="gzip")
    assert rows(form, payloads) == expected
    assert len(list(form.read(payloads, overdue))) > 3


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name not in ("utf-8", "utf-16")])
def test_texts_in_another_encoding_are_read(name: str) -> None:
    text = '{"u": "ärger€"}' if name != "iso-8859-1" else '{"u": "ärger"}'
    assert rows(decoder(["u"], encoding=name), [text.encode(name)]) == [[json.loads(text)["u"]]]


def test_utf16_by_its_byte_order_mark() -> None:
    text = '{"u": "ärger 😀"}'
    both = [b"\xff\xfe" + text.encode("utf-16-le"), b"\xfe\xff" + text.encode("utf-16-be")]
    form = decoder(["u"], encoding="utf-16")
    assert rows(form, both) == [["ärger 😀"]] * 2
    odd = [text.encode("utf-16-le"), text.encode(), both[0][:-1], b"\xff\xfe\x00\xd8", b"\xff\xfe", None, b"", both[0]]
    bad = Reason.INVALID_UTF8
    assert rows(form, odd) == [bad, bad, bad, bad, Reason.EMPTY, Reason.TOMBSTONE, Reason.EMPTY, ["ärger 😀"]]
    # Without a mark the order is the machine's in Python; here it must be said.
    assert rows(decoder(["u"], encoding="utf-16-le"), [text.encode("utf-16-le")]) == [["ärger 😀"]]


def test_both_steps_come_before_the_format_and_its_envelope() -> None:
    event = json.dumps({"op": "c", "after": {"u": "ann"}})
    payload = gzip.compress(b"\xff\xfe" + event.encode("utf-16-le"))
    form = decoder(["u", "$envelope.op"], compression="auto", encoding="utf-16", envelope="debezium")
    assert rows(form, [payload, b"x", None]) == [["ann", "c"], Reason.INVALID_UTF8, Reason.FILTERED]


@pytest.mark.parametrize("number", [3_000, pytest.param(many_odd(20_000), marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("name", ["gzip", "zstd", "auto"])
def test_odd_payloads_raise_nothing_and_each_is_decided_alone(name: str, number: int) -> None:
    draw = random.Random(5)
    good = [*PACKED["gzip"], *PACKED["zstd"], EVENT, zlib.compress(EVENT), repeated(b"{", blocks=2)]
    payloads: list[bytes | None] = []
    for _ in range(number):
        payload = bytearray(draw.choice(good))
        for _ in range(draw.choice((0, 0, 1, 4))):
            payload[draw.randrange(min(len(payload), 40))] = draw.randrange(256)
        payloads.append(
            None
            if draw.random() < 0.02
            else bytes(payload[: draw.choice((len(payload), draw.randrange(len(payload))))])
        )
    form = decoder(["u"], compression=name, max_value_bytes=1 << 18)
    together = rows(form, payloads)
    assert {type(one) for one in together} == {list, Reason}
    for row in draw.sample(range(number), 500):
        assert repr(rows(form, payloads[row : row + 1])) == repr(together[row : row + 1])
