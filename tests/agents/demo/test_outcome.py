"""The demonstration's arithmetic: what counts as kept, missed and covered, and the log it is about."""

import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from susurrus.agents.demo.histogram import HistogramDemo, compare, kept_counts, picture
from susurrus.agents.demo.machinery import configured
from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.embedded import PARTITIONS
from susurrus.mechanisms.calendar import WindowStart
from tests.agents.histogram.test_terminal_table import snapshot
from tests.reference import canonical, priority

LOG = WebLog()


def test_the_log_is_what_its_note_says() -> None:
    assert len(LOG) == 30_969
    assert len(LOG.urls_of_host) == 2_365
    assert LOG.true_counts().most_common(1) == [("/images/NASA-logosmall.gif", 1_317)]
    assert len(LOG.true_counts()) == 2_088


def test_what_counts_is_what_the_pipeline_keeps(tmp_path: Path) -> None:
    demo = HistogramDemo(epsilon=6.0, rows=15)
    true = LOG.true_counts()
    by_default = kept_counts(LOG, HistogramSettings.of(configured(demo, tmp_path, "x:1")))
    demo.sections = demo.sections.replace("[privacy]", '[privacy]\nstrategy = "toeplitz"')
    (tmp_path / "capped").mkdir()
    settings = HistogramSettings.of(configured(demo, tmp_path / "capped", "x:1"))
    capped = kept_counts(LOG, settings)
    # A plain cap keeps each host's first urls. Records of later triggers cost less where they are charged by trigger.
    day = settings.calendar.window_at(WindowStart(settings.start.first_window or 0))
    urls_of: dict[str, dict[str, tuple[int, int]]] = {}
    for visit in LOG.visits:
        hour = visit.time // 3_600
        turn = priority(settings.secret(), day, canonical(visit.host), canonical(visit.url))
        urls = urls_of.setdefault(visit.host, {})
        urls[visit.url] = min(urls.get(visit.url, (hour, turn)), (hour, turn))
    assert capped == Counter(url for urls in urls_of.values() for url in sorted(urls, key=urls.__getitem__)[:32])
    assert capped.total() < by_default.total() < true.total()
    assert all(by_default[url] <= count for url, count in true.items())


def test_every_partition_is_sorted_by_time_holds_whole_hosts_and_fits_the_embedded_broker() -> None:
    times: dict[int, int] = {}
    places: dict[str, int] = {}
    size: Counter[int] = Counter()
    number: Counter[int] = Counter()
    for partition, visit in LOG.by_partition(PARTITIONS):
        assert times.get(partition, 0) <= visit.time
        assert places.setdefault(visit.host, partition) == partition
        times[partition] = visit.time
        size[partition] += len(visit.encode()) + len(visit.host) + 80
        number[partition] += 1
    assert len(number) == PARTITIONS
    assert max(size.values()) < 5 << 20  # the embedded broker holds no more in a partition
    assert max(number.values()) < 100_000


def test_compare_counts_kept_missed_and_covered() -> None:
    true, capped = Counter(a=100, b=50, c=49, d=1), Counter(a=90, b=50, c=49, d=1)
    found = compare(snapshot({b'"a"': 92, b'"c"': 90}, std_error=2.0), true, capped)
    assert (found.published, found.urls) == (2, 4)
    assert found.covered == 1  # a is within 1.96 * 2 of what was kept of it, c is not
    assert found.mean_error == pytest.approx((8 + 41) / 2)
    assert (found.missed, found.missed_true) == ("b", 50)
    assert found.dropped == pytest.approx(10 / 200)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_picture_fits_every_terminal(width: int, tmp_path: Path) -> None:
    settings = configured(HistogramDemo(epsilon=6.0, rows=15), tmp_path, "x:1")
    console = Console(file=io.StringIO(), width=width, color_system=None)
    found = snapshot({b'"/images/NASA-logosmall.gif"': 1_320, b'"/"': 470})
    console.print(picture(found, LOG, settings, rows=15, width=width))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    joined = " ".join(" ".join(lines).split())
    assert "1,317" in joined
    assert "e^6" in joined
    assert ("┃ the truth" in joined) == (width >= 70)
