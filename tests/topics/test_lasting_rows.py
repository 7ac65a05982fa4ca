"""lasting rows: a round trip, pinned bytes, and what cannot be."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import lasting_rows
from susurrus.topics.wire.packing import MalformedRecord

INT64 = st.integers(-(2**63), 2**63 - 1)


def example(**changes: Any) -> lasting_rows.LastingRows:
    fields: dict[str, Any] = {
        "partition": 2,
        "interval": 5,
        "window": 86_400_000,
        "known": 3,
        "rows": 7,
        "config_digest": bytes(range(32)),
        "epoch": bytes(range(16)),
    }
    return lasting_rows.LastingRows(**fields | changes)


@given(st.integers(0, 2**63 - 1), INT64, INT64, st.integers(0, 2**61), st.integers(0, 2**61))
def test_a_record_survives(partition: int, interval: int, window: int, known: int, more: int) -> None:
    record = example(partition=partition, interval=interval, window=window, known=known, rows=known + more)
    assert lasting_rows.decode(lasting_rows.encode(record)) == record


def test_the_bytes_are_pinned() -> None:
    assert lasting_rows.encode(example()).hex() == (
        "0501"
        "0200000000000000" "0500000000000000" "005c260500000000" "0300000000000000" "0700000000000000"
        + bytes(range(32)).hex() + bytes(range(16)).hex()
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{"partition": -1}, {"known": -1}, {"known": 8}, {"epoch": b""}, {"config_digest": bytes(31)}]
)
def test_what_cannot_be_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|do not make|is more than"):
        lasting_rows.encode(example(**changes))


def test_damage_is_noticed() -> None:
    data = lasting_rows.encode(example())
    for length in range(len(data)):
        with pytest.raises(MalformedRecord):
            lasting_rows.decode(data[:length])
    with pytest.raises(MalformedRecord):
        lasting_rows.decode(data + b"\0")
    more_known = dataclasses.replace(example(), known=7)
    assert data != lasting_rows.encode(more_known)
    with pytest.raises(MalformedRecord, match="is more than"):
        lasting_rows.decode(lasting_rows.encode(more_known).replace(b"\x07" + bytes(7), b"\x09" + bytes(7), 1))
