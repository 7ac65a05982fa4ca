"""What `/metrics` shows beside what the tasks count (agents/runtime/metrics.py): gauges as they are at the moment of the scrape.

A partition that has left this worker is gone from its gauges with the next scrape. Every gauge is a property of the configuration,
of the public calendar, of this machine, or of a whole partition. None is about a user or a key. What depends on nothing but
configuration and calendar is marked public in docs/monitoring.md.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.operations.account import Account, account_of
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.agents.runtime.task import PartitionTask
from susurrus.topics.charges import Charge

STATES: Final = ("starting", "running", "stalled", "refused", "fenced", "stopped")
_PLACE: Final = ("stage", "partition")
GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "susurrus_worker_info": ("Always 1; the labels say who this is.", ("worker",)),
    "susurrus_worker_ready": ("1 if all partitions of this worker have recovered, as /readyz says.", ()),
    "susurrus_worker_generation": ("The consumer group's generation.", ()),
    "susurrus_worker_disk_free_bytes": ("Room left on the disk of worker.data_directory.", ()),
    "susurrus_worker_disk_size_bytes": ("Size of the disk of worker.data_directory.", ()),
    "susurrus_pipeline_interval_seconds": ("Time from one public trigger to the next.", ()),
    "susurrus_partition_input_info": (
        "Always 1; the labels say what a partition reads.",
        (*_PLACE, "topic", "topic_partition"),
    ),
    "susurrus_partition_state": ("1 for the state a partition's task is in.", (*_PLACE, "state")),
    "susurrus_partition_position": ("Input offset of the last commit.", _PLACE),
    "susurrus_partition_closed_until_seconds": ("Unix time up to which the partition has closed its triggers.", _PLACE),
    "susurrus_partition_lag_intervals": ("Public trigger intervals that should be closed and are not.", _PLACE),
    "susurrus_partition_seconds_since_commit": ("Seconds since this worker's last commit for the partition.", _PLACE),
    "susurrus_stage_committed": ("Totals of a partition's whole life, as committed.", (*_PLACE, "total")),
    "susurrus_release_remembered_keys": (
        "Keys that are public in the newest window because the window before has published them.",
        _PLACE,
    ),
    "susurrus_release_persistence": (
        "How much of an earlier window had lasted, 0 to 1, which the newest window's shares of the budget follow.",
        _PLACE,
    ),
    "susurrus_release_evidence_windows": (
        "Windows whose measurements of a key that is not published add up; 1: none but the present one.",
        _PLACE,
    ),
    "susurrus_store_bytes": ("Size of the partition's local store on the disk.", _PLACE),
    "susurrus_privacy_budget_windows_left": ("Windows that [budget] still allows; not where it renews.", ()),
    "susurrus_privacy_budget_share_spent": (
        "Share of [budget] spent by all pipelines on the raw topic, 0 to 1; with budget.per in the period up to the next window.",
        (),
    ),
    "susurrus_privacy_budget_ends_seconds": (
        "Unix time of the first window that [budget] will not allow; not where it renews.",
        (),
    ),
    "susurrus_privacy_budget_skips_seconds": ("Unix time of the next window that budget.per leaves no room for.", ()),
    "susurrus_privacy_budget_resumes_seconds": (
        "Unix time of the next window that begins, while windows are skipped for want of room (budget.per).",
        (),
    ),
}
"""Help text and labels of every gauge, without the label pipeline, which all have."""
_REPORTED: Final = "susurrus_release_"
"""What begins the names of the gauges that a stage reports itself (`Stage.report`)."""
CHARGED: Final[Mapping[str, str]] = {
    "susurrus_privacy_windows_charged_total": "Windows charged, in all epochs.",
    "susurrus_privacy_epsilon_charged_total": "Sum of epsilon over the windows charged.",
    "susurrus_privacy_delta_charged_total": "Sum of delta over the windows charged.",
    "susurrus_privacy_mu_squared_charged_total": "Sum of mu squared over the windows charged; sums compose exactly.",
}
"""Help text of the counters that the log of charges holds. Every worker that releases shows the same."""

_HOUR: Final = 3_600_000

Values = Mapping[str, Mapping[tuple[str, ...], float | None]]
"""Values by the name of the metric and what its labels say. None is left out."""


def registry_of(supervisor: Supervisor, settings: Settings) -> CollectorRegistry:
    """The worker's registry: what its tasks count, its gauges, and its process."""
    registry = supervisor.metrics.registry
    registry.register(WorkerCollector(supervisor, settings))
    ProcessCollector(registry=registry)
    return registry


class WorkerCollector(Collector):
    """What prometheus_client asks at each scrape."""

    def __init__(self, supervisor: Supervisor, settings: Settings) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._pipeline = settings.application
        self._account: tuple[Sequence[Charge], int, Account | None] = ((), -1, None)

    def collect(self) -> Iterator[Metric]:
        """Every family, also one without a value."""
        values = {**self._of_worker(), **self._of_partitions(), **self._of_privacy()}
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            name: GaugeMetricFamily(name, text, labels=("pipeline", *labels)) for name, (text, labels) in GAUGES.items()
        }
        families |= {name: CounterMetricFamily(name, text, labels=("pipeline",)) for name, text in CHARGED.items()}
        for name, family in families.items():
            for said, value in values[name].items():
                if value is not None:
                    family.add_metric((self._pipeline, *said), float(value))
            yield family

    def _of_worker(self) -> Values:
        supervisor, settings = self._supervisor, self._settings
        free, size = _disk(settings.worker.data_directory)
        return {
            "susurrus_worker_info": {(supervisor.worker,): 1},
            "susurrus_worker_ready": {(): supervisor.health.unready() is None},
            "susurrus_worker_generation": {(): supervisor.group.generation},
            "susurrus_worker_disk_free_bytes": {(): free},
            "susurrus_worker_disk_size_bytes": {(): size},
            "susurrus_pipeline_interval_seconds": {(): settings.window.trigger_every / 1000},
        }

    def _of_partitions(self) -> Values:
        tasks = {
            (task.stage_name, str(task.partition)): task for _, task in sorted(self._supervisor.group.tasks.items())
        }
        states = {place: state_of(task, task.stall()) for place, task in tasks.items()}
        reports = {place: task.report() for place, task in tasks.items()}
        closed = {place: report.get("interval") for place, report in reports.items()}
        commits = {place: task.committing for place, task in tasks.items()}
        calendar, now, due = self._settings.calendar, time.monotonic(), due_interval(self._settings)
        reads: dict[tuple[str, ...], float] = {
            (task.stage_name, str(task.partition), topic, str(partition)): 1.0
            for (topic, partition), task in self._supervisor.group.tasks.items()
        }
        return {
            "susurrus_partition_input_info": reads,
            "susurrus_partition_state": {(*at, name): states[at] == name for at in tasks for name in STATES},
            "susurrus_partition_position": {at: c.position if c.position >= 0 else None for at, c in commits.items()},
            "susurrus_partition_closed_until_seconds": {
                at: None if last is None else calendar.boundary(last) / 1000 for at, last in closed.items()
            },
            "susurrus_partition_lag_intervals": {
                at: None if last is None else max(0, due - last) for at, last in closed.items()
            },
            "susurrus_partition_seconds_since_commit": {
                at: None if c.committed_at is None else now - c.committed_at for at, c in commits.items()
            },
            "susurrus_stage_committed": {
                (*at, name): total for at, c in commits.items() for name, total in c.counters.items()
            },
            "susurrus_store_bytes": {at: c.store_bytes for at, c in commits.items()},
            **{
                name: {at: report.get("gauges", {}).get(name.removeprefix(_REPORTED)) for at, report in reports.items()}
                for name in GAUGES
                if name.startswith(_REPORTED)
            },
        }

    def _of_privacy(self) -> Values:
        names = [*CHARGED, *(name for name in GAUGES if name.startswith("susurrus_privacy_"))]
        account = self._spent()
        found: dict[str, float | None] = dict.fromkeys(names)
        if account is not None and account.own.windows:
            own = account.own
            amounts = (own.windows, own.epsilon_sum, own.delta_sum, own.mu_squared)
            found = dict(zip(names, (*amounts, *_of_budget(account)), strict=True))
        return {name: {(): value} for name, value in found.items()}

    def _spent(self) -> Account | None:
        """The account of the raw topics, added up once for every change of the charges and once an hour. None without charges."""
        charges, now = self._supervisor.charges, int(time.time() * 1000)
        before, hour, account = self._account
        if charges is not before or hour != now // _HOUR:
            account = (
                account_of(charges, self._settings, now, raw_topics=self._supervisor.raw_topics) if charges else None
            )
            self._account = charges, now // _HOUR, account
        return account


def _of_budget(account: Account) -> tuple[float | None, ...]:
    """Windows left, share spent, end, next window skipped, next one that begins. An archive's times are no times of ours."""
    period = account.period
    if period is None:
        return account.windows_left, account.share, _seconds(account.stop if account.live else None), None, None
    if not account.live:
        return None, account.share, None, None, None
    return None, account.share, None, _seconds(period.skips), _seconds(period.resumes if period.skipping else None)


def _seconds(stamp: int | None) -> float | None:
    return None if stamp is None else stamp / 1000


def due_interval(settings: Settings) -> int:
    """The last interval that should be closed by now: the clock says so, or the end of the archive."""
    until = settings.clock.until
    moment = int(time.time() * 1000) - settings.closing_delay if until is None else until
    return settings.calendar.interval_at(moment) - 1


def _disk(directory: Path) -> tuple[int | None, int | None]:
    """Bytes free and in all; None where the disk does not answer, which /healthz reports."""
    try:
        found = shutil.disk_usage(directory)
    except OSError:
        return None, None
    return found.free, found.total


def state_of(task: PartitionTask, stalled: Finding | None) -> str:
    """One of STATES. stalled: what `PartitionTask.stall` says."""
    return "stalled" if task.state == "running" and stalled else task.state
