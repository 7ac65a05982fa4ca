"""What /metrics says: names and types as documented, lags and spending as computed by hand, and no user or key anywhere."""

import json
import math
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as openmetrics

from susurrus.agents.broker.network import free_ports
from susurrus.agents.operations.account import account_of
from susurrus.agents.operations.metrics import CHARGED, GAUGES, registry_of
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.metrics import Metrics
from susurrus.mechanisms.spend import Spend
from susurrus.topics.charges import Charge
from tests.agents.config.test_settings import changed
from tests.agents.operations import documented
from tests.broker import Broker, wait_for
from tests.local_pipeline import client_of, local_pipeline, until, values
from tests.pipeline import Pipeline, archive_topic, produce, web_log
from tests.stream_pipeline import TOPS, stream_pipeline

MEMORY = [f"susurrus_release_{name}" for name in ("remembered_keys", "persistence", "evidence_windows")]


def exported(families: Iterable[Metric]) -> dict[str, tuple[str, set[str]]]:
    """Name -> (type, labels) of a page."""
    return {
        family.name + "_total" * (family.type == "counter"): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in families
        if family.name.startswith("susurrus_")
    }


class Task(SimpleNamespace):
    """A partition that has closed its intervals up to one."""

    def report(self) -> dict[str, Any]:
        return {} if self.interval is None else {"interval": self.interval}

    def stall(self) -> str | None:
        return None


def supervisor(*intervals: int | None, charges: Any = ()) -> Any:
    tasks = {
        ("bounded", number): Task(
            stage_name="release",
            partition=number,
            state="running",
            interval=interval,
            committing=SimpleNamespace(position=1, committed_at=None, store_bytes=0, counters={"rows": 1}),
        )
        for number, interval in enumerate(intervals)
    }
    return SimpleNamespace(
        group=SimpleNamespace(tasks=tasks, generation=1),
        health=SimpleNamespace(unready=lambda: None),
        worker="w",
        metrics=Metrics("p"),
        charges=charges,
        raw_topics=("web-requests",),
    )


def sample(registry: Any, name: str, **labels: str) -> float | None:
    found: float | None = registry.get_sample_value(name, {"pipeline": "susurrus.page-views", **labels})
    return found


def test_the_lag_counts_intervals_that_should_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = changed(clock={"kind": "broker", "idle_grace": "60s"}, window={"trigger_every": "15m"})
    registry = registry_of(supervisor(0, 2, 3, None), settings)

    def lag(partition: int, seconds: float) -> float | None:
        monkeypatch.setattr(
            "susurrus.agents.operations.metrics.time.time", lambda: settings.window.origin / 1000 + seconds
        )
        return sample(registry, "susurrus_partition_lag_intervals", stage="release", partition=str(partition))

    third_due = 3 * 900 + 60
    assert [lag(0, third_due - 1), lag(0, third_due)] == [1, 2]
    assert [lag(1, third_due), lag(1, third_due + 900)] == [0, 1]
    assert lag(2, third_due) == 0  # ahead of what is due, as by a record that closes an interval early
    assert lag(3, third_due) is None


def test_the_lag_in_an_archive_ends_where_the_archive_ends() -> None:
    settings = changed(
        clock={"kind": "replay", "until": "1970-01-02T00:00:00Z"},
        start={"first_window": "1970-01-01T00:00:00Z"},
        window={"trigger_every": "15m"},
    )
    registry = registry_of(supervisor(0, 95), settings)
    for partition, lag in ((0, 95), (1, 0)):
        assert sample(registry, "susurrus_partition_lag_intervals", stage="release", partition=str(partition)) == lag


def test_the_disk_of_a_directory_that_is_gone_is_left_out(tmp_path: Path) -> None:
    settings = changed(worker={"data_directory": str(tmp_path)})
    there, gone = settings, changed(worker={"data_directory": str(tmp_path / "no-such")})
    assert (sample(registry_of(supervisor(), there), "susurrus_worker_disk_free_bytes") or 0) > 0
    assert sample(registry_of(supervisor(), gone), "susurrus_worker_disk_free_bytes") is None


def charge(window: int, *, pipeline: str = "page-views", mu: float = 0.5) -> Charge:
    return Charge(
        raw_topic="web-requests",
        window=window,
        pipeline=pipeline,
        epoch="e",
        epsilon=2.0,
        delta=2e-6,
        mu=mu,
        delta_selection=1e-6,
    )


def test_spending_is_ours_and_the_budget_is_everyones(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = changed(budget={"epsilon": 8.0, "delta": 1e-4})
    day = settings.window.length
    monkeypatch.setattr("susurrus.agents.operations.metrics.time.time", lambda: 1.5 * day / 1000)
    charges = (charge(0), charge(day), charge(0, pipeline="other", mu=1.5))
    registry = registry_of(supervisor(charges=charges), settings)

    def said(name: str) -> float | None:
        return sample(registry, f"susurrus_privacy_{name}")

    names = ("windows_charged_total", "epsilon_charged_total", "delta_charged_total", "mu_squared_charged_total")
    assert [said(name) for name in names] == pytest.approx([2, 4.0, 4e-6, 0.5])
    all_of_them, more = Spend(0.25 + 0.25 + 2.25, 3e-6), 0
    while all_of_them.plus(SimpleNamespace(mu=0.5, delta_selection=1e-6), more + 1).delta_total(8.0) <= 1e-4:  # type: ignore[arg-type]
        more += 1
    assert more > 0
    assert said("budget_windows_left") == more
    assert said("budget_share_spent") == account_of(charges, settings, int(1.5 * day)).share
    # The other pipeline has one charge, so it is taken to go on as ours does: both charge every day.
    together = 0
    while (
        all_of_them.plus(SimpleNamespace(mu=math.sqrt(2.5), delta_selection=2e-6), together + 1).delta_total(8.0)
        <= 1e-4
    ):  # type: ignore[arg-type]
        together += 1
    assert said("budget_ends_seconds") == (2 + together) * day / 1000


def test_a_budget_that_renews_has_no_end_and_says_when_windows_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = changed(budget={"epsilon": 8.0, "delta": 1e-4, "per": "30d"})
    day = settings.calendar.windows.usual
    monkeypatch.setattr("susurrus.agents.operations.metrics.time.time", lambda: now[0] * day / 1000)

    def said(charges: Sequence[Charge], name: str) -> float | None:
        registry = registry_of(supervisor(charges=tuple(charges)), settings)
        return sample(registry, f"susurrus_privacy_budget_{name}")

    def paid(number: int) -> Charge:
        return structs.replace(charge(number * day, mu=1.0), begin=number * day, end=(number + 1) * day)

    now, charges = [0.5], [paid(0)]
    for name in ("windows_left", "ends_seconds", "resumes_seconds"):
        assert said(charges, name) is None
    skips = said(charges, "skips_seconds")
    assert skips is not None
    full = [paid(number) for number in range(int(skips * 1000) // day)]
    now[0] = len(full) + 0.1
    assert said(full, "skips_seconds") == len(full) * day / 1000
    assert said(full, "resumes_seconds") == 31 * day / 1000, "30 days touch 31 windows; then the first is gone"
    assert 0.7 < (said(full, "share_spent") or 0) <= 1


def test_there_is_no_spending_before_a_charge_and_no_budget_without_one() -> None:
    names = [name for name in (*CHARGED, *GAUGES) if "privacy" in name]
    for charges in ((), (charge(0, pipeline="other"),)):
        registry = registry_of(supervisor(charges=charges), changed(budget={"epsilon": 8.0, "delta": 1e-4}))
        assert {name for name in names if sample(registry, name) is not None} == set()
    registry = registry_of(supervisor(charges=(charge(0),)), changed())
    assert {name for name in names if sample(registry, name) is not None} == set(CHARGED)


def test_the_end_of_an_archives_budget_is_no_time_to_watch() -> None:
    archive = changed(
        budget={"epsilon": 8.0, "delta": 1e-4},
        clock={"kind": "replay", "until": "2000-01-01T00:00:00Z"},
        start={"first_window": "1970-01-01T00:00:00Z"},
    )
    assert account_of((charge(0),), archive, 0).stop is not None
    registry = registry_of(supervisor(charges=(charge(0),)), archive)
    assert sample(registry, "susurrus_privacy_budget_windows_left") is not None
    assert sample(registry, "susurrus_privacy_budget_ends_seconds") is None


def test_the_account_is_added_up_once_an_hour_and_for_new_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(charges: Any, settings: Any, now: int, **others: Any) -> Any:
        asked.append(len(charges))
        return account_of(charges, settings, now, **others)

    monkeypatch.setattr("susurrus.agents.operations.metrics.account_of", counted)
    clock = [0.0]
    monkeypatch.setattr("susurrus.agents.operations.metrics.time.time", lambda: clock[0])
    workers = supervisor(charges=(charge(0),))
    registry = registry_of(workers, changed())
    name = "susurrus_privacy_windows_charged_total"
    assert [sample(registry, name) for _ in range(3)] == [1, 1, 1]
    clock[0] = 3600.0
    assert sample(registry, name) == 1
    workers.charges = (charge(0), charge(86_400_000))
    assert sample(registry, name) == 2
    assert len(asked) >= 3
    assert asked.count(2) == 1
    assert asked.count(1) == 2


def test_the_documented_names_and_types_are_those_of_the_registry() -> None:
    families = exported(registry_of(supervisor(0), changed()).collect())
    assert {name: kind for name, (kind, _) in families.items()} == {
        name: kind for name, (kind, _) in documented.metrics().items()
    }


def test_the_documented_totals_are_what_the_stages_count() -> None:
    assert documented.totals() == {stage.name: stage.counted for stage in documented.STAGES}


def scrape(port: int, accept: str = "") -> tuple[str, str]:
    """(content type, text)."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def total(port: int, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    families = parser.text_string_to_metric_families(scrape(port)[1])
    return sum(s.value for f in families for s in f.samples if s.name == name and labels.items() <= s.labels.items())


def test_a_real_workers_metrics(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    events = list(web_log(2))
    last = events[-1][2]
    no_host, filtered = b'{"url": "/x"}', json.dumps({"host": "h", "url": "/never", "time": last // 1000, "bytes": 0})
    produce(kafka, raw, [*events, (0, b"not json", last), (0, no_host, last), (1, filtered.encode(), last)])
    (port,) = free_ports(1)
    changes = {
        "worker": {"web_port": port},
        "input": {"where": "url <> '/never'"},
        "budget": {"epsilon": 60.0, "delta": 1e-6},
    }
    with Pipeline(kafka, tmp_path, raw, changes) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        triggers, partitions = 24, 4
        wait_for(lambda: total(port, "susurrus_worker_ready") == 1, "the worker is ready")
        released = {"stage": "release"}
        name = "susurrus_release_duration_seconds_count"
        wait_for(lambda: total(port, name, **released) == triggers * partitions, "every trigger is timed once")
        assert total(port, "susurrus_stage_total", total="triggers") == triggers * partitions
        assert total(port, "susurrus_stage_total", total="rows") == sum(
            len(rows) for rows in pipeline.public(["histogram"])["histogram"].values()
        )
        assert total(port, "susurrus_dead_letters_total", reason="NOT_JSON") == 1
        assert total(port, "susurrus_dead_letters_total", reason="MISSING_USER") == 1
        assert total(port, "susurrus_stage_total", total="filtered") == 1
        committed = total(port, "susurrus_transactions_total", outcome="committed")
        assert committed == total(port, "susurrus_transaction_duration_seconds_count") > triggers * partitions
        assert total(port, "susurrus_partition_lag_intervals") == 0
        assert total(port, "susurrus_store_bytes") > 0
        assert total(port, "susurrus_worker_rebalances_total") >= 1
        assert total(port, "susurrus_privacy_windows_charged_total") == 1
        assert total(port, "susurrus_privacy_epsilon_charged_total") == 6.0
        assert total(port, "susurrus_privacy_budget_windows_left") > 1

        # The times of an archive's budget are no times of ours, so those have no sample, and no label.
        times = ("ends", "skips", "resumes")
        none = {f"susurrus_privacy_budget_{name}_seconds": ("gauge", set[str]()) for name in times}
        # With strategy toeplitz windows have nothing of earlier ones.
        none |= {name: ("gauge", set()) for name in documented.metrics() if name in MEMORY}
        in_an_archive = {**documented.metrics(), **none}
        kind, text = scrape(port)
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert exported(parser.text_string_to_metric_families(text)) == in_an_archive
        kind, other = scrape(port, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        assert exported(openmetrics.text_string_to_metric_families(other)) == in_an_archive
        for field in {json.loads(event)[name] for _, event, _ in events for name in ("host", "url")} - {"/"}:
            assert field not in text
            assert field not in other
        assert worker.stop() == 0

        again = pipeline.start()
        wait_for(lambda: _position(port) > len(events), "the next worker has recovered")
        assert total(port, "susurrus_stage_total", total="in") == 0  # it counts what it commits itself
        assert total(port, "susurrus_stage_committed", total="in") == len(events) + 3
        assert again.stop() == 0


def _position(port: int) -> float:
    try:
        return total(port, "susurrus_partition_position", stage="route")
    except OSError:
        return 0


def test_a_stream_has_releases_and_no_intervals(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 1)
    readings = [json.dumps({"meter": "m", "reading": {"watts": float(n % 90)}}).encode() for n in range(400)]
    produce(kafka, raw, [(0, value, 1_000_000 + n) for n, value in enumerate([*readings, b"not json"])])
    (port,) = free_ports(1)
    with stream_pipeline(kafka, tmp_path, raw, TOPS, {"worker": {"web_port": port}}) as pipeline:
        pipeline.start()
        pipeline.wait_for_total(401, "in")
        assert total(port, "susurrus_release_duration_seconds_count", stage="stream") >= 1
        assert total(port, "susurrus_dead_letters_total", stage="stream", reason="NOT_JSON") == 1
        names = {family.name for family in parser.text_string_to_metric_families(scrape(port)[1]) if family.samples}
        assert "susurrus_partition_state" in names
        assert not {name for name in names if "lag" in name or "privacy" in name}


def test_a_local_pipelines_thresholds_are_releases(kafka: Broker, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (
        local_pipeline(kafka, tmp_path, {"worker": {"web_port": port}}, holdout=500) as pipeline,
        client_of(pipeline) as client,
    ):
        client.report_batch(values(600, 1))
        client.flush(30)
        pipeline.start()
        until(lambda: client.phase == 2, pipeline)
        wait_for(lambda: total(port, "susurrus_release_duration_seconds_count", stage="server") >= 1, "it is timed")
        assert total(port, "susurrus_stage_total", stage="server", total="thresholds") == 1
        assert total(port, "susurrus_release_duration_seconds_count", stage="collect") == 0


def test_the_settings_of_a_local_pipeline_have_a_delay_of_their_own() -> None:
    settings = settings_from(
        {
            "pipeline": {"name": "meters", "kind": "local"},
            "kafka": {"bootstrap_servers": "b:1"},
            "local": {"bound": 1.0, "epsilon": 1.0, "lateness": "7s"},
        },
        environ={},
    )
    assert settings.closing_delay == 7_000
    assert changed(window={"publication_pad": "2m"}).closing_delay == 120_000
