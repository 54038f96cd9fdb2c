"""A server of pages on this machine alone: it reads, and has no address that writes."""

import logging
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from depthbench.errors import DepthbenchError
from depthbench.serve.pages import Answer, Pages, one_line

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
NAMES = (HOST, "localhost")


class Server(ThreadingHTTPServer):
    """Bound to the loopback interface."""

    daemon_threads = True

    def __init__(self, pages: Pages, port: int) -> None:
        """``port`` 0 takes a free one. Raises `DepthbenchError` for one that is taken."""
        self.pages = pages
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise DepthbenchError(
                f"port = {port} cannot be used: {error.strerror}. "
                "Name another one, or --port 0 for any that is free"
            ) from None

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line, without a traceback; nothing of a reader that has gone."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            logger.error("a request failed: %s", one_line(f"{type(error).__name__}: {error}"))


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD; everything else is refused."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "depthbench"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(self._answer(), body=True)

    def do_HEAD(self) -> None:
        self._send(self._answer(), body=False)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Without the traceback or the echo of what was asked."""
        self._send(Answer(b"refused\n", "text/plain", 405 if code == 501 else code), body=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a page that polls would fill the terminal."""

    def _answer(self) -> Answer:
        # a page of another site whose name resolves to this machine must not read the studies
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in NAMES:
            return Answer(b"refused\n", "text/plain", 403)
        try:
            path = urlsplit(self.path).path
        except ValueError:
            # such as http://[/
            return Answer(b"refused\n", "text/plain", 400)
        parts = tuple(unquote(one) for one in path.split("/") if one)
        if ".." in parts or any("\0" in one or "/" in one for one in parts):
            return Answer(b"refused\n", "text/plain", 400)
        return self.server.pages.answer(parts, slash=path.endswith("/"))

    def _send(self, answer: Answer, *, body: bool) -> None:
        self.send_response(answer.status)
        if answer.place is not None:
            self.send_header("Location", answer.place)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        try:
            self.end_headers()
            if body:
                self.wfile.write(answer.body)
        except ConnectionError:
            # the reader has gone: nobody to tell
            return
