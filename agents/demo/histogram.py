"""The demonstration of private histograms: a web log as an archive, and the released histogram beside the exact one.

Only a demonstration may show the true counts. The error bars cover the noise. What the caps per host leave out is shown separately.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Group
from rich.text import Text

from susurrus.agents.demo.machinery import DemoRun
from susurrus.agents.demo.picture import Compared, comparison, findings, promise
from susurrus.agents.demo.weblog import DAY, NEXT_DAY, WebLog
from susurrus.agents.display.drawing import GREY, Z95
from susurrus.agents.frames import key_text
from susurrus.agents.histogram.estimates import Release
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.embedded import PARTITIONS
from susurrus.agents.pipelines import pipeline_of
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.record_order import RecordOrder, in_order
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.wire.partitioner import placements

_SECTIONS: Final = """\
[input]
topic = "web-requests"
user = "host"
key = ["url"]
time = "time"
time_unit = "s"

[start]
from = "earliest"
first_window = "{day}"

[clock]
kind = "replay"
until = "{next_day}"

[window]
length = "1d"
trigger_every = "1h"

[bounds]
max_records_per_user = 32

[[columns]]
name = "hosts"

[privacy]
epsilon = {epsilon}
delta = 1e-9
secret_file = "secret"
"""


class HistogramDemo:
    """Which pages were visited on one day of a web server? rows: how many to show."""

    kind = "histogram"

    def __init__(self, *, epsilon: float, rows: int) -> None:
        self.log, self._rows = WebLog(), rows
        self.sections = _SECTIONS.format(day=DAY, next_day=NEXT_DAY, epsilon=epsilon)
        self.title = (
            f"[bold]One day of a web server[/bold]: {len(self.log):,} requests by {len(self.log.urls_of_host):,} hosts, "
            "as a Kafka topic.\nWhich pages did they visit? The published histogram hides what any one host did."
        )

    def play(self, run: DemoRun) -> Group:
        """Produce the archive, let the worker replay it, and wait for the day's last trigger."""
        # Each partition is sorted by time. The archive is whole before a worker looks at it: a replay ends where the input ends.
        records = [
            (visit.encode(), visit.host, partition, visit.time * 1000)
            for partition, visit in self.log.by_partition(PARTITIONS)
        ]
        run.produce("raw events produced", records)
        run.start_worker()
        settings = HistogramSettings.of(run.settings)
        reader, newest = run.stack.enter_context(ReleaseReader(settings)), list[Release]()

        def released() -> int:
            newest[:] = [*newest, *reader.poll(0.2)][-1:]
            return newest[0].trigger if newest else 0

        run.wait("private triggers released", settings.triggers, released)
        return picture(newest[0], self.log, settings, rows=self._rows, width=run.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the comparison says. true: hosts per url; capped: after the caps, which is what the noise was added to."""

    published: int
    urls: int
    covered: int
    mean_error: float
    missed: str
    missed_true: int
    dropped: float


def kept_counts(log: WebLog, settings: HistogramSettings) -> Counter[str]:
    """Hosts per url, exactly, of the visits that count: the pipeline's own caps, and its order, trigger by trigger."""
    window, last = settings.window, settings.triggers
    bounding = build_strategy(settings.plan()).bounding
    hosts, host = _codes([visit.host for visit in log.visits])
    urls, url = _codes([visit.url for visit in log.visits])
    begin = settings.start.first_window or 0
    trigger = np.array([(visit.time * 1000 - begin) // window.trigger_every + 1 for visit in log.visits])
    day = settings.calendar.window_at(WindowStart(begin))
    user_hash, key_hash = (placements([msgspec.json.encode(name) for name in names]) for names in (hosts, urls))
    priority = RecordOrder(settings.secret()).priorities(day, user_hash[host], key_hash[url])
    state, counts = UserKeys.empty(len(hosts)), np.zeros(len(urls), np.int64)
    for number in range(1, last + 1):
        now = np.flatnonzero(trigger == number)
        now = now[in_order(host[now], priority[now])]
        # Which urls are public decides what selects a url, and nothing about what counts.
        public = None if bounding.lag is None else np.zeros(len(now), np.bool_)
        outcome = bounding.close(host[now], url[now], np.full(len(hosts), number, np.int32), state, public)
        state = outcome.state
        counts += np.bincount(url[now[outcome.first]], minlength=len(urls))
    return Counter({name: count for name, count in zip(urls, counts.tolist(), strict=True) if count})


def _codes(names: list[str]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The distinct names, and int32[n]: which of them each is."""
    distinct, codes = np.unique(names, return_inverse=True)
    return distinct.tolist(), codes.astype(np.int32)


def compare(release: Release, true: Counter[str], capped: Counter[str]) -> Comparison:
    """Compare a released histogram with the exact one, key by key."""
    column = release.columns[release.names()[0]]
    values = {key: column.at(row) for row, key in enumerate(release.keys)}
    covered = sum(abs(v.estimate - capped[url]) <= Z95 * v.std_error for url, v in values.items())
    error = sum(abs(v.estimate - true[url]) for url, v in values.items()) / max(1, len(values))
    missed = next(((url, count) for url, count in true.most_common() if url not in values), ("", 0))
    return Comparison(
        published=len(values),
        urls=len(true),
        covered=covered,
        mean_error=error,
        missed=missed[0],
        missed_true=missed[1],
        dropped=1 - capped.total() / max(1, true.total()),
    )


def picture(release: Release, log: WebLog, settings: HistogramSettings, *, rows: int, width: int) -> Group:
    """The whole result as one renderable."""
    true = log.true_counts()
    found = compare(release, true, kept_counts(log, settings))
    column, keys = release.columns[release.names()[0]], release.keys
    shown = [Compared(key_text(keys[row]), true[keys[row]], column.at(row)) for row in release.largest(rows)]
    more = found.published - len(shown)
    missed = f"the others, too rare to hide a host in; the largest is {key_text(found.missed)} with {found.missed_true:,} hosts."
    return Group(
        *comparison(shown, width, label="url"),
        *([Text(f"… and {more} more", style=GREY)] if more else []),
        *findings(
            kept=f"{found.published:,} of {found.urls:,} urls, after trigger {release.trigger} of {release.of_triggers}; "
            f"every url with {found.missed_true + 1:,} hosts or more is among them.",
            missed=missed if found.missed else "none.",
            error=f"{found.mean_error:.1f} hosts on average; {found.covered} of {found.published} error bars hold the exact "
            f"count of what was kept; the bounds on what one host adds leave {found.dropped:.1%} out.",
        ),
        *promise(
            pipeline_of(settings).guarantee(),
            "Here a user is a host, and the window is the day. The demo made its own secret for the noise; a real "
            "pipeline gets one from its operator and keeps it: anyone who has it can remove the noise.",
        ),
    )
