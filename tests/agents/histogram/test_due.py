"""When the next trigger is due follows from the calendar and the announcements."""

from typing import Any

from susurrus.agents.histogram.due import Announced, next_due
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.runtime.facts import WindowMemory
from susurrus.topics.progress import Progress
from tests.agents.released import DAY, EPOCHS, WINDOW, settings

HOUR = 3_600_000


def histogram(**sections: Any) -> HistogramSettings:
    return HistogramSettings.of(settings(**sections))


def said(
    trigger: int, *, partition: int = 0, epoch: int = 1, window: int = WINDOW, remembered: int | None = None
) -> Progress:
    return Progress(
        window=window, trigger=trigger, of_triggers=4, partition=partition, of_partitions=2, rows=1, epoch=EPOCHS[epoch],
        epoch_number=epoch, remembered=remembered, persistence=None if remembered is None else 0.2,
    )  # fmt: skip


def test_before_anything_the_trigger_of_the_present_interval_is_due() -> None:
    now = WINDOW + 7 * HOUR
    due = next_due(histogram(), Announced(), now)
    assert due["at"] == WINDOW + 12 * HOUR + 60_000  # six-hour triggers, and the idle grace
    later = next_due(histogram(start={"from": "latest", "first_window": "1995-08-03T00:00:00Z"}), Announced(), now)
    assert later["at"] == WINDOW + 2 * DAY + 6 * HOUR + 60_000


def test_a_trigger_is_waited_for_until_all_partitions_have_announced_it() -> None:
    announced = Announced()
    assert announced.add(said(2))
    assert not announced.add(said(2))
    assert (announced.newest(), announced.seen(), announced.of_partitions) == ((WINDOW, 2), 1, 2)
    assert next_due(histogram(), announced, WINDOW)["at"] == WINDOW + 12 * HOUR + 60_000
    announced.add(said(2, partition=1))
    assert announced.seen() == 2
    assert next_due(histogram(), announced, WINDOW)["at"] == WINDOW + 18 * HOUR + 60_000


def test_what_the_newest_window_remembers_is_the_sum_of_all_partitions() -> None:
    announced = Announced()
    assert announced.memory() is None
    announced.add(said(1, remembered=3))
    assert announced.memory() == WindowMemory(window=WINDOW, remembered=None, persistence=0.2)
    announced.add(said(1, partition=1, remembered=4))
    assert announced.memory() == WindowMemory(window=WINDOW, remembered=7, persistence=0.2)
    announced.add(said(2, remembered=3))  # they need not stand at one trigger: a window has one list
    assert announced.memory() == WindowMemory(window=WINDOW, remembered=7, persistence=0.2)
    announced.add(said(1, partition=1, window=WINDOW + DAY, remembered=9))
    assert announced.memory() == WindowMemory(
        window=WINDOW + DAY, remembered=None, persistence=0.2
    )  # the other is behind
    announced.add(said(1, epoch=2))
    assert announced.memory() is None  # another epoch's


def test_after_a_windows_last_trigger_the_next_windows_first_is_due() -> None:
    announced = Announced()
    for partition in range(2):
        announced.add(said(4, partition=partition))
    due = next_due(histogram(window={"trigger_every": "6h", "publication_pad": "5m"}), announced, 0)
    assert (due["at"], due["window"]) == (WINDOW + DAY + 6 * HOUR + 300_000, WINDOW + DAY)


def test_a_newer_epoch_counts_alone() -> None:
    announced = Announced()
    announced.add(said(4))
    assert announced.add(said(1, epoch=2))
    assert not announced.add(said(4, partition=1))
    assert (announced.newest(), announced.seen()) == ((WINDOW, 1), 1)


def test_an_archive_is_due_at_no_time_and_ends() -> None:
    of = histogram(
        clock={"kind": "replay", "until": "1995-08-02T00:00:00Z"},
        start={"from": "earliest", "first_window": "1995-08-01T00:00:00Z"},
    )
    announced = Announced()
    assert next_due(of, announced, 0)["at"] is None
    assert not next_due(of, announced, 0)["ended"]
    for partition in range(2):
        announced.add(said(4, partition=partition))
    assert next_due(of, announced, 0)["ended"]


def test_behind_a_skipped_window_the_first_trigger_of_the_next_is_due() -> None:
    announced = Announced()
    for partition in range(2):
        announced.add(said(4, partition=partition))
    assert announced.add(said(0, window=WINDOW + DAY))
    assert not announced.add(said(0, window=WINDOW + DAY)), "it says nothing new"
    assert announced.skips(WINDOW + DAY)
    assert announced.newest() == (WINDOW, 4), "nothing is released of it"
    assert next_due(histogram(), announced, 0)["at"] == WINDOW + 2 * DAY + 6 * HOUR + 60_000
    announced.add(said(1, epoch=2, window=WINDOW + DAY))
    assert not announced.skips(WINDOW + DAY), "a newer epoch publishes it"
