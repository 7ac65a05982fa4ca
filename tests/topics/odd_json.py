"""Odd payloads for comparisons of the compiled decoder with the one in Python: mostly nearly right, so that they get far."""

import random
from collections.abc import Sequence

NAMES = [
    '"u"',
    '"k"',
    '"z"',
    '"v"',
    '"w"',
    '"t"',
    '"who"',
    '"id"',
    '"x"',
    '"\\u0075"',
    '"ü"',
    '"u "',
    '""',
    '"U"',
    '"a.b"',
]
TEXTS = [
    '"ann"', '"bob"', '"/"', '""', '"1"', '"ann "', '"Ann"', '"\\u0061nn"', '"a\\/b"', '"a\\nb"', '"a\\"b"', '"\\\\"',
    '"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00\\ud800"', '"😀"', '"ü"', '"u\u0308"', '"\u2028"', '"\x7f"',
    '"\x00"', '"a\nb"', '"a\tb"',
    '"' + "x" * 39 + '"', '"' + "x" * 200 + '"', '"' + "ü" * 30 + '"', '"\\x"', '"\\u12"', '"\\u12G4"',
    '"null"', '"true"', '"ab', "'a'",
    '"\ufeff"', '"\\u0000"', '"12345678"', '"1234567\\"', '"123456789012345\\n"', '"\u0080"', '"\U0010ffff"',
]  # fmt: skip
NUMBERS = [
    "0", "1", "-1", "7", "42", "-0", "-0.0", "0.0", "1.0", "1.5", "-2.25", "0.1", "0.30000000000000004", "1e3",
    "1E3", "1e-3", "-1e+2",
    "00", "01", "-01", "1.", ".5", "+1", "-", "--1", "1e", "1e+", "0x1", "1_0", "9007199254740991",
    "9007199254740992", "9007199254740993",
    "9007199254740992.0", "9007199254740993.0", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "9223372036854775809", "9999999999999999999",
    "18446744073709551615", "18446744073709551616", "-18446744073709551615",
    "99999999999999999999", "1e19",
    "1e308", "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308",
    "1e309", "-1e400", "1e-400", "123456789012345678", "1234567890123456789",
    "0.123456789012345678901234567890",
    "123456.789", "0.5", "0.25", "2.5", "3.5", "-0.5", "1.0000000000000002", "0.000000000000000000000001",
    "12345678.12345678",
    "1700000000", "1700000000000", "1700000000123456", "1700000000123456789", "-62135596800", "-62135596801",
    "253402300799", "1790834400.1237", "1790834400.123", "1790899199.9996", "1790834400.1234567", "-0.0001", "-1.0011",
    "1790834400123.9", "1790834400123456.7", "1.790834400123e18", "253402300799.9996", "-62135596800.0001",
    "253402300800", "253402300799999", "253402300800000", "-62135596800000", "-62135596800001",
    "62135596800000000", "NaN", "Infinity",
    "-Infinity", "nan", "9" * 25, "1" + "0" * 400, "0." + "3" * 400, "1e99", "1e-99", "0e0", "0E-7", "-0e1",
]  # fmt: skip
TIMES = [
    '"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.5Z"', '"2026-01-31 12:00:00Z"', '"2026-01-31t12:00:00z"',
    '"2026-02-29T12:00:00Z"',
    '"2024-02-29T23:59:59.999999Z"', '"2000-02-29T00:00:00Z"', '"1900-02-29T00:00:00Z"',
    '"0001-01-01T00:00:00Z"', '"0000-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59.9999Z"', '"2026-01-31T24:00:00Z"', '"2026-01-31T12:60:00Z"', '"2026-01-31T12:00:60Z"',
    '"2026-13-31T12:00:00Z"',
    '"2026-00-31T12:00:00Z"', '"2026-04-31T12:00:00Z"', '"2026-01-00T12:00:00Z"', '"2026-01-31T12:00:00+02:00"',
    '"2026-01-31T12:00:00"',
    '"2026-01-31"', '"2026-01-31T12:00:00.Z"', '"2026-01-31T12:00:00.1234567890123456789Z"',
    '"2026-01-31T12:00:00.123456789012345678Z"',
    '"1969-12-31T23:59:59.9999Z"', '"1600-02-29T01:02:03.001Z"', '"2026-01-31T12:00:0/Z"',
    '"2026-01-31T12:00:00.1:Z"', '"١٩٦٩-12-31T23:59:59Z"',
    '"+026-01-31T12:00:00Z"', '"2026-01-31T12:00:00ZZ"', '"2026-1-31T12:00:00Z"',
]  # fmt: skip
OTHERS = [
    "null", "true", "false", "nul", "True", "none", "{}", "[]", "[1,2]", '{"id":1}', '{"id":null}',
    '{"id":"ann","id":2}', '{"a":{"b":[{}]}}',
    '{"id":{}}', "[" * 10 + "]" * 10, "[" * 59 + "]" * 59, "[" * 61 + "]" * 61, "[" * 399 + "]" * 399,
    "[" * 401 + "]" * 401,
    '{"a":' * 62 + "1" + "}" * 62, "[1,]", "[,1]", '{"a":1,}', '{"a"}', '{"a":}', "{1:2}", "[1 2]", "[}", "{]",
    '{"id":"ann"', "", "/**/1", "1 2",
    '[{"a":"\\n","b":[true,false,null]},[[]],"]"]', '{"}":"{","\\"":1}', '{"x":"\\ud800"}', '{"who":{"id":3}}',
    "[1e400]", '["\x01"]', '{"a":' + "[" * 66 + "]" * 67, '{"a":' + "[" * 66 + "]" * 66 + "}",
]  # fmt: skip
SPACES = ["", "", "", "", "", "", " ", "\n", "\t", "\r\n", "  ", "\x0b", "\x0c", "\xa0", "\x00"]
WHOLES = [
    None, b"", b" ", b" \r\n\t", b"\x0c", b"{", b"}", b"{}", b"null", b"5", b"[]", b'"u"', b"{}{}",
    b"\xef\xbb\xbf{}", b"\xff\xfe{", b'{"u"', b'{"u":',
    b"[" * 100_000, b'{"u":' * 500, b'{"u":1,"k":1}\x00', b'{"u":1,"k":1}x', b'{"u":1,"k":1},',
    b'{"u":1,"k":1}\n{"u":1,"k":1}', b'{"u":1,"k":1} ',
    b'\xef\xbb\xbf{"u":1,"k":1}', b'{"u":"\xff","k":1}', b'{"u":"\xed\xa0\x80","k":1}',
    b'{"u":"\xc0\xaf","k":1}', b'{"u":1,"k":1,"x":"\xff"}',
    b'{"u":1,"k":1,"\xff":1}', b'{"u":"\xf4\x90\x80\x80","k":1}', b'{"u":"abcdefgh\xc3","k":1}',
    b'{"u":"abcdefgh\xc3\xa9ijklmnopq","k":1}',
    '{"u":1,"k":1}'.encode("utf-16"), b"{'u':1}", b'{u:1,"k":1}', b'{"u":1 "k":1}', b'{"u":1,,"k":1}',
    b'{,"u":1,"k":1}', b'{"u" : 1 , "k" : 1 }',
    b'{"u":1,"k":1,"z":1,"v":2,"w":3,"t":4,"who":{"id":"bob","x":1},"who":null}',
    b'{"u":1,"k":1,"z":1,"v":2,"w":3,"t":4,"who":null,"who":{"id":"bob","x":1}}',
    b'{"u":1,"k":1,"z":1,"v":2,"w":3,"t":4,"who":{"id":"bob","x":1},"who":{"x":2}}',
]  # fmt: skip


class Odd:
    """Draws payloads. seed: the same payloads in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def payloads(self, number: int) -> list[bytes | None]:
        """So many."""
        return [self._payload() for _ in range(number)]

    def keys(self, number: int) -> list[bytes | None]:
        """Kafka keys, many of them no text."""
        kinds: Sequence[bytes | None] = [
            None,
            b"",
            b"ann",
            b"bob",
            b"\xff",
            "ü".encode(),
            b'a"b',
            b"a\\b",
            b"a\nb",
            b"\x7f",
            b"x" * 60,
        ]
        return self._random.choices(kinds, k=number)

    def _payload(self) -> bytes | None:
        draw = self._random
        if draw.random() < 0.02:
            return draw.choice(WHOLES)
        text = self._object().encode("utf-8", "surrogatepass")
        if draw.random() < 0.06:
            at = draw.randrange(len(text) + 1)
            match draw.randrange(4):
                case 0:
                    text = text[:at]
                case 1:
                    text = text[:at] + bytes([draw.randrange(256)]) + text[at:]
                case 2:
                    text = text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]
                case 3:
                    text = text[:at] + text[at + 1 :]
        return text

    def _object(self) -> str:
        draw = self._random
        fields = [('"u"', self._user()), ('"k"', self._user()), ('"z"', self._user())]
        fields += [('"v"', self._number()), ('"w"', self._number()), ('"t"', self._time())]
        fields.append(('"who"', self._who()))
        if draw.random() < 0.3:
            draw.shuffle(fields)
        if draw.random() < 0.1:
            del fields[draw.randrange(len(fields))]
        for _ in range(draw.choice((0, 0, 0, 1, 1, 2))):
            fields.insert(draw.randrange(len(fields) + 1), (draw.choice(NAMES), self._any()))
        return self._spaced(
            "{", ",".join(f"{self._space()}{name}{self._space()}:{value}" for name, value in fields), "}"
        )

    def _spaced(self, *texts: str) -> str:
        return self._space() + self._space().join(texts) + self._space()

    def _space(self) -> str:
        # Any of these now and then: most records have none.
        return self._random.choice(SPACES) if self._random.random() < 0.02 else ""

    def _user(self) -> str:
        draw = self._random
        if draw.random() < 0.04:
            return self._any()
        return draw.choice(
            (
                f'"user-{draw.randrange(300)}"',
                f"{draw.randrange(300)}",
                f'"ü{draw.randrange(9)}"',
                draw.choice(("true", "false", "null", '"a"', "1")),
            )
        )

    def _number(self) -> str:
        draw = self._random
        if draw.random() < 0.05:
            return self._any()
        return draw.choice(
            (
                f"{draw.randrange(-99, 999)}",
                f"{draw.randrange(10**6) / 100}",
                f"{draw.uniform(-9, 9):.{draw.randrange(1, 19)}f}",
            )
        )

    def _time(self) -> str:
        draw = self._random
        if draw.random() < 0.05:
            return self._any()
        day = draw.randrange(1, 29)
        return draw.choice(
            (
                f"{1_700_000_000 + draw.randrange(10**6)}",
                f"{1_700_000_000_000 + draw.randrange(10**9)}",
                f'"{draw.randrange(1, 10_000):04}-{draw.randrange(1, 13):02}-{day:02}T{draw.randrange(24):02}:00:00Z"',
                draw.choice(TIMES),
            )
        )

    def _who(self) -> str:
        draw = self._random
        if draw.random() < 0.05:
            return self._any()
        ids = "".join(f'"id":{self._user()},' for _ in range(draw.choice((1, 1, 1, 1, 1, 2, 0))))
        return "{" + ids + f'"x":{draw.choice(TEXTS[:8])}' + "}"

    def _any(self) -> str:
        return self._random.choice(self._random.choice((TEXTS, NUMBERS, TIMES, OTHERS)))


def half_odd(dice: random.Random, odd: Odd, number: int) -> list[bytes | None]:
    """Half of them are alike and plain, so that they get far; of the others every scalar may be anything."""
    payloads = odd.payloads(number)
    scalars = ['"ann"', '"1"', '"/a/b"', '"ü"', "1", "2", "0.5", "true", "null", "7", '"2026-01-31T12:00:00Z"']
    for row in range(number):
        if dice.random() < 0.5:
            few = scalars if dice.random() < 0.9 else [*TEXTS, *NUMBERS, *OTHERS]
            u, k, z, v, w, t, i, x = (dice.choice(few) for _ in range(8))
            if dice.random() < 0.8:
                v, w, t = (dice.choice(["1", "7", "0.5", "-2"]) for _ in range(3))
            if dice.random() < 0.5:
                t = '"2026-01-31T12:00:00Z"'
            text = f'{{"u":{u},"k":{k},"z":{z},"v":{v},"w":{w},"t":{t},"who":{{"id":{i},"x":{x}}}}}'
            payloads[row] = text.encode("utf-8", "surrogatepass")
    return payloads
