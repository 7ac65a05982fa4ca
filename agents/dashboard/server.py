"""Serves the page and its answers: GET and HEAD alone, no cookies, no state of any visitor.

    /                    the page            /assets/NAME       its files
    /api/state           at every refresh    /api/QUESTION?…    what a board answers
    /healthz             for whoever restarts dashboards

The page refreshes by asking for the state with the ETag that it has: 304 means that nothing has changed. Every proxy passes that
on, which is not true of streams of events. On loopback, a request for another host name is refused: a page of another site could
otherwise let its own name lead here, and read the answers in a visitor's browser (DNS rebinding).
"""

import asyncio
import hashlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from aiohttp import web

from susurrus.agents.connections import Connections
from susurrus.agents.dashboard.assets import NO_PLOTLY, PLOTLY, Asset, own_assets, plotly_asset
from susurrus.agents.dashboard.feed import Feed
from susurrus.agents.display.board import BadQuestion
from susurrus.agents.logs import SILENT, describe
from susurrus.mechanisms.errors import ConfigurationError

log = logging.getLogger(__name__)

CONNECTIONS: Final = 128
"""The most connections at a time. A browser opens six for a page, and then one that asks every two seconds."""
CONNECTION_SECONDS: Final = 60.0
"""A connection lives so long from its beginning, and again from each whole request on. The largest answer has 5 MB (plotly, to a
client without gzip)."""
IDLE_SECONDS: Final = 15.0
"""How long a connection may rest after an answer."""
_BACKLOG: Final = 64
_ANSWERS_AT_A_TIME: Final = 2
_STOP_SECONDS: Final = 1.0
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # plotly positions its texts by style attributes
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Server": "susurrus",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class DashboardServer:
    """Serves one feed in a thread of its own until it is closed. port 0 takes a free one.

    allowed: host names, beside the loopback names and ``host``, that requests may ask for. Elsewhere than on loopback every name is
    allowed, unless some are given. Raises ConfigurationError where it cannot listen.
    """

    def __init__(self, feed: Feed, *, host: str, port: int, allowed: Iterable[str] = ()) -> None:
        self._feed = feed
        self._allowed = _allowed(host, list(allowed))
        self._assets = own_assets()
        plotly = plotly_asset()
        self.charts = plotly is not None
        """Whether plotly is installed. Without it the page has tables and no charts."""
        self._assets[PLOTLY] = plotly or NO_PLOTLY
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f'--port {port}: cannot listen on "{host}" ({error.strerror}); give another --port or --host'
            ) from None
        self.port: int = self._socket.getsockname()[1]
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/"
        self._connections = Connections(most=CONNECTIONS, seconds=lambda: CONNECTION_SECONDS)
        self._answering = ThreadPoolExecutor(_ANSWERS_AT_A_TIME, "dashboard-answer")
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard-web", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and close open connections."""
        if self._thread.is_alive():
            self._ready.wait()
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join()
        self._socket.close()
        self._answering.shutdown(cancel_futures=True)

    def application(self) -> web.Application:
        """The routes, for an aiohttp server."""
        application = web.Application(middlewares=[self._guard], logger=SILENT)
        application.on_response_prepare.append(_headers)
        application.router.add_get("/", self._page)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/assets/{name}", self._asset)
        application.router.add_get("/api/state", self._state)
        application.router.add_get("/api/{question}", self._answer)
        return application

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._closed = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            handle_signals=False,
            # What a visitor who has gone would have got is not computed: questions must not pile up before the threads.
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=0.0,  # a body is not waited for: nothing that is answered has one
            shutdown_timeout=_STOP_SECONDS,
        )
        await runner.setup()
        http = runner.server
        assert http is not None  # after its set-up
        server = await self._loop.create_server(
            lambda: self._connections.watched(http()), sock=self._socket, backlog=_BACKLOG
        )
        await self._closed.wait()
        server.close()
        await runner.cleanup()
        self._connections.close()

    # ---- requests ----------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.path != "/healthz" and self._allowed is not None and _name(request.host) not in self._allowed:
            return web.Response(
                status=421, text="This dashboard does not go by that host name; start it with --allow-host.\n"
            )
        try:
            with self._connections.answering(request.transport):
                return await handler(request)
        except web.HTTPException as known:
            return web.Response(status=known.status, text=f"{known.status} {known.reason}\n", headers=_allow(known))
        except Exception as error:
            log.warning("page: %s", describe(error))
            return web.Response(status=500, text="see the dashboard's log\n")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _page(self, request: web.Request) -> web.Response:
        return _file(request, self._assets["index.html"])

    async def _asset(self, request: web.Request) -> web.Response:
        asset = self._assets.get(request.match_info["name"])
        if asset is None:
            raise web.HTTPNotFound
        return _file(request, asset)

    async def _state(self, request: web.Request) -> web.Response:
        body = await self._computed(lambda: {"charts": self.charts, **self._feed.state()})
        etag = hashlib.blake2b(body, digest_size=12).hexdigest()
        if etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers={"ETag": f'"{etag}"'})
        return _json(request, body, {"ETag": f'"{etag}"'})

    async def _answer(self, request: web.Request) -> web.Response:
        question, query = request.match_info["question"], dict(request.query)
        try:
            body = await self._computed(lambda: self._feed.answer(question, query))
        except BadQuestion as error:
            return web.json_response({"error": str(error)}, status=400)
        return _json(request, body, {})

    async def _computed(self, compute: Callable[[], object]) -> bytes:
        """Computes an answer in a thread: one about 100,000 keys takes tens of milliseconds, and the loop must go on."""
        return await asyncio.get_running_loop().run_in_executor(self._answering, lambda: msgspec.json.encode(compute()))


def _allowed(host: str, names: list[str]) -> set[str] | None:
    """The names that requests may ask for; None for every name."""
    loopback = {"localhost", "127.0.0.1", "::1"}
    if not names and not _is_loopback(host):
        return None
    return {each.lower() for each in (*loopback, host, *names)}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host: str) -> str:
    """The name of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _allow(known: web.HTTPException) -> dict[str, str]:
    return {"Allow": "GET, HEAD"} if known.status == 405 else {}


async def _headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")


def _file(request: web.Request, asset: Asset) -> web.Response:
    """The file, or 304. A browser asks each time, and gets the file only where it has changed."""
    headers = {"ETag": f'"{asset.etag}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if asset.etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    data = asset.data
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], data = "gzip", asset.compressed
    return web.Response(body=data, headers={**headers, "Content-Type": asset.content_type})


def _json(request: web.Request, body: bytes, headers: dict[str, str]) -> web.Response:
    answer = web.Response(body=body, headers={**headers, "Content-Type": "application/json"})
    if len(body) > 2048:
        answer.enable_compression()
    return answer
