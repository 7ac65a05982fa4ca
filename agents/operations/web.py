"""A worker's pages for operators: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for the service that restarts
workers, and ``/`` for people, as lines of text.

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
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from susurrus.agents.config.settings import Settings
from susurrus.agents.connections import Connections
from susurrus.agents.logs import SILENT, describe
from susurrus.agents.operations import compiled
from susurrus.agents.operations.metrics import state_of
from susurrus.agents.runtime.host import CONNECTIONS
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.mechanisms.errors import ConfigurationError

log = logging.getLogger(__name__)

CONNECTION_SECONDS: Final = 5.0
"""How long a request may take, and then its answer, also where the client writes or reads slowly."""
_BACKLOG: Final = 16
_LINE_BYTES: Final = 2048
_HEADERS: Final = 64
PAGES: Final = ("/", "/metrics", "/healthz", "/readyz")
_TEXT_TYPE: Final = "text/plain; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"
_FORMATS: Final = {"text": choose_encoder(""), "openmetrics": choose_encoder(f"{_OPENMETRICS}; version=1.0.0")}
"""How /metrics is written, and its content type. Two formats are enough, so that a client cannot ask for a thread of its own."""

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    return host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]


def _format(request: web.BaseRequest) -> str:
    asks = request.path == "/metrics" and _OPENMETRICS in request.headers.get("Accept", "")
    return "openmetrics" if asks else "text"


class Pages:
    """What the pages say, from the supervisor's tasks as they are at this moment. registry: what /metrics shows."""

    def __init__(self, supervisor: Supervisor, registry: CollectorRegistry, settings: Settings) -> None:
        self._supervisor = supervisor
        self._registry = registry
        self._settings = settings

    def page(self, path: str, form: str = "text") -> tuple[int, str, str]:
        """(status, content type, text) of one of PAGES. form: "text", and of /metrics also "openmetrics"."""
        if path == "/metrics":
            encode, kind = _FORMATS[form]
            return 200, kind, encode(self._registry).decode()
        if path == "/":
            return 200, _TEXT_TYPE, self.words()
        health = self._supervisor.health
        problem = health.unhealthy() or (health.unready() if path == "/readyz" else None)
        return (503 if problem else 200), _TEXT_TYPE, (problem or "ok") + "\n"

    def words(self) -> str:
        """Two lines about the worker, and one for each partition."""
        supervisor = self._supervisor
        lines = [f"{self._settings.application}: worker {supervisor.worker}, generation {supervisor.group.generation}"]
        lines.append(str(compiled.finding()))
        if supervisor.health.waits_for:
            lines.append(f"not started yet: {supervisor.health.waits_for}")
        for _, task in sorted(supervisor.group.tasks.items()):
            facts, (topic, partition) = task.report(), task.context.place
            reason = task.stall()
            lines.append(
                f"{task.name} ({topic} {partition}): {state_of(task, reason)}, "
                f"position {facts['position']}, interval {facts.get('interval', '-')}"
                + "".join(f", {name} {value:g}" for name, value in facts.get("gauges", {}).items())
                + (f", {reason}" if reason else "")
            )
        return "\n".join(lines) + "\n"


class WebServer:
    """Serves the pages until it is closed; port 0 takes a free one. Raises ConfigurationError where it cannot listen."""

    def __init__(self, pages: Pages, *, host: str, port: int) -> None:
        self._pages = pages
        self._loopback = host in LOOPBACK
        self._connections = Connections(most=CONNECTIONS, seconds=lambda: CONNECTION_SECONDS)
        self._under_way: dict[tuple[str, str], asyncio.Future[tuple[int, str, str]]] = {}
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f'worker.web_port = {port}: cannot listen on "{host}" ({error.strerror})',
                "give every worker of a machine a port of its own (SUSURRUS__WORKER__WEB_PORT), or 0 for no pages",
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
        server = await self._loop.create_server(
            lambda: self._connections.watched(http()), sock=self._socket, backlog=_BACKLOG
        )
        await self._closed.wait()
        server.close()
        self._connections.close()
        await server.wait_closed()
        await http.shutdown(0.0)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        headers = {"Cache-Control": "no-store", "Server": "susurrus", "X-Content-Type-Options": "nosniff"}
        if self._loopback and _name_of(request.host) not in LOOPBACK:
            # A page of another site, open in an operator's browser, could have its name point here and read what this answers.
            status, kind, text = 421, _TEXT_TYPE, "ask for localhost, 127.0.0.1 or [::1]\n"
        elif request.method in ("GET", "HEAD"):
            with self._connections.answering(request.transport):
                status, kind, text = await self._page(request.path, _format(request))
        else:
            headers["Allow"] = "GET, HEAD"
            status, kind, text = 405, _TEXT_TYPE, "only GET and HEAD\n"
        answer = web.Response(status=status, body=text.encode(), headers=headers | {"Content-Type": kind})
        answer.force_close()
        return answer

    async def _page(self, path: str, form: str) -> tuple[int, str, str]:
        """Makes a page in at most one thread for each page and format, also where many ask for it: /healthz waits for a loop that
        hangs."""
        if path not in PAGES:
            return 404, _TEXT_TYPE, "here are /, /metrics, /healthz and /readyz\n"
        asked = path, form
        if asked not in self._under_way:
            made = self._under_way[asked] = self._loop.run_in_executor(None, self._made, *asked)
            made.add_done_callback(lambda _: self._under_way.pop(asked))
        return await asyncio.shield(self._under_way[asked])

    def _made(self, path: str, form: str) -> tuple[int, str, str]:
        try:
            return self._pages.page(path, form)
        except Exception as error:
            log.warning("page: %s", describe(error))
            return 500, _TEXT_TYPE, "see the worker's log\n"
