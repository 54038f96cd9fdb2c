"""A server of pages on this machine alone: it reads, and has no address that writes."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from depthbench.errors import DepthbenchError
from depthbench.serve.pages import Answer, Pages

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
        parts = tuple(unquote(one) for one in urlsplit(self.path).path.split("/") if one)
        if ".." in parts or any("\0" in one or "/" in one for one in parts):
            return Answer(b"refused\n", "text/plain", 400)
        return self.server.pages.answer(parts)

    def _send(self, answer: Answer, *, body: bool) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        if body:
            try:
                self.wfile.write(answer.body)
            except BrokenPipeError:
                # the reader has gone: nobody to tell
                return
