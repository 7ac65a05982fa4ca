"""What a refused payload looks like."""

import gzip
import json

import cramjam
import msgspec
import pytest

from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen

EVENT = {"u": "ann", "k": "x"}
TEXT = json.dumps(EVENT)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (gzip.compress(TEXT.encode(), mtime=0), Reason.COMPRESSED),
        (bytes(cramjam.zstd.compress(TEXT.encode())), Reason.COMPRESSED),
        (TEXT.encode("utf-16"), Reason.UTF16),
        (TEXT.encode("utf-16-le"), Reason.UTF16),
        (TEXT.encode("utf-16-be"), Reason.UTF16),
        (b"\xfe\xff", Reason.UTF16),
        (msgspec.msgpack.encode(EVENT), Reason.MESSAGE_PACK),
        (msgspec.msgpack.encode({"x" * 40: 1}), Reason.MESSAGE_PACK),
        (msgspec.msgpack.encode({str(n): n for n in range(20)}), Reason.MESSAGE_PACK),
        (b"\xdf\0\0\0\x01\xa1u\x01", Reason.MESSAGE_PACK),
    ],
)
def test_it_is_named_in_place_of_json(payload: bytes, reason: Reason) -> None:
    assert seen(payload) == reason
    (chunk,) = JsonReader([("u",)]).read([TEXT.encode(), payload, TEXT.encode()])
    assert chunk.refused == {1: reason}
    assert chunk.columns == [["ann", "ann"]]


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0", b"{", b"\x81", b"\x81\x01", b"\xde\0", b"plain", b"\xff", b"\x1f", b"\0a", b"\0a\0", 
     b"\0\0\0\0", b"a\0\0\0"],
)  # fmt: skip
def test_nothing_is_named_where_nothing_is_known(payload: bytes) -> None:
    assert seen(payload) is None
