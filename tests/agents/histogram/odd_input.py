"""Odd records of every input format, for tests that ask what a record does to its neighbours in route.

They are usual ones of input_cases.py, disturbed: a field gets another type, bytes are changed, cut off or put in, the key or a
header is another one.
"""

import gzip
import random
from typing import Any

from tests.agents.histogram.input_cases import Case, Headers, Sent

SCALARS: list[Any] = [
    None, True, False, 0, -1, 5, 2.5, 1e300, "7", "7x", 2**63, 2**64 - 1, 2**70, -(2**70), "", "bot", "\0", "\ud800", "9" * 5_000,
    "1995-08-01T00:00:00Z", [], {}, [[]], {"u": {}}, [None, 1, "a"], float("nan"), float("inf"), b"\xff", "\U0001f600",
]  # fmt: skip
PAYLOADS: list[bytes | None] = [
    None, b"", b"\0", b"{", b"[]", b"{}", b"null", b"1", b'"x"', b"\xff\xfe\xfa", b"[" * 900 + b"]" * 900, b'{"u": 1e999}',
    b"\xef\xbb\xbf{}", '{"u": "a"}'.encode("utf-16"), gzip.compress(b"{}"), gzip.compress(b"0" * 200_000), b"\x1f\x8b\x08", b"\n",
    b"\0\0\0\0\1", b"\0\0\0\0\2\2x", b"\0\0\0\0\4x", b"\0\0\0\0\x63x", b"\0\0\0\0\3\0\xff", b"\xc3\x01" + b"f" * 8,
    b"\xdd\xff\xff\xff\xff", b"\x90" * 500, b'"', b'a,"b', b",,,,,,",
    b'{"items": [1e999, {"sku": "A"}, "\xff"]}', b"\x80" * 40, b"{" * 30,
]  # fmt: skip
BYTES: list[bytes | None] = [
    None,
    b"",
    b"\xff",
    b"bot",
    b"x" * 70_000,
    b'{"id": []}',
    b"\0" * 8,
    b"\0" * 7,
    b'{"id": null}',
]


def disturbed(dice: random.Random, value: Any) -> Any:
    """An object with some of its parts left out, or replaced."""
    if dice.random() < 0.12:
        return dice.choice(SCALARS)
    if isinstance(value, dict):
        return {
            dice.choice(["u", "k", "", "items"]) if dice.random() < 0.03 else name: disturbed(dice, inner)
            for name, inner in value.items()
            if dice.random() > 0.05
        }
    if isinstance(value, list):
        found = [disturbed(dice, inner) for inner in value if dice.random() > 0.05]
        return found * dice.choice([1, 1, 1, 7]) if dice.random() < 0.3 else found
    return value


def bent(dice: random.Random, payload: bytes) -> bytes:
    """A payload with some bytes changed, cut off or put in."""
    data = bytearray(payload)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0 if at < len(data):
                data[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, *b'",\n{[', dice.randrange(256)])
            case 1:
                del data[at:]
            case 2:
                data[at:at] = dice.choice([dice.randbytes(3), b"\xff", b"null", b"1e999", b"\r\n", b"\\ud800"])
            case 3:
                data[at:at] = data[at : at + dice.randrange(30)]
            case _:
                del data[at : at + dice.randrange(1, 4)]
    return bytes(data)


def _value(dice: random.Random, case: Case, usual: Any) -> bytes | None:
    if dice.random() < 0.15:
        return dice.choice(PAYLOADS)
    if dice.random() < 0.6 and not isinstance(usual, bytes):
        try:
            return case.write(disturbed(dice, usual))
        except Exception:  # no writer writes everything
            return bent(dice, case.write(usual))
    written = usual if isinstance(usual, bytes) else case.write(usual)
    return written if dice.random() < 0.1 else bent(dice, written)


def _headers(dice: random.Random, headers: Headers) -> Headers:
    changed = [(name, dice.choice(BYTES[:4]) if dice.random() < 0.2 else value) for name, value in headers]
    if dice.random() < 0.2:
        changed.insert(
            dice.randrange(len(changed) + 1), (dice.choice(["user", "kind", "ce_type", ""]), dice.choice(BYTES))
        )
    return tuple(one for one in changed if dice.random() > 0.1)


def usual_records(case: Case) -> list[Sent]:
    """In bytes."""
    return [
        Sent(one.value if isinstance(one.value, bytes) else case.write(one.value), one.key, one.headers)
        for one in case.usual
    ]


def odd_records(case: Case, number: int, dice: random.Random) -> list[Sent]:
    """In bytes."""
    found = []
    for _ in range(number):
        usual = dice.choice(case.usual)
        key = dice.choice(BYTES) if dice.random() < 0.15 else usual.key
        found.append(Sent(_value(dice, case, usual.value), key, _headers(dice, usual.headers)))
    return found
