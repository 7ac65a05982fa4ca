"""The demonstration of local privacy: meters that send nothing true, and what can be known all the same.

    2,000 meters ──(10 clients)──▶ reports ──▶ susurrus worker ──▶ threshold ──▶ the clients, which switch to phase 2
                                                           └──▶ estimate ──▶ this process: table beside the truth

The clients are the real ones, each with its own producer, its own reader of the threshold and its own randomness; a
client speaks for a street of two hundred meters, one report a record.
"""

import time
from collections import defaultdict
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.console import Group

from susurrus.agents.demo.machinery import Run
from susurrus.agents.demo.picture import Compared, comparison, findings, promise
from susurrus.agents.local.client import ToplClient
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.operations.drawing import Z95, number
from susurrus.topics import estimate as estimate_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.histogram import Measured
from susurrus.topics.threshold import Threshold

METERS: Final = 2_000
CLIENTS: Final = 10
"""Few: a fetch from the embedded broker brings one batch of one client, and the worker took minutes for those of a hundred."""
FIRST_PHASE: Final = 16_384
INTERVALS: Final = 10
PER_INTERVAL: Final = 2
BOUND: Final = 20_000.0
INTERVAL_MILLISECONDS: Final = 1_500

_SECTIONS: Final = f"""\
[local]
bound = {BOUND}
epsilon = {{epsilon}}
holdout = {FIRST_PHASE}
horizon = {METERS * PER_INTERVAL * INTERVALS}
interval = "{INTERVAL_MILLISECONDS}ms"
lateness = "1s"
"""


class Town:
    """What the meters measure: log-normal loads that follow the hour. Keeps the truth, for the comparison only."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(2021)
        self._home = np.exp(self._rng.normal(5.6, 0.5, METERS))
        self.truth: dict[int, list[float]] = defaultdict(list)
        """Loads by the start of their interval in ms."""

    def loads(self, interval: int) -> npt.NDArray[np.float64]:
        """Watts of every meter in an interval of the demonstration (0: the ordinary hour)."""
        hour = 1.0 + 0.9 * np.exp(-((interval - 6.5) ** 2) / 4.0) if interval else 1.0
        loads: npt.NDArray[np.float64] = self._home * hour * np.exp(self._rng.normal(0.0, 0.5, METERS))
        return loads.clip(0, BOUND)


class LocalDemo:
    """How much does the town draw?"""

    kind = "local"

    def __init__(self, *, epsilon: float) -> None:
        self._epsilon, self._town = epsilon, Town()
        self.sections = _SECTIONS.format(epsilon=epsilon)
        self.title = (
            f"[bold]{METERS:,} electricity meters[/bold], each of which perturbs its readings before it sends them.\n"
            "How much does the town draw? The mean of every interval is published, with its error.\n"
        )

    def play(self, run: Run) -> Group:
        """Report until the threshold is known, then an interval at a time, and wait for the estimates of all."""
        town, settings = self._town, LocalSettings.of(run.settings)
        run.start_worker()
        clients = [run.stack.enter_context(_client(settings)) for _ in range(CLIENTS)]
        first = run.bar("phase 1 reports", FIRST_PHASE)
        for sent in range(0, FIRST_PHASE, METERS):
            _report(clients, town.loads(0))
            first(sent + METERS)
        switched = run.bar("clients in phase 2", CLIENTS)
        run.wait(lambda: sum(client.phase == 2 for client in clients), CLIENTS, switched)
        measured = run.bar("intervals measured", INTERVALS)
        for interval in range(1, INTERVALS + 1):
            _measure(clients, town, interval)
            measured(interval)
        for client in clients:
            client.flush(30)
        thresholds, rows = list[Threshold](), dict[int, estimate_codec.Estimate]()
        news = run.follow("threshold", "estimate")

        def published() -> int:
            for message in news():
                if message.topic() == settings.topic("threshold"):
                    thresholds.append(threshold_codec.decode(message.value()))
                else:
                    row = estimate_codec.decode(message.value())
                    rows[row.interval] = row
            return len(rows.keys() & town.truth.keys())

        run.wait(published, len(town.truth), run.bar("intervals published", len(town.truth)))
        return picture(rows, town, thresholds[-1], self._epsilon, width=run.width)


def _client(settings: LocalSettings) -> ToplClient:
    local = settings.local
    return ToplClient(
        settings.kafka.bootstrap_servers,
        pipeline=settings.pipeline.name,
        epsilon=local.epsilon,
        bound=local.bound,
        interval=local.interval,
        scale=local.scale,
        settle=0.0,
    )


def _report(clients: list[ToplClient], loads: npt.NDArray[np.float64], at: int | None = None) -> None:
    for client, street in zip(clients, np.split(loads, CLIENTS), strict=True):
        for load in street.tolist():
            client.report(load, at=at)


def _measure(clients: list[ToplClient], town: Town, interval: int) -> None:
    """Wait for an interval of the wall clock to begin, and measure in it."""
    now = time.time() * 1000
    time.sleep((INTERVAL_MILLISECONDS - now % INTERVAL_MILLISECONDS) / 1000)
    at = int(time.time() * 1000) // INTERVAL_MILLISECONDS * INTERVAL_MILLISECONDS
    for _ in range(PER_INTERVAL):
        loads = town.loads(interval)
        town.truth[at].extend(loads.tolist())
        _report(clients, loads, at)


def picture(
    rows: dict[int, estimate_codec.Estimate], town: Town, threshold: Threshold, epsilon: float, *, width: int
) -> Group:
    """The table beside the truth, and the promise."""
    compared, inside = list[Compared](), 0
    off_plain, off_filtered = list[float](), list[float]()
    for at, values in sorted(town.truth.items()):
        row, true = rows[at], float(np.mean(values))
        if row.mean is None:
            continue
        estimate = row.mean.estimate
        filtered = estimate if row.filtered_sum is None else row.filtered_sum.estimate / row.count
        clipped = float(np.minimum(values, threshold.theta).mean())
        inside += abs(estimate - clipped) <= Z95 * row.mean.std_error
        off_plain.append(abs(estimate - true))
        off_filtered.append(abs(filtered - true))
        private = Measured(round(estimate), row.mean.std_error)
        after = ("" if row.filtered_sum is None else number(round(filtered)),)
        compared.append(Compared(row.interval_start[11:], round(true), private, (number(row.count),), after))
    single = threshold.theta / 2 * (2.0 / max(epsilon, 0.1))
    return Group(
        *comparison(compared, width, label="mean watts", before=("reports",), after=("filtered",)),
        *findings(
            threshold=f"{threshold.theta:,.0f} W of a public bound of {BOUND:,.0f}, from {threshold.reports:,} phase 1 reports; "
            f"{inside} of {len(compared)} error bars hold the (clipped) truth.",
            error=f"{np.mean(off_plain):,.0f} W on average, filtered {np.mean(off_filtered):,.0f} W; a single report is off by "
            f"about {single:,.0f} W.",
        ),
        *promise(
            f"Every report is {epsilon:g}-locally private by itself: whatever a meter measured, each possible report is at most "
            f"e^{epsilon:g} times as likely as for any other reading. The server need not be trusted. A meter that reports k "
            f"times has spent k times {epsilon:g}."
        ),
    )
