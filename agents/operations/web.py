"""A worker's pages for operators: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for the service that restarts
workers, and ``/`` for people.

They show exact totals and positions, which the public must not see: an exact total beside a noisy one reveals the noise. So they
are on loopback unless ``worker.web_host`` says otherwise. They show no user, no key, and no figure of a single key.

aiohttp serves and prometheus_client writes the text format (decision 16); both read the tasks at the moment of the request. The
server has a thread and an event loop of its own, so that a page also answers while the worker's loop hangs: that is what /healthz
is for. A worker needs its sockets for Kafka, so the pages have a fixed number of them, each for a short time.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from susurrus.agents.logs import SILENT, describe
from susurrus.agents.runtime.host import CONNECTIONS
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.agents.runtime.task import PartitionTask
from susurrus.mechanisms.calendar import Calendar
from susurrus.mechanisms.errors import ConfigurationError

log = logging.getLogger(__name__)

STATES: Final = ("starting", "running", "stalled", "refused", "fenced", "stopped")
CONNECTION_SECONDS: Final = 5.0
"""How long a connection may last, also where the client writes or reads slowly."""
_BACKLOG: Final = 16
_LINE_BYTES: Final = 2048
_HEADERS: Final = 64
PAGES: Final = ("/", "/metrics", "/healthz", "/readyz")
_PLACE: Final = ("stage", "partition")
_METRICS: Final = {
    "susurrus_worker_info": ("Always 1; the labels say who this is.", ("pipeline", "worker")),
    "susurrus_worker_generation": ("The consumer group's generation.", ()),
    "susurrus_partition_state": ("1 for the state a partition's task is in.", (*_PLACE, "state")),
    "susurrus_partition_position": ("Input offset of the last commit.", _PLACE),
    "susurrus_partition_closed_until_seconds": ("Unix time up to which the partition has closed its triggers.", _PLACE),
    "susurrus_partition_seconds_since_commit": ("Seconds since this worker's last commit for the partition.", _PLACE),
    "susurrus_stage_total": ("Totals of a partition's life, as committed.", (*_PLACE, "total")),
}
"""Help text and labels of every metric. What ends in _total is a counter, all others are gauges."""
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TEXT_TYPE: Final = "text/plain; charset=utf-8"


class Pages:
    """What the pages say, from the supervisor's tasks as they are at this moment. calendar: of the intervals that stages close."""

    def __init__(self, supervisor: Supervisor, calendar: Calendar, *, pipeline: str) -> None:
        self._supervisor = supervisor
        self._calendar = calendar
        self._pipeline = pipeline
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self, path: str) -> tuple[int, str, str]:
        """(status, content type, text) of one of PAGES."""
        if path == "/metrics":
            return 200, _METRICS_TYPE, self.metrics()
        if path == "/":
            return 200, _TEXT_TYPE, self.words()
        problem = self._supervisor.unhealthy() or (self._supervisor.unready() if path == "/readyz" else None)
        return (503 if problem else 200), _TEXT_TYPE, (problem or "ok") + "\n"

    def metrics(self) -> str:
        """Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks a collector for."""
        values = self._values()
        for name, (text, labels) in _METRICS.items():
            family = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, text, labels=labels)
            for said, value in values[name].items():
                if value is not None:
                    family.add_metric(said, float(value))
            yield family

    def words(self) -> str:
        """One line a partition."""
        supervisor = self._supervisor
        lines = [f"{self._pipeline}: worker {supervisor.worker}, generation {supervisor.generation}"]
        if supervisor.waits_for:
            lines.append(f"not started yet: {supervisor.waits_for}")
        for task in self._tasks():
            facts = task.report()
            reason = task.stall()
            lines.append(
                f"{task.name}: {_state(task, reason)}, position {facts['position']}, interval {facts.get('interval', '-')}"
                + (f", {reason}" if reason else "")
            )
        return "\n".join(lines) + "\n"

    def _tasks(self) -> list[PartitionTask]:
        return [task for _, task in sorted(self._supervisor.tasks.items())]

    def _values(self) -> Mapping[str, Mapping[tuple[str, ...], float | None]]:
        """By name of the metric and what its labels say; None is left out."""
        supervisor = self._supervisor
        tasks = {(task.stage_name, str(task.partition)): task for task in self._tasks()}
        states = {place: _state(task, task.stall()) for place, task in tasks.items()}
        closed = {place: task.report().get("interval") for place, task in tasks.items()}
        now = time.monotonic()
        return {
            "susurrus_worker_info": {(self._pipeline, supervisor.worker): 1},
            "susurrus_worker_generation": {(): supervisor.generation},
            "susurrus_partition_state": {(*at, name): states[at] == name for at in tasks for name in STATES},
            "susurrus_partition_position": {at: t.position if t.position >= 0 else None for at, t in tasks.items()},
            "susurrus_partition_closed_until_seconds": {
                at: None if last is None else self._calendar.boundary(last) / 1000 for at, last in closed.items()
            },
            "susurrus_partition_seconds_since_commit": {
                at: None if t.committed_at is None else now - t.committed_at for at, t in tasks.items()
            },
            "susurrus_stage_total": {
                (*at, name): total for at, t in tasks.items() for name, total in sorted(t.committed_counters.items())
            },
        }


def _state(task: PartitionTask, stalled: str | None) -> str:
    return "stalled" if task.state == "running" and stalled else task.state


class WebServer:
    """Serves the pages until it is closed; port 0 takes a free one. Raises ConfigurationError where it cannot listen."""

    def __init__(self, pages: Pages, *, host: str, port: int) -> None:
        self._pages = pages
        self._under_way: dict[str, asyncio.Future[tuple[int, str, str]]] = {}
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f'worker.web_port = {port}: cannot listen on "{host}" ({error.strerror}); give every worker of a machine a port '
                "of its own (SUSURRUS__WORKER__WEB_PORT), or 0 for no pages"
            ) from None
        self.server_port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and close open connections."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        http = web.Server(
            self._answer,
            access_log=None,  # neither requests nor clients that send no HTTP are worth a line
            logger=SILENT,
            keepalive_timeout=0.0,
            lingering_time=0.0,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
            max_headers=_HEADERS,
        )
        connections: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        server = await self._loop.create_server(
            lambda: _Connection(http(), connections), sock=self._socket, backlog=_BACKLOG
        )
        await self._closed.wait()
        server.close()
        for transport in list(connections):
            transport.abort()
        await server.wait_closed()
        await http.shutdown(0.0)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        headers = {"Cache-Control": "no-store", "Server": "susurrus"}
        if request.method in ("GET", "HEAD"):
            status, kind, text = await self._page(request.path)
        else:
            headers["Allow"] = "GET, HEAD"
            status, kind, text = 405, _TEXT_TYPE, "only GET and HEAD\n"
        answer = web.Response(status=status, body=text.encode(), headers=headers | {"Content-Type": kind})
        answer.force_close()
        return answer

    async def _page(self, path: str) -> tuple[int, str, str]:
        """At most one thread for each page, also where many ask for it: /healthz waits for a loop that hangs."""
        if path not in PAGES:
            return 404, _TEXT_TYPE, "here are /, /metrics, /healthz and /readyz\n"
        if path not in self._under_way:
            made = self._under_way[path] = self._loop.run_in_executor(None, self._made, path)
            made.add_done_callback(lambda _: self._under_way.pop(path))
        return await asyncio.shield(self._under_way[path])

    def _made(self, path: str) -> tuple[int, str, str]:
        try:
            return self._pages.page(path)
        except Exception as error:
            log.warning("page: %s", describe(error))
            return 500, _TEXT_TYPE, "see the worker's log\n"


class _Connection(asyncio.Protocol):
    """One connection of aiohttp's, among those that are open: counted, and cut off when its time is over.

    aiohttp limits neither (its time-outs are about keep-alive only); both belong to the transport, so its own protocol is
    left as it is and only watched.
    """

    def __init__(self, http: asyncio.Protocol, connections: dict[asyncio.Transport, asyncio.TimerHandle]) -> None:
        self._http = http
        self._connections = connections
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        while len(self._connections) >= CONNECTIONS:
            self._close(next(iter(self._connections)))
        self._transport = transport
        self._connections[transport] = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self._close, transport)
        self._http.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport in self._connections:
            self._connections.pop(self._transport).cancel()
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def _close(self, transport: asyncio.Transport) -> None:
        if transport in self._connections:
            self._connections.pop(transport).cancel()
            transport.abort()
