"""Types and messages of Protobuf that are as odd as anyone may write them."""

import random
import struct
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2

from tests.agents.formats.damaged import damaged

_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_SCALARS: Final = [9, 9, 9, 3, 5, 1, 2, 4, 6, 7, 8, 12, 13, 14, 15, 16, 17, 18]
"""protobuf's numbers of types; a text is the most usual one."""
_WIRE: Final = {1: 1, 2: 5, 6: 1, 7: 5, 15: 5, 16: 1, 9: 2, 12: 2, 11: 2, 10: 3}
"""How they are written; all others are varints."""
_KNOWN: Final = [
    *("StringValue", "Int64Value", "BoolValue", "DoubleValue", "BytesValue", "UInt64Value", "FloatValue"),
    *("Timestamp", "Duration", "Struct", "Value", "ListValue", "Any"),
]
_TEXTS: Final = ["ann", "ü", "", 'a"b', "a\\b", "a\nb", "\x7f", "ẞ" * 30, "x" * 90, "1", "2026-01-31T12:00:00.5Z"]
_INTEGERS: Final = [1, 0, 2, 63, 150, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
_FLOATS: Final = [1.0, 0.0, -2.5, -0.0, 0.1, 1e300, 5e-324, float("nan"), float("inf"), -float("inf"), 2.0**53, 0.3]
_STAMPS: Final = [1_790_834_400, 0, -1, -62_135_596_800, -62_135_596_801, 253_402_300_799, 253_402_300_800, 2**62]
_NANOS: Final = [0, 1, 123_456_789, 999_999_999, 1_000_000_000, -1, 2**40]


class OddProtobuf:
    """Makes files of types, and messages. The same seed makes the same. odd: how much of all is unusual, from 0 to 1."""

    def __init__(self, seed: int | str, odd: float) -> None:
        self._dice, self._odd, self._named = random.Random(seed), odd, 0
        self._syntax = self._dice.choice(["proto3", "proto3", "proto2", "editions"])

    def _unusual(self) -> bool:
        return self._dice.random() < self._odd

    def file(self) -> Any:
        """A file whose messages Event and Other have most of the fields u, k, who.id, v and t, and others."""
        file = descriptor_pb2.FileDescriptorProto(name=f"{self._dice.randrange(1 << 40)}.proto", package="p")
        file.syntax = self._syntax
        if self._syntax == "editions":
            file.edition = descriptor_pb2.EDITION_2023
        file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("wrappers", "timestamp", "duration"))
        file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("struct", "any"))
        enum = file.enum_type.add(name="Color")
        for number, name in enumerate(["RED", "GREEN", "BLUE"]):
            enum.value.add(name=name, number=-5 if number == 2 else number)
        names = ["Event", "Other"]
        self._dice.shuffle(names)
        inner = file.message_type.add(name="Inner")
        self._fields(file, inner, [("x", 1), ("id", 0), ("y", 1)])
        for name in names:
            message = file.message_type.add(name=name)
            wanted = [
                (one, 0) for one in ("u", "k", "who", "v", "t") if not self._unusual() or self._dice.random() < 0.8
            ]
            others = [(f"f{number}", 2) for number in range(self._dice.randrange(5))]
            self._fields(file, message, self._dice.sample([*wanted, *others], len(wanted) + len(others)))
            if self._unusual():
                message.nested_type.add(name="Event")
        return file

    def _fields(self, file: Any, message: Any, fields: list[tuple[str, int]]) -> None:
        dice = self._dice
        numbers = sorted(dice.sample(range(1, 3_000 if self._unusual() else 20), len(fields)))
        dice.shuffle(numbers) if self._unusual() else None
        oneof = self._unusual() or dice.random() < 0.03
        if oneof:
            message.oneof_decl.add(name="choice")
        for number, (name, depth) in zip(numbers, fields, strict=True):
            field = message.field.add(name=name, number=number, label=1)
            odd = depth > 0 or self._unusual()
            self._typed(
                file, field, dice.choice([9, 3]) if not odd and name not in ("v", "t", "who") else None, name, odd
            )
            if oneof and dice.random() < 0.5:
                field.oneof_index = 0
            elif odd and dice.random() < 0.4:
                field.label = 3
                if field.type not in (9, 10, 11, 12) and self._syntax != "editions" and dice.random() < 0.5:
                    field.options.packed = dice.random() < 0.5
            elif self._syntax == "proto2" and dice.random() < 0.2:
                field.label = 2
            elif self._syntax == "proto2" and dice.random() < 0.2 and field.type in (3, 5, 13):
                field.default_value = "7"
            elif self._syntax == "proto3" and dice.random() < 0.3:
                field.proto3_optional = True
            elif self._syntax == "editions" and dice.random() < 0.4 and field.type != _MESSAGE:
                field.options.features.field_presence = 2  # implicit
        if self._syntax == "proto2" and self._unusual():
            message.extension_range.add(start=5_000, end=6_000)
        self._optional_last(message)

    def _optional_last(self, message: Any) -> None:
        """Each optional field of proto3 is in a oneof of its own, behind all others; one without fields is none."""
        if not any(field.HasField("oneof_index") for field in message.field):
            del message.oneof_decl[:]
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _typed(self, file: Any, field: Any, kind: int | None, name: str, odd: bool) -> None:
        dice = self._dice
        if kind is None:
            usual = {"v": [1, 1, 3, 2, 5], "t": [_MESSAGE, _MESSAGE, _MESSAGE, 3, 9], "who": [_MESSAGE]}
            kind = dice.choice([*_SCALARS, _MESSAGE, _MESSAGE, _MESSAGE] if odd else usual.get(name, _SCALARS))
        field.type = kind
        if kind == _ENUM:
            field.type_name = ".p.Color"
        elif kind == _MESSAGE and name == "who" and not odd:
            field.type_name = ".p.Inner"
        elif kind == _MESSAGE and name == "t" and not odd:
            field.type_name = ".google.protobuf.Timestamp"
        elif kind == _MESSAGE:
            known = [f".google.protobuf.{one}" for one in _KNOWN]
            field.type_name = dice.choice([*known, ".p.Inner", ".p.Event", ".p.Inner"])

    def payloads(self, descriptor: Any, number: int) -> Iterator[bytes]:
        """Messages of a type, of which some have been damaged."""
        for _ in range(number):
            written = self._message(descriptor, 0)
            yield damaged(self._dice, written) if self._unusual() else written

    def _message(self, descriptor: Any, depth: int) -> bytes:
        """The bytes of some message; written here, since protobuf writes only what is usual."""
        dice, parts = self._dice, list[bytes]()
        for field in descriptor.fields:
            if dice.random() < (0.5 if self._unusual() else 0.97):
                oneof = field.containing_oneof
                if oneof is None or len(oneof.fields) == 1 or dice.random() < 1 / len(oneof.fields) or self._unusual():
                    parts.append(self._field(field, depth))
                    if self._unusual():
                        parts.append(self._field(field, depth))
        if self._unusual() or (depth == 0 and dice.random() < 0.1):
            parts.append(self._unknown())
        if self._unusual():
            dice.shuffle(parts)
        return b"".join(parts)

    def _field(self, field: Any, depth: int) -> bytes:
        dice, kind = self._dice, field.type
        tag = self._tag(field.number, _WIRE.get(kind, 0))
        if kind == _GROUP:
            return tag + self._tag(field.number, 4)
        if not field.is_repeated:
            if self._unusual() and dice.random() < 0.1:
                return self._tag(field.number, dice.randrange(8)) + self._value(field, depth)
            return tag + self._value(field, depth)
        values = [self._value(field, depth) for _ in range(dice.randrange(4))]
        packed = field.is_packed != self._unusual() and kind not in (9, 11, 12)
        if packed:
            data = b"".join(values)
            return self._tag(field.number, 2) + self._varint(len(data)) + data
        return b"".join(tag + value for value in values)

    def _value(self, field: Any, depth: int) -> bytes:
        dice = self._dice
        some = 1_000_000 if self._unusual() else 4  # the first of these are usual
        match field.type:
            case 1:
                return struct.pack("<d", dice.choice(_FLOATS[:some]))
            case 2:
                return struct.pack("<f", dice.choice([x for x in _FLOATS if abs(x) < 1e30 or x != x][:some]))
            case 6 | 16:
                return struct.pack("<Q", dice.choice(_INTEGERS[:some]))
            case 7 | 15:
                return struct.pack("<I", dice.choice([x for x in _INTEGERS if x < 2**32][:some]))
            case 9 | 12:
                data = dice.choice(_TEXTS[: max(2, some // 2)]).encode()
                if some > 4 and dice.random() < 0.3:
                    data += dice.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
                return self._varint(len(data)) + data
            case 11:
                data = self._inside(field, depth)
                return self._varint(len(data)) + data
            case 14:
                return self._varint(dice.choice([0, 1, 2**64 - 5, 0, 7, 2**32 + 1, 2**32 - 5][: max(3, some)]))
            case _:
                return self._varint(dice.choice([*_INTEGERS[:some], 1_790_834_400_123]))

    def _inside(self, field: Any, depth: int) -> bytes:
        dice, message = self._dice, field.message_type
        if message.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            some = 1_000_000 if self._unusual() else 2
            found = b"\x08" + self._varint(dice.choice(_STAMPS[:some]) % 2**64)
            nanos = dice.choice(_NANOS[: max(3, some)])
            found += b"\x10" + self._varint(nanos % 2**64) if nanos else b""
            return found + self._unknown() if self._unusual() else found
        if depth > 4 and not self._unusual():
            return b""
        return b"" if depth > 40 else self._message(message, depth + 1)

    def _unknown(self) -> bytes:
        dice = self._dice
        number = dice.choice([2_999, 4_000, 5_500, 2**29 - 1, 2**29, 0][: 6 if self._unusual() else 2])
        wire = dice.randrange(8) if self._unusual() else dice.choice([0, 1, 2, 5])
        tag = self._tag(number, wire)
        match wire:
            case 0:
                return tag + self._varint(dice.choice(_INTEGERS))
            case 1 | 5:
                return tag + dice.randbytes(8 if wire == 1 else 4)
            case 2:
                size = dice.randrange(5)
                return tag + self._varint(size) + dice.randbytes(size)
            case 3:
                inner = self._unknown() if dice.random() < 0.5 else b""
                return tag + inner + self._tag(number, 4)
            case _:
                return tag

    def _tag(self, number: int, wire: int) -> bytes:
        return self._varint(number << 3 | wire)

    def _varint(self, number: int) -> bytes:
        found = bytearray()
        while number > 0x7F:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        found.append(number)
        if self._unusual() and self._dice.random() < 0.1:
            found[-1] |= 0x80
            found += b"\x80" * self._dice.choice([0, 0, 1, 3, 7]) + self._dice.choice([b"\0", b"\0", b"\1", b"\x7f"])
        return bytes(found)
