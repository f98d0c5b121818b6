"""An HTTP/1.1 server in threads of this process, whose handlers read whole requests and pass them on to a backend."""

import contextlib
import http.client
import socket
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BACKEND_SECONDS = 60
# Headers that belong to one connection, or that this server writes itself.
_PER_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class ForwardingHandler(BaseHTTPRequestHandler):
    """Reads a request, hands it to `respond`, and writes the answer; None closes the connection without one."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def respond(self, body: bytes) -> Answer | None:
        raise NotImplementedError

    def _run(self) -> None:
        answer = self.respond(self._read_body())
        if answer is None:
            self._hang_up()
        else:
            self._write(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _run  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Writes nothing: the tests ask the handlers for what they saw."""

    def _read_body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)

    def _write(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        length = str(len(answer.body))
        for name, value in answer.headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _PER_CONNECTION:
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def forward(backend: str, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes) -> Answer:
    """Sends a request on a connection of its own. The Host header stays as it is, so that a signature stays valid."""
    where = urllib.parse.urlsplit(backend)
    upstream = http.client.HTTPConnection(where.hostname or "", where.port, timeout=BACKEND_SECONDS)
    try:
        upstream.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            if name.lower() not in _PER_CONNECTION:
                upstream.putheader(name, value)
        if body or method in ("PUT", "POST", "PATCH"):
            upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body or None)
        got = upstream.getresponse()
        return Answer(got.status, tuple(got.getheaders()), got.read())
    finally:
        upstream.close()


def json_headers(**more: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Type", "application/json"), *more.items())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # many clients connect at once

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a client that went away in the middle."""


@contextlib.contextmanager
def serving(handler: type[ForwardingHandler], attributes: Mapping[str, object]) -> Iterator[str]:
    """Serves on a free port of this machine; every handler has the attributes. Yields the address."""
    bound = type(handler.__name__, (handler,), dict(attributes))
    server = _Server(("127.0.0.1", 0), bound)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
