"""What would become of records: decided as a worker decides it, with the setting to blame, and without a value of theirs."""

import json
import random
from typing import Any

import numpy as np
import pytest

from susurrus.agents.expressions.computation import Computation
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.histogram.clock import LOG_APPEND_TIME
from susurrus.agents.histogram.decisions import HistogramDecisions
from susurrus.agents.operations.advice import named_fields, to_write
from susurrus.agents.operations.look import seen_in
from susurrus.agents.operations.trying import EXAMPLES, RecordPlace, merged, try_records
from susurrus.agents.runtime.begun import Begun
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.topics.records.raw import RawDecoder
from susurrus.topics.records.reason import LEFT_OUT, Reason
from susurrus.topics.sources import Run, SourceMap
from tests.agents.operations.raw_records import NOW, STAMP, fates, record, records, settings, tried

GOOD = {"user_id": "ann", "page": "/a", "bytes": 3, "at": STAMP}
SUM = [{"name": "n", "kind": "count"}, {"name": "b", "kind": "sum", "field": "bytes", "lower": 0, "upper": 9}]


@pytest.mark.parametrize(
    ("source", "value", "reason", "setting"),
    [
        ({}, None, "TOMBSTONE", ""),
        ({}, b"{", "NOT_JSON", ""),
        ({}, b"\xff\xfe{\0", "UTF16", ""),
        ({}, {**GOOD, "user_id": None}, "MISSING_USER", 'input.user = "user_id"'),
        ({}, {"page": "/a"}, "MISSING_USER", 'input.user = "user_id"'),
        ({}, {**GOOD, "user_id": ""}, "EMPTY_USER", 'input.user = "user_id"'),
        ({}, {**GOOD, "page": ["/a"]}, "NOT_A_SCALAR", 'input.key = "page"'),
        ({"user": ["tenant", "user_id"]}, {**GOOD, "tenant": None}, "MISSING_USER", 'input.user = "tenant"'),
        ({"user": {"expression": "lower(user_id)"}}, {"page": "x"}, "MISSING_USER", "input.user = { lower(user_id) }"),
        ({"user": "$key"}, GOOD, "MISSING_USER", 'input.user = "$key"'),
        ({"sums": SUM}, {**GOOD, "bytes": "3"}, "VALUE_NOT_A_NUMBER", 'columns.field = "bytes"'),
        ({"sums": SUM}, {**GOOD, "bytes": None}, "MISSING_VALUE", 'columns.field = "bytes"'),
        ({"time": "at"}, {**GOOD, "at": "soon"}, "TIME_NOT_A_NUMBER", 'input.time = "at"'),
        ({"time": "at"}, {**GOOD, "at": STAMP + 86_400_000}, "IN_FUTURE", "clock.max_future"),
        ({"where": "bytes > 1"}, {**GOOD, "bytes": "x"}, "EXPRESSION_FAILED", "input.where"),
        ({"each": {"of": "items", "as": "item"}, "key": ["item"]}, {**GOOD, "items": 3}, "NOT_ITEMS", "input.each = items"),
    ],
)  # fmt: skip
def test_a_dead_letter_names_its_reason_and_the_setting(
    source: dict[str, Any], value: Any, reason: str, setting: str
) -> None:
    trial = tried(settings(**source), records([value]))
    assert fates(trial) == [("dead letter", reason, setting, 1)]
    assert trial.fates[0].examples[0][:3] == ("raw", 1, 0)
    assert (trial.records, trial.rows, trial.waits) == (1, 1, 0)


def test_what_is_kept_left_out_and_late() -> None:
    old = {**GOOD, "at": STAMP - 3 * 86_400_000}
    ours = settings(where="bytes > 1", time="at")
    assert fates(tried(ours, records([GOOD, GOOD, old, {**GOOD, "bytes": 0}, {**GOOD, "user_id": None}]))) == [
        ("kept", "OK", "", 2),
        ("late", "OK", "", 1),
        ("left out", "FILTERED", "input.where", 1),
        ("dead letter", "MISSING_USER", 'input.user = "user_id"', 1),
    ]
    assert fates(tried(settings(each={"of": "items", "as": "item"}, key=["item"]), records([{**GOOD, "items": []}]))) == [
        ("left out", "NO_ITEMS", "input.each", 1)
    ]  # fmt: skip


def test_limits_of_the_clock_and_the_start() -> None:
    window = "2026-10-02T00:00:00Z"
    assert fates(tried(settings(start={"first_window": window}), records([GOOD]))) == [
        ("dead letter", "BEFORE_FIRST_WINDOW", "start.first_window", 1)
    ]
    archive = settings(
        clock={"kind": "replay", "until": "2026-10-01T03:00:00Z"},
        start={"from": "earliest", "first_window": "2026-09-01T00:00:00Z"},
    )
    assert [fate[:2] for fate in fates(tried(archive, records([GOOD])))] == [("dead letter", "IN_FUTURE")]
    ahead = tried(settings(), records([GOOD]), now=STAMP - 30 * 86_400_000)
    assert [fate[:2] for fate in fates(ahead)] == [("dead letter", "IN_FUTURE")]
    ours, some = settings(), records([GOOD])
    otherwise = try_records(HistogramDecisions(ours), ours.input, some, np.array([LOG_APPEND_TIME]), now=NOW)
    assert fates(otherwise) == [("dead letter", "WRONG_STAMP", "clock.kind", 1)]


def test_items_are_decided_each_by_itself_and_named_by_their_places() -> None:
    ours = settings(each={"of": "items", "as": "item"}, key=["item.sku"])
    values = [{"user_id": "ann", "items": [{"sku": "a"}, {"sku": []}, 7]}, {"user_id": None, "items": [{"sku": "b"}]}]
    trial = tried(ours, records(values))
    assert (trial.records, trial.rows) == (2, 4)
    assert fates(trial) == [
        ("kept", "OK", "", 1),
        ("dead letter", "NOT_A_SCALAR", 'input.key = "item.sku"', 1),
        ("dead letter", "WRONG_TYPE", 'input.key = "item.sku"', 1),
        ("dead letter", "MISSING_USER", 'input.user = "user_id"', 1),
    ]
    assert [fate.examples for fate in trial.fates] == [
        [RecordPlace("raw", 1, 0, item)] if item < 3 else [RecordPlace("raw", 1, 1, 0)] for item in (0, 1, 2, 3)
    ]


def test_an_unreadable_key_and_header_are_the_users() -> None:
    ours = settings(user="$key", key_format="int64")
    assert fates(tried(ours, [record({"page": "x"}, key=b"short")])) == [
        ("dead letter", "UNREADABLE_KEY", 'input.user = "$key"', 1)
    ]
    ours = settings(user="$headers.user-id")
    assert fates(tried(ours, [record({"page": "x"}, headers=[("user-id", b"\xff")])])) == [
        ("dead letter", "UNREADABLE_HEADER", 'input.user = "$headers.user-id"', 1)
    ]


def test_trials_of_several_topics_add_up() -> None:
    one = tried(settings(), records([GOOD, None]))
    both = merged([one, one])
    assert fates(both) == [(outcome, reason, setting, 2 * number) for outcome, reason, setting, number in fates(one)]
    assert (both.records, both.rows, both.number("kept"), both.share(1)) == (4, 4, 2, 0.25)
    assert merged([]).share(0) == 0
    many = tried(settings(), records([GOOD] * 50))
    assert len(merged([many, many]).fates[0].examples) == EXAMPLES


ODD: tuple[Any, ...] = (
    None, b"", b"{", b"\xff", b"\0\0\0\0\1x", b"[1]", b"7", b'"x"', b"null", b"[" * 5000, b"\x1f\x8b\x08", b"\x82\xa1a\1",
    {"user_id": {}}, {"user_id": "\ud800"}, {"user_id": 1.5, "page": 2**70}, {"items": [1, None, {}, [[]]]},
    {"a": {"b": {"c": {}}}},
)  # fmt: skip


def odd(chance: random.Random) -> Any:
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(1, 40))
    if chance.random() < 0.4:
        return {
            chance.choice(["user_id", "page", "items", "bytes", "", "$key", "a.b"]): chance.choice(
                [None, "", "x", 1, -1.5, True, [], {}, [1, {"sku": "s"}], {"sku": 2}, "\x00", 10**30]
            )
            for _ in range(chance.randrange(6))
        }
    return chance.choice([*ODD, GOOD])


SOURCES: tuple[dict[str, Any], ...] = (
    {}, {"each": {"of": "items", "as": "item"}, "key": ["item.sku"]}, {"each": {"of": "$value"}}, {"format": "msgpack"},
    {"format": "csv", "columns": ["user_id", "page"]}, {"format": "json-lines"}, {"framing": "confluent"},
    {"envelope": "debezium"}, {"user": {"expression": "lower(user_id)"}, "where": "bytes > 1"}, {"compression": "auto"},
)  # fmt: skip


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_odd_records_raise_nothing_and_are_decided_as_a_worker_decides_them(source: dict[str, Any]) -> None:
    """The number of each reason is that of the reader, expressions and decoder, which route uses."""
    chance = random.Random(33)
    some = [
        record(
            odd(chance) if chance.random() < 0.9 else json.dumps(GOOD).encode(),
            offset=offset,
            key=chance.choice([None, b"k", b"\xff"]),
            headers=chance.choice([[], [("h", b"\xff"), ("__value_schema_id", b"x")]]),
        )
        for offset in range(300)
    ]
    ours = settings(**source)
    trial = tried(ours, some)
    decoder = RawDecoder(ours.raw_schema())
    computation = Computation(decoder.scalars, ours.input.where)
    reader = reader_of(ours.input, computation.paths, topic=None, partition=None, asked=computation.asked)
    expected = decoder.decode(computation.applied(reader.read(some, lambda row: True))).reason.tolist()
    counted = {Reason(why): expected.count(why) for why in set(expected)}
    found: dict[Reason, int] = {}
    for fate in trial.fates:
        found[fate.reason] = found.get(fate.reason, 0) + fate.number
        assert (fate.outcome == "left out") == (fate.reason in LEFT_OUT)
    assert found == counted
    assert trial.rows == len(expected)
    seen = seen_in(some, None, ours.input)
    fields = named_fields(HistogramDecisions(ours), ours.input, some, seen)
    assert all(one.present + one.null + one.absent <= one.rows for one in fields)
    list(to_write(ours.input, seen, fields, all_refused=True))


def test_a_ledger_says_the_first_window_what_is_closed_and_what_is_not_read() -> None:
    ours = settings(window={"length": "1h", "trigger_every": "15m"}, clock={"kind": "producer"})
    calendar = ours.calendar
    here = calendar.window_at(STAMP)
    some = [record(GOOD, offset=offset) for offset in range(6)]

    def begun(first: int, closed: int) -> Begun:
        return Begun(
            first_window=calendar.window_start(WindowIndex(here + first)),
            sources=SourceMap((Run("raw", 0, 2),)),
            starts={1: 2},
            joined={},
            closed={1: (4, calendar.last_interval(here) + closed)},
        )

    early = tried(ours, some, begun=begun(1, -1))
    assert fates(early) == [("dead letter", "BEFORE_FIRST_WINDOW", "start.first_window", 6)]
    kept = tried(ours, some, begun=begun(0, -1))
    assert fates(kept) == [("kept", "OK", "", 6)]
    assert kept.before_start == 2
    late = tried(ours, some, begun=begun(0, 0))  # all intervals of the window are closed, for what is not taken yet
    assert [(fate.outcome, [place.offset for place in fate.examples]) for fate in late.fates] == [
        ("kept", [0, 1, 2]), ("late", [4, 5]),
    ]  # fmt: skip
    assert any("taken already" in text for text in late.undecided)
    assert not any("taken already" in text for text in tried(ours, some).undecided)


def test_what_is_said_of_the_beginning_before_there_is_one() -> None:
    assert any("start.from" in text for text in tried(settings(), records([GOOD])).undecided)
    first = "2026-10-01T00:00:00Z"
    known = tried(settings(start={"first_window": first}), records([GOOD]))
    assert not any("start.from" in text for text in known.undecided)
    assert any("caps" in text for text in known.undecided)
    later = settings(clock={"kind": "broker"}, start={"from": "2026-10-02T00:00:00Z"})
    otherwise = try_records(
        HistogramDecisions(later), later.input, records([GOOD]), np.array([LOG_APPEND_TIME]), now=NOW
    )
    assert [fate[:2] for fate in fates(otherwise)] == [("dead letter", "BEFORE_FIRST_WINDOW")]
