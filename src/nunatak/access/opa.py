"""The Authorizer that asks Open Policy Agent: one POST for all securables; without a decision nothing is allowed."""

import asyncio
import logging
import ssl
from collections.abc import Sequence
from typing import cast
from urllib.parse import SplitResult, urlsplit

import httptools
import msgspec

from nunatak.access.external import Undecided, intersect_rights, principals_asked_about, sum_of
from nunatak.access.securables import chain, format_securable, parts
from nunatak.access.sessions import Session
from nunatak.addresses import is_loopback
from nunatak.errors import ServiceUnavailable
from nunatak.secret import Secret
from nunatak.settings import Settings, SettingsError

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 2.0  # for one query, including connecting
MAX_CONNECTIONS = 32  # at once; further queries wait, which counts towards their deadline
MAX_IDLE = 8
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_SECURABLES = 500  # per query, so that a long list does not exceed the deadline on a busy machine


class _Securable(msgspec.Struct, frozen=True):
    kind: str
    path: str
    within: list[str]  # the paths of its ancestors and its own, so that policies need not split strings
    warehouse: str | None
    namespace: tuple[str, ...]
    name: str | None


class _Input(msgspec.Struct, frozen=True):
    principal: str
    roles: tuple[str, ...]
    method: str
    securables: list[_Securable]


class _Question(msgspec.Struct, frozen=True):
    input: _Input


class _OpaResponse(msgspec.Struct, frozen=True):
    result: list[list[str]]


_answers = msgspec.json.Decoder(_OpaResponse)


def open_opa(settings: Settings) -> "Opa":
    """Returns the authorizer for `opa_url`; does not connect yet, so OPA may start after this server."""
    token = settings.opa_token.reveal()
    if not (token.isascii() and token.isprintable()):
        raise SettingsError("opa_token holds characters that no HTTP header may hold")
    return Opa(_check_url(settings.opa_url), settings.opa_token)


def _check_url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        host, _ = (url.hostname or "").encode("idna").decode(), url.port
    except ValueError as error:
        raise SettingsError("opa_url is not a URL") from error
    if not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError("opa_url holds characters that must be percent-encoded")
    if url.scheme not in ("http", "https") or not host:
        raise SettingsError("opa_url must name a document, e.g. http://127.0.0.1:8182/v1/data/nunatak/rights")
    if url.username is not None or url.password is not None or url.fragment:
        raise SettingsError("opa_url takes neither a user nor a fragment; a bearer token goes into opa_token")
    if url.scheme == "http" and not is_loopback(host):
        raise SettingsError("opa_url must be https unless OPA is on this machine: responses could be forged in transit")
    return url


class Opa:
    """The Authorizer that asks OPA over a small pool of keep-alive connections."""

    grants_decide = False

    def __init__(self, url: SplitResult, token: Secret) -> None:
        self._url = url
        self._token = token
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._trouble: str | None = None

    async def rights(self, session: Session, securables: Sequence[str]) -> list[int]:
        held: list[int] = []
        for start in range(0, len(securables), MAX_SECURABLES):
            held += await self._rights(session, securables[start : start + MAX_SECURABLES])
        return held

    async def sees_inside(self, session: Session, container: str) -> bool:
        """Returns False: called only where there are no rights, and visibility would have come with them."""
        return False

    async def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _rights(self, session: Session, securables: Sequence[str]) -> list[int]:
        described = [_describe_securable(securable) for securable in securables]
        try:
            answers = [
                await self._ask(_Input(principal, session.roles, session.method, described))
                for principal in principals_asked_about(session)
            ]
        except Undecided as error:
            self._note(str(error))
            raise ServiceUnavailable(
                "OPA returned no decision for this request",
                hint="Nothing was done; try again. The server's log has the reason.",
            ) from error
        self._note(None)
        return intersect_rights(answers)

    async def _ask(self, question: _Input) -> list[int]:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), self._slots:
                status, body = await self._post(msgspec.json.encode(_Question(question)))
        except TimeoutError as error:
            raise Undecided(f"no answer within {DEADLINE_SECONDS:g} seconds") from error
        except (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise Undecided(f"{type(error).__name__}: {error}") from error
        if status != 200:
            raise Undecided(f"status {status}")
        try:
            result = _answers.decode(body).result
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # also if `result` is missing
            raise Undecided(f"not a list of lists of privileges: {error}") from error
        if len(result) != len(question.securables):
            raise Undecided(f"{len(result)} results for {len(question.securables)} securables")
        return [sum_of(names) for names in result]

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        """Posts over an idle connection if there is one; retries once over a new one if OPA was closing that."""
        request = self._head(len(body)) + body
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                try:
                    return await self._exchange(connection, request)
                except _ClosedUnanswered:
                    break
        return await self._exchange(await self._connect(), request)

    async def _exchange(self, connection: "_Connection", request: bytes) -> tuple[int, bytes]:
        try:
            status, body = await connection.exchange(request)
        except BaseException:  # a late response must not be read as that of another request
            connection.close()
            raise
        if not connection.closed:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.close()
        return status, body

    async def _connect(self) -> "_Connection":
        host, port = self._url.hostname or "", self._url.port or (443 if self._tls else 80)
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port, ssl=self._tls)
        return connection

    def _head(self, length: int) -> bytes:
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        lines = [
            f"POST {target} HTTP/1.1",
            f"Host: {self._url.netloc}",
            "Content-Type: application/json",
            "Accept: application/json",
            f"Content-Length: {length}",
            *([f"Authorization: Bearer {self._token.reveal()}"] if self._token else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def _note(self, trouble: str | None) -> None:
        """Logs when the trouble begins and when it ends, not for every request in between."""
        if trouble is not None and trouble != self._trouble:
            log.error("OPA returned no decision: %s; requests are answered 503", trouble)
        elif trouble is None and self._trouble is not None:
            log.warning("OPA answers again")
        self._trouble = trouble


def _describe_securable(securable: str) -> _Securable:
    path = format_securable(securable)
    warehouse, levels, name = parts(securable)
    within = [format_securable(each) for each in chain(securable)]
    return _Securable(path.partition(":")[0], path, within, warehouse or None, levels, name)


class _ClosedUnanswered(ConnectionError):
    """The connection closed before the first byte of the response: OPA closed an idle connection."""


class _Connection(asyncio.Protocol):
    """One HTTP/1.1 connection with at most one request in flight; anything unexpected closes it."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._answering = False

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        self.closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's only has the interface

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._answering:
            self._fail(error or ConnectionResetError("closed in the middle of the answer"))
        else:
            self._fail(_ClosedUnanswered("closed without an answer"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.close()

    # Callbacks of the HTTP parser.

    def on_message_begin(self) -> None:
        if self._waiting is None or self._waiting.done():
            self.close()  # an unsolicited response must not become the response to the next request
        self._answering = True
        self._body = bytearray()

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_ANSWER_BYTES:
            self._fail(ConnectionAbortedError(f"an answer beyond {MAX_ANSWER_BYTES} bytes"))

    def on_message_complete(self) -> None:
        self._answering = False
        if not self._parser.should_keep_alive():
            self.closed = True
            self._transport.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result((self._parser.get_status_code(), bytes(self._body)))
