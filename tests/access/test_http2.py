"""HTTP/2 with real sockets and TLS, before an application that the test holds: windows, limits, attacks, the end."""

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import httpx
import pytest
import trustme
import uvicorn
import uvloop

from nunatak.api.connection import MAX_HEAD_BYTES, Arrival
from nunatak.api.http2 import (
    CONNECTION_WINDOW,
    MAX_IDLE_FRAMES,
    MAX_RESETS,
    MAX_STREAMS,
    STREAM_WINDOW,
)
from nunatak.api.protocol import protocol_with
from nunatak.settings import load
from nunatak.transport import tls_context

PATIENCE_SECONDS = 60
BODY_LIMIT = 4 * 1024 * 1024
RECEIVE_SECONDS = 1.5


@dataclass
class Application:
    """Answers what it saw; `/held` waits until it is released, `/deaf` answers without reading the body."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.begun.append(path)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            body = b"" if path == "/deaf" else await self._body(path, receive)
            if body is None:
                await answer(send, 400, b"cut off")
                return
            if path.startswith("/held"):
                await self.release.wait()
            if path == "/bug":
                raise ValueError("a bug")
            if path.startswith("/large"):
                await answer(send, 200, b"x" * int(scope["query_string"]))
            else:
                await answer(send, 200, json.dumps(seen(scope, body)).encode())
            self.finished.append(path)
        finally:
            self.running -= 1

    async def _body(self, path: str, receive: Any) -> bytes | None:
        parts = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.cut_off.append(path)
                return None
            parts.append(message["body"])
            if not message["more_body"]:
                return b"".join(parts)


async def answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def seen(scope: Any, body: bytes) -> dict[str, Any]:
    return {
        "method": scope["method"],
        "version": scope["http_version"],
        "scheme": scope["scheme"],
        "raw_path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "headers": [[name.decode(), value.decode()] for name, value in scope["headers"]],
        "client": scope["client"][0],
        "certificate": scope.get("extensions", {}).get("nunatak", {}).get("certificate"),
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }


@dataclass
class Certificates:
    authority: trustme.CA
    folder: Path

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    @property
    def trusted(self) -> Path:
        return self.folder / "ca.pem"

    def client(self, *alpn: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trusted))
        context.set_alpn_protocols(list(alpn))
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(trustme.CA(), tmp_path_factory.mktemp("certificates"))
    made.authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(made.server)
    made.authority.cert_pem.write_to_path(made.trusted)
    return made


class Served:
    """The application behind our protocols and TLS, in a thread of this process."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()))
        self._ready = threading.Event()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.application = Application()
        config = uvicorn.Config(
            self.application,
            http=protocol_with(None, Arrival(RECEIVE_SECONDS, BODY_LIMIT)),
            log_config=None,
            lifespan="off",
            proxy_headers=False,
            timeout_graceful_shutdown=30,
            timeout_keep_alive=75,
        )
        config.load()
        paths = {"tls_certificate": str(self.certificates.server), "tls_client_ca": str(self.certificates.trusted)}
        config.ssl = tls_context(load(paths, {"NUNATAK_CONFIG": os.devnull}))
        self.server = uvicorn.Server(config)
        self._ready.set()
        await self.server.serve(sockets=[self._listener])

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.application.release.set)

    def stop(self) -> None:
        self.server.should_exit = True

    def join(self) -> None:
        self.stop()
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self.release()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    @property
    def uri(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def raw(self, **settings: int) -> "RawClient":
        return RawClient(self, settings)


@pytest.fixture
def served(certificates: Certificates) -> Iterator[Served]:
    server = Served(certificates)
    server.start()
    yield server
    server.join()


class RawClient:
    """Frames as no decent client would send them."""

    def __init__(self, served: Served, settings: dict[str, int]) -> None:
        plain = socket.create_connection(("127.0.0.1", served.port), PATIENCE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = served.certificates.client("h2").wrap_socket(plain, server_hostname="127.0.0.1")
        assert self.sock.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False)
        )
        codes = {getattr(h2.settings.SettingCodes, name.upper()): value for name, value in settings.items()}
        self.h2.update_settings({})
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=codes)
        self.h2.clear_outbound_data_buffer()
        self.h2.state_machine.state = h2.connection.ConnectionState.IDLE
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.closed = False
        self.flush()

    def flush(self) -> None:
        self.sock.sendall(self.h2.data_to_send())

    def request(self, method: str, path: str, *more: tuple[str, str], end: bool = True) -> int:
        stream: int = self.h2.get_next_available_stream_id()
        headers = [(":method", method), (":scheme", "https"), (":authority", "127.0.0.1"), (":path", path), *more]
        self.h2.send_headers(stream, headers, end_stream=end)
        return stream

    def send_all(self, stream: int, data: bytes) -> None:
        """As fast as the server opens its windows."""
        while data:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if size:
                self.h2.send_data(stream, data[:size])
                self.flush()
                data = data[size:]
            else:
                assert self.read()
        self.h2.end_stream(stream)
        self.flush()

    def read(self) -> bool:
        """Take what came; False once the server has closed."""
        try:
            data = self.sock.recv(65536)
        except (ConnectionResetError, ssl.SSLError):
            data = b""
        if not data:
            self.closed = True
            return False
        events = self.h2.receive_data(data)
        self.events += events
        taken = sum(event.flow_controlled_length for event in events if isinstance(event, h2.events.DataReceived))
        if taken and not self.of(h2.events.ConnectionTerminated):
            self.h2.increment_flow_control_window(taken)  # of the connection; a stream's window is for the test to open
        with contextlib.suppress(OSError):
            self.flush()
        return True

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.events
            if not self.read():
                assert condition(), f"closed after {self.events}"

    def of(self, kind: type, stream: int | None = None) -> list[Any]:
        return [
            event
            for event in self.events
            if isinstance(event, kind) and (stream is None or getattr(event, "stream_id", None) == stream)
        ]

    def status(self, stream: int) -> int | None:
        for event in self.of(h2.events.ResponseReceived, stream):
            return int(dict(event.headers)[":status"])
        return None

    def answer(self, stream: int) -> tuple[int | None, bytes]:
        self.until(lambda: bool(self.of(h2.events.StreamEnded, stream) or self.of(h2.events.StreamReset, stream)))
        return self.status(stream), b"".join(event.data for event in self.of(h2.events.DataReceived, stream))

    def until_closed(self) -> None:
        self.until(lambda: self.closed)

    def goodbye(self) -> h2.errors.ErrorCodes | None:
        """Why the server left."""
        self.until_closed()
        for event in self.of(h2.events.ConnectionTerminated):
            return h2.errors.ErrorCodes(event.error_code)
        return None

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def http2(served: Served, **more: Any) -> httpx.Client:
    return httpx.Client(
        http1=False, http2=True, verify=served.certificates.client(), base_url=served.uri, timeout=60, **more
    )


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Fields after the head


def test_a_trailer_is_no_header_in_http2(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/x", ("x-forwarded-user", "ann"), end=False)
        client.h2.send_data(stream, b"body")
        client.h2.send_headers(stream, [("x-forwarded-user", "admin"), ("x-late", "1")], end_stream=True)
        client.flush()
        status, body = client.answer(stream)

    told = json.loads(body)
    assert (status, told["size"]) == (200, 4)
    assert [value for name, value in told["headers"] if name == "x-forwarded-user"] == ["ann"]
    assert "x-late" not in dict(told["headers"])


# What an ordinary client sees


def test_a_request_arrives_as_it_was_sent(served: Served) -> None:
    body = b"abc" * 1000
    with http2(served) as client:
        answer = client.post("/v1/a%2Fb%20c?x=1&y=%20", content=body, headers={"X-Own": "yes"})

    assert answer.http_version == "HTTP/2"
    told = answer.json()
    assert (told["method"], told["version"], told["scheme"], told["client"]) == ("POST", "2", "https", "127.0.0.1")
    assert (told["raw_path"], told["query"]) == ("/v1/a%2Fb%20c", "x=1&y=%20")
    assert told["sha256"] == hashlib.sha256(body).hexdigest()
    headers = dict(told["headers"])
    assert headers["host"] == f"127.0.0.1:{served.port}"
    assert headers["x-own"] == "yes"
    assert not any(name.startswith(":") for name in headers)


@pytest.mark.parametrize("size", [0, 1, STREAM_WINDOW, STREAM_WINDOW + 1, BODY_LIMIT])
def test_bodies_of_every_size_come_through_both_ways(served: Served, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with http2(served) as client:
        told = client.post("/echo", content=content).json()
        large = client.get(f"/large?{size}")

    assert (told["size"], told["sha256"]) == (size, hashlib.sha256(content).hexdigest())
    assert large.content == b"x" * size


def test_two_hundred_requests_share_one_connection(served: Served) -> None:
    """All of them are there before the first is answered."""
    content = {number: bytes([number]) * (100 * number) for number in range(200)}
    with served.raw() as client:
        streams = {number: client.request("POST", f"/held/{number}", end=False) for number in content}
        for number, stream in streams.items():
            client.send_all(stream, content[number])
        eventually(lambda: served.application.running == 200)
        served.release()
        answers = {number: client.answer(stream) for number, stream in streams.items()}

    assert {status for status, _ in answers.values()} == {200}
    told = {number: json.loads(body) for number, (_, body) in answers.items()}
    assert {number: each["raw_path"] for number, each in told.items()} == {n: f"/held/{n}" for n in content}
    assert {number: each["sha256"] for number, each in told.items()} == {
        number: hashlib.sha256(each).hexdigest() for number, each in content.items()
    }


def test_an_answer_to_head_has_no_body(served: Served) -> None:
    with http2(served) as client:
        answer = client.head("/echo")

    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) > 0


def test_a_bug_is_answered_and_the_connection_goes_on(served: Served) -> None:
    with http2(served) as client:
        broken = client.get("/bug")
        after = client.get("/echo")

    assert broken.status_code == 500
    assert broken.json()["error"]["type"] == "InternalServerError"
    assert after.status_code == 200


def test_who_asks_first_is_told_to_go_on(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/echo", ("expect", "100-continue"), end=False)
        client.flush()
        client.until(lambda: bool(client.of(h2.events.InformationalResponseReceived, stream)))
        client.h2.send_data(stream, b"abc", end_stream=True)
        client.flush()
        status, body = client.answer(stream)

    assert status == 200
    assert json.loads(body)["size"] == 3


def test_trailers_are_ignored(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/echo", end=False)
        client.h2.send_data(stream, b"abc")
        client.h2.send_headers(stream, [("x-trailer", "yes")], end_stream=True)
        client.flush()
        status, body = client.answer(stream)

    assert status == 200
    assert "x-trailer" not in dict(json.loads(body)["headers"])


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("name", [None, "spark"], ids=["without", "with"])
def test_the_name_in_the_clients_certificate_reaches_the_application(
    served: Served, certificates: Certificates, tmp_path: Path, name: str | None, version: str
) -> None:
    context = certificates.client()
    if name is not None:
        issued = certificates.authority.issue_cert("spark.example", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
        context.load_cert_chain(tmp_path / "client.pem")
    with httpx.Client(
        base_url=served.uri, verify=context, http1=version == "HTTP/1.1", http2=version == "HTTP/2"
    ) as client:
        answers = [client.get("/echo") for _ in range(2)]

    assert {answer.http_version for answer in answers} == {version}
    assert [answer.json()["certificate"] for answer in answers] == [name, name]


# What is refused


def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_comes(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/echo", ("content-length", str(BODY_LIMIT + 1)), end=False)
        client.flush()
        status, body = client.answer(stream)

    assert status == 413
    assert json.loads(body)["error"]["type"] == "PayloadTooLargeException"
    assert served.application.begun == []


def test_a_body_that_grows_too_large_is_refused_and_the_connection_goes_on(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/echo", end=False)
        client.flush()
        sent = 0
        while sent <= 4 * BODY_LIMIT and client.status(stream) is None:
            window = min(client.h2.local_flow_control_window(stream), 16384)
            if window == 0:
                client.read()
                continue
            client.h2.send_data(stream, b"x" * window)
            client.flush()
            sent += window
        status, body = client.answer(stream)
        other = client.request("GET", "/echo")
        client.flush()
        after, _ = client.answer(other)

    assert status == 413
    assert json.loads(body)["error"]["type"] == "PayloadTooLargeException"
    assert sent <= BODY_LIMIT + CONNECTION_WINDOW
    assert served.application.cut_off == ["/echo"]
    assert served.application.finished == ["/echo"]
    assert after == 200


def test_a_body_that_does_not_come_in_time_is_refused(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/echo", end=False)
        client.h2.send_data(stream, b"x")
        client.flush()
        status, body = client.answer(stream)
        other = client.request("GET", "/echo")
        client.flush()
        after, _ = client.answer(other)

    assert status == 408
    assert json.loads(body)["error"]["type"] == "RequestTimeoutException"
    assert served.application.finished == ["/echo"]
    assert after == 200


def test_a_head_that_is_too_large_is_refused_and_the_connection_goes_on(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("GET", "/echo", ("x-large", "a" * (MAX_HEAD_BYTES + 1)))
        client.flush()
        status, body = client.answer(stream)
        other = client.request("GET", "/echo", ("x-large", "a" * (MAX_HEAD_BYTES - 200)))
        client.flush()
        after, _ = client.answer(other)

    assert status == 431
    assert json.loads(body)["error"]["type"] == "RequestHeaderFieldsTooLargeException"
    assert after == 200


@pytest.mark.parametrize("path", ["*", "echo", ""])
def test_a_path_without_a_slash_reaches_no_route(served: Served, path: str) -> None:
    with served.raw() as client:
        stream = client.request("GET", path)
        client.flush()
        with contextlib.suppress(AssertionError):  # or h2 closes the connection
            assert client.answer(stream)[0] == 400

    assert served.application.begun == []


def test_more_streams_than_allowed_are_refused_and_may_be_sent_again(served: Served) -> None:
    with served.raw() as client:
        # As a client does that has not read the server's settings.
        client.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = MAX_STREAMS + 20
        client.h2.remote_settings.acknowledge()
        streams = [client.request("GET", "/held") for _ in range(MAX_STREAMS + 20)]
        client.flush()
        client.until(lambda: len(client.of(h2.events.StreamReset)) == 20)
        served.release()
        statuses = [client.answer(stream)[0] for stream in streams[:MAX_STREAMS]]
        again = client.request("GET", "/echo")
        client.flush()
        after, _ = client.answer(again)

    refused = client.of(h2.events.StreamReset)
    assert {event.error_code for event in refused} == {h2.errors.ErrorCodes.REFUSED_STREAM}
    assert {event.stream_id for event in refused} == set(streams[MAX_STREAMS:])
    assert statuses == [200] * MAX_STREAMS
    assert served.application.most_running == MAX_STREAMS
    assert after == 200


def test_a_body_that_nobody_reads_is_not_awaited(served: Served) -> None:
    with served.raw() as client:
        little = client.request("POST", "/deaf", end=False)
        client.flush()
        status, _ = client.answer(little)
        client.h2.send_data(little, b"x" * 1000, end_stream=True)
        much = client.request("POST", "/deaf", end=False)
        client.flush()
        client.answer(much)
        while not client.of(h2.events.StreamReset, much):
            window = min(client.h2.local_flow_control_window(much), 16384)
            if window:
                client.h2.send_data(much, b"x" * window)
                client.flush()
            else:
                client.read()
        other = client.request("POST", "/echo", end=False)
        client.h2.send_data(other, b"x" * 10_000, end_stream=True)
        client.flush()
        after, _ = client.answer(other)

    assert status == 200
    assert not client.of(h2.events.StreamReset, little)
    assert [event.error_code for event in client.of(h2.events.StreamReset, much)] == [h2.errors.ErrorCodes.NO_ERROR]
    assert after == 200


# Clients that mean harm, or went away


def test_a_cancelled_request_is_finished_and_holds_up_nobody(served: Served) -> None:
    """It may be amid a commit: nothing is torn."""
    with served.raw() as client:
        cancelled = [client.request("POST", f"/held/{number}") for number in range(50)]
        client.flush()
        eventually(lambda: served.application.running == 50)
        for stream in cancelled:
            client.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        client.flush()
        other = client.request("GET", "/echo")
        client.flush()
        assert client.answer(other)[0] == 200
        served.release()
        eventually(lambda: len(served.application.finished) == 51)

    assert not client.of(h2.events.ConnectionTerminated)


def test_a_request_that_is_cancelled_amid_its_body_is_cut_off(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("POST", "/echo", end=False)
        client.h2.send_data(stream, b"x" * 1000)
        client.flush()
        eventually(lambda: served.application.running == 1)
        client.h2.reset_stream(stream)
        client.flush()
        eventually(lambda: served.application.cut_off == ["/echo"])

    assert served.application.finished == []


def test_a_client_that_is_gone_cuts_off_bodies_and_lets_the_others_finish(served: Served) -> None:
    with served.raw() as client:
        client.request("GET", "/held")
        client.request("POST", "/echo", end=False)
        client.flush()
        eventually(lambda: served.application.running == 2)

    eventually(lambda: served.application.cut_off == ["/echo"])
    served.release()
    eventually(lambda: served.application.finished == ["/held"])


def test_who_opens_and_resets_streams_without_end_is_thrown_out(served: Served) -> None:
    """CVE-2023-44487. What was begun in the meantime is bounded, however fast they come."""
    with served.raw() as client:
        with contextlib.suppress(OSError):
            for _ in range(50):
                for _ in range(100):
                    stream = client.request("GET", "/held")
                    client.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
                client.flush()
        assert client.goodbye() in (h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, None)

    assert len(served.application.begun) <= MAX_RESETS + 1
    assert served.application.most_running <= MAX_STREAMS


def test_a_client_that_cancels_now_and_then_is_kept(served: Served) -> None:
    with served.raw() as client:
        for _ in range(3 * MAX_RESETS):
            client.h2.reset_stream(client.request("GET", "/echo"), h2.errors.ErrorCodes.CANCEL)
            kept = client.request("GET", "/echo")
            client.flush()
            assert client.answer(kept)[0] == 200

    assert not client.of(h2.events.ConnectionTerminated)


FLOODS: dict[str, Callable[[RawClient], None]] = {
    "pings": lambda client: client.h2.ping(b"12345678"),
    "settings": lambda client: client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65535}),
    "priorities": lambda client: client.h2.prioritize(1, weight=10),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_of_frames_that_ask_nothing_is_ended(served: Served, flood: Callable[[RawClient], None]) -> None:
    with served.raw() as client:
        with contextlib.suppress(OSError):
            for _ in range(MAX_IDLE_FRAMES + 100):
                flood(client)
            client.flush()
        assert client.goodbye() in (h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, None)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


@pytest.mark.parametrize(
    "pieces",
    [
        [frame(1, 0, 1, b"\x82\x87\x84"), *[frame(9, 0, 1, b"\x00" * 16000)] * 50],
        [struct.pack(">I", 16 * 1024 * 1024 - 1)[1:] + b"\x00\x00\x00\x00\x00\x01", *[b"x" * 16000] * 1000],
    ],
    ids=["headers that go on and on", "a frame of 16 MiB"],
)
def test_what_never_becomes_a_request_is_not_kept(served: Served, pieces: list[bytes]) -> None:
    with served.raw() as client:
        sent = 0
        with contextlib.suppress(OSError):
            for piece in pieces:
                client.sock.sendall(piece)
                sent += len(piece)
        client.until_closed()

    assert served.application.begun == []


def test_what_is_not_http2_is_closed(served: Served) -> None:
    with served.raw() as client:
        client.sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
        client.until_closed()

    assert served.application.begun == []


def test_who_never_asks_is_let_go(served: Served) -> None:
    with served.raw() as client:
        assert client.goodbye() == h2.errors.ErrorCodes.NO_ERROR


def test_an_answer_that_nobody_takes_is_given_up(served: Served) -> None:
    """The client opens no window; others of the same connection are served."""
    with served.raw(initial_window_size=0) as client:
        stuck = client.request("GET", f"/large?{10**6}")
        client.flush()
        client.until(lambda: bool(client.of(h2.events.StreamReset, stuck)))

    assert client.status(stuck) == 200
    assert client.of(h2.events.StreamReset, stuck)[0].error_code == h2.errors.ErrorCodes.CANCEL


def test_an_answer_waits_for_the_window_to_open(served: Served) -> None:
    with served.raw(initial_window_size=10) as client:
        stream = client.request("GET", "/large?100")
        client.flush()
        client.until(lambda: bool(client.of(h2.events.DataReceived, stream)))
        assert sum(len(event.data) for event in client.of(h2.events.DataReceived, stream)) == 10
        client.h2.increment_flow_control_window(1000, stream)
        client.flush()
        status, body = client.answer(stream)

    assert (status, body) == (200, b"x" * 100)


# The end


def test_at_the_end_what_was_begun_is_finished_and_nothing_new_is_begun(served: Served) -> None:
    with served.raw() as client:
        begun = [client.request("POST", f"/held/{number}") for number in range(20)]
        client.flush()
        eventually(lambda: served.application.running == 20)
        served.stop()
        client.until(lambda: bool(client.of(h2.events.ConnectionTerminated)))
        (goodbye,) = client.of(h2.events.ConnectionTerminated)
        client.h2.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        served.release()
        statuses = [client.answer(stream)[0] for stream in begun]
        client.until_closed()

    assert (goodbye.error_code, goodbye.last_stream_id) == (h2.errors.ErrorCodes.NO_ERROR, begun[-1])
    assert statuses == [200] * 20
    assert len(served.application.finished) == 20


def test_an_idle_connection_does_not_hold_up_the_end(served: Served) -> None:
    with http2(served) as client:
        assert client.get("/echo").status_code == 200
        served.join()


def test_a_client_that_says_goodbye_still_gets_its_answers(served: Served) -> None:
    with served.raw() as client:
        stream = client.request("GET", "/held")
        client.flush()
        eventually(lambda: served.application.running == 1)
        client.h2.close_connection()
        client.h2.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        client.h2.increment_flow_control_window(1000)  # not everything ends with a goodbye
        client.flush()
        served.release()
        status, _ = client.answer(stream)
        client.until_closed()

    assert status == 200
