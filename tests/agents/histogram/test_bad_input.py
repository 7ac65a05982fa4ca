"""Every kind of bad record among good ones: none stops a partition, is lost, or changes what the others publish."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from susurrus.topics import dead_letter
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.timestamps import format_time
from tests.broker import Broker
from tests.pipeline import Pipeline, Public

WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
HOUR = 3_600_000
PARTITIONS = 2
MEGABYTE = 1 << 20
GOOD = 600

SETTINGS: dict[str, Any] = {
    "input": {"time": "at", "time_unit": "ms", "null_key": "dead-letter"},
    "clock": {"until": format_time(WINDOW + HOUR)},
    "window": {"length": "30m", "trigger_every": "15m"},
    "bounds": {"max_records_per_user": 3, "max_records_per_key": 2},
    "columns": [
        {"name": "visits", "kind": "count"},
        {"name": "paid", "kind": "sum", "field": "amount", "bound": 10},
        {"name": "average", "kind": "mean", "field": "amount", "bound": 10},
    ],
    "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
}


def event(**fields: Any) -> bytes:
    return json.dumps({"host": "bad", "url": "/page 0", "amount": 1, "at": 0, **fields}).encode()


def bad_records(at: int) -> list[tuple[Reason, bytes | None]]:
    """One of every kind; ``at``: an event time that is good at this place."""
    good = {"at": at}
    text = event(**good).decode()
    return [
        (Reason.TOMBSTONE, None),
        (Reason.EMPTY, b""),
        (Reason.EMPTY, b" \n"),
        (Reason.NOT_JSON, b"GET /index.html 200"),
        (Reason.NOT_JSON, text[:-1].encode()),
        (Reason.NOT_JSON, (text + text).encode()),
        (Reason.NOT_JSON, (text + "\n" + text).encode()),
        (Reason.INVALID_UTF8, text.encode().replace(b"bad", b"b\xffd")),
        (Reason.INVALID_UTF8, text.replace("bad", "\\ud800").encode()),
        (Reason.TOO_DEEP, b"[" * 5_000 + b"]" * 5_000),
        (Reason.TOO_DEEP, text[:-1].encode() + b', "more": ' + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}"),
        (Reason.WRONG_TYPE, b"[1, 2, 3]"),
        (Reason.WRONG_TYPE, b"null"),
        (Reason.NOT_A_SCALAR, event(host={"name": "bad"}, **good)),
        (Reason.NOT_A_SCALAR, event(url=["/a"], **good)),
        (Reason.VALUE_NOT_A_NUMBER, event(amount="1", **good)),
        (Reason.VALUE_NOT_A_NUMBER, event(amount=True, **good)),
        (Reason.MISSING_USER, text.replace('"host"', '"hots"').encode()),
        (Reason.MISSING_USER, event(host=None, **good)),
        (Reason.EMPTY_USER, event(host="", **good)),
        (Reason.MISSING_KEY, text.replace('"url"', '"uri"').encode()),
        (Reason.MISSING_VALUE, text.replace('"amount"', '"sum"').encode()),
        (Reason.MISSING_VALUE, event(amount=None, **good)),
        (Reason.MISSING_TIME, event(at=None)),
        (Reason.NOT_FINITE, text.replace('"amount": 1', '"amount": NaN').encode()),
        (Reason.NOT_FINITE, text.replace('"amount": 1', '"amount": -Infinity').encode()),
        (Reason.NOT_FINITE, text.replace('"amount": 1', '"amount": 1e999').encode()),
        (Reason.INTEGER_TOO_LARGE, event(amount=10**30, **good)),
        (Reason.INTEGER_TOO_LARGE, event(host=2**64, **good)),
        (Reason.INEXACT_NUMBER, event(host=2.0**60, **good)),
        (Reason.BAD_TIME, event(at=2**62)),
        (Reason.BAD_TIME, event(at=-(2**62))),
        (Reason.BEFORE_FIRST_WINDOW, event(at=-1)),
        (Reason.BEFORE_FIRST_WINDOW, event(at=WINDOW - 1)),
        (Reason.IN_FUTURE, event(at=at + 30 * 365 * 24 * HOUR)),
        (Reason.TOO_LARGE, event(url="/" * (MEGABYTE - 1_000), **good)),
        (Reason.TOO_LARGE, event(host="u" * 5_000, **good)),
    ]


def good_records(partition: int) -> list[tuple[bytes, int]]:
    """(value, time) of a raw partition; users are in both partitions, some above every cap, some late."""
    records = []
    for n in range(GOOD):
        stamp = WINDOW + n * HOUR // GOOD
        fields = {"host": f"u{(n * 7 + partition) % 90}", "url": f"/page {n % 4}", "amount": n % 23 - 11, "at": stamp}
        if n % 40 == 39 and n > GOOD // 2:
            fields["at"] = stamp - HOUR // 2  # of the window that is over
        records.append((json.dumps(fields).encode(), stamp))
    return records


def write(kafka: Broker, topic: str, *, with_bad: bool) -> Counter[tuple[Reason, bytes | None]]:
    """The good records, alone or with two of every kind of bad ones among them; reason and payload of the bad ones."""
    producer = kafka.producer(message_max_bytes=4 * MEGABYTE, linger_ms=5)
    wrote: Counter[tuple[Reason, bytes | None]] = Counter()
    for partition in range(PARTITIONS):
        bad: list[tuple[Reason, bytes | None]] = []
        for n, (value, stamp) in enumerate(good_records(partition)):
            if with_bad and n == 100:
                bad = bad_records(stamp)
            if bad:
                reason, payload = bad.pop()
                key = b"K" * (MEGABYTE // 2) if reason is Reason.TOO_LARGE else b"not the user"
                producer.produce(topic, payload, key, partition=partition, timestamp=stamp)
                wrote[reason, payload] += 1
            producer.produce(topic, value, partition=partition, timestamp=stamp)
        producer.flush(60)
    return wrote


def run(
    kafka: Broker, directory: Path, raw: str, overrides: dict[str, Any] | None = None
) -> tuple[Public, dict[str, int], list[Any]]:
    """What is published, the operator's totals, and the dead letters, after everything was read to its end."""
    with Pipeline(kafka, directory, raw, {**SETTINGS, **(overrides or {})}) as pipeline:
        worker = pipeline.start()
        pipeline.wait(windows=2)
        assert worker.stop() == 0, worker.tail()
        return pipeline.public(), pipeline.counters(), kafka.read_all(pipeline.settings.topic("dead-letter"))


def new_topic(kafka: Broker, name: str) -> str:
    return kafka.create_topic(name, PARTITIONS, {"retention.ms": "-1", "max.message.bytes": str(4 * MEGABYTE)})


def test_bad_records_of_every_kind_reach_the_dead_letter_topic_and_nothing_else_changes(
    kafka: Broker, tmp_path: Path
) -> None:
    # One name for both, one after the other: the raw topic's name is part of the configuration, hence of the noise.
    raw = new_topic(kafka, f"raw-{kafka.new_prefix()}")
    assert not write(kafka, raw, with_bad=False)
    clean, clean_totals, no_letters = run(kafka, tmp_path, raw)
    kafka.delete_topic(raw)
    new_topic(kafka, raw)
    wrote = write(kafka, raw, with_bad=True)
    published, totals, letters = run(kafka, tmp_path, raw)

    assert sum(map(len, clean["histogram"].values())) >= 4
    assert published == clean

    # in = kept + capped + late + dead-lettered, and no term of it is idle.
    for found in (clean_totals, totals):
        assert found["in"] == found["kept"] + found["capped"] + found["late"] + found["dead_letter"]
        assert found["routed"] == found["taken"] == found["kept"] + found["capped"]
        assert min(found["kept"], found["capped"], found["late"]) > 0
    assert clean_totals["in"] == PARTITIONS * GOOD
    assert totals["in"] == PARTITIONS * GOOD + sum(wrote.values())
    assert totals["dead_letter"] == sum(wrote.values())
    others = totals.keys() - {"in", "dead_letter"}
    assert {name: totals[name] for name in others} == {name: clean_totals[name] for name in others}

    # By reference, with a reason, and with nothing of the record itself.
    assert no_letters == []
    payloads = {(m.partition(), m.offset()): m.value() for m in kafka.read_all(raw)}
    found_letters = []
    for message in letters:
        assert (message.key(), message.value()) == (None, None)
        assert {name for name, _ in message.headers()} >= {
            dead_letter.EXCEPTION,
            dead_letter.MESSAGE,
            dead_letter.OFFSET,
        }
        letter = decode_headers(message.headers())
        assert (letter.topic, letter.stage, letter.partition) == (raw, "route", message.partition())
        found_letters.append((letter.reason, payloads[letter.partition, letter.offset]))
    assert Counter(found_letters) == wrote


def test_an_operator_who_opts_in_gets_the_values_that_fit_and_huge_ones_stay_references(
    kafka: Broker, tmp_path: Path
) -> None:
    raw = new_topic(kafka, f"raw-{kafka.new_prefix()}")
    wrote = write(kafka, raw, with_bad=True)
    _, totals, letters = run(kafka, tmp_path, raw, {"worker": {"dead_letter_values": True}})
    assert totals["dead_letter"] == len(letters) == sum(wrote.values())
    payloads = {(m.partition(), m.offset()): (m.key(), m.value()) for m in kafka.read_all(raw)}
    copied = 0
    for message in letters:
        letter = decode_headers(message.headers())
        key, value = payloads[letter.partition, letter.offset]
        fits = len(key) + len(value or b"") <= 900_000
        assert (message.key(), message.value()) == ((key, value) if fits else (None, None))
        copied += fits
    assert 0 < copied < len(letters)
