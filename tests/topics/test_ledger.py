"""ledger and charges: every kind of record survives under its own name, damage is a MalformedRecord."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import charges, ledger
from susurrus.topics.sources import Run
from susurrus.topics.wire.packing import MalformedRecord

RECORDS = {
    "epoch": ledger.Epoch(epoch="6f0c", number=2, created=5),
    "config": ledger.Config(digest="ab" * 32, fields={"z": [1.5, None], "a": {"b": True}}),
    "start": ledger.Start(
        first_window=0,
        origin="earliest",
        topic_ids={"raw": "dGVzdA"},
        sources=(Run("raw", 0, 2),),
        offsets={1: 20, 0: 10},
    ),
    "sources/8": ledger.SourcesRecord(
        number=8,
        from_interval=100,
        sources=(Run("raw", 0, 6), Run("more", 0, 2)),
        topic_ids={"more": "bW9yZQ"},
        offsets={6: 3, 7: 0},
    ),
    "raw-topic/more": ledger.AddedTopic(topic="more", at=5),
    "started/bound/3": ledger.Started(stage="bound", partition=3),
    "window/1970-01-02T00:00:00Z": ledger.WindowDecision(window=86_400_000, begun=False, epoch="6f0c"),
    "digest/1/1970-01-01T00:00:00Z/3": ledger.Digest(partition=1, window=0, trigger=3, digest="00ff", rows=7),
    "event-level/4": ledger.EventLevel(partition=4, method="tops", epsilon=0.1, delta=0.0),
    "published/5": ledger.PublishedPosition(partition=5, begins=3, position=99, digest="ab" * 32, row="cd" * 16),
    "refusal/route/0": ledger.RefusalRecord(stage="route", partition=0, cause="eaten", action="restore", at=5),
    "status/release/2": ledger.Status(stage="release", partition=2, state="running", interval=9, counters={"in": 1}),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_survives_under_its_name(name):
    key, value = ledger.encode(RECORDS[name])
    assert key == name.encode()
    assert ledger.decode(key, value) == RECORDS[name]
    assert ledger.decode(key, None) is ledger.decode(key, b"") is None


def test_every_kind_of_record_is_tried():
    assert {type(record) for record in RECORDS.values()} == set(ledger.LedgerRecord.__args__)


def test_the_bytes_do_not_depend_on_the_order_of_fields():
    config = RECORDS["config"]
    turned = msgspec.structs.replace(config, fields=dict(reversed(config.fields.items())))
    assert ledger.encode(turned) == ledger.encode(config)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_under_another_name_is_malformed(name):
    value = ledger.encode(RECORDS[name])[1]
    for other in RECORDS:
        if other != name:
            with pytest.raises(MalformedRecord):
                ledger.decode(other.encode(), value)


@pytest.mark.parametrize("name", RECORDS)
def test_damaged_values_are_malformed(name):
    key, value = ledger.encode(RECORDS[name])
    for bad in [value[:end] for end in range(1, len(value))] + [value.replace(b'"schema":1', b'"schema":9')]:
        with pytest.raises(MalformedRecord):
            ledger.decode(key, bad)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_no_bytes_raise_anything_else(key, value):
    try:
        ledger.decode(key, value)
    except MalformedRecord:
        return


@pytest.mark.parametrize("key", [b"", b"\xff", b"epoch/1", b"digest/1", b"unknown", b"refusal/a"])
def test_wrong_names_are_malformed_even_for_tombstones(key):
    with pytest.raises(MalformedRecord):
        ledger.decode(key, None)


def test_what_differs_is_named_with_what_the_pipeline_has():
    theirs = ledger.Config(
        digest="00", fields={"a": 1, "privacy.strategy": "toeplitz", "bounds": {"c": 1}, ledger.FINGERPRINT: "x"}
    )
    ours = {"a": 1, "privacy.strategy": "closing", "bounds": {"c": 2}, "privacy.closing": {"lag": 1}}
    assert ledger.changed_fields(theirs, ours) == [
        "bounds",
        "privacy.closing",
        'privacy.strategy (the pipeline has "toeplitz")',
    ]


def test_a_value_that_stands_for_the_default_is_not_shown_as_one():
    theirs = ledger.Config(digest="00", fields={"clock.max_future": 0, "window.origin": 0})
    ours = {"clock.max_future": "0", "window.origin": 1}
    assert ledger.changed_fields(theirs, ours, {"clock.max_future": 0}) == [
        "clock.max_future (the pipeline has the default)",
        "window.origin (the pipeline has 0)",
    ]


def test_what_was_read_back_does_not_differ():
    fields = {"privacy.closing": {"prior": (1.0, 0.7), "constants": (1, "-1/3")}}
    config = ledger.Config(digest="00", fields=fields)
    assert ledger.changed_fields(ledger.decode(*ledger.encode(config)), fields) == []


CHARGE = charges.Charge(
    raw_topic="web",
    window=0,
    pipeline="page-views",
    epoch="6f0c",
    epsilon=6.0,
    delta=1e-9,
    mu=0.9,
    delta_selection=5e-10,
)


def test_a_charge_survives_and_is_named_by_what_it_charges():
    key, value = charges.encode(CHARGE)
    assert key == b"charge/web/1970-01-01T00:00:00Z/page-views/6f0c"
    assert charges.decode(value) == CHARGE
    assert charges.seen_by("susurrus", "susurrus.web") == "web"
    assert charges.seen_by("susurrus", "susurrus.web/tune") == "web/tune"
    assert charges.seen_by("susurrus", "other.web") == "other.web"


def test_a_damaged_charge_is_malformed():
    value = charges.encode(CHARGE)[1]
    wrong = [value[:end] for end in range(len(value))]
    wrong += [value.replace(b'"schema":1', b'"schema":2'), value.replace(b"6.0", b"null"), b"[" * 5000]
    for bad in wrong:
        with pytest.raises(MalformedRecord):
            charges.decode(bad)
