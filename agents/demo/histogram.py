"""The demonstration of private histograms: a web log as an archive, and the released histogram beside the exact one.

Only a demonstration may show the true counts. The error bars cover the noise. What the cap on urls per host leaves out is shown
separately.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from rich.console import Group
from rich.text import Text

from susurrus.agents.demo.machinery import Run
from susurrus.agents.demo.picture import Compared, comparison, findings, promise
from susurrus.agents.demo.weblog import DAY, NEXT_DAY, WebLog
from susurrus.agents.histogram.reader import HistogramReader, Snapshot
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.embedded import PARTITIONS
from susurrus.agents.operations.drawing import GREY, Z95, key_text, ranked, value_of
from susurrus.agents.pipelines import pipeline_of

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

    def play(self, run: Run) -> Group:
        """Produce the archive, let the worker replay it, and wait for the day's last trigger."""
        # Each partition is sorted by time. The archive is whole before a worker looks at it: a replay ends where the input ends.
        records = [
            (visit.encode(), visit.host, partition, visit.time * 1000)
            for partition, visit in self.log.by_partition(PARTITIONS)
        ]
        run.produce("raw events produced", records)
        run.start_worker()
        reader = run.stack.enter_context(HistogramReader(run.settings))
        triggers = run.settings.triggers

        def released() -> int:
            reader.poll(0.2)
            snapshot = reader.snapshot()
            if snapshot is not None and snapshot.final:
                return triggers
            return min(triggers - 1, max((done for _, done, _ in reader.completed()), default=0))

        run.wait("private triggers released", triggers, released)
        snapshot = reader.snapshot()
        assert snapshot is not None
        return picture(snapshot, self.log, HistogramSettings.of(run.settings), rows=self._rows, width=run.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the comparison says. true: hosts per url; capped: after the cap, which is what the noise was added to."""

    published: int
    urls: int
    covered: int
    mean_error: float
    missed: str
    missed_true: int
    dropped: float


def compare(snapshot: Snapshot, true: Counter[str], capped: Counter[str]) -> Outcome:
    """Compare a released histogram with the exact one, key by key."""
    values = {row.key: value_of(row) for row in snapshot.rows}
    covered = sum(abs(v.estimate - capped[url]) <= Z95 * v.std_error for url, v in values.items())
    error = sum(abs(v.estimate - true[url]) for url, v in values.items()) / max(1, len(values))
    missed = next(((url, count) for url, count in true.most_common() if url not in values), ("", 0))
    return Outcome(
        published=len(values),
        urls=len(true),
        covered=covered,
        mean_error=error,
        missed=missed[0],
        missed_true=missed[1],
        dropped=1 - capped.total() / max(1, true.total()),
    )


def picture(snapshot: Snapshot, log: WebLog, settings: HistogramSettings, *, rows: int, width: int) -> Group:
    """The whole result as one renderable."""
    limit = settings.bounds.max_records_per_user
    true = log.true_counts()
    found = compare(snapshot, true, log.true_counts(limit))
    shown = [Compared(key_text(row.key), true[row.key], value_of(row)) for row in ranked(snapshot)[:rows]]
    more = found.published - len(shown)
    missed = f"the others, too rare to hide a host in; the largest is {key_text(found.missed)} with {found.missed_true:,} hosts."
    return Group(
        *comparison(shown, width, label="url"),
        *([Text(f"… and {more} more", style=GREY)] if more else []),
        *findings(
            kept=f"{found.published:,} of {found.urls:,} urls, after trigger {snapshot.trigger} of {snapshot.of_triggers}; "
            f"every url with {found.missed_true + 1:,} hosts or more is among them.",
            missed=missed if found.missed else "none.",
            error=f"{found.mean_error:.1f} hosts on average; {found.covered} of {found.published} error bars hold the exact "
            f"count of what was kept; a host counts for its first {limit} urls, so {found.dropped:.1%} is left out.",
        ),
        *promise(
            pipeline_of(settings).guarantee(),
            "Here a user is a host, and the window is the day. The demo made its own secret for the noise; a real "
            "pipeline gets one from its operator and keeps it: anyone who has it can remove the noise.",
        ),
    )
