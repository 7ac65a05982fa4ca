"""One worker process: looks whether Kafka has what it needs, serves pages, and runs the pipeline."""

import logging
import sys
from collections.abc import Callable
from typing import Any

from susurrus.agents import logs
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import refuse
from susurrus.agents.kafka import profiles
from susurrus.agents.operations import compiled
from susurrus.agents.operations.metrics import registry_of
from susurrus.agents.operations.probe import wait_until_ready
from susurrus.agents.operations.web import LOOPBACK, Pages, WebServer
from susurrus.agents.runtime import host
from susurrus.agents.runtime.faust.worker import build_app, run
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.agents.runtime.threads import check_threads

log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter's lock while others want it; Python's own 5 ms is meant for throughput. A transaction
takes the lock a dozen times, and each time it would wait so long for another partition that computes."""


def run_worker(
    pipeline: Pipeline[Any],
    *,
    loglevel: str | None = None,
    log_format: logs.LogFormat | None = None,
    ready: Callable[[Supervisor], None] | None = None,
) -> None:
    """Run one worker process until SIGTERM or SIGINT; ends with SystemExit, whose code is 0 after an orderly stop
    (agents/runtime/ending.py has the others).

    Must be called from the main thread of its process. ``ready`` is called with the supervisor before the worker
    starts. Waits for brokers and topics, and says so on its pages (agents/operations/probe.py). Raises ConfigurationError for
    what an operator must fix first, and Refusal where the pipeline exists with another configuration or secret.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    settings = pipeline.settings
    level = (loglevel or settings.worker.log_level).upper()
    logs.configure(level, log_format or settings.worker.log_format)
    refuse(profiles.refusals(settings))  # in the group, one client after the other would fail
    for found in (*pipeline.promise_findings(), *settings.findings(), *profiles.findings(settings), compiled.finding()):
        log.log(logging.INFO if found.level == "ok" else logging.WARNING, "%s", found)
    stages = len(pipeline.stages)
    host.raise_file_limit(stages, stages=stages, brokers=1)
    check_threads(stages, stages=stages, brokers=1)
    with host.data_directory(settings.worker.data_directory):
        app, supervisor = build_app(pipeline)
    web = _web_server(settings, supervisor)
    try:
        cluster = wait_until_ready(pipeline, supervisor.wait_for)
        host.raise_file_limit(cluster.partitions, stages=stages, brokers=cluster.brokers)
        check_threads(cluster.partitions, stages=stages, brokers=cluster.brokers)
        supervisor.admit()
        if ready is not None:
            ready(supervisor)
        run(app, supervisor, level)
    finally:
        if web is not None:
            web.close()


def _web_server(settings: Settings, supervisor: Supervisor) -> WebServer | None:
    """The worker's pages, where a port is configured."""
    host, port = settings.worker.web_host, settings.worker.web_port
    if not port:
        return None
    if host not in LOOPBACK:
        log.warning("pages on %s:%d show exact totals: keep them inside, they are not for the public", host, port)
    pages = Pages(supervisor, registry_of(supervisor, settings), settings)
    return WebServer(pages, host=host, port=port)
