"""One HTTP connection for tests: lean enough for a hundred thousand commits, and honest about a reply that got lost."""

import json
import re
import socket
from dataclasses import dataclass
from typing import Any

ANSWER_SECONDS = 30
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


class Lost(Exception):
    """The connection ended before an answer came: the request may have been carried out, or not."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """One connection to a server, opened anew after it was lost."""

    def __init__(self, port: int, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._port = port
        self._answer_seconds = answer_seconds
        self._socket: socket.socket | None = None

    def send(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}"]
        if body is not None:
            lines.append("Content-Type: application/json")
        if body is not None or method == "POST":
            lines.append(f"Content-Length: {len(body or b'')}")
        if key is not None:
            lines.append(f"Idempotency-Key: {key}")
        request = "\r\n".join(lines).encode() + _END_OF_HEAD + (body or b"")
        try:
            connection = self._connect()
            connection.sendall(request)
            return self._read_answer(connection, bodiless=method == "HEAD")
        except OSError as error:
            self.close()
            raise Lost(f"{method} {path}: {error!r}") from error

    def expect(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, once its status was found to be the expected one."""
        answer = self.send(method, path, None if body is None else json.dumps(body).encode())
        assert answer.status == status, (method, path, answer)
        return answer.json if answer.body else None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._socket.settimeout(self._answer_seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.connect(("127.0.0.1", self._port))
        return self._socket

    def _read_answer(self, connection: socket.socket, *, bodiless: bool) -> Answer:
        received = b""
        while _END_OF_HEAD not in received:
            received += _receive(connection)
        head, _, body = received.partition(_END_OF_HEAD)
        found = _LENGTH.search(head)
        length = 0 if found is None or bodiless else int(found[1])
        parts, missing = [body], length - len(body)
        while missing > 0:
            parts.append(_receive(connection))
            missing -= len(parts[-1])
        if _CLOSE.search(head):
            self.close()
        return Answer(int(head.split(b" ", 2)[1]), b"".join(parts))

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _receive(connection: socket.socket) -> bytes:
    chunk = connection.recv(256 * 1024)
    if not chunk:
        raise ConnectionResetError("the connection ended before the answer")
    return chunk
