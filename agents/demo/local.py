"""The demonstration of local privacy: meters that send nothing true, and the mean that can be published all the same.

    2,000 meters ──(10 clients)──▶ reports ──▶ susurrus worker ──▶ threshold ──▶ the clients, which switch to phase 2
                                                           └──▶ estimate ──▶ this process: table beside the truth

The clients are the real ones. Each has its own producer, its own reader of the threshold and its own randomness, and is the
gateway of two hundred meters: one report a meter, one record a report.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from rich.console import Group

from susurrus.agents.demo.machinery import DemoRun
from susurrus.agents.demo.picture import Compared, comparison, findings, promise
from susurrus.agents.display.drawing import Z95
from susurrus.agents.frames import number
from susurrus.agents.local.client import ToplClient
from susurrus.agents.local.settings import LocalSettings
from susurrus.mechanisms.arrays import Floats
from susurrus.topics import estimate as estimate_codec
from susurrus.topics.histogram import Measured

METERS: Final = 2_000
CLIENTS: Final = 10
"""Few: a fetch from the embedded broker brings one batch of one client, and the worker commits for each. With a hundred clients it
took minutes."""
LINGER_MILLISECONDS: Final = 100
"""Long, for the same reason: what a client reports within this time travels as one batch."""
FIRST_PHASE: Final = 16_384
INTERVALS: Final = 10
PER_INTERVAL: Final = 2
BOUND: Final = 20_000.0
INTERVAL_MILLISECONDS: Final = 500

_SECTIONS: Final = f"""\
[local]
bound = {BOUND}
epsilon = {{epsilon}}
holdout = {FIRST_PHASE}
horizon = {METERS * PER_INTERVAL * INTERVALS}
interval = "{INTERVAL_MILLISECONDS}ms"
lateness = "2s"
"""


class LocalDemo:
    """How much does the town draw?"""

    kind = "local"
    title = (
        f"[bold]{METERS:,} electricity meters[/bold], each of which perturbs its readings before it sends them.\n"
        "How much does the town draw? The mean of every interval is published, with its error."
    )

    def __init__(self, *, epsilon: float) -> None:
        self._epsilon = epsilon
        self.sections = _SECTIONS.format(epsilon=epsilon)
        self._rng = np.random.default_rng(2021)
        self._home = np.exp(self._rng.normal(5.6, 0.5, METERS))

    def play(self, run: DemoRun) -> Group:
        """Report until the threshold is known, then an interval at a time, and wait for the estimates of all."""
        settings = LocalSettings.of(run.settings)
        local = settings.local
        run.start_worker()
        clients = [
            ToplClient(
                settings.kafka.bootstrap_servers,
                pipeline=settings.pipeline.name,
                epsilon=local.epsilon,
                bound=local.bound,
                interval=local.interval,
                scale=local.scale,
                settle=0.0,
                properties={"linger.ms": LINGER_MILLISECONDS},
            )
            for _ in range(CLIENTS)
        ]
        run.stack.callback(_close, clients)

        def report(loads: Floats, at: int | None = None) -> Floats:
            for client, street in zip(clients, np.split(loads, CLIENTS), strict=True):
                client.report_batch(street, at=at)
            return loads

        for _ in run.counted(f"phase 1: rounds of {METERS:,} reports", range(0, FIRST_PHASE, METERS)):
            report(self._loads(0))
        run.wait("clients in phase 2", CLIENTS, lambda: sum(client.phase == 2 for client in clients))
        truth: dict[int, Floats] = {}
        for interval in run.counted("intervals measured", range(1, INTERVALS + 1)):
            time.sleep(INTERVAL_MILLISECONDS / 1000 - time.time() % (INTERVAL_MILLISECONDS / 1000))
            at = int(time.time() * 1000) // INTERVAL_MILLISECONDS * INTERVAL_MILLISECONDS
            truth[at] = np.concatenate([report(self._loads(interval), at) for _ in range(PER_INTERVAL)])
        for client in clients:
            client.flush(30)
        estimates = run.rows("estimate", estimate_codec.decode)
        run.wait("intervals published", len(truth), lambda: len({row.interval for row in estimates()} & truth.keys()))
        return picture({row.interval: row for row in estimates()}, truth, self._epsilon, width=run.width)

    def _loads(self, interval: int) -> Floats:
        """Watts of every meter in an interval of the demonstration: log-normal, with an evening peak. 0 is an ordinary hour."""
        hour = 1.0 + 0.9 * np.exp(-((interval - 6.5) ** 2) / 4.0) if interval else 1.0
        loads: Floats = self._home * hour * np.exp(self._rng.normal(0.0, 0.5, METERS))
        return loads.clip(0, BOUND)


def _close(clients: list[ToplClient]) -> None:
    """All at once: each waits for its own threads."""
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(ToplClient.close, clients))


def picture(
    rows: dict[int, estimate_codec.EstimateRow], truth: dict[int, Floats], epsilon: float, *, width: int
) -> Group:
    """The table beside the truth, and the promise. truth: loads by the start of their interval in ms."""
    compared, inside, off = list[Compared](), 0, list[tuple[float, float]]()
    for at, values in sorted(truth.items()):
        row, true = rows[at], float(values.mean())
        theta, estimate, error = row.theta, row.sum.estimate / row.count, row.sum.std_error / row.count
        filtered = (row.filtered_sum or row.sum).estimate / row.count
        inside += abs(estimate - np.minimum(values, theta).mean()) <= Z95 * error
        off.append((abs(estimate - true), abs(filtered - true)))
        cells = {"before": (number(row.count),), "after": (number(round(filtered)),)}
        compared.append(
            Compared(
                f"{row.interval_start[11:19]}.{at % 1000 // 100}",
                round(true),
                Measured(round(estimate), error),
                **cells,
            )
        )
    plain_off, filtered_off = np.mean(off, axis=0)
    return Group(
        *comparison(compared, width, label="mean W at", before=("reports",), after=("filtered",)),
        *findings(
            threshold=f"{theta:,.0f} W of a public bound of {BOUND:,.0f}, chosen from the first {FIRST_PHASE:,} reports or a few "
            f"more; {inside} of {len(compared)} error bars hold the (clipped) truth.",
            error=f"{plain_off:,.0f} W on average, filtered {filtered_off:,.0f} W; a single report is off by about "
            f"{theta / max(epsilon, 0.1):,.0f} W.",
        ),
        *promise(
            f"Every report is {epsilon:g}-locally private by itself: whatever a meter measured, each possible report is at most "
            f"e^{epsilon:g} times as likely as for any other reading. The server need not be trusted. A meter that reports k "
            f"times has spent k times {epsilon:g}."
        ),
    )
