"""A worker's pages for operators: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for whatever restarts workers, and
``/`` in words.

They show exact totals and positions, which nobody outside may see (a total beside a noisy one gives the noise away): internal,
on loopback unless ``worker.web_host`` says otherwise. No user, no key, and no figure of a single key is among them.

Python's own HTTP server and the text format by hand: every figure already lives in a task, so a metrics library would add a
dependency and a second copy of each figure and take no code away. A thread of its own, so that a page also answers while the
event loop hangs: that is what /healthz is for.
"""

import http.server
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from susurrus.agents.logs import describe
from susurrus.agents.supervisor import Supervisor
from susurrus.agents.task import PartitionTask
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import ConfigurationError

log = logging.getLogger(__name__)

STATES: Final = ("starting", "running", "stalled", "refused", "moved", "stopped")
_REQUEST_SECONDS: Final = 5.0
_STARTED: Final = time.time()
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TEXT_TYPE: Final = "text/plain; charset=utf-8"

Sample = tuple[dict[str, str], float]


class Pages:
    """What the pages say, from the supervisor's tasks as they are at this moment. calendar: of histograms; other kinds
    of pipeline have other slots or none."""

    def __init__(self, supervisor: Supervisor, calendar: Calendar | None, *, pipeline: str) -> None:
        self._supervisor = supervisor
        self._calendar = calendar
        self._pipeline = pipeline

    def page(self, path: str) -> tuple[int, str, str] | None:
        """(status, content type, text), or None for a page that does not exist."""
        if path == "/metrics":
            return 200, _METRICS_TYPE, self.metrics()
        if path == "/":
            return 200, _TEXT_TYPE, self.words()
        if path in ("/healthz", "/readyz"):
            problem = self._supervisor.unhealthy() or (self._supervisor.unready() if path == "/readyz" else None)
            return (503 if problem else 200), _TEXT_TYPE, (problem or "ok") + "\n"
        return None

    def metrics(self) -> str:
        """Prometheus' text format, version 0.0.4."""
        return "".join(self._families())

    def words(self) -> str:
        """One line a partition."""
        supervisor = self._supervisor
        lines = [f"{self._pipeline}: worker {supervisor.worker}, generation {supervisor.generation}"]
        for task in self._tasks():
            facts = task.report()
            reason = task.stall()
            lines.append(
                f"{task.name}: {_state(task, reason)}, position {facts['position']}, slot {facts.get('slot', '-')}"
                + (f", {reason}" if reason else "")
            )
        return "\n".join(lines) + "\n"

    def _tasks(self) -> list[PartitionTask]:
        return [task for _, task in sorted(self._supervisor.tasks.items())]

    def _families(self) -> Iterator[str]:
        supervisor, tasks = self._supervisor, self._tasks()
        places = {task: {"stage": task.stage_name, "partition": str(task.partition)} for task in tasks}
        reports = {task: task.report() for task in tasks}
        stalls = {task: task.stall() for task in tasks}

        def each(value: Callable[[PartitionTask], float | None]) -> list[Sample]:
            return [(places[task], found) for task in tasks if (found := value(task)) is not None]

        def closed_until(task: PartitionTask) -> float | None:
            slot = reports[task].get("slot")
            return None if slot is None or self._calendar is None else self._calendar.boundary(slot) / 1000

        worker = {"pipeline": self._pipeline, "worker": supervisor.worker}
        yield _family("susurrus_worker_info", "gauge", "Always 1; the labels tell who this is.", [(worker, 1)])
        yield _family(
            "susurrus_worker_generation", "gauge", "The consumer group's generation.", [({}, supervisor.generation)]
        )
        states = [
            ({**places[task], "state": state}, float(_state(task, stalls[task]) == state))
            for task in tasks
            for state in STATES
        ]
        yield _family("susurrus_partition_state", "gauge", "1 for the state a partition's task is in.", states)
        yield _family(
            "susurrus_partition_position",
            "gauge",
            "Input offset of the last commit.",
            each(lambda task: None if task.position < 0 else task.position),
        )
        yield _family(
            "susurrus_partition_closed_until_seconds",
            "gauge",
            "Unix time up to which the partition has closed its triggers.",
            each(closed_until),
        )
        now = time.monotonic()
        yield _family(
            "susurrus_partition_seconds_since_commit",
            "gauge",
            "Seconds since this worker's last commit for the partition.",
            each(lambda task: None if task.committed_at is None else now - task.committed_at),
        )
        totals = [
            ({**places[task], "total": name}, float(value))
            for task in tasks
            for name, value in sorted(task.committed_counters.items())
        ]
        yield _family("susurrus_stage_total", "counter", "Totals of a partition's life, as committed.", totals)
        yield from _process()


def _state(task: PartitionTask, stalled: str | None) -> str:
    return "stalled" if task.state == "running" and stalled else task.state


def _family(name: str, kind: str, text: str, samples: list[Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(str(shown))}"' for label, shown in labels.items())
        lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _process() -> Iterator[str]:
    """By the names that Prometheus' own clients use. Memory and files only where there is /proc."""
    yield _family(
        "process_cpu_seconds_total", "counter", "Processor time, user and system.", [({}, time.process_time())]
    )
    yield _family("process_start_time_seconds", "gauge", "Unix time of the start.", [({}, _STARTED)])
    try:
        size, resident = Path("/proc/self/statm").read_text().split()[:2]
        files = len(os.listdir("/proc/self/fd"))
    except OSError:
        return
    page = os.sysconf("SC_PAGE_SIZE")
    yield _family("process_virtual_memory_bytes", "gauge", "Virtual memory.", [({}, int(size) * page)])
    yield _family("process_resident_memory_bytes", "gauge", "Resident memory.", [({}, int(resident) * page)])
    yield _family("process_open_fds", "gauge", "Open file descriptors.", [({}, files)])


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS  # a client that says nothing does not keep its thread
    server_version, sys_version = "susurrus", ""
    server: "WebServer"

    def do_GET(self) -> None:
        try:
            found = self.server.pages.page(self.path.partition("?")[0])
        except Exception as error:
            log.warning("page: %s", describe(error))
            found = 500, _TEXT_TYPE, "see the worker's log\n"
        status, kind, text = found or (404, _TEXT_TYPE, "here are /, /metrics, /healthz and /readyz\n")
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""


class WebServer(http.server.ThreadingHTTPServer):
    """Serves the pages until it is closed; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, pages: Pages, *, host: str, port: int) -> None:
        self.pages = pages
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f'worker.web_port = {port}: cannot listen on "{host}" ({error.strerror}); give every worker of a machine a port '
                "of its own (SUSURRUS__WORKER__WEB_PORT), or 0 for no pages"
            ) from None
        self._thread = threading.Thread(target=self.serve_forever, name="web", daemon=True)
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no news; everything else is caught by the handler."""

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()
