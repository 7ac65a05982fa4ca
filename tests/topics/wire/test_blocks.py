"""by-user, bounded, tick and changelog records: round trips, splitting, and every kind of damage."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import bounded, by_user, changelog, evidence, published_keys, tick
from susurrus.topics.wire.packing import MalformedRecord, blobs_size

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6, unique=True)


def int64(values):
    return np.array(values, np.int64)


@st.composite
def by_user_blocks(draw, min_rows=0):
    offsets = sorted(draw(st.sets(st.integers(0, 2**40), min_size=min_rows, max_size=12)))
    n = len(offsets)
    users, keys = (draw(TEXTS)[:n] for _ in range(2))
    rows = st.lists(INT64, min_size=n, max_size=n)

    def codes(items):
        return np.array([draw(st.integers(0, len(items) - 1)) for _ in range(n)], np.int32)

    columns = draw(st.integers(0, 3))
    return by_user.ByUserBlock(
        source=draw(st.integers(0, 2**31)),
        offset=int64(offsets),
        interval=int64(draw(rows)),
        window=int64(draw(rows)),
        user=codes(users),
        users=users,
        key=codes(keys),
        keys=keys,
        values=int64([draw(rows) for _ in range(columns)]).reshape(columns, n).T,
    )


@st.composite
def bounded_blocks(draw, min_rows=0):
    """With and without the sums of lists."""
    keys = draw(st.lists(st.binary(min_size=1, max_size=20), min_size=min_rows, max_size=12))
    n, columns = len(keys), draw(st.integers(0, 3))
    rows = st.lists(INT64, min_size=n, max_size=n)
    lists = int64([draw(rows) for _ in range(3)]).T if draw(st.booleans()) else None
    return bounded.BoundedBlock(
        partition=draw(st.integers(0, 99)),
        interval=draw(INT64),
        window=int64(draw(rows)),
        keys=keys,
        users=int64(draw(rows)),
        weight=int64(draw(rows)),
        sums=int64([draw(rows) for _ in range(columns)]).reshape(columns, n).T,
        lists=lists,
    )


@st.composite
def published_blocks(draw, min_rows=0):
    """With and without units, of some windows, also of keys that are not new."""
    windows = draw(st.lists(INT64, min_size=1, max_size=4, unique=True))
    texts = st.lists(st.binary(min_size=1, max_size=20), min_size=min_rows, max_size=8)
    units = st.dictionaries(st.binary(min_size=1, max_size=20), st.integers(1, 1 << 20), max_size=5)
    return published_keys.block_of(
        draw(st.integers(0, 99)),
        draw(INT64),
        draw(st.binary(min_size=32, max_size=32)),
        draw(st.binary(min_size=16, max_size=16)),
        {window: draw(texts) for window in windows},
        {window: draw(INT64) for window in windows},
        draw(st.none() | st.dictionaries(st.sampled_from(windows), units)),
    )


def same(a, b):
    """Field by field, arrays included."""
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype
            assert x.shape == y.shape
            assert x.tolist() == y.tolist(), field.name
        else:
            assert x == y, field.name
    return True


def rows_of(blocks):
    """Rows of by-user blocks as plain tuples."""
    return [
        (b.source, o, s, w, b.users[u], b.keys[k], v)
        for b in blocks
        for o, s, w, u, k, v in zip(
            *(c.tolist() for c in (b.offset, b.interval, b.window, b.user, b.key, b.values)), strict=True
        )
    ]


@given(by_user_blocks())
def test_a_by_user_block_survives(block):
    data = by_user.encode(block)
    assert same(by_user.decode(data), block)
    assert len(data) == by_user.size(block)


@given(bounded_blocks())
def test_a_bounded_block_survives(block):
    data = bounded.encode(block)
    assert same(bounded.decode(data), block)
    assert len(data) == bounded.size(block)


@given(by_user_blocks(min_rows=1), st.integers(230, 600))
def test_split_keeps_every_row_in_order_below_the_limit(block, max_bytes):
    pieces = list(by_user.split(block, max_bytes))
    assert rows_of(pieces) == rows_of([block])
    assert max(len(by_user.encode(p)) for p in pieces) <= max_bytes
    for piece in pieces:  # only what is in use, so that a reader's work is that of the piece
        if piece is not block:
            assert set(piece.user.tolist()) == set(range(len(piece.users)))
            assert set(piece.key.tolist()) == set(range(len(piece.keys)))


@given(bounded_blocks(min_rows=1), st.integers(150, 400))
def test_split_of_bounded_keeps_every_row(block, max_bytes):
    pieces = list(bounded.split(block, max_bytes))
    assert [k for p in pieces for k in p.keys] == block.keys
    for column in ("window", "users", "weight", "sums", "lists"):
        if getattr(block, column) is None:
            assert all(getattr(p, column) is None for p in pieces)
        else:
            assert np.concatenate([getattr(p, column) for p in pieces]).tolist() == getattr(block, column).tolist()
    assert max(len(bounded.encode(p)) for p in pieces) <= max_bytes


@given(bounded_blocks())
def test_lists_of_a_bounded_block_are_another_version_and_a_block_without_them_has_the_bytes_it_had(block):
    plain = dataclasses.replace(block, lists=None)
    data, first = bounded.encode(block), bounded.encode(plain)
    assert data[1] == (1 if block.lists is None else 2)
    assert first[1] == 1
    # What an old reader knows stands where it stood; lists are put between the sums and the keys.
    before = len(first) - blobs_size(block.keys)
    assert data[2:before] == first[2:before]
    assert data[len(data) - blobs_size(block.keys) :] == first[before:]


@given(published_blocks())
def test_a_block_of_published_keys_survives(block):
    data = published_keys.encode(block)
    assert same(published_keys.decode(data), block)
    assert data[1] == (1 if block.units is None else 2)


@given(
    st.dictionaries(INT64, st.lists(st.binary(min_size=1, max_size=4), unique=True), min_size=1, max_size=3),
    st.data(),
)
def test_units_are_told_of_the_keys_they_belong_to_new_or_not(news, data):
    units = {
        window: data.draw(
            st.dictionaries(st.sampled_from([*keys, b"old", b"older"]), st.integers(1, 1 << 20), max_size=4)
        )
        for window, keys in news.items()
        if data.draw(st.booleans())
    }
    block = published_keys.block_of(2, 5, bytes(32), bytes(16), news, {}, units)
    found = {}
    column = np.zeros(len(block), np.int64) if block.units is None else block.units
    for window, key, unit in zip(block.window.tolist(), block.keys, column.tolist(), strict=True):
        assert (window, key) not in found
        found[window, key] = unit
    wanted = {(window, key): 0 for window, keys in news.items() for key in keys}
    assert found == wanted | {(window, key): unit for window, row in units.items() for key, unit in row.items()}
    assert (block.units is None) == (not units)
    plain = published_keys.block_of(2, 5, bytes(32), bytes(16), news, {})
    assert (plain.units, plain.keys) == (None, [key for keys in news.values() for key in keys])


@given(published_blocks(min_rows=2), st.integers(1, 19))
def test_split_of_published_keys_keeps_every_key_and_only_the_last_piece_completes_the_interval(block, max_bytes):
    pieces = list(published_keys.split(block, max_bytes))
    assert len(pieces) > 1
    assert [k for p in pieces for k in p.keys] == block.keys
    assert np.concatenate([p.window for p in pieces]).tolist() == block.window.tolist()
    if block.units is None:
        assert all(p.units is None for p in pieces)
    else:
        assert np.concatenate([p.units for p in pieces]).tolist() == block.units.tolist()
    assert [p.last for p in pieces] == [False] * (len(pieces) - 1) + [True]
    assert [p.totals for p in pieces] == [{}] * (len(pieces) - 1) + [block.totals]


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": -1},
        {"config_digest": bytes(31)},
        {"epoch": b""},
        {"keys": [b"", b"1"]},
        {"keys": [b"1"]},
        {"last": False},
        {"units": int64([1])},
        {"units": int64([[1], [2]])},
    ],
)
def test_a_block_of_published_keys_that_cannot_be_is_not_written(changes):
    with pytest.raises(ValueError, match=r"must be|do not make"):
        published_keys.encode(dataclasses.replace(example_published(), **changes))


@given(published_blocks(min_rows=2), st.integers(400, 1000))
def test_pieces_of_published_keys_are_of_about_the_size_asked_for(block, max_bytes):
    # Header, digests and totals come on top of it.
    assert max(len(published_keys.encode(p)) for p in published_keys.split(block, max_bytes)) <= max_bytes + 250


@st.composite
def evidence_blocks(draw, min_rows=0):
    n, columns = draw(st.integers(min_rows, 12)), draw(st.integers(1, 4))
    rows = st.lists(INT64, min_size=n, max_size=n)
    return evidence.EvidenceBlock(
        partition=draw(st.integers(0, 99)),
        interval=draw(INT64),
        window=draw(INT64),
        last=draw(st.booleans()),
        total=n + draw(st.integers(0, 9)),
        config_digest=draw(st.binary(min_size=32, max_size=32)),
        epoch=draw(st.binary(min_size=16, max_size=16)),
        evidence=int64([draw(rows) for _ in range(columns)]).reshape(columns, n).T,
    )


@given(evidence_blocks())
def test_a_block_of_evidence_survives(block):
    assert same(evidence.decode(evidence.encode(block)), block)


@given(evidence_blocks(min_rows=1), st.integers(180, 400))
def test_split_of_evidence_keeps_every_row_below_the_limit_and_only_the_last_piece_ends_it(block, max_bytes):
    pieces = list(evidence.split(dataclasses.replace(block, last=True), max_bytes))
    assert np.concatenate([piece.evidence for piece in pieces]).tolist() == block.evidence.tolist()
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {piece.total for piece in pieces} == {block.total}
    assert all(len(evidence.encode(piece)) <= max_bytes for piece in pieces if len(piece) > 1)


def test_evidence_without_rows_is_one_record():
    [piece] = evidence.split(example_evidence(np.empty((0, 0), np.int64)), 100)
    assert piece.last
    assert len(evidence.decode(evidence.encode(piece))) == 0


def test_the_bytes_of_evidence_are_pinned():
    data = evidence.encode(example_evidence(int64([[118, 3 << 20, 0, 7], [131, 2 << 20, -1, 7]])))
    assert data.hex() == (
        "0401"
        "0200000000000000" "0500000000000000" "005c260500000000" "0100000000000000" "0200000000000000"
        "0200000000000000" "0400000000000000"
        + bytes(range(32)).hex() + bytes(range(16)).hex()
        + "7600000000000000" "01" "000d" "0000200000000000" "04" "0000100000000000"
        "ffffffffffffffff" "01" "0100" "0700000000000000" "00"
    )  # fmt: skip


@pytest.mark.parametrize("changes", [{"partition": -1}, {"total": 1}, {"epoch": b""}, {"config_digest": bytes(31)}])
def test_evidence_that_cannot_be_is_not_written(changes):
    block = example_evidence(int64([[1], [2]]))
    with pytest.raises(ValueError, match=r"must be|do not make|is less than"):
        evidence.encode(dataclasses.replace(block, **changes))


def test_alike_rows_beyond_what_a_record_may_have_are_split():
    block = example_evidence(np.zeros(((1 << 20) + 1, 4), np.int64))
    assert [len(evidence.decode(evidence.encode(piece))) for piece in evidence.split(block, 900_000)] == [
        1 << 19,
        (1 << 19) + 1,
    ]


def example_evidence(rows):
    return evidence.EvidenceBlock(
        partition=2,
        interval=5,
        window=86_400_000,
        last=True,
        total=len(rows),
        config_digest=bytes(range(32)),
        epoch=bytes(range(16)),
        evidence=rows,
    )


def test_split_says_when_a_single_row_is_too_long():
    block = example_by_user()
    with pytest.raises(ValueError, match=r"max\.message\.bytes"):
        list(by_user.split(block, 60))
    with pytest.raises(ValueError, match=r"max\.message\.bytes"):
        list(bounded.split(example_bounded(), 60))


def example_by_user():
    return by_user.ByUserBlock(
        source=3,
        offset=int64([10, 11, 300]),
        interval=int64([5, 5, 6]),
        window=int64([86_400_000] * 3),
        user=np.array([0, 1, 0], np.int32),
        users=[b'"ann"', b"7"],
        key=np.array([0, 0, 1], np.int32),
        keys=[b'"/"', b'["x",null]'],
        values=int64([[-4, 100_000], [5, 0], [6, 7]]),
    )


def example_bounded():
    return bounded.BoundedBlock(
        partition=2,
        interval=5,
        window=int64([0, 86_400_000]),
        keys=[b'"/"', b"true"],
        users=int64([3, 1]),
        weight=int64([3 << 20, 1 << 20]),
        sums=int64([[4, -5], [1, 2**40]]),
    )


def example_lists():
    return dataclasses.replace(example_bounded(), lists=int64([[3, 3 << 20, 0], [0, 0, 2**40]]))


def example_units():
    return dataclasses.replace(example_published(), units=int64([1 << 20, 0]))


def example_published():
    return published_keys.block_of(
        2, 5, bytes(range(32)), bytes(16), {0: [b'"/"'], 86_400_000: [b"7"]}, {0: 9, 86_400_000: 1}
    )


EXAMPLE_TICK = tick.Tick(4, 1234, 56, bytes(range(32)), ((1200, 8), (1236, 9)))
EXAMPLE_COMMIT = changelog.ChangelogRecord(77, "dGVzdA", b"\x81\xa1g\x07", [(b"k", b"v"), (b"l", b"")], [b"m"])

DECODERS = {
    "by-user": (by_user.encode(example_by_user()), by_user.decode),
    "bounded": (bounded.encode(example_bounded()), bounded.decode),
    "bounded with lists": (bounded.encode(example_lists()), bounded.decode),
    "tick": (tick.encode(EXAMPLE_TICK), tick.decode),
    "published-keys": (published_keys.encode(example_published()), published_keys.decode),
    "published-keys with units": (published_keys.encode(example_units()), published_keys.decode),
    "evidence": (evidence.encode(example_evidence(int64([[118, 5], [131, 6]]))), evidence.decode),
    "changelog": (changelog.encode(EXAMPLE_COMMIT)[0], lambda data: changelog.decode([data])),
}


@pytest.mark.parametrize(("data", "decode"), DECODERS.values(), ids=DECODERS)
class TestDamage:
    def test_every_truncation_is_malformed(self, data, decode):
        decode(data)
        for end in range(len(data)):
            with pytest.raises(MalformedRecord):
                decode(data[:end])

    def test_a_byte_too_many_is_malformed(self, data, decode):
        with pytest.raises(MalformedRecord):
            decode(data + b"\0")

    def test_any_flipped_byte_is_malformed_or_another_record(self, data, decode):
        refused = 0
        for at in range(len(data)):
            for flip in (1, 0x80, 0xFF):
                damaged = bytearray(data)
                damaged[at] ^= flip
                try:
                    decode(bytes(damaged))
                except MalformedRecord:
                    refused += 1
        assert refused > 0

    def test_any_bytes_behind_a_good_start_raise_nothing_else(self, data, decode):
        @given(st.integers(0, len(data)), st.binary(max_size=200))
        def check(keep, tail):
            try:
                decode(data[:keep] + tail)
            except MalformedRecord:
                return

        check()


ASCENDING = st.builds(
    lambda intervals, numbers: tuple(zip(sorted(intervals), sorted(numbers), strict=False)),
    st.sets(INT64, max_size=9),
    st.sets(st.integers(1, 10**6), max_size=9),
)


@given(st.integers(0, 2**31), INT64, st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), ASCENDING)
def test_a_tick_survives(source, interval, records, digest, sources):
    record = tick.Tick(source, interval, records, digest, sources)
    assert tick.decode(tick.encode(record)) == record


@pytest.mark.parametrize(
    "bad",
    [
        tick.Tick(-1, 0, 0, bytes(32)),
        tick.Tick(0, 0, -1, bytes(32)),
        tick.Tick(0, 0, 0, bytes(31)),
        *(tick.Tick(0, 0, 0, bytes(32), said) for said in (((5, 0),), ((5, 3), (5, 4)), ((5, 3), (6, 3)))),
    ],
)
def test_a_tick_that_cannot_be_is_not_written(bad):
    with pytest.raises(ValueError, match=r"must be|bytes"):
        tick.encode(bad)


ITEMS = st.binary(min_size=1, max_size=30)


@given(
    st.builds(
        changelog.ChangelogRecord,
        INT64,
        st.text(max_size=20),
        st.binary(max_size=50),
        st.lists(st.tuples(ITEMS, st.binary(max_size=60)), max_size=20),
        st.lists(ITEMS, max_size=20),
    ),
    st.integers(40, 300),
)
def test_a_commit_survives_in_chunks_below_the_limit(record, max_bytes):
    chunks = changelog.encode(record, max_bytes)
    assert max(map(len, chunks)) <= max_bytes
    assert changelog.decode(chunks) == record


def test_the_chunks_of_a_commit_must_all_be_there_in_order():
    chunks = changelog.encode(EXAMPLE_COMMIT, 60)
    assert len(chunks) > 2
    wrong = [
        chunks[:-1],
        chunks[1:],
        [chunks[1], chunks[0], *chunks[2:]],
        [*chunks, chunks[-1]],
        [chunks[0], *chunks],
        [],
    ]
    for bad in wrong:
        with pytest.raises(MalformedRecord):
            changelog.decode(bad)


def test_the_assembler_reads_commit_after_commit():
    other = dataclasses.replace(EXAMPLE_COMMIT, next_position=78)
    assembler = changelog.Assembler()
    found = []
    for chunk in changelog.encode(EXAMPLE_COMMIT, 60) + changelog.encode(other, 60):
        record = assembler.feed(chunk)
        assert assembler.pending == (record is None)
        found += [record] * (record is not None)
    assert found == [EXAMPLE_COMMIT, other]


@pytest.mark.parametrize(
    "changes",
    [
        {"interval": int64([1])},
        {"values": int64([1, 2, 3])},
        {"values": int64([[1]])},
        {"user": np.array([0, 2, 0], np.int32)},
        {"key": np.array([0, -1, 0], np.int32)},
        {"users": [b"1", b"2", b"3", b"4"]},
        {"keys": [b"1", b""]},
        {"offset": int64([9, 9, 9])},
        {"values": np.zeros((3, 65), np.int64)},
    ],
    ids=lambda c: next(iter(c)),
)
def test_a_by_user_block_that_does_not_fit_together_is_not_written(changes):
    with pytest.raises(ValueError, match=r"shapes|codes|items|empty|offset|columns"):
        by_user.encode(dataclasses.replace(example_by_user(), **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"users": int64([1])},
        {"sums": int64([[1]])},
        {"keys": [b"1", b""]},
        {"sums": np.zeros((2, 4097), np.int64)},
        {"lists": np.zeros((1, 3), np.int64)},
        {"lists": np.zeros((2, 2), np.int64)},
        {"lists": np.zeros((3, 2), np.int64)},
        {"lists": np.zeros(6, np.int64)},
    ],
)
def test_a_bounded_block_that_does_not_fit_together_is_not_written(changes):
    with pytest.raises(ValueError, match=r"shape|empty|columns"):
        bounded.encode(dataclasses.replace(example_bounded(), **changes))


def test_an_empty_state_key_is_not_written():
    with pytest.raises(ValueError, match="empty"):
        changelog.encode(changelog.ChangelogRecord(0, "", b"", [(b"", b"v")]))


def test_take_of_rows_by_index_keeps_users_and_keys():
    block = example_by_user()
    assert rows_of([block.take(np.array([2, 0]))]) == [rows_of([block])[2], rows_of([block])[0]]
    assert example_bounded().take(np.array([1])).keys == [b"true"]
    assert example_lists().take(np.array([1])).lists.tolist() == [[0, 0, 2**40]]


@pytest.mark.parametrize(
    ("example", "decode"), [(example_bounded, bounded.decode), (example_published, published_keys.decode)]
)
@pytest.mark.parametrize("version", [0, 3, 255])
def test_a_version_of_the_future_is_not_guessed(example, decode, version):
    encode = bounded.encode if decode is bounded.decode else published_keys.encode
    data = bytearray(encode(example()))
    data[1] = version
    with pytest.raises(MalformedRecord, match="upgrade the readers"):
        decode(bytes(data))
