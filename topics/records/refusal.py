"""Why the fast decoder refused a payload: a second, slow look with the standard library's JSON.

Only refused payloads come here, so nothing in this file decides what is accepted.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any

import numpy as np

from susurrus.topics.records.fields import Path, walk
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen

MAX_DEPTH = 400
"""Deepest nesting accepted. The decoder's own limit is what is left of Python's recursion limit, and so depends on its callers.
A replay must not depend on that, so a lower limit of our own comes first."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEP = np.zeros(256, np.int64)
_STEP[[*b"[{"]] = 1
_STEP[[*b"]}"]] = -1


def too_deep(payload: bytes) -> bool:
    """Whether brackets outside strings nest deeper than MAX_DEPTH."""
    if len(payload) <= MAX_DEPTH or payload.count(b"{") + payload.count(b"[") <= MAX_DEPTH:
        return False
    steps = _STEP[np.frombuffer(_STRING.sub(b"", payload), np.uint8)]
    return bool(steps.size) and int(np.cumsum(steps).max()) > MAX_DEPTH


def reason_of(payload: bytes | None, paths: Sequence[Path]) -> Reason:
    """The reason of a refused payload."""
    if payload is None:
        return Reason.TOMBSTONE
    payload = payload.removeprefix(BOM_UTF8)
    if not payload.strip(b" \t\r\n"):
        return Reason.EMPTY
    if too_deep(payload):
        return Reason.TOO_DEEP
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return seen(payload) or Reason.INVALID_UTF8
    found: list[Reason] = []

    def constant(_: str) -> float:
        found.append(Reason.NOT_FINITE)
        return 0.0

    try:
        value = json.loads(text, parse_constant=constant, parse_int=_integer, parse_float=_float)
    except ValueError:
        return seen(payload) or Reason.NOT_JSON
    except RecursionError:
        return Reason.TOO_DEEP
    if not isinstance(value, dict) and () not in paths:
        return Reason.WRONG_TYPE
    if found:
        return found[0]
    for path in paths:
        try:
            field = walk(value, path)
        except TypeError:
            return Reason.WRONG_TYPE
        if (reason := _first_bad_number(field)) is not None:
            return reason
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Reason.INVALID_UTF8
    return Reason.NOT_JSON


# A number that cannot be is its Reason.
def _integer(digits: str) -> int:
    # Python refuses to read very long integers, and takes quadratic time for long ones.
    return int(digits) if len(digits) <= 20 and -(2**63) <= int(digits) < 2**64 else Reason.INTEGER_TOO_LARGE


def _float(digits: str) -> float:
    number = float(digits)
    return number if np.isfinite(number) else Reason.NOT_FINITE


def _first_bad_number(value: Any) -> Reason | None:
    """Depth first; MAX_DEPTH bounds the recursion."""
    if isinstance(value, Reason):
        return value
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((r for r in map(_first_bad_number, below) if r is not None), None)
