"""Record batches are read as brokers take them: what one producer writes beside its records holds up nobody else's."""

import random
import struct
from collections.abc import Callable, Iterator

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import record_batch as parser
from susurrus.topics.compiled import compiled
from susurrus.topics.records.layout import certain_layout, certainly_plain
from susurrus.topics.records.scanning import DecompressedBatch, InputRecord, JsonSource, Scanner
from susurrus.topics.records.table import RecordTable
from susurrus.topics.wire.batch_reader import MalformedBatch
from tests.record_batches import odd_batches, record_batch, section_of, zigzag

VALUES = [b'{"u":1}', None, b"", b"x" * 300, b'{"u":2}']
KEYS = [b"k", None, b"", b"\xff" * 70, b"l"]


def laid_out(section: DecompressedBatch) -> list[InputRecord]:
    """By places, whoever finds them."""
    return list(RecordTable.of([section], [parser.lay_out(section)]))


PROGRAMS: dict[str, Callable[[DecompressedBatch], list[InputRecord]]] = {
    "python": parser._parse,
    "installed": parser.parse,
    "places": laid_out,
}


def whole(section: DecompressedBatch) -> list[InputRecord] | None:
    """As the scanner sees them, where it is there; else as the parser does. The scanner passes over the headers."""
    if compiled is None:
        found = outcome(parser.parse, section)
        return None if found is None else [one._replace(packed_headers=b"\0") for one in found]
    try:
        return list(Scanner(JsonSource([("u",)]), [("u",)], [], [], None).scan([section], -(2**63)))
    except MalformedBatch:
        return None


def outcome(
    parse: Callable[[DecompressedBatch], list[InputRecord]], section: DecompressedBatch
) -> list[InputRecord] | None:
    try:
        return parse(section)
    except MalformedBatch:
        return None


def in_all_programs(section: DecompressedBatch) -> list[InputRecord] | None:
    """The records, None for a malformed batch."""
    found, *others = (outcome(parse, section) for parse in PROGRAMS.values())
    assert others == [found] * len(others)
    assert whole(section) == (None if found is None else [one._replace(packed_headers=b"\0") for one in found])
    assert certainly_plain(section) in (None, parser._plain_attributes(section))
    if found is not None and section.number == section.span:
        # Of malformed batches the two may see other parts.
        assert parser.usual(section) == parser._plain_attributes(section)
    return found


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("offsets", [[0, 1, 2, 3, 4], [0, 3, 4, 9, 200], [5, 6, 7, 8, 9]])
def test_an_ordinary_batch_is_what_aiokafka_reads(offsets: list[int], append_time: bool) -> None:
    headers = [("h", b"v"), ("ü" * 40, None), ("", b"")]
    data = record_batch(VALUES, first=100, keys=KEYS, offsets=offsets, append_time=append_time, headers=headers)
    wanted = list(MemoryRecords(data).next_batch())
    found = in_all_programs(section_of(data))
    assert found is not None
    assert [one[:5] for one in found] == [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in wanted]
    assert [one.headers for one in found] == [list(r.headers) for r in wanted] == [headers] * len(offsets)
    assert [one.offset for one in found] == [100 + offset for offset in offsets]


@pytest.mark.parametrize("name", odd_batches(0))
def test_what_brokers_do_not_look_at_changes_no_other_record(name: str) -> None:
    """tests/agents/runtime/test_odd_batches.py sends the same batches to a broker."""
    data, wanted = odd_batches(1_700_000_000_000)[name]
    found = in_all_programs(section_of(data))
    assert found is not None
    assert [one[:5] for one in found] == [(row, stamp, 0, key, value) for row, (stamp, key, value) in enumerate(wanted)]


def test_offsets_that_do_not_rise_are_malformed_only_where_records_are_missing() -> None:
    section = section_of(record_batch([b"a", b"b", b"c"], first=10, offsets=[0, 4, 2]))
    assert in_all_programs(section._replace(span=5)) is None
    assert (
        in_all_programs(section_of(record_batch([b"a", b"b", b"c"], first=10, offsets=[0, 2, 2]))._replace(span=5))
        is None
    )
    assert in_all_programs(section_of(record_batch([b"a", b"b"], first=10, offsets=[0, 4]))._replace(span=4)) is None
    found = in_all_programs(section._replace(span=3))
    assert found is not None
    assert [record.offset for record in found] == [10, 11, 12]


def test_time_stamps_wrap_around() -> None:
    """aiokafka's compiled parser says so, too; one that adds up to 2^63 would fit into no column."""
    section = section_of(record_batch([b"a", b"b"], first=0))._replace(first_timestamp=2**63 - 1)
    found = in_all_programs(section)
    assert found is not None
    assert [record.timestamp for record in found] == [2**63 - 1, -(2**63)]


def changed(data: bytes) -> Iterator[bytes]:
    """Every bit of the records, and the end cut off."""
    for at in range(61, len(data)):
        yield data[:at]
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def test_of_changed_bytes_all_programs_read_the_same() -> None:
    data = record_batch(VALUES, first=7, keys=KEYS, headers=[("h", b"v")])
    read = [in_all_programs(section_of(batch)) for batch in changed(data)]
    assert sum(one is None for one in read) > 200
    assert sum(one is not None for one in read) > 2_000
    for change in (
        {"last": 2**40}, {"first": 10**6}, {"number": 0}, {"number": 4}, {"number": 6}, {"number": 2**31 - 1}, {"number": -1},
        {"base_offset": 2**63 - 2},
    ):  # fmt: skip
        assert in_all_programs(section_of(data)._replace(**change)) is None


@given(st.binary(max_size=60), st.integers(0, 4), st.integers(0, 6))
def test_of_whatever_bytes_all_programs_read_the_same(text: bytes, number: int, span: int) -> None:
    in_all_programs(DecompressedBatch(text, 0, len(text), 5, 1_000, 1_009, False, number, span))


def test_a_batch_is_usual_whose_attributes_are_of_one_byte_and_of_which_nothing_is_missing() -> None:
    for name, (data, _) in odd_batches(0).items():
        assert parser.usual(section_of(data)) == (name not in ("attributes: 0x80", "attributes: 0xff")), name
    long = section_of(record_batch([b"x" * 70_000, b"y"] * 3))
    assert certainly_plain(long)
    assert parser.usual(long)
    assert not parser.usual(long._replace(span=7))
    assert not parser.usual(long._replace(last=long.last - 70_000))


@pytest.mark.parametrize("longer", range(9))
def test_numbers_of_up_to_ten_bytes(longer: int) -> None:
    dice = random.Random(longer)
    for number in [0, 1, -1, 63, 64, -64, -65, 2**31, -(2**62), 2**62, 2**63 - 1, -(2**63), dice.getrandbits(60)]:
        encoded = zigzag(number, longer=longer)
        body = b"\0" + encoded + b"\0" + b"\1\1\0"  # attributes, time, offset, no key, no value, no headers
        text = zigzag(len(body)) + body
        found = in_all_programs(DecompressedBatch(text, 0, len(text), 0, 0, 0, False, 1, 1))
        assert found == (None if len(encoded) > 10 else [InputRecord(0, number, 0, None, None)])


def test_a_section_is_read_between_its_first_and_last_byte_only() -> None:
    data = record_batch([b"a"], first=0)
    section = section_of(data + data[61:])
    [record] = in_all_programs(section._replace(last=section.last - len(data[61:]))) or []
    assert record.value == b"a"
    assert struct.unpack(">i", data[57:61]) == (1,)
    assert in_all_programs(section) is None


@pytest.mark.parametrize("append_time", [False, True])
def test_what_producers_write_is_laid_out_at_once(append_time: bool) -> None:
    """Lengths of one, two and three bytes, and of four, which are left to the definition."""
    for size, certain in ((0, True), (50, True), (100, True), (9_000, True), (1 << 20, False)):
        for offsets in (None, [0, 2, 3, 90, 91, 20_000]):
            for headers in ([], [("h", b"v"), ("", None), ("long" * 40, b"x" * 300)]):
                section = section_of(
                    record_batch(
                        [*VALUES, b"x" * size],
                        first=2**40,
                        keys=[*KEYS, b"z"],
                        offsets=offsets,
                        append_time=append_time,
                        headers=headers,
                        stamp=1_700_000_000_000,
                    )
                )
                assert (certain_layout(section) is not None) is certain
                assert in_all_programs(section) is not None


def test_a_table_is_its_records() -> None:
    """Of several batches, cut anywhere, and taken one by one."""
    sections = [
        section_of(record_batch(VALUES[a:b], first=10 * a, keys=KEYS[a:b], headers=[("h", b"v")] * a))
        for a, b in ((0, 1), (1, 4), (4, 5))
    ]
    every = [record for section in sections for record in parser._parse(section)]
    table = RecordTable.of(sections, list(map(parser.lay_out, sections)))
    assert list(table) == every == [table[row] for row in range(-5, 0)]
    for start in range(6):
        for end in range(6):
            part = table[start:end]
            assert list(part) == every[start:end]
            assert (part.keys(), part.values()) == (KEYS[start:end], VALUES[start:end])
    for offset in range(-1, 43):
        assert list(table.below(offset)) == [record for record in every if record.offset < offset]
        assert list(table.from_offset(offset)) == [record for record in every if record.offset >= offset]
    assert list(RecordTable.of([], [])) == RecordTable.of([], []).values() == []
    with pytest.raises(IndexError):
        table[5]
