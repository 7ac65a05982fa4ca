"""Web servers of a few lines, on loopback: what each request is answered is a call."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import NamedTuple


@dataclass(frozen=True)
class Request:
    """What is asked. path: with the query."""

    method: str
    path: str
    headers: Message
    body: bytes


class Answer(NamedTuple):
    """What is answered."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {"Content-Type": "application/json"}


@contextlib.contextmanager
def answering(answer: Callable[[Request], tuple[int, bytes] | Answer], port: int = 0) -> Iterator[str]:
    """The server's address, for the block. port: 0 for any that is free."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = Answer(*answer(Request(self.command, self.path, self.headers, body)))
            self.send_response(given.status)
            for name, value in {**given.headers, "Content-Length": str(len(given.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815  (the names of http.server)

        def log_message(self, format: str, *arguments: object) -> None:
            """Silence."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
