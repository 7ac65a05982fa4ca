"""Released keys as text: what a search compares, what a page sends, and a short name for links."""

import hashlib
import json
from typing import Any

Part = tuple[str, bool]
"""A part of a key: its text, and whether it is a text (else a number, a truth value or null, as JSON writes it)."""


def parts_of(key: Any) -> list[Part]:
    """A key is a JSON scalar, or several of them in a list or tuple."""
    return [
        (part, True) if isinstance(part, str) else (json.dumps(part), False)
        for part in (key if isinstance(key, list | tuple) else (key,))
    ]


def identity(key: Any) -> Any:
    """What tells keys apart in a dictionary: there, 1, 1.0 and True would be the same."""
    if isinstance(key, str):
        return key
    if isinstance(key, list | tuple):
        return tuple(map(identity, key))
    return type(key).__name__, key


def folded(key: Any) -> str:
    """What a search is compared with: upper and lower case are the same."""
    return "\n".join(text for text, _ in parts_of(key)).casefold()


def name_of(key: Any) -> int:
    """64 bits that stand for a key in a link: no key is too long for them."""
    text = json.dumps(key, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
