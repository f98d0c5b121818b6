"""HTTP/1.1 on one connection: uvicorn's protocol, the fast lane in front, and what is refused before any handler."""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nunatak.api.http import error_response
from nunatak.api.transport.connection import Arrival, Gate, certificate_name
from nunatak.api.transport.exchange import Application, Exchange, Head, Heads
from nunatak.api.transport.fast_lane import FastLane
from nunatak.errors import BadRequest, CatalogError, TooSlow

JOINED_BYTES = 64 * 1024  # up to here one copy is cheaper than a second write
WHOLE_BYTES = 64 * 1024  # up to here a body is waited for before anybody works on the request
DRAINED_BYTES = 256 * 1024  # of a body that nobody wants; for more of it a new connection is cheaper
# Thrown away before the connection is closed under the client, which then may not see why. Somebody known gets more.
UNREAD_BYTES, UNREAD_BYTES_OF_STRANGERS = 64 * 1024 * 1024, 256 * 1024
MAX_PIPELINED = 100  # requests that wait for the answer to another; no client of ours sends one before its time
LINGER_SECONDS = 5.0  # a client that still sends would lose our last words to a reset if we closed at once


class CatalogProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast lane in front, and Iceberg's error format for what is no proper request.

    Whatever may take too long is found by one timer for the connection: setting one for each request would cost more
    than the fast lane's lookup.
    """

    fast_lane: FastLane | None = None
    application: Application | None = None  # None: it wants every request in parts
    heads: Heads
    arrival: Arrival
    gate: Gate
    certificate: str | None = None  # the name in the client's certificate

    # Of the connection
    begun = ended = 0  # messages, as far as they were parsed
    made_at = last_seen = 0.0
    arriving_since = 0.0  # when the first byte came of what is not here yet; 0: all that began is here
    host = ""  # of the peer
    entered = False
    refused = False  # whatever else comes is thrown away
    unread_bytes = most_unread_bytes = 0  # of that
    unsent_bytes = 0  # when the timer looked
    watch: asyncio.TimerHandle | None = None

    # Of the message
    answered = False  # by the fast lane, or refused
    in_head = False
    handed_over = False  # `cycle` is of this message, not of one before
    head_bytes = body_bytes = trailer_bytes = 0
    announced_bytes = -1  # of its body; less than none if the head does not say

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.host = self.client[0] if self.client is not None else ""
        self.entered = self.gate.enter(self.host)
        if not self.entered:
            transport.write(_said(self.gate.too_many()))
            transport.close()
            return
        self.certificate = certificate_name(transport)
        if self.certificate is not None:
            self.fast_lane = None  # it knows callers by what they send, not by whom they are connected as
        self.made_at = self.loop.time()
        self.watch = self.loop.call_later(self.arrival.seconds, self._look)

    def data_received(self, data: bytes) -> None:
        self.last_seen = self.loop.time()
        if self.arriving_since:
            self._parse(data)
        elif data.startswith(b"POST "):
            self._post_received(data)
        else:
            self._request_received(data)

    def _post_received(self, data: bytes) -> None:
        """The beginning of a change, which is often all of it and begins as another did."""
        application, known = self.application, self.heads.find(data)
        if known is not None and application is not None and self._is_free() and not self._is_ending():
            self._unset_keepalive_if_required()
            self.begun += 1
            self.ended += 1
            self.cycle = Exchange(self, *known)  # type: ignore[assignment]
            self.answered, self.handed_over = False, True
            self._start(application, self.cycle)  # type: ignore[arg-type]
            return
        begun = self.begun
        self._parse(data)
        if self.ended == self.begun == begun + 1 and self.handed_over and isinstance(self.cycle, Exchange):
            self.heads.remember(data, self.cycle.head)

    def _is_ending(self) -> bool:
        return self.refused or self.transport.is_closing()

    def _request_received(self, data: bytes) -> None:
        lane, begun = self.fast_lane, self.begun
        if lane is None:
            self._parse(data)
            return
        known = lane.requests.get(data)
        if known is not None and self._is_free():
            answer = lane.answer_known(known, self.client)
            if answer is not None:
                self._unset_keepalive_if_required()
                self._write(*answer)
                return
        self._parse(data)
        if self.answered and self.ended == self.begun == begun + 1 and known is None and not self.refused:
            lane.remember(data, self.url, self.headers)  # one request, whole, and nothing else

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
            self.arriving_since = self.last_seen  # it began in the middle of this data
        elif self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > self.arrival.head_bytes:
                self._refuse(self.arrival.head_too_large())
        elif self.body_bytes != body_bytes:
            self.trailer_bytes = 0
        else:  # neither a head nor a body: the parser collects a trailer
            self.trailer_bytes += len(data)
            if self.trailer_bytes > self.arrival.head_bytes:
                self._refuse(self.arrival.head_too_large())

    def _is_free(self) -> bool:
        """Whether an answer may be written now: none is on its way, and the client reads."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    def on_message_begin(self) -> None:
        self.begun += 1
        # The scope is made only for requests that leave the fast lane.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.answered = self.handed_over = False
        self.in_head = True
        self.head_bytes = self.body_bytes = self.trailer_bytes = 0
        self.announced_bytes = -1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers, the fields after a chunked body, are no headers: a proxy may not have looked at them."""
        if not self.in_head:
            return
        if len(self.headers) >= self.arrival.head_fields:
            raise ValueError("too many fields")  # the parser stops here, and send_400_response finds out why
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_head = False
        if self.refused:  # it came together with what was refused
            self.answered = True
            return
        lane = self.fast_lane
        if (
            lane is not None
            and self.parser.get_method() == b"GET"
            and self._is_free()
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        ):
            answer = lane.answer(self.url, self.headers, self.client)
            if answer is not None:
                self._write(*answer)
                return
        refusal = self._refusal()
        if refusal is not None:
            self._refuse(refusal)
            return
        if self._comes_whole():
            head = Head(self.url, self.headers, self.announced_bytes)
            self.cycle = Exchange(self, head)  # type: ignore[assignment]
            self.handed_over = True
            return
        self._hand_over()
        self.handed_over = True

    def _hand_over(self) -> None:
        """To uvicorn's own cycle, which the application is run for."""
        head = Head(self.url, self.headers, self.announced_bytes)
        expecting = self.expect_100_continue
        super().on_message_begin()
        # uvicorn would decode the path, which takes milliseconds for a long one; the application wants it as it came.
        self.url, self.expect_100_continue = b"/", expecting
        self.headers.extend(head.headers)
        scope = self.scope
        if self.certificate is not None:
            scope["extensions"] = {"nunatak": {"certificate": self.certificate}}
        super().on_headers_complete()
        self.url = head.url
        scope["path"], scope["raw_path"] = head.path.decode("latin-1"), head.path
        scope["query_string"] = head.query

    def _comes_whole(self) -> bool:
        """Whether to wait for the body first: of a change, if it is small and nothing about it is unusual."""
        parser = self.parser
        return (
            self.application is not None
            and 0 <= self.announced_bytes <= WHOLE_BYTES
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not self.expect_100_continue
            and not parser.should_upgrade()
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _refusal(self) -> CatalogError | None:
        """Why this message is not even handed to the application."""
        head_bytes = len(self.url)
        for name, value in self.headers:
            head_bytes += len(name) + len(value)
            if name == b"content-length":
                self.announced_bytes = int(value)
        if head_bytes > self.arrival.head_bytes:
            return self.arrival.head_too_large()
        if len(self.pipeline) >= MAX_PIPELINED:
            return BadRequest(f"More than {MAX_PIPELINED} requests wait for the answer to another on this connection")
        if self.announced_bytes > self.arrival.body_bytes:
            return self.arrival.body_too_large()
        return None

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self._has_answer():
            if self.body_bytes > DRAINED_BYTES and not self.refused:
                self._refuse(self.arrival.body_too_large())
        elif self.body_bytes > self.arrival.body_bytes:
            self._refuse(self.arrival.body_too_large())
        elif isinstance(self.cycle, Exchange):
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.ended += 1
        if self.answered:
            return
        if isinstance(self.cycle, Exchange):
            assert self.application is not None
            self._start(self.application, self.cycle)
        else:
            super().on_message_complete()

    def _start(self, application: Application, exchange: Exchange) -> None:
        task = self.loop.create_task(exchange.run(application))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        self.last_seen = self.loop.time()
        if self.refused:  # something that came after the request of this answer
            self._close_soon()
        elif self.begun != self.ended and self.announced_bytes - self.body_bytes > DRAINED_BYTES:
            self._refuse(self.arrival.body_too_large())  # in silence: it has its answer
        elif self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:  # uvicorn would set a timer for a client that rests, which ours looks after
            self.server_state.total_requests += 1
            self.flow.resume_reading()

    def _write(self, head: bytes, body: bytes) -> None:
        self.answered = True
        self.server_state.total_requests += 1
        if len(body) <= JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def _unsupported_upgrade_warning(self) -> None:
        """An offer to speak something else is no reason to complain: the request is answered as it is."""

    # What is refused, and how the connection ends then

    def send_400_response(self, msg: str) -> None:
        too_many = self.in_head and len(self.headers) >= self.arrival.head_fields
        self._refuse(self.arrival.head_too_large() if too_many else BadRequest(msg))

    def _has_answer(self) -> bool:
        return self.answered or (self.handed_over and self.cycle.response_complete)

    def _refuse(self, error: CatalogError) -> None:
        """Take nothing more from this client; the error is said unless this message or one before is being answered."""
        if self.refused:
            return
        silent = self._has_answer()
        self.refused = self.answered = True
        self.gate.refuse(self.host)
        authorization = dict(self.headers or ()).get(b"authorization")
        self.most_unread_bytes = UNREAD_BYTES if self.gate.knows(authorization) else UNREAD_BYTES_OF_STRANGERS
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.handed_over or self.begun == self.ended:
                return  # it is of a message before: the connection is closed after its answer
            if self.cycle.response_started or self.pipeline:
                silent = True
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.pipeline:
                return
        if not silent:
            self.transport.write(_said(error))
        if isinstance(error, TooSlow):
            self.transport.close()
        else:
            self._close_soon()

    def _close_soon(self) -> None:
        if self.announced_bytes - self.body_bytes > self.most_unread_bytes:
            self.flow.pause_reading()  # it would be cut off anyway: what comes may wait in the system's buffers
        else:
            self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    # What takes too long

    def resume_writing(self) -> None:
        self.unsent_bytes = 0
        super().resume_writing()

    def _look(self) -> None:
        now, seconds = self.loop.time(), self.arrival.seconds
        next_look = now + seconds
        if self.flow.write_paused or self.transport.is_closing():
            unsent = self.transport.get_write_buffer_size()
            if unsent == self.unsent_bytes:  # since we last looked the client has taken nothing
                self.transport.abort()
                return
            self.unsent_bytes = unsent
        elif self.arriving_since:
            if self.flow.read_paused:
                self.arriving_since = now  # it waits for us, not we for it
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


def _said(error: CatalogError) -> bytes:
    """The whole answer, after which the connection is closed."""
    answer = error_response(error)
    lines = [b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode("ascii"))]
    lines += [b"%b: %b" % header for header in answer.headers]
    lines += [b"content-length: %d" % len(answer.body), b"connection: close", b"", b""]
    return b"\r\n".join(lines) + answer.body


def protocol_with(
    lane: FastLane | None, arrival: Arrival, application: Application | None = None, gate: Gate | None = None
) -> type[CatalogProtocol]:
    """The protocol class for one server."""
    members: dict[str, Any] = {
        "fast_lane": lane,
        "arrival": arrival,
        "application": application,
        "heads": Heads(),
        "gate": gate or Gate(),
    }
    return type("ServedProtocol", (CatalogProtocol,), members)
