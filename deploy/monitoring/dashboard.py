#!/usr/bin/env python3
"""Writes dashboard.json beside this file: what Grafana shows of a pipeline's workers.

    .venv/bin/python deploy/monitoring/dashboard.py

Import the file into Grafana 10.1 or later, or start `docker compose --profile monitoring up`. It shows exact totals of raw data to
everyone who may see it (docs/monitoring.md).
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueGraphMode
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

FILE: Final = Path(__file__).with_name("dashboard.json")
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${source}")
_OURS: Final = 'pipeline=~"$pipeline"'
_COLUMNS: Final = 24
"""Of Grafana's grid."""
Query = tuple[str, str]
"""An expression, and what its lines are called."""


def panels() -> list[tuple[str, list[timeseries.Panel | stat.Panel]]]:
    """(title of a row, its panels)."""
    return [
        (
            "Now",
            [
                _number("Workers ready", "of those that run", "none", f"sum(susurrus_worker_ready{{{_OURS}}})"),
                _number(
                    "Partitions that need an operator",
                    "stalled or refused: `susurrus status` says why, and what to do",
                    "none",
                    f'sum(max by (pipeline, stage, partition) (susurrus_partition_state{{{_OURS},state=~"stalled|refused"}}))',
                    red_from=1,
                ),
                _number(
                    "Intervals without a release",
                    "which should be closed, in the partition that is furthest behind",
                    "none",
                    f'max(susurrus_partition_lag_intervals{{{_OURS},stage=~"release|server"}})',
                    red_from=2,
                ),
                _number(
                    "Windows left in the budget",
                    "empty without [budget]",
                    "none",
                    f"min(susurrus_privacy_budget_windows_left{{{_OURS}}})",
                ),
            ],
        ),
        (
            "Releases",
            [
                _lines(
                    "Releases",
                    "over all partitions",
                    "short",
                    (
                        f"sum by (stage) (increase(susurrus_release_duration_seconds_count{{{_OURS}}}[$__rate_interval]))",
                        "{{stage}}",
                    ),
                ),
                _lines(
                    "Time since the last release, in intervals",
                    "between 0 and 1, and what a release is allowed to take",
                    "none",
                    (
                        f'max by (pipeline) (time() - susurrus_partition_closed_until_seconds{{{_OURS},stage=~"release|server"}})'
                        f" / on (pipeline) max by (pipeline) (susurrus_pipeline_interval_seconds{{{_OURS}}})",
                        "{{pipeline}}",
                    ),
                ),
                _lines(
                    "Lag in intervals",
                    "of the partition that is furthest behind",
                    "none",
                    (f"max by (stage) (susurrus_partition_lag_intervals{{{_OURS}}})", "{{stage}}"),
                ),
                _lines(
                    "Rows published",
                    "public already",
                    "short",
                    (f'sum(rate(susurrus_stage_total{{{_OURS},total="rows"}}[$__rate_interval]))', "rows a second"),
                ),
            ],
        ),
        (
            "From window to window",
            [
                _lines(
                    "Remembered keys",
                    "that the newest window has of the one before it; public. A fall says that today's keys are others",
                    "short",
                    (
                        f"sum by (pipeline) (max by (pipeline, partition) (susurrus_release_remembered_keys{{{_OURS}}}))",
                        "{{pipeline}}",
                    ),
                ),
                _lines(
                    "kappa",
                    "the part of an earlier window that had lasted, which shares of the budget follow; public",
                    "percentunit",
                    (f"max by (pipeline) (susurrus_release_persistence{{{_OURS}}})", "{{pipeline}}"),
                ),
            ],
        ),
        (
            "Time",
            [
                _lines("Release", "to compute and commit one", "s", *_quantiles("susurrus_release_duration_seconds")),
                _lines("Transaction", "committed", "s", *_quantiles("susurrus_transaction_duration_seconds")),
                _lines(
                    "Transactions",
                    "by outcome; aborted ones are read again",
                    "ops",
                    (f"sum by (outcome) (rate(susurrus_transactions_total{{{_OURS}}}[$__rate_interval]))", "{{outcome}}"),
                ),
                _lines(
                    "Rebalances",
                    "of each worker",
                    "short",
                    (f"increase(susurrus_worker_rebalances_total{{{_OURS}}}[$__rate_interval])", "{{instance}}"),
                ),
            ],
        ),
        (
            "Records",
            [
                _lines(
                    "Read",
                    "by the first stage",
                    "reqps",
                    (f'sum by (stage) (rate(susurrus_stage_total{{{_OURS},total="in"}}[$__rate_interval]))', "{{stage}}"),
                ),
                _lines(
                    "Not counted",
                    "late, over a cap, filtered out, bad",
                    "reqps",
                    (
                        f'sum by (total) (rate(susurrus_stage_total{{{_OURS},total=~"late|capped|filtered|dead_letter"}}'
                        "[$__rate_interval]))",
                        "{{total}}",
                    ),
                ),
                _lines(
                    "Dead letters",
                    "by reason",
                    "reqps",
                    (f"sum by (reason) (rate(susurrus_dead_letters_total{{{_OURS}}}[$__rate_interval]))", "{{reason}}"),
                ),
            ],
        ),
        (
            "Privacy",
            [
                _lines(
                    "Epsilon charged",
                    "added up over the windows: an upper bound for a user who was active in all of them",
                    "none",
                    (f"max by (pipeline) (susurrus_privacy_epsilon_charged_total{{{_OURS}}})", "{{pipeline}}"),
                ),
                _lines(
                    "mu charged",
                    "of a user who was active in every window; it composes exactly",
                    "none",
                    (f"sqrt(max by (pipeline) (susurrus_privacy_mu_squared_charged_total{{{_OURS}}}))", "{{pipeline}}"),
                ),
            ],
        ),
        (
            "Budget",
            [
                _lines(
                    "Windows left",
                    "that [budget] still allows",
                    "none",
                    (f"min by (pipeline) (susurrus_privacy_budget_windows_left{{{_OURS}}})", "{{pipeline}}"),
                ),
                _lines(
                    "Budget spent",
                    "share of [budget], by all pipelines on the raw topic; at 1 nothing more is published, or windows are skipped",
                    "percentunit",
                    (f"max by (pipeline) (susurrus_privacy_budget_share_spent{{{_OURS}}})", "{{pipeline}}"),
                ),
                _lines(
                    "Time until the budget ends",
                    "if every pipeline on the raw topic goes on, or until a window is skipped (budget.per); empty without "
                    "[budget] and for archives",
                    "s",
                    (f"min by (pipeline) (susurrus_privacy_budget_ends_seconds{{{_OURS}}}) - time()", "{{pipeline}}"),
                    (
                        f"min by (pipeline) (susurrus_privacy_budget_skips_seconds{{{_OURS}}}) - time()",
                        "{{pipeline}}: one is skipped",
                    ),
                ),
            ],
        ),
        (
            "Machines",
            [
                _lines("Memory", "", "bytes", (_of_process("process_resident_memory_bytes"), "{{instance}}")),
                _lines("Local stores", "on the disk", "bytes", (f"sum by (stage) (susurrus_store_bytes{{{_OURS}}})", "{{stage}}")),
                _lines("Disk free", "", "bytes", (f"susurrus_worker_disk_free_bytes{{{_OURS}}}", "{{instance}}")),
                _lines(
                    "Open files",
                    "share of the limit",
                    "percentunit",
                    (f"{_of_process('process_open_fds')} / {_of_process('process_max_fds')}", "{{instance}}"),
                ),
            ],
        ),
    ]  # fmt: skip


def _of_process(metric: str) -> str:
    """A process_* metric, which has no label of the pipeline, for the workers of the chosen ones."""
    return f"({metric} and on (instance) susurrus_worker_info{{{_OURS}}})"


def _quantiles(metric: str) -> Sequence[Query]:
    rate = f"sum by (stage, le) (rate({metric}_bucket{{{_OURS}}}[1h]))"  # releases may be a quarter of an hour apart
    return [(f"histogram_quantile({share}, {rate})", f"{{{{stage}}}} {share:.0%}") for share in (0.5, 0.95)]


def _query(expression: str, legend: str, number: int) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))


def _lines(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    panel = timeseries.Panel().title(title).description(description).unit(unit).datasource(_SOURCE).min(0).height(8)
    for number, (expression, legend) in enumerate(queries):
        panel.with_target(_query(expression, legend, number))
    return panel


def _number(title: str, description: str, unit: str, expression: str, *, red_from: float | None = None) -> stat.Panel:
    panel = stat.Panel().title(title).description(description).unit(unit).datasource(_SOURCE).height(4)
    steps = [Threshold(value=None, color="green")]
    if red_from is not None:
        steps.append(Threshold(value=red_from, color="red"))
    limits = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    return panel.thresholds(limits).graph_mode(BigValueGraphMode.NONE).with_target(_query(expression, "", 0))


def build() -> str:
    """The dashboard as Grafana imports it."""
    made = (
        dashboard.Dashboard("Susurrus")
        .uid("susurrus")
        .description("Workers of Susurrus. Exact totals of raw data: for operators only.")
        .tags(["susurrus"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("pipeline")
            .label("Pipeline")
            .datasource(_SOURCE)
            .query("label_values(susurrus_worker_info, pipeline)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
        )
    )
    number = count(1)
    for title, row in panels():
        made.with_row(dashboard.Row(title).id(next(number)))
        for panel in row:
            made.with_panel(panel.id(next(number)).span(_COLUMNS // len(row)))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


if __name__ == "__main__":
    FILE.write_text(build(), encoding="utf-8")
