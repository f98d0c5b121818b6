"""HTTP/1.1 on one connection: uvicorn's protocol with the fast path in front, and refusals before any handler."""

import asyncio
from collections import deque
from typing import Any

from nunatak.api.http import error_response
from nunatak.api.transport.connection import ArrivalLimits, ConnectionGate, certificate_name
from nunatak.api.transport.exchange import (
    JOINED_BYTES,
    Application,
    Exchange,
    KnownHeads,
    StreamedExchange,
    format_head,
    parse_head,
)
from nunatak.api.transport.fast_path import FastPath
from nunatak.api.transport.uvicorn_internals import HttpToolsProtocol
from nunatak.errors import BadRequest, CatalogError, TooSlow

WHOLE_BYTES = 64 * 1024  # a body up to this size is read before the application is called
DRAINED_BYTES = 256 * 1024  # of an unread body; beyond this a new connection is cheaper
# Discarded after a refusal before the connection is closed, when the client may miss the error. Known clients get more.
UNREAD_BYTES, UNREAD_BYTES_OF_STRANGERS = 64 * 1024 * 1024, 256 * 1024
MAX_PIPELINED = 100  # requests that wait for an earlier response; no client of ours pipelines
LINGER_SECONDS = 5.0  # closing at once would reset a client that still sends, and it would lose our last response
UNKNOWN = -1  # announced size of a chunked body


class CatalogProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast path in front, and Iceberg's error format for malformed requests.

    All timeouts are checked by one timer per connection: a timer per request would cost more than the fast path's
    lookup.
    """

    # Of the server
    fast_path: FastPath | None = None
    application: Application
    heads: KnownHeads
    arrival: ArrivalLimits
    gate: ConnectionGate

    # Of the connection
    certificate: str | None = None  # the name in the client's certificate
    cycle: Exchange | None  # type: ignore[assignment]  # of the last message, during and after its response
    waiting: deque[Exchange]  # for the responses to earlier requests
    begun = ended = 0  # messages parsed so far
    made_at = last_seen = 0.0
    arriving_since = 0.0  # when the first byte of an incomplete message arrived; 0: no message is incomplete
    host = ""  # of the peer
    entered = False
    refused = False  # all further data is discarded
    unread_bytes = most_unread_bytes = 0  # of the data discarded
    unsent_bytes = 0  # at the timer's last check
    watch: asyncio.TimerHandle | None = None

    # Of the message
    answered = False  # by the fast path, or with a refusal
    in_head = False
    handed_over = False  # `cycle` belongs to this message, not to an earlier one
    head_bytes = body_bytes = trailer_bytes = 0
    announced_bytes = 0  # of its body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting = deque()
        self.host = self.client[0] if self.client is not None else ""
        self.entered = self.gate.enter(self.host)
        if not self.entered:
            transport.write(_last_words(self.gate.too_many()))
            transport.close()
            return
        self.certificate = certificate_name(transport)
        if self.certificate is not None:
            self.fast_path = None  # it identifies callers by request bytes, not by the connection's certificate
        self.made_at = self.loop.time()
        self.watch = self.loop.call_later(self.arrival.seconds, self._look)

    def data_received(self, data: bytes) -> None:
        self.last_seen = self.loop.time()
        # The caches apply only to data that begins with a new request, while no response is in progress.
        if self.arriving_since or not self._is_free() or self._is_ending():
            self._parse(data)
            return
        lane = self.fast_path
        load = lane.find(data) if lane is not None else None
        if load is not None:
            assert lane is not None
            answer = lane.answer_known(load, self.client)
            if answer is not None:
                self._write(*answer)
                return
        known = self.heads.find(data)
        if known is not None:
            self.begun += 1
            self.ended += 1
            self.answered, self.handed_over = False, True
            self.cycle = Exchange(self, *known)
            self._start(self.cycle)
            return
        self._parse_and_remember(data, is_new=load is None)

    def _parse_and_remember(self, data: bytes, *, is_new: bool) -> None:
        """Parses data and, if it was exactly one whole request, caches the result by its bytes."""
        begun = self.begun
        self._parse(data)
        if self.ended != self.begun or self.begun != begun + 1 or self.refused:
            return
        if self.answered:
            if is_new and self.fast_path is not None:
                self.fast_path.remember(data, self.url, self.headers)
        elif self.cycle is not None and self.cycle.is_whole and self.cycle.keep_alive:
            self.heads.remember(data, self.cycle.head, self.body_bytes)

    def _is_ending(self) -> bool:
        return self.refused or self.transport.is_closing()

    def _parse(self, data: bytes) -> None:
        if self.refused:
            self.unread_bytes += len(data)
            if self.unread_bytes > self.most_unread_bytes:
                self.transport.close()
            return
        begun, ended, body_bytes = self.begun, self.ended, self.body_bytes
        if not self.arriving_since:
            self.arriving_since = self.last_seen
        super().data_received(data)
        if self.begun == self.ended:
            if self.ended != ended:
                self.arriving_since = 0.0
        elif self.begun != begun:
            self.arriving_since = self.last_seen  # the message began within this data
        elif self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > self.arrival.head_bytes:
                self._refuse(self.arrival.head_too_large())
        elif self.body_bytes != body_bytes:
            self.trailer_bytes = 0
        else:  # neither head nor body: the parser is collecting a trailer
            self.trailer_bytes += len(data)
            if self.trailer_bytes > self.arrival.head_bytes:
                self._refuse(self.arrival.head_too_large())

    def _is_free(self) -> bool:
        """Returns whether a response may be written now: none is in progress, and the client is reading."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    # Callbacks of the HTTP parser

    def on_message_begin(self) -> None:
        self.begun += 1
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.answered = self.handed_over = False
        self.in_head = True
        self.head_bytes = self.body_bytes = self.trailer_bytes = self.announced_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignores trailers, the fields after a chunked body: a proxy may not have checked them."""
        if not self.in_head:
            return
        if len(self.headers) >= self.arrival.head_fields:
            raise ValueError("too many fields")  # stops the parser, and send_400_response finds the cause
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        if self.refused:  # it arrived together with a refused message
            self.answered = True
            return
        lane, parser = self.fast_path, self.parser
        method: bytes = parser.get_method()
        if (
            lane is not None
            and method == b"GET"
            and self._is_free()
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        ):
            answer = lane.answer(self.url, self.headers, self.client)
            if answer is not None:
                self._write(*answer)
                return
        refusal = self._refusal()
        if refusal is not None:
            self._refuse(refusal)
        else:
            self._hand_over(method)

    def _hand_over(self, method: bytes) -> None:
        """Creates the exchange of this message; it starts now, when its body has arrived, or after earlier ones."""
        head = parse_head(method, self.url, self.headers)
        is_first = self.cycle is None or self.cycle.response_complete
        exchange: Exchange
        if is_first and self._comes_whole(method):
            exchange = Exchange(self, head)
        else:
            exchange = StreamedExchange(self, head, expects_continue=self.expect_100_continue)
        exchange.keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self.cycle, self.handed_over = exchange, True
        if not is_first:
            self.flow.pause_reading()
            self.waiting.append(exchange)
        elif not exchange.is_whole:
            self._start(exchange)

    def _comes_whole(self, method: bytes) -> bool:
        """Returns whether to wait for the body: if it is empty, or a small one of a POST with a Content-Length.

        A read is answered without its body, which is not used.
        """
        if self.expect_100_continue or self.parser.should_upgrade():
            return False
        return self.announced_bytes == 0 or (0 < self.announced_bytes <= WHOLE_BYTES and method == b"POST")

    def _refusal(self) -> CatalogError | None:
        """Returns why this message is refused before the application sees it, or None."""
        head_bytes = len(self.url)
        for name, value in self.headers:
            head_bytes += len(name) + len(value)
            if name == b"content-length":
                self.announced_bytes = int(value)
            elif name == b"transfer-encoding":
                self.announced_bytes = UNKNOWN
        if head_bytes > self.arrival.head_bytes:
            return self.arrival.head_too_large()
        if len(self.waiting) >= MAX_PIPELINED:
            return BadRequest(f"More than {MAX_PIPELINED} pipelined requests wait for a response on this connection")
        return None

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if not self._has_answer():
            assert self.cycle is not None
            self.cycle.add(body)
        elif self.body_bytes > DRAINED_BYTES and not self.refused:
            self._refuse(None)

    def on_message_complete(self) -> None:
        self.ended += 1
        exchange = self.cycle
        if self.answered or exchange is None:
            return
        if isinstance(exchange, StreamedExchange):
            exchange.end()
        else:
            self._start(exchange)

    # Callbacks of exchanges

    def _start(self, exchange: Exchange) -> None:
        task = self.loop.create_task(exchange.run(self.application))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def must_close_after(self, exchange: Exchange) -> bool:
        """Returns whether so much of the body is outstanding that a new connection is cheaper than reading it.

        A chunked body that was large so far is assumed to continue.
        """
        if exchange is not self.cycle or self.begun == self.ended:
            return False
        if self.announced_bytes == UNKNOWN:
            return self.body_bytes > DRAINED_BYTES
        return self.announced_bytes - self.body_bytes > DRAINED_BYTES

    def response_written(self, exchange: Exchange) -> None:
        self.last_seen = self.loop.time()
        self.server_state.total_requests += 1
        if self.refused:  # a later message on this connection was refused
            self._close_soon()
        elif self.must_close_after(exchange):
            self._refuse(None)
        elif not exchange.keep_alive:
            self.transport.close()
        elif not self.transport.is_closing():
            self.flow.resume_reading()
            if self.waiting:
                self._start(self.waiting.popleft())

    def _write(self, head: bytes, body: bytes) -> None:
        self.answered = True
        self.server_state.total_requests += 1
        if len(body) <= JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def _unsupported_upgrade_warning(self) -> None:
        """Suppresses uvicorn's warning: an Upgrade offer is ignored, and the request is answered as HTTP/1.1."""

    # Refusals, and how the connection ends after one

    def send_400_response(self, msg: str) -> None:
        too_many = self.in_head and len(self.headers) >= self.arrival.head_fields
        self._refuse(self.arrival.head_too_large() if too_many else BadRequest(msg))

    def _has_answer(self) -> bool:
        return self.answered or (self.handed_over and self.cycle is not None and self.cycle.response_complete)

    def _refuse(self, error: CatalogError | None) -> None:
        """Reads nothing more from this client; sends the error unless this or an earlier message is being answered.

        Without an error the request already has its response, and was counted.
        """
        if self.refused:
            return
        silent = error is None or self._has_answer()
        self.refused = self.answered = True
        if error is not None:
            self.gate.refuse(self.host)
        authorization = dict(self.headers or ()).get(b"authorization")
        self.most_unread_bytes = UNREAD_BYTES if self.gate.knows(authorization) else UNREAD_BYTES_OF_STRANGERS
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.handed_over or self.begun == self.ended:
                return  # an earlier message is being answered: the connection is closed after that
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.waiting:
                return
        if error is not None and not silent:
            self.transport.write(_last_words(error))
        # A client that was too slow does not get LINGER_SECONDS on top.
        if isinstance(error, TooSlow):
            self.transport.close()
        else:
            self._close_soon()

    def _close_soon(self) -> None:
        if self.announced_bytes - self.body_bytes > self.most_unread_bytes:
            self.flow.pause_reading()  # it would be cut off anyway: incoming data may stay in the kernel's buffers
        else:
            # Reading goes on, so that a client that only reads after sending gets to see the error.
            self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    # Timeouts

    def resume_writing(self) -> None:
        self.unsent_bytes = 0
        super().resume_writing()

    def _look(self) -> None:
        now, seconds = self.loop.time(), self.arrival.seconds
        next_look = now + seconds
        if self.flow.write_paused or self.transport.is_closing():
            unsent = self.transport.get_write_buffer_size()
            if unsent == self.unsent_bytes:  # the client has read nothing since the last check
                self.transport.abort()
                return
            self.unsent_bytes = unsent
        elif self.arriving_since:
            if self.flow.read_paused:
                self.arriving_since = now  # the message waits for this server, not the server for it
            elif now >= self.arriving_since + seconds:
                self._refuse(self.arrival.too_slow())
            else:
                next_look = self.arriving_since + seconds
        elif not self.last_seen:
            if now >= self.made_at + seconds:
                self.transport.close()
        elif self._is_free():
            if now >= self.last_seen + self.timeout_keep_alive:
                self.transport.close()
            else:
                next_look = min(next_look, self.last_seen + self.timeout_keep_alive)
        self.watch = self.loop.call_at(next_look, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.watch is not None:
            self.watch.cancel()
        if self.entered:
            self.gate.leave(self.host)
        super().connection_lost(exc)


def _last_words(error: CatalogError) -> bytes:
    """Returns a whole error response with `Connection: close`."""
    response = error_response(error)
    length = b"%d" % len(response.body)
    headers = (*response.headers, (b"content-length", length), (b"connection", b"close"))
    return format_head(error.status, headers) + response.body


def protocol_with(
    lane: FastPath | None, arrival: ArrivalLimits, application: Application, gate: ConnectionGate | None = None
) -> type[CatalogProtocol]:
    """Returns the protocol class of one server, with its dependencies as class attributes."""
    members: dict[str, Any] = {
        "fast_path": lane,
        "arrival": arrival,
        "application": application,
        "heads": KnownHeads(),
        "gate": gate or ConnectionGate(),
    }
    return type("ServedProtocol", (CatalogProtocol,), members)
