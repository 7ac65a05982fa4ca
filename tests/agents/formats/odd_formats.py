"""Odd records of each format that has programs, behind a framing: for whoever compares what is compiled with the definition."""

import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Final, Protocol

from susurrus.agents.formats.format import Format
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.message_types import starts
from susurrus.topics.records.fields import Path
from tests.agents.formats import test_avro_programs, test_protobuf_programs
from tests.agents.formats.odd_avro import OddAvro
from tests.agents.formats.odd_protobuf import OddProtobuf
from tests.agents.formats.test_json_programs import HEADS, OTHERS
from tests.topics.odd_json import Odd, half_odd

_NONE: Final = [b"", None, b"\0\0\0\0", b"\0\0\0\0\1", b"\0\0\0\0\0", b"\0\xff\xff\xff\xff", b"\1\0\0\0\1a"]
"""What no framing takes, or none of these schemas."""


class OddRecords(Protocol):
    """Some schemas of one format, with most of the fields u, k, who.id, v and t, and records of them."""

    def form(self, paths: Sequence[Path]) -> Format:
        """A format that has found the schemas, for these paths."""

    def payloads(self, number: int) -> list[bytes | None]:
        """About so many."""


class AvroRecords:
    """Of two writers' schemas. reader: with a reader's schema."""

    def __init__(self, seed: str, odd: float, *, reader: bool = False) -> None:
        self._odd = OddAvro(seed, odd)
        self._schemas = {number: self._odd.schema() for number in ((1,) if reader else (1, 7))}
        self._reader = self._odd.reader(self._schemas[1], 0.1) if reader else None

    def form(self, paths: Sequence[Path]) -> Format:
        return test_avro_programs.registered(paths, self._schemas, self._reader)[0]

    def payloads(self, number: int) -> list[bytes | None]:
        each = number // len(self._schemas)
        return [*_NONE, *(payload for of in self._schemas for payload in self._of(of, each))]

    def _of(self, schema: int, number: int) -> Iterator[bytes]:
        for payload in self._odd.payloads(self._schemas[schema], number):
            yield b"\0" + schema.to_bytes(4, "big") + payload


class ProtobufRecords:
    """Of the types of two files. named: of one type, which the configuration names."""

    def __init__(self, seed: str, odd: float, *, named: bool = False) -> None:
        self._odd, self._named = OddProtobuf(seed, odd), "p.Event" if named else None
        self._files = {number: self._odd.file() for number in (1, 7)}
        _, known = self._registered([("u",)])
        self._types = [
            (b"\0" + number.to_bytes(4, "big") + start, one.message(name).DESCRIPTOR)
            for number, one in known.schemas.items()
            for start, name in starts(one.file, refers=False)
            if name in ("p.Event", "p.Other")
        ]

    def _registered(self, paths: Sequence[Path]) -> tuple[Format, test_avro_programs.Known]:
        return test_protobuf_programs.registered(SimpleNamespace(paths=list(paths)), self._files, self._named)

    def form(self, paths: Sequence[Path]) -> Format:
        return self._registered(paths)[0]

    def payloads(self, number: int) -> list[bytes | None]:
        each = number // len(self._types)
        return [*_NONE, *(head + one for head, kind in self._types for one in self._odd.payloads(kind, each))]


class JsonRecords:
    """Behind one of the framings that JSON has programs for."""

    def __init__(self, seed: str, odd: float) -> None:
        self._dice, self._share = random.Random(seed), odd
        self._odd, self._framing = Odd(self._dice.randrange(1 << 30)), self._dice.choice(list(HEADS))

    def form(self, paths: Sequence[Path]) -> Format:
        return Json(list(paths), None, self._framing)

    def payloads(self, number: int) -> list[bytes | None]:
        dice, heads = self._dice, HEADS[self._framing]
        return [
            one if one is None else dice.choice(OTHERS if dice.random() < self._share / 5 else heads) + one
            for one in half_odd(dice, self._odd, number)
        ]


ODD_FORMATS: Final[dict[str, Callable[[str, float], OddRecords]]] = {
    "avro": AvroRecords,
    "avro with a reader's schema": lambda seed, odd: AvroRecords(seed, odd, reader=True),
    "protobuf": ProtobufRecords,
    "protobuf of a named type": lambda seed, odd: ProtobufRecords(seed, odd, named=True),
    "framed json": JsonRecords,
}
