"""HTTP/2 on one connection: every stream is a request to the same application as HTTP/1.1, with the same limits.

Frames, header compression and windows are kept by the h2 library; here is who may have how much of them, and for how
long. The fast lane is for HTTP/1.1 alone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from uvicorn import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from nunatak.api.connection import Arrival, Gate, certificate_name
from nunatak.api.http import error_response
from nunatak.errors import BadRequest, CatalogError, InternalError

log = logging.getLogger(__name__)

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

MAX_STREAMS = 256  # requests of one connection at once
REFUSED_STREAMS = 1000  # a client that has not read our settings yet may open more than MAX_STREAMS, which are refused
STREAM_WINDOW, CONNECTION_WINDOW = 256 * 1024, 1024 * 1024  # bytes of bodies that wait to be read, at most
MAX_HEADER_TABLE = 4096  # bytes we remember to compress our own headers; the client may ask for any number
MAX_RESETS = 100  # more streams than that, of those not answered, are not opened and cancelled by an honest client
MAX_IDLE_FRAMES = 1000  # pings, settings and the like in a row, without a request or a byte of a body
PARSED_BYTES = 16 * 1024  # at once: a frame of a body
# Frames that do not end, headers that go on in the next frame, and what was on its way for streams that we reset.
MAX_UNPARSED_BYTES = CONNECTION_WINDOW + 64 * 1024


class _AfterGoodbye(H2ConnectionStateMachine):
    """h2 takes a GOAWAY, sent or received, for the end of everything; what is open is to be finished first."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        if input_ in (ConnectionInputs.SEND_GOAWAY, ConnectionInputs.RECV_GOAWAY):
            return []
        return super().process_input(input_)


class _Stream:
    """One request and its answer: what the application is given to receive from and to send by."""

    def __init__(self, protocol: "Http2Protocol", number: int, scope: dict[str, Any], now: float) -> None:
        self.protocol = protocol
        self.number = number
        self.scope = scope
        self.arrived = asyncio.Event()
        self.sendable = asyncio.Event()
        self.gone = False  # nobody waits for the answer
        self.refusal: CatalogError | None = None
        self.task: asyncio.Task[None] | None = None
        # The request
        self.body = bytearray()
        self.received_bytes = 0
        self.unacknowledged_bytes = 0
        self.whole = False
        self.handed_over = False
        self.arriving_since = now
        self.expects_continue = any(name == b"expect" and value == b"100-continue" for name, value in scope["headers"])
        # The answer
        self.start: Message | None = None
        self.started = False
        self.complete = False
        self.waiting_since: float | None = None  # for the client to open its window

    async def run(self, application: Application) -> None:
        try:
            await application(self.scope, self.receive, self.send)
        except Exception as error:  # the application answers its own errors; this is a bug
            log.exception("%s %s failed", self.scope["method"], self.scope["raw_path"][:200])
            if not self.started:
                self.start = None
                await answered(InternalError(f"Internal error: {type(error).__name__}"))(
                    self.scope, self.receive, self.send
                )
        finally:
            self.protocol.finished(self)

    def ended(self) -> bool:
        """Whether nothing more will be received or sent."""
        return self.gone or (self.complete and self.whole)

    def leave(self) -> None:
        """Let the application finish what it does; nobody waits for it."""
        self.gone = True
        self.arrived.set()
        self.sendable.set()

    def refuse(self, error: CatalogError) -> None:
        """Answer with this error if the application still waits for the body."""
        self.refusal = error
        self.arrived.set()

    async def receive(self) -> Message:
        if self.expects_continue:
            self.expects_continue = False
            self.protocol.send_continue(self)
        while not (self.gone or self.complete or self.refusal or (not self.handed_over and (self.body or self.whole))):
            self.arrived.clear()
            await self.arrived.wait()
        if self.refusal is not None and not self.started:
            self.start = None
            await answered(self.refusal)(self.scope, self.receive, self._send)
            self.gone = True
        if self.gone or self.complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        self.handed_over = self.whole
        self.protocol.acknowledge(self)
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    async def send(self, message: Message) -> None:
        if not self.gone:
            await self._send(message)

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message  # and goes out with the first of the body
            return
        rest = memoryview(b"" if self.scope["method"] == "HEAD" else message.get("body", b""))
        last = not message.get("more_body", False)
        while True:
            await self.protocol.drained()
            if self.gone:
                return
            sent = self.protocol.send_some(self, rest, last=last)
            if sent:
                self.waiting_since = None
                rest = rest[sent:]
            if self.complete or (not rest and not last):
                return
            if not sent:
                self.sendable.clear()
                self.waiting_since = self.waiting_since or self.protocol.loop.time()
                await self.sendable.wait()


class Http2Protocol(asyncio.Protocol):
    """Takes over a connection whose client and server agreed on HTTP/2."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        arrival: Arrival,
        gate: Gate,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self._application: Application = config.loaded_app
        self._keep_alive_seconds = config.timeout_keep_alive
        self._root_path = config.root_path
        self._state = server_state
        self._connections: set[Any] = server_state.connections
        self._app_state = app_state
        self._arrival = arrival
        self._gate = gate
        self._host = ""
        self._entered = False
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._h2.state_machine = _AfterGoodbye()
        self._streams: dict[int, _Stream] = {}
        self._leaving = False  # no new streams; closed after the last
        self._served = False
        self._idle_since = loop.time()
        self._resets = self._idle_frames = self._unparsed_bytes = self._unsent_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._watch: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        certificate = certificate_name(transport)
        self._extensions = {"nunatak": {"certificate": certificate}} if certificate is not None else None
        self._host = self._client[0] if self._client is not None else ""
        self._entered = self._gate.enter(self._host)
        if not self._entered:
            transport.close()
            return
        self._connections.add(self)
        self._h2.local_settings = _settings(MAX_STREAMS, self._arrival.head_bytes)
        self._h2.initiate_connection()
        self._h2.local_settings = _settings(REFUSED_STREAMS, self._arrival.head_bytes)
        # A head that is too large is answered; one that is much too large ends the connection.
        self._h2.decoder.max_header_list_size = 2 * self._arrival.head_bytes
        self._h2.increment_flow_control_window(CONNECTION_WINDOW - 65535)
        self._flush()
        self._watch = self.loop.call_later(self._arrival.seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._entered:
            self._gate.leave(self._host)
        if self._watch is not None:
            self._watch.cancel()
        self._writable.set()
        for stream in self._streams.values():
            stream.leave()

    def shutdown(self) -> None:
        """The server stops: what was begun is finished, and nothing new is taken."""
        self._say_goodbye()
        self._close_if_done()

    def _say_goodbye(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        if not self._leaving and not self._transport.is_closing():
            self._leaving = True
            self._h2.close_connection(code)
            self._flush()

    def _give_up(self, code: ErrorCodes) -> None:
        """This client does us harm."""
        log.warning("HTTP/2 connection of %s closed: %s", self._client, code.name)
        self._say_goodbye(code)
        for stream in self._streams.values():
            stream.leave()
        self._transport.close()

    def _close_if_done(self) -> None:
        if self._leaving and all(stream.task is None or stream.ended() for stream in self._streams.values()):
            self._transport.close()

    # Writing

    def pause_writing(self) -> None:
        self._writable.clear()
        if not self._transport.is_closing():
            self._transport.pause_reading()  # or answers to its pings would pile up for a client that does not read

    def resume_writing(self) -> None:
        self._unsent_bytes = 0
        self._writable.set()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    async def drained(self) -> None:
        if not self._writable.is_set():
            await self._writable.wait()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def send_continue(self, stream: _Stream) -> None:
        if not (stream.gone or stream.started or stream.whole):
            self._h2.send_headers(stream.number, [(b":status", b"100")])
            self._flush()

    def send_some(self, stream: _Stream, body: memoryview, *, last: bool) -> int:
        """Send what the client takes now, and say how much that was; with the last byte the answer is complete."""
        try:
            if stream.start is not None and not stream.started:
                stream.started = True
                headers = [(b":status", b"%d" % stream.start["status"]), *stream.start["headers"]]
                self._h2.send_headers(stream.number, headers, end_stream=last and not body)
                stream.complete = last and not body
            size = 0
            if not stream.complete and body:
                window = self._h2.local_flow_control_window(stream.number)
                size = max(0, min(window, self._h2.max_outbound_frame_size, len(body)))
            if not stream.complete and (size or (last and not body)):
                stream.complete = last and size == len(body)
                self._h2.send_data(stream.number, body[:size], end_stream=stream.complete)
            if stream.complete:
                self._answered(stream)
        except ProtocolError:  # the stream or the connection ended meanwhile
            stream.leave()
            return 0
        self._flush()
        return size

    def _answered(self, stream: _Stream) -> None:
        self._state.total_requests += 1
        self._resets = max(0, self._resets - 1)
        if stream.refusal is not None and not stream.whole:
            stream.whole = True
            self._h2.reset_stream(stream.number, ErrorCodes.NO_ERROR)  # the answer stands, and the rest may stay away
        stream.arrived.set()

    def finished(self, stream: _Stream) -> None:
        """The application is done with this stream."""
        stream.task = None
        if not stream.complete and not stream.gone:  # it answered by half, or not at all
            self._reset(stream, ErrorCodes.INTERNAL_ERROR)
        self._forget_if_ended(stream)
        self._close_if_done()

    def _forget_if_ended(self, stream: _Stream) -> None:
        if stream.task is None and stream.ended() and self._streams.pop(stream.number, None) is not None:
            self._acknowledge(stream)
            self._idle_since = self.loop.time()

    def _reset(self, stream: _Stream, code: ErrorCodes) -> None:
        stream.leave()
        self._reset_number(stream.number, code)

    def _reset_number(self, number: int, code: ErrorCodes) -> None:
        with contextlib.suppress(ProtocolError):  # it is closed already
            self._h2.reset_stream(number, code)
        self._flush()

    # Reading

    def data_received(self, data: bytes) -> None:
        # In pieces: of thousands of small frames in one, those are not even parsed that come after the last straw.
        for start in range(0, len(data), PARSED_BYTES):
            self._parse(data[start : start + PARSED_BYTES])
            if self._transport.is_closing():
                return

    def _parse(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except ProtocolError as error:
            log.info("HTTP/2 connection of %s closed: %s", self._client, error)
            self._flush()  # h2 has written why
            self._transport.close()
            return
        self._unparsed_bytes = 0 if events else self._unparsed_bytes + len(data)
        for event in events:
            self._handle(event)
            if self._transport.is_closing():
                return
        if max(self._unparsed_bytes - MAX_UNPARSED_BYTES, self._idle_frames - MAX_IDLE_FRAMES) > 0:
            self._give_up(ErrorCodes.ENHANCE_YOUR_CALM)
        self._flush()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._idle_frames = 0
            self._begin(event)
        elif isinstance(event, DataReceived):
            self._take(event)
        elif isinstance(event, StreamEnded):
            self._end(event.stream_id)
        elif isinstance(event, StreamReset):
            self._cancelled(event.stream_id, by_client=bool(event.remote_reset))
        elif isinstance(event, WindowUpdated):
            self._idle_frames += not self._streams
            self._wake(event.stream_id)
        elif isinstance(event, ConnectionTerminated):
            self._leaving = True
            self._close_if_done()
        else:
            self._idle_frames += 1
            if isinstance(event, RemoteSettingsChanged):
                self._h2.encoder.header_table_size = min(self._h2.encoder.header_table_size, MAX_HEADER_TABLE)
                self._wake(0)

    def _begin(self, event: RequestReceived) -> None:
        number, headers = event.stream_id, event.headers
        assert number is not None
        assert headers is not None
        self._served = True
        if self._leaving or len(self._streams) >= MAX_STREAMS:
            self._reset_number(number, ErrorCodes.REFUSED_STREAM)  # nothing was done: it may be sent again
            return
        scope, refusal = self._read(headers)
        stream = self._streams[number] = _Stream(self, number, scope, self.loop.time())
        stream.refusal = refusal
        if refusal is not None:
            self._gate.refuse(self._host)
        application = self._application if refusal is None else answered(refusal)
        stream.task = self.loop.create_task(stream.run(application))
        self._state.tasks.add(stream.task)
        stream.task.add_done_callback(self._state.tasks.discard)

    def _read(self, fields: list[Any]) -> tuple[dict[str, Any], CatalogError | None]:
        """What the application is told of a request, and why it may not even be handed to it."""
        known: dict[bytes, bytes] = {}
        headers: list[tuple[bytes, bytes]] = []
        size = 0
        for name, value in fields:
            size += len(name) + len(value)
            if name.startswith(b":"):
                known[name] = value
            else:
                headers.append((name, value))
        if b":authority" in known:
            headers.insert(0, (b"host", known[b":authority"]))
        raw_path, _, query = known.get(b":path", b"").partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": known.get(b":method", b"").decode("latin-1"),
            "scheme": known.get(b":scheme", b"https").decode("latin-1"),
            "server": self._server,
            "client": self._client,
            "root_path": self._root_path,
            "path": self._root_path + raw_path.decode("latin-1"),  # nobody wants it decoded
            "raw_path": self._root_path.encode("ascii") + raw_path,
            "query_string": query,
            "headers": headers,
            "state": self._app_state.copy(),
        }
        if self._extensions is not None:
            scope["extensions"] = self._extensions
        length = dict(headers).get(b"content-length", b"0")
        if size > self._arrival.head_bytes or len(fields) > self._arrival.head_fields:
            return scope, self._arrival.head_too_large()
        if not raw_path.startswith(b"/"):
            return scope, BadRequest("Malformed path: it does not begin with a slash")
        if length.isdigit() and int(length) > self._arrival.body_bytes:
            return scope, self._arrival.body_too_large()
        return scope, None

    def _take(self, event: DataReceived) -> None:
        number, data, size = event.stream_id, event.data, event.flow_controlled_length
        assert number is not None
        assert data is not None
        assert size is not None
        self._idle_frames = 0 if data else self._idle_frames + 1
        stream = self._streams.get(number)
        if stream is None:
            self._h2.acknowledge_received_data(size, number)
            return
        stream.unacknowledged_bytes += size
        stream.received_bytes += len(data)
        if stream.complete or stream.gone or stream.refusal is not None:
            self._acknowledge(stream)
            if stream.complete and stream.received_bytes > STREAM_WINDOW:
                self._reset(stream, ErrorCodes.NO_ERROR)
                self._forget_if_ended(stream)
        elif stream.received_bytes > self._arrival.body_bytes:
            stream.refuse(self._arrival.body_too_large())
        else:
            stream.body += data
            stream.arrived.set()

    def acknowledge(self, stream: _Stream) -> None:
        """The application took what had come: as much again may come."""
        self._acknowledge(stream)
        self._flush()

    def _acknowledge(self, stream: _Stream) -> None:
        size, stream.unacknowledged_bytes = stream.unacknowledged_bytes, 0
        if size:
            try:
                self._h2.acknowledge_received_data(size, stream.number)
            except ProtocolError:
                stream.leave()  # the connection is closed

    def _end(self, number: int | None) -> None:
        stream = self._streams.get(number or 0)
        if stream is not None:
            stream.whole = True
            stream.arrived.set()
            self._forget_if_ended(stream)

    def _cancelled(self, number: int | None, *, by_client: bool) -> None:
        """The client wants no answer. What its request does is finished all the same: it may be amid a commit."""
        stream = self._streams.get(number or 0)
        if stream is not None or by_client:  # not what was still on its way when we reset the stream
            self._resets += 1
        if self._resets > MAX_RESETS:
            self._give_up(ErrorCodes.ENHANCE_YOUR_CALM)
        elif stream is not None:
            stream.leave()
            self._forget_if_ended(stream)

    def _wake(self, number: int | None) -> None:
        """A window was opened, of one stream or of all."""
        waiting = [self._streams.get(number)] if number else list(self._streams.values())
        for stream in waiting:
            if stream is not None:
                stream.sendable.set()

    # What takes too long

    def _look(self) -> None:
        """One timer for the whole connection, as for HTTP/1.1."""
        now, seconds = self.loop.time(), self._arrival.seconds
        next_look = now + seconds
        if self._transport.is_closing() or not self._writable.is_set():
            unsent = self._transport.get_write_buffer_size()
            if unsent == self._unsent_bytes:  # since we last looked the client has taken nothing
                self._transport.abort()
                return
            self._unsent_bytes = unsent
        elif not self._streams:
            end = self._idle_since + (self._keep_alive_seconds if self._served else seconds)
            if now >= end:
                self._say_goodbye()
                self._transport.close()
            else:
                next_look = min(next_look, end)
        for stream in list(self._streams.values()):
            next_look = min(next_look, self._look_at(stream, now))
        self._watch = self.loop.call_at(next_look, self._look)

    def _look_at(self, stream: _Stream, now: float) -> float:
        """When to look at it again."""
        seconds = self._arrival.seconds
        if stream.waiting_since is not None and not stream.gone:
            if now < stream.waiting_since + seconds:
                return stream.waiting_since + seconds
            self._reset(stream, ErrorCodes.CANCEL)
        elif not stream.whole and not stream.gone:
            if now < stream.arriving_since + seconds:
                return stream.arriving_since + seconds
            if stream.complete:
                self._reset(stream, ErrorCodes.NO_ERROR)
            elif stream.body:
                stream.arriving_since = now  # it waits for us, not we for it
            else:
                stream.refuse(self._arrival.too_slow())
        self._forget_if_ended(stream)
        return now + seconds


def answered(error: CatalogError) -> Application:
    """An application that answers every request with one error."""
    answer = error_response(error)

    async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        length = (b"content-length", b"%d" % len(answer.body))
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, length]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

    return application


def _settings(streams: int, head_bytes: int) -> Settings:
    return Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: streams,
            SettingCodes.MAX_HEADER_LIST_SIZE: head_bytes,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        },
    )
