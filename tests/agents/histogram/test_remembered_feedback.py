"""What bound learns of remembered keys: from which interval on, in which windows, and what of it stays in memory."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.mechanisms.calendar import Interval, WindowIndex
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.topics import published_keys
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.histogram.test_feedback import CALENDAR, DIGEST, EPOCH, FIRST, PARTITIONS, SECOND, index_of, record
from tests.agents.histogram.test_remembered import LENGTH, WINDOWS, Both, events_of, ours, start_of
from tests.agents.stages import Runner

THIRD = 2 * SECOND
END = CALENDAR.last_interval(WindowIndex(1))
"""The second window's last interval."""


@pytest.mark.parametrize("late", [0, 1, LENGTH, LENGTH + 1])
@pytest.mark.parametrize("lag", [1, 3, LENGTH, 2 * LENGTH + 2])
@pytest.mark.parametrize("remember", [0, 6])
def test_bound_looks_back_to_every_interval_at_which_a_key_of_the_window_may_be_told(
    late: int, lag: int, remember: int, tmp_path: Path
) -> None:
    """And to none before. Release tells keys of a window at its triggers, and the list at the last one of the window before."""
    made = ours(late=late, remember=remember, privacy={"closing": {"lag": lag}})
    runner = Runner(BoundStage, made, tmp_path, 0)
    stage, calendar, first = runner.stage, made.calendar, made.ledger.first_window
    assert isinstance(stage, BoundStage)
    for window in map(WindowIndex, range(first, first + WINDOWS)):
        begin, end = calendar.first_interval(window), calendar.last_interval(window)
        tells = set(range(begin, end + 1))
        if remember and window > first:
            tells.add(calendar.last_interval(WindowIndex(window - 1)))
        for interval in map(Interval, range(begin, end + 1)):
            found = stage._feedback(window, interval)
            may = {told for told in tells if told <= interval - lag}
            assert (found is not None) == bool(may), (window, interval)
            assert found is None or found[1] == interval - lag
    runner.close()


def handed_on(keys: list[bytes], *, lost: bool = False) -> PublishedKeys:
    """The list of the third window, told at the last interval of the second one, of partition 0; and what follows of that window.

    The third window has published a key before (`b"own"`), because the second takes late records. lost: the list's record is.
    """
    index = index_of()
    offset = 0
    for interval in range(END + 2):
        open_then = [
            start for start in (FIRST, SECOND, THIRD) if start // SECOND * 4 <= interval <= start // SECOND * 4 + 5
        ]
        own = {THIRD: [b"own"]} if interval == END - 1 else {}
        told = {THIRD: keys} if interval == END else {}
        for partition in range(PARTITIONS):
            mine = partition == 0
            totals = dict.fromkeys(open_then, 0)
            if mine and interval >= END - 1:
                totals[THIRD] = 1 + (len(keys) if interval >= END else 0)
            news = {**own, **told} if mine else {}
            if lost and mine and interval == END:
                news = {}
            index.take(record(partition, interval, news, totals), offset)
            offset += 1
    return index


def test_the_list_is_known_since_the_interval_that_told_it_and_a_key_found_before_stays_older() -> None:
    index = handed_on([b"1", b"2"])
    keys = [b"1", b"2", b"own", b"3"]
    assert index.known(THIRD, END - 1, keys).tolist() == [False, False, True, False]
    assert index.known(THIRD, END, keys).tolist() == [True, True, True, False]
    assert index.known(THIRD, END + 1, keys).tolist() == [True, True, True, False]
    assert not index.known(SECOND, END, keys).any()


def test_a_list_whose_record_is_lost_is_noticed_at_once() -> None:
    with pytest.raises(Refusal, match=f"lacks keys that were published in window={THIRD}"):
        handed_on([b"1", b"2"], lost=True).known(THIRD, END, [b"1"])


@pytest.mark.parametrize(
    ("sections", "from_the_start"),
    [
        ({}, False),
        ({}, True),
        ({"late": 2}, False),
        ({"late": 2}, True),
        ({"keys": {"declared": ["k3", "k4"]}}, True),
        # The record with the units repeats every key, and is the first that is left.
        ({"privacy": {"closing": {"lag": LENGTH - 1}}}, False),
        ({"privacy": {"closing": {"lag": LENGTH - 1}}}, True),
    ],
)
def test_a_reader_without_the_record_of_the_list_refuses_although_rows_of_its_keys_follow(
    sections: dict[str, Any], from_the_start: bool, tmp_path: Path
) -> None:
    """Release's own records, but for one. from_the_start: or for all up to it, of a topic whose beginning is gone."""
    late = sections.get("late", 0)
    made = ours(**sections)
    both = Both(tmp_path, made, events_of(1, late=late)).until(LENGTH + 1 + late)
    told = made.calendar.last_interval(made.ledger.first_window)
    start = start_of(1)

    def reader(*, loses: bool) -> PublishedKeys:
        index = PublishedKeys(
            "published-keys", partitions=PARTITIONS, calendar=made.calendar, config_digest=made.config_digest
        )
        index.epoch, index.first_window = both.index.epoch, made.ledger.first_window
        for offset, value in enumerate(both.index.log):
            if loses and kind_of(value) is Kind.BLOCK:
                block = published_keys.decode(value)
                if block.partition == 0 and (block.interval == told or (from_the_start and block.interval < told)):
                    continue
            index.take(value, offset)
        return index

    whole = reader(loses=False)
    assert whole.known(start, told, sorted(whole._since[start])).sum() > 20
    with pytest.raises(Refusal, match="lacks keys that were published"):
        reader(loses=True).known(start, told, [b'"k1"'])


def test_the_first_windows_of_an_epoch_and_of_a_pipeline_that_remembers_nothing_lack_no_list() -> None:
    """Their first record may be the one with the units, too."""
    calendar = replace(CALENDAR, allowed_lateness=0)
    begin = calendar.first_interval(WindowIndex(1))
    for first_window, lacks in ((WindowIndex(0), True), (WindowIndex(1), False), (None, False)):
        index = PublishedKeys("published-keys", partitions=PARTITIONS, calendar=calendar, config_digest=DIGEST)
        index.epoch, index.first_window = EPOCH, first_window
        for partition in range(PARTITIONS):
            index.take(record(partition, begin, {SECOND: []}, {SECOND: 0}, units={SECOND: {}}), partition)
        if lacks:
            with pytest.raises(Refusal, match=f"lacks keys that were published in window={SECOND}"):
                index.units(SECOND, begin, [b"1"])
        else:
            assert index.units(SECOND, begin, [b"1"]).tolist() == [0]


@pytest.mark.parametrize("remember", [0, 6])
def test_the_reader_is_told_which_window_is_handed_nothing(remember: int) -> None:
    told: list[Any] = []
    made = ours(remember=remember)
    reader = SimpleNamespace(ensure_started=lambda *_, first_window: told.append(first_window))
    replace(made, published_keys_reader=reader).read_published_keys()  # type: ignore[arg-type]
    assert told == [made.ledger.first_window if remember else None]


def test_units_are_those_of_the_list_where_the_last_trigger_looks_back_at_it() -> None:
    """Without lateness, and with a lag of the whole window: no key has a row in the window by then."""
    calendar = replace(CALENDAR, allowed_lateness=0)
    index = PublishedKeys("published-keys", partitions=PARTITIONS, calendar=calendar, config_digest=DIGEST)
    index.epoch = EPOCH
    last = calendar.last_interval(WindowIndex(0))
    for partition, keys in ((0, [b"1", b"2"]), (1, [b"3"])):
        unit = dict.fromkeys(keys, WEIGHT_ONE)
        index.take(record(partition, last, {SECOND: keys}, {SECOND: len(keys)}, units={SECOND: unit}), partition)
    assert index.units(SECOND, last, [b"3", b"4", b"1"]).tolist() == [WEIGHT_ONE, 0, WEIGHT_ONE]


def test_what_the_index_holds_does_not_grow_with_the_windows(tmp_path: Path) -> None:
    both = Both(tmp_path, ours(), events_of(5))
    for interval in range(both.last + 1):
        both.until(interval)
        starts = {
            both.services.calendar.window_start(both.services.calendar.window_at(start)) for start in both.index._since
        }
        newest = both.services.calendar.window_start(both.services.calendar.oldest_open(Interval(interval + 1)))
        assert starts <= {newest}
        assert {start for start, _ in both.index._counted} <= {newest}
        assert len(both.index._offsets) <= both.services.calendar.triggers
